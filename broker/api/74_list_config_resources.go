package api

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListConfigResources, v0–v1 (KIP-1142; v0 is ListClientMetricsResources, KIP-714).
//
// The resources that have configs: groups that were given some, brokers and their loggers, topics. v0 lists metrics
// subscriptions, of which there are none. No types are all of them; an unknown one is UNSUPPORTED_VERSION.

func (h *Handlers) listConfigResources(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.ListConfigResourcesRequest)
	resp := kmsg.NewPtrListConfigResourcesResponse()
	resp.Version = req.Version
	if req.Version == 0 {
		return resp, nil
	}
	topic, broker, logger := int8(kmsg.ConfigResourceTypeTopic), int8(kmsg.ConfigResourceTypeBroker), int8(kmsg.ConfigResourceTypeBrokerLogger)
	metrics, group := int8(kmsg.ConfigResourceTypeClientMetrics), int8(kmsg.ConfigResourceTypeGroupConfig)
	supported := []int8{topic, broker, logger, metrics, group}
	types := req.ResourceTypes
	if len(types) == 0 {
		types = supported
	}
	for _, t := range types {
		if !slices.Contains(supported, t) {
			resp.ErrorCode = kerr.UnsupportedVersion.Code
			return resp, nil
		}
	}
	im := h.Controller.Image()
	list := func(typ int8, names []string) {
		if !slices.Contains(types, typ) {
			return
		}
		for _, name := range names {
			c := kmsg.NewListConfigResourcesResponseConfigResource()
			c.Name, c.Type = name, typ
			resp.ConfigResources = append(resp.ConfigResources, c)
		}
	}
	var brokers []string
	for _, id := range im.BrokerIDs() {
		brokers = append(brokers, fmt.Sprint(id))
	}
	list(logger, brokers)
	list(broker, brokers)
	list(topic, im.TopicNames())
	list(group, slices.Sorted(maps.Keys(im.GroupConfigs)))
	return resp, nil
}
