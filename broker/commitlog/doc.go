// Package commitlog is one partition's log on the local disk, in Kafka's own format, and the data directory that holds
// many of them. It owns segments and their indexes, offsets, producer state, leader epochs, the group commit, recovery
// after a crash, retention of local files and the checkpoints of a data directory.
//
// It promises: an offset below FlushedOffset survives a power loss; an offset is never given twice once it was flushed;
// bytes below the recovery point are never cut, whatever they look like; a failed sync latches the log; the local start
// moves before files vanish; an idle log has no goroutine and no open file that cannot be closed for another.
//
// It never talks to the network or a bucket, never decompresses records except to find a timestamp, and keeps no object
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
//
// The data directory: meta.properties, recovery-point-offset-checkpoint, log-start-offset-checkpoint,
// replication-offset-checkpoint, .kafka_cleanshutdown, .lock.
package commitlog
