package coordinator

import "errors"

// What keeps a coordinator from serving; the client asks again or elsewhere.
var (
	// ErrNotCoordinator tells that another node is the coordinator.
	ErrNotCoordinator = errors.New("another node is the coordinator")
	// ErrLoading tells that the partition is being read from the log.
	ErrLoading = errors.New("the coordinator is loading")
	// ErrUnavailable tells that the coordinator cannot serve now.
	ErrUnavailable = errors.New("the coordinator is not available")
)

// What a Log reports.
var (
	// ErrNotWritten marks an append that certainly left nothing in the log.
	ErrNotWritten = errors.New("nothing was written")
	// ErrRecordTooLarge marks a batch that the log refuses for its size. It goes with ErrNotWritten.
	ErrRecordTooLarge = errors.New("the record is too large for the coordinator's topic")
	// ErrProducerFenced marks a batch of a transaction whose producer has been fenced meanwhile. It goes with ErrNotWritten.
	ErrProducerFenced = errors.New("the producer of the transaction is fenced")
)
