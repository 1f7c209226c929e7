package api

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/broker/txn"
	"github.com/varvehq/varve/internal/kafka"
)

// TxnEnv is what the handlers of transactions need.
type TxnEnv interface {
	CoordinatorEnv
	// Coordinator is the transaction coordinator of this node.
	Coordinator() *txn.Manager
	// WriteMarker writes the end of a producer's transaction to one partition and returns when it is durable.
	WriteMarker(ctx context.Context, tp kafka.TopicPartition, m txn.Markers) error
}

// Errors of transactional requests that the coordinator has not seen.
var (
	errNotAttempted = errors.New("another partition of the request was refused")
)

// txnErrors maps the errors of the transaction coordinator.
var txnErrors = []errorCode{
	{txn.ErrInvalidID, kerr.InvalidRequest},
	{txn.ErrInvalidTimeout, kerr.InvalidTransactionTimeout},
	{txn.ErrMapping, kerr.InvalidProducerIDMapping},
	{txn.ErrFenced, kerr.ProducerFenced},
	{txn.ErrConcurrent, kerr.ConcurrentTransactions},
	{txn.ErrInvalidState, kerr.InvalidTxnState},
	{txn.ErrNotInTransaction, kerr.TransactionAbortable},
	{txn.ErrNotFound, kerr.TransactionalIDNotFound},
	{errNotAttempted, kerr.OperationNotAttempted},
}

// txnCode is codeOf with the coordinator's errors first.
func txnCode(err error) int16 { return codeOf(err, txnErrors, coordinatorErrors) }

// fencedCode is txnCode for a version that may not know PRODUCER_FENCED yet.
func fencedCode(err error, known bool) int16 {
	code := txnCode(err)
	if code == kerr.ProducerFenced.Code && !known {
		return kerr.InvalidProducerEpoch.Code
	}
	return code
}

// produceTxnCode is the code of a transactional batch that the coordinator did not let through. From Produce v11 on clients know
// TRANSACTION_ABORTABLE.
func produceTxnCode(err error, version int16) error {
	switch {
	case errors.Is(err, txn.ErrFenced):
		return kerr.InvalidProducerEpoch
	case errors.Is(err, txn.ErrNotInTransaction) && version < 11:
		return kerr.InvalidTxnState
	case errors.Is(err, coordinator.ErrNotCoordinator), errors.Is(err, coordinator.ErrLoading), errors.Is(err, coordinator.ErrUnavailable),
		errors.Is(err, txn.ErrConcurrent) && version < 12:
		return kerr.NotEnoughReplicas // tells every client to try again
	}
	return kerr.ErrorForCode(txnCode(err))
}

// txnAPIs lists the keys of transactions.
func (h *Handlers) txnAPIs() []Entry {
	return []Entry{
		{Key: 24, Name: "AddPartitionsToTxn", Min: 0, Max: 5, Handle: h.addPartitionsToTxn},
		{Key: 25, Name: "AddOffsetsToTxn", Min: 0, Max: 4, Handle: h.addOffsetsToTxn},
		{Key: 26, Name: "EndTxn", Min: 0, Max: 5, Handle: h.endTxn},
		{Key: 27, Name: "WriteTxnMarkers", Min: 1, Max: 2, Handle: h.writeTxnMarkers},
		{Key: 28, Name: "TxnOffsetCommit", Min: 0, Max: 6, FrameLimit: groupFrameLimit, Handle: h.txnOffsetCommit},
		{Key: 61, Name: "DescribeProducers", Min: 0, Max: 0, Handle: h.describeProducers},
		{Key: 65, Name: "DescribeTransactions", Min: 0, Max: 0, Handle: h.describeTransactions},
		{Key: 66, Name: "ListTransactions", Min: 0, Max: 2, Handle: h.listTransactions},
	}
}
