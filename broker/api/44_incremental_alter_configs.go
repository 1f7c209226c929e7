package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/varvehq/varve/broker/config"
)

// IncrementalAlterConfigs, v0–v1 (KIP-339).
//
// Sets, deletes, appends to and subtracts from the configs of topics, brokers and groups. All changes of a resource are made or none;
// each resource succeeds or fails by itself. Append and subtract are for lists; deleting what is not set changes nothing. A
// config that stands twice in a resource, or a null value other than with DELETE, is INVALID_REQUEST. A broker is any that is
// registered; the empty name is the cluster-wide defaults.

func (h *Handlers) incrementalAlterConfigs(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.IncrementalAlterConfigsRequest)
	resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
	resp.Version = req.Version
	asks := make([]alteration, 0, len(req.Resources))
	for i := range req.Resources {
		res := &req.Resources[i]
		a := newAlteration(res.ResourceType, res.ResourceName)
		for _, c := range res.Configs {
			a.add(config.Change(c.Op), c.Name, c.Value)
		}
		asks = append(asks, a)
	}
	for i, err := range h.alter(ctx, asks, req.ValidateOnly) {
		res := kmsg.NewIncrementalAlterConfigsResponseResource()
		res.ResourceType, res.ResourceName = req.Resources[i].ResourceType, req.Resources[i].ResourceName
		res.ErrorCode, res.ErrorMessage = codeOf(err), reasonOf(err)
		resp.Resources = append(resp.Resources, res)
	}
	return resp, nil
}
