package tiering

import "errors"

// Errors of this package, always wrapped with the object, partition and offset they concern; test with errors.Is.
var (
	// ErrOffsetOutOfRange: the offset is below the remote log start or at or past the remote end.
	ErrOffsetOutOfRange = errors.New("tiering: offset out of range")
	// ErrFenced: a writer of higher rank has written a manifest. This writer must stop: it is no longer the leader.
	ErrFenced = errors.New("tiering: fenced by a newer writer")
	// ErrGap: offsets are missing between two segments, or between the remote end and the segment to copy.
	ErrGap = errors.New("tiering: gap in offsets")
	// ErrCorrupt: bytes in the bucket, or of a local segment to copy, are not what was written.
	ErrCorrupt = errors.New("tiering: corrupt data")
	// ErrUnsupported: an object has a format or flags that this version cannot read.
	ErrUnsupported = errors.New("tiering: format not supported by this version")
	// ErrForeignCluster: the bucket belongs to another cluster.
	ErrForeignCluster = errors.New("tiering: the bucket belongs to another cluster")
	// ErrOtherBucket: the cluster has segments in a bucket, and this one has nothing of Varve's.
	ErrOtherBucket = errors.New("tiering: the bucket is not the one with this cluster's segments")
	// ErrNotWriter: a write on a partition that was not opened as writer.
	ErrNotWriter = errors.New("tiering: partition is not open for writing")
	// ErrClosed: the store is closed.
	ErrClosed = errors.New("tiering: store is closed")
	// ErrUploadTooOld: an upload took so long that garbage collection may have removed the object; copy again.
	ErrUploadTooOld = errors.New("tiering: upload took longer than garbage collection waits")
)
