package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/controller"
)

// AlterClientQuotas, v0–v1 (KIP-546).
//
// Sets and removes quotas of users, client ids, pairs of both, and addresses; a null name is the default. All changes of an
// entity are made or none; each entity succeeds or fails by itself, where Kafka answers in no order. Quotas hold at once, for
// connections that are open too. An entity that stands twice in a request is altered twice, where Kafka alters it once and
// answers an error.

func (h *Handlers) alterClientQuotas(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.AlterClientQuotasRequest)
	resp := kmsg.NewPtrAlterClientQuotasResponse()
	resp.Version = req.Version
	asks := make([]controller.QuotaAlteration, len(req.Entries))
	for i := range req.Entries {
		for _, e := range req.Entries[i].Entity {
			asks[i].Entity = append(asks[i].Entity, controller.QuotaPart{Type: e.Type, Name: e.Name})
		}
		for _, op := range req.Entries[i].Ops {
			asks[i].Ops = append(asks[i].Ops, controller.QuotaOp{Key: op.Key, Value: op.Value, Remove: op.Remove})
		}
	}
	errs, err := h.Admin.AlterQuotas(ctx, asks, req.ValidateOnly)
	for i := range req.Entries {
		entry := kmsg.NewAlterClientQuotasResponseEntry()
		if err == nil {
			setError(&entry.ErrorCode, &entry.ErrorMessage, errs[i])
		} else {
			setError(&entry.ErrorCode, &entry.ErrorMessage, err)
		}
		for _, e := range req.Entries[i].Entity {
			entry.Entity = append(entry.Entity, kmsg.AlterClientQuotasResponseEntryEntity{Type: e.Type, Name: e.Name})
		}
		resp.Entries = append(resp.Entries, entry)
	}
	return resp, nil
}
