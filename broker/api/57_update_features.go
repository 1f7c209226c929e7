package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/controller"
)

// UpdateFeatures, v0–v2 (KIP-584, KIP-1022).
//
// Finalizes feature levels, all or none; the error is that of the first feature that cannot be, at the top. Up to v1 success
// names each feature. v0's "allow downgrade" is not heeded, as in Kafka 4.4.

func (h *Handlers) updateFeatures(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.UpdateFeaturesRequest)
	resp := kmsg.NewPtrUpdateFeaturesResponse()
	resp.Version = req.Version
	ctx, cancel := withTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	var updates []controller.FeatureUpdate
	for _, u := range req.FeatureUpdates {
		typ := controller.UpgradeType(u.UpgradeType)
		if req.Version == 0 {
			typ = controller.Upgrade
		}
		updates = append(updates, controller.FeatureUpdate{Name: u.Feature, Level: u.MaxVersionLevel, Type: typ})
	}
	if err := h.Admin.UpdateFeatures(ctx, updates, req.ValidateOnly); err != nil {
		setError(&resp.ErrorCode, &resp.ErrorMessage, err)
		*resp.ErrorMessage = "The update failed for all features since the following feature had an error: " + *resp.ErrorMessage
		return resp, nil
	}
	for _, u := range req.FeatureUpdates {
		if req.Version > 1 {
			break
		}
		res := kmsg.NewUpdateFeaturesResponseResult()
		res.Feature = u.Feature
		none := "NONE" // as Kafka has it
		res.ErrorMessage = &none
		resp.Results = append(resp.Results, res)
	}
	return resp, nil
}
