package commitlog

import (
	"errors"
	"fmt"

	"github.com/varvehq/varve/internal/record"
)

// Errors of a log. Wrapped errors say what was wrong; test with errors.Is.
var (
	// ErrCorrupt: bytes are not what a correct writer wrote. On Append the batch is refused; elsewhere the error is a
	// *CorruptError that names the file, position and offset.
	ErrCorrupt = record.ErrCorrupt
	// ErrInvalidRecord: a batch is intact but not acceptable (offset deltas, record count, attributes).
	ErrInvalidRecord = errors.New("invalid record")
	// ErrInvalidTimestamp: a batch's timestamp is too far from the clock for the log's configuration.
	ErrInvalidTimestamp = errors.New("invalid timestamp")
	// ErrTooLarge: a batch is larger than max.message.bytes or than a segment.
	ErrTooLarge = errors.New("record batch is too large")
	// ErrOutOfOrderSequence: an idempotent producer's batch does not follow its last one.
	ErrOutOfOrderSequence = errors.New("out of order sequence number")
	// ErrInvalidProducerEpoch: a newer epoch of the producer has written.
	ErrInvalidProducerEpoch = errors.New("invalid producer epoch")
	// ErrInvalidTxnState: a batch outside a transaction comes from a producer that has one open.
	ErrInvalidTxnState = errors.New("invalid transaction state")
	// ErrCoordinatorFenced: a transaction marker comes from an older transaction coordinator.
	ErrCoordinatorFenced = errors.New("transaction coordinator is fenced")
	// ErrOffsetOutOfRange: the offset is not in the local log: below LocalStartOffset or above EndOffset.
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrStaleEpoch: an append or epoch is older than the log's latest leader epoch.
	ErrStaleEpoch = errors.New("stale leader epoch")
	// ErrFailed: the log is latched after an I/O error that leaves the disk's content unknown; it takes no more writes
	// until it is opened again.
	ErrFailed = errors.New("log has failed")
	// ErrClosed: the log or directory is closed.
	ErrClosed = errors.New("log is closed")
	// ErrNotFound: the directory or log has no such thing.
	ErrNotFound = errors.New("not found")
	// ErrTopicID: a partition folder belongs to another topic id.
	ErrTopicID = errors.New("partition folder belongs to another topic id")
	// ErrMeta: meta.properties belongs to another cluster or node.
	ErrMeta = errors.New("data directory belongs to another cluster or node")
)

// CorruptError names damaged bytes. It satisfies errors.Is(err, ErrCorrupt).
type CorruptError struct {
	File     string
	Position int64
	// Offset is the first offset that cannot be read.
	Offset int64
	Reason error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: corrupt at position %d, offset %d: %v", e.File, e.Position, e.Offset, e.Reason)
}

// Unwrap gives the reason and the class.
func (e *CorruptError) Unwrap() []error { return []error{ErrCorrupt, e.Reason} }
