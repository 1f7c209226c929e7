package txn

import "errors"

// What a request may be refused for.
var (
	// ErrInvalidID marks an empty transactional id.
	ErrInvalidID = errors.New("the transactional id is empty")
	// ErrInvalidTimeout marks a transaction timeout that is not positive or over transaction.max.timeout.ms.
	ErrInvalidTimeout = errors.New("the transaction timeout is outside the broker's bounds")
	// ErrMapping marks a producer id that is not the transactional id's.
	ErrMapping = errors.New("the producer id is not that of the transactional id")
	// ErrFenced marks an epoch that is not the producer's current one: a newer producer, or a timeout, has fenced it.
	ErrFenced = errors.New("the producer is fenced")
	// ErrConcurrent tells that the transaction's end is under way; the client asks again.
	ErrConcurrent = errors.New("the transaction is being ended")
	// ErrInvalidState marks a request that does not go with the transaction's state.
	ErrInvalidState = errors.New("the transaction's state does not allow it")
	// ErrNotInTransaction marks records for a partition that is not in the ongoing transaction.
	ErrNotInTransaction = errors.New("the partition is not in the producer's ongoing transaction")
	// ErrNotFound marks a transactional id that is not known.
	ErrNotFound = errors.New("the transactional id does not exist")
)

// ErrCorrupt marks a record of __transaction_state that does not decode.
var ErrCorrupt = errors.New("corrupt record in the transaction log")
