// Package commitlog is one partition's log on the local disk, in Kafka's own format, and the data directory that holds
// many of them. It owns segments and their indexes, offsets, producer state, leader epochs, the group commit, recovery
// after a crash, retention of local files, compaction and the checkpoints of a data directory.
//
// It promises: an offset below FlushedOffset survives a power loss; an offset is never given twice once it was flushed;
// bytes below the recovery point are never cut, whatever they look like; a failed sync latches the log; the local start
// moves before files vanish; compaction loses no key's last value and brings no older one back, wherever it is broken off; an
// idle log has no goroutine and no open file that cannot be closed for another.
//
// It never talks to the network or a bucket, never decompresses records except to find a timestamp and to compact, always
// under a limit, compacts and deletes only when it is told to, and keeps no object
// per record. What is replicated, the high watermark, and what is tiered are its callers' business.
//
// The folder of a partition, <topic>-<partition>:
//
//	00000000000000000000.log        batches, verbatim as internal/record describes them
//	00000000000000000000.index      offset index, 8 bytes per entry
//	00000000000000000000.timeindex  time index, 12 bytes per entry
//	00000000000000000000.txnindex   aborted transactions, 34 bytes per entry; only where there are any
//	00000000000000000000.snapshot   producer state at that offset
//	leader-epoch-checkpoint         leader epochs and their first offsets
//	partition.metadata              the topic's id
//	*.deleted                       renamed, about to be removed
//	*.cleaned                       a compacted segment that is being written
//	*.swap                          a compacted segment that takes the place of others; see swap.go
//
// The data directory: meta.properties, recovery-point-offset-checkpoint, log-start-offset-checkpoint,
// replication-offset-checkpoint, cleaner-offset-checkpoint, .kafka_cleanshutdown, boot-id, .lock.
package commitlog
