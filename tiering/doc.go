// Package tiering moves sealed segments of partitions into a bucket and reads them back in the same offset space. It
// owns what is in the bucket (package manifest has the formats), the writer's fencing, remote retention and the chunk
// cache. It promises that a manifest only ever names objects that are complete and were checked batch by batch, that
// EndOffset moves only after the manifest that covers it is committed, and that a read answers checked bytes or a named
// error. It knows segment files and never brokers, topics' configuration or the network protocol; it never lists the
// bucket on a read path.
//
// # Life of a segment
//
// Copy puts the object under a name used once, then commits manifest n+1. Expire tells a new log start, AdvanceStart
// moves what lies below it from the list of segments into the condemned list, Clean deletes condemned objects after a
// grace for readers and then forgets them. What a crash leaves between put and commit is an orphan, which Collect
// removes.
//
// # Writers
//
// One partition has one writer at a time: the leader. Writers are ranked by (incarnation, leader epoch). Manifests are
// put only if absent, so of two writers one loses the race for a number and finds out by reading it back.
package tiering
