// Package partition joins a partition's local log (package commitlog) with its remote tier (package tiering) and its
// replication state. It is the only place that knows both: one offset space, local first, then remote.
//
// It owns the high watermark, the lists of requests that wait for it, the leader epoch a partition is led in, and all
// background work: sealing, retention, upload, remote expiry, deletion, checkpoints and the scrub. A Manager follows the
// controller's images and runs that work with a few goroutines for all partitions; an idle partition has none.
//
// It promises: what Append acknowledges through WaitFlushed is on disk; nobody is given a record at or above the high
// watermark, and the high watermark never passes what is on disk; nothing is uploaded that is not below the flushed offset, the high watermark and
// the last stable offset; local bytes of a tiered partition go only after the manifest that names them is committed; the
// log start offset is exact, and moves before the bytes go.
//
// It knows no request, no error code and no socket.
package partition
