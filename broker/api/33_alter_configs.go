package api

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/broker/controller"
)

// AlterConfigs, v0–v2.
//
// Replaces all configs that are set for a topic, a broker or a group by those of the request: what is not in it goes back to its
// default. Each resource succeeds or fails as a whole and by itself. Kafka's clients deprecate it for IncrementalAlterConfigs
// (KIP-339). A broker is any that is registered; the empty name is the cluster-wide defaults.

func (h *Handlers) alterConfigs(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.AlterConfigsRequest)
	resp := kmsg.NewPtrAlterConfigsResponse()
	resp.Version = req.Version
	asks := make([]alteration, 0, len(req.Resources))
	for i := range req.Resources {
		res := &req.Resources[i]
		a := newAlteration(res.ResourceType, res.ResourceName)
		a.Replace = true
		for _, c := range res.Configs {
			a.add(config.Set, c.Name, c.Value)
		}
		asks = append(asks, a)
	}
	for i, err := range h.alter(ctx, asks, req.ValidateOnly) {
		res := kmsg.NewAlterConfigsResponseResource()
		res.ResourceType, res.ResourceName = req.Resources[i].ResourceType, req.Resources[i].ResourceName
		res.ErrorCode, res.ErrorMessage = codeOf(err), reasonOf(err)
		resp.Resources = append(resp.Resources, res)
	}
	return resp, nil
}

// alteration is one resource of a request, with what is wrong with the request itself.
type alteration struct {
	controller.ConfigAlteration
	err error
}

func newAlteration(typ kmsg.ConfigResourceType, name string) alteration {
	a := alteration{ConfigAlteration: controller.ConfigAlteration{Type: controller.ResourceType(typ), Name: name}}
	switch typ {
	case kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeGroupConfig:
	default:
		a.err = fmt.Errorf("%w: Unsupported resource type: %s", controller.ErrInvalidRequest, typ)
	}
	return a
}

func (a *alteration) add(op config.Change, key string, value *string) {
	c := controller.ConfigChange{Op: op, Key: key}
	if value != nil {
		c.Value = *value
	} else if op != config.Delete && a.err == nil {
		a.err = fmt.Errorf("%w: Null value not supported for : %s", controller.ErrInvalidRequest, key)
	}
	a.Changes = append(a.Changes, c)
}

// alter makes what can be made and returns an error or nil for each.
func (h *Handlers) alter(ctx context.Context, asks []alteration, validateOnly bool) []error {
	type resource struct {
		typ  controller.ResourceType
		name string
	}
	times := make(map[resource]int, len(asks))
	for i := range asks {
		times[resource{asks[i].Type, asks[i].Name}]++
	}
	var good []controller.ConfigAlteration
	for i := range asks {
		a := &asks[i]
		if a.err == nil && times[resource{a.Type, a.Name}] > 1 {
			a.err = fmt.Errorf("%w: Each resource must appear at most once.", controller.ErrInvalidRequest) //nolint:staticcheck // Kafka's text
		}
		if a.err == nil {
			good = append(good, a.ConfigAlteration)
		}
	}
	made, err := h.Controller.AlterConfigs(ctx, good, validateOnly)
	errs := make([]error, len(asks))
	for i := range asks {
		switch {
		case asks[i].err != nil:
			errs[i] = asks[i].err
		case err != nil:
			errs[i] = err
		default:
			errs[i], made = made[0], made[1:]
		}
	}
	return errs
}
