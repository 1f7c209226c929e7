// Package controller owns the cluster's metadata: topics, partitions, configs, brokers, producer id blocks, feature levels,
// the last known tiering manifest of each partition and the list of deleted topics whose objects are still in the bucket.
//
// Metadata is a row of records in a Raft log (go.etcd.io/raft/v3) of its own, kept through internal/vfs. Apply folds records
// into an Image; an Image is immutable and is published atomically, so readers take no lock. One goroutine steps Raft, writes
// the log and applies; proposals that arrive together share one entry and one fsync.
//
// It promises: a call that returned without error is on disk (and on a quorum) and applied, and all subscribers have seen it;
// images are published in the order of the log; what a crash leaves is a prefix of the log that holds every acknowledged
// call. A failed write or fsync is final: the controller latches, answers ErrFailed, and keeps the last image readable.
//
// It never reads a clock by itself, never opens a socket (messages to other voters go through Transport), knows no Kafka
// error code and touches neither partition data nor the bucket.
//
// The formats on disk are drawn in docs/formats/metadata.md.
package controller
