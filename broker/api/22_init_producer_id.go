package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// InitProducerId, v0–v5.
//
// Without a transactional id every caller gets a producer id of its own, in epoch 0; a producer that names its id and epoch (v3,
// KIP-360) gets a new id too, as in Kafka. Transactions are not served yet: a transactional id is answered with
// TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which every client reports at once as fatal instead of trying again for ever.

func (h *Handlers) initProducerID(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.InitProducerIDRequest)
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if req.TransactionalID != nil {
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		if *req.TransactionalID == "" {
			resp.ErrorCode = kerr.InvalidRequest.Code
		}
		return resp, nil
	}
	if r.Version >= 3 && (req.ProducerID < 0) != (req.ProducerEpoch < 0) {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp, nil
	}
	id, err := h.Data.AllocateProducerID(ctx)
	if err != nil {
		resp.ErrorCode = kerr.CoordinatorNotAvailable.Code // clients try again
		h.Log.Warn("no producer id", "err", err)
		return resp, nil
	}
	resp.ProducerID, resp.ProducerEpoch = id, 0
	return resp, nil
}
