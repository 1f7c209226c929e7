package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/txn"
)

// InitProducerId, v0–v5.
//
// Without a transactional id every caller gets a producer id of its own, in epoch 0; a producer that names its id and epoch (v3,
// KIP-360) gets a new id too, as in Kafka. With one it is the coordinator's: the epoch goes up, which fences the producer
// before; a transaction that it left open is aborted first, and CONCURRENT_TRANSACTIONS tells to ask again. v4 and later know
// PRODUCER_FENCED, others are told INVALID_PRODUCER_EPOCH.

func (h *Handlers) initProducerID(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.InitProducerIDRequest)
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.Version = req.Version
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	named := r.Version >= 3
	if named && (req.ProducerID == txn.None) != (req.ProducerEpoch == txn.None) || req.TransactionalID != nil && *req.TransactionalID == "" {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp, nil
	}
	if req.TransactionalID == nil {
		id, err := h.Data.AllocateProducerID(ctx)
		if err != nil {
			resp.ErrorCode = kerr.CoordinatorNotAvailable.Code // clients try again
			h.Log.Warn("no producer id", "err", err)
			return resp, nil
		}
		resp.ProducerID, resp.ProducerEpoch = id, 0
		return resp, nil
	}
	in := txn.InitRequest{ID: *req.TransactionalID, Timeout: millis(req.TransactionTimeoutMillis), ProducerID: txn.None, Epoch: txn.None}
	if named && req.ProducerID != txn.None {
		in.ProducerID, in.Epoch = req.ProducerID, req.ProducerEpoch
	}
	id := h.Txns.Coordinator().Init(ctx, in)
	if id.Err != nil {
		resp.ErrorCode = fencedCode(id.Err, r.Version >= 4)
		return resp, nil
	}
	resp.ProducerID, resp.ProducerEpoch = id.ProducerID, id.Epoch
	return resp, nil
}
