package partition

import "errors"

// Errors of this package; test with errors.Is. Those of commitlog and tiering come through, wrapped.
var (
	// ErrUnknown: this broker has no such partition.
	ErrUnknown = errors.New("unknown topic or partition")
	// ErrUnknownID: no topic of that id.
	ErrUnknownID = errors.New("unknown topic id")
	// ErrNotLeader: another broker leads the partition, or none does.
	ErrNotLeader = errors.New("not the partition's leader")
	// ErrFencedEpoch: the request names an older leader epoch than the partition is led in.
	ErrFencedEpoch = errors.New("fenced leader epoch")
	// ErrUnknownEpoch: the request names a newer leader epoch than this broker has heard of.
	ErrUnknownEpoch = errors.New("unknown leader epoch")
	// ErrOffsetOutOfRange: the offset is below the log start or past the end.
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrNotEnoughReplicas: fewer replicas are in sync than the topic asks for.
	ErrNotEnoughReplicas = errors.New("not enough replicas in sync")
	// ErrClosed: the partition was closed: the broker stops, or the topic was deleted.
	ErrClosed = errors.New("partition closed")
	// ErrStorage: the partition's disk failed, or its log is damaged; it serves nothing any more.
	ErrStorage = errors.New("storage error")
	// ErrRemoteUnavailable: the offset is in the remote tier, which this broker has not or cannot reach.
	ErrRemoteUnavailable = errors.New("remote tier unavailable")
)
