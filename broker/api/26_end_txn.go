package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/txn"
)

// EndTxn, v0–v5.
//
// The answer comes once the decision is durable; the markers follow it, and survive a restart. From v5 on (KIP-890) the
// producer's epoch goes up with every transaction and the answer tells it, or a new producer id where the epochs are used up.
// v0 and v1 are told INVALID_PRODUCER_EPOCH where others are told PRODUCER_FENCED.

func (h *Handlers) endTxn(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.EndTxnRequest)
	resp := kmsg.NewPtrEndTxnResponse()
	resp.Version = req.Version
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	end := txn.EndRequest{ID: req.TransactionalID, ProducerID: req.ProducerID, Epoch: req.ProducerEpoch, Commit: req.Commit}
	if req.Version >= 5 {
		end.Version = 2
	}
	id := h.Txns.Coordinator().End(ctx, end)
	if id.Err != nil {
		resp.ErrorCode = fencedCode(id.Err, req.Version >= 2)
		return resp, nil
	}
	resp.ProducerID, resp.ProducerEpoch = id.ProducerID, id.Epoch
	return resp, nil
}
