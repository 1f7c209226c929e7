package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/internal/kafka"
)

// DescribeConfigs, v1–v4.
//
// All configs of a topic, a broker or a group, or those that are named; names that do not exist are left out. Each has its effective
// value, where that comes from and, if asked for, all places that give one (synonyms), and from v3 on its type and, if
// asked for, its documentation. Sensitive values are null. A broker is this one by its id; the empty name is the cluster-wide
// dynamic defaults that are set. A group needs not exist. Other brokers, and other types of resources (loggers, metrics
// subscriptions), are INVALID_REQUEST; a type that no version of the protocol has makes that of all resources of the request.

func (h *Handlers) describeConfigs(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DescribeConfigsRequest)
	resp := kmsg.NewPtrDescribeConfigsResponse()
	resp.Version = req.Version
	im := h.Controller.Image()
	unknown := slices.ContainsFunc(req.Resources, func(r kmsg.DescribeConfigsRequestResource) bool { return !knownResource(r.ResourceType) })
	for i := range req.Resources {
		ask := &req.Resources[i]
		res := kmsg.NewDescribeConfigsResponseResource()
		res.ResourceType, res.ResourceName = ask.ResourceType, ask.ResourceName
		entries, err := h.configsOf(im, ask)
		if unknown {
			entries, err = nil, fmt.Errorf("%w: a resource of an unknown type", controller.ErrInvalidRequest)
		}
		res.ErrorCode, res.ErrorMessage = codeOf(err), reasonOf(err)
		for _, e := range entries {
			if len(ask.ConfigNames) == 0 || slices.Contains(ask.ConfigNames, e.Name) {
				res.Configs = append(res.Configs, describedConfig(&e, req))
			}
		}
		resp.Resources = append(resp.Resources, res)
	}
	return resp, nil
}

func (h *Handlers) configsOf(im *controller.Image, ask *kmsg.DescribeConfigsRequestResource) ([]config.Entry, error) {
	name := ask.ResourceName
	switch ask.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		if err := kafka.ValidateTopicName(name); err != nil {
			return nil, fmt.Errorf("%w: %w", controller.ErrInvalidTopic, err)
		}
		t := im.Topic(name)
		if t == nil {
			return nil, fmt.Errorf("%w: The topic '%s' does not exist.", controller.ErrUnknownTopic, name) //nolint:staticcheck // Kafka's text
		}
		return h.Controller.Configs().DescribeTopic(t.Configs, im.Dynamic(h.NodeID)), nil
	case kmsg.ConfigResourceTypeBroker:
		if name == "" {
			return h.Controller.Configs().DescribeBrokerDefaults(im.BrokerConfigs[""]), nil
		}
		id, err := strconv.ParseInt(name, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%w: Broker id must be an integer, but it is: %s", controller.ErrInvalidRequest, name)
		}
		if int32(id) != h.NodeID {
			return nil, fmt.Errorf("%w: Unexpected broker id, expected %d or empty string, but received %s", controller.ErrInvalidRequest, h.NodeID, name)
		}
		return h.Controller.Configs().DescribeBroker(im.Dynamic(h.NodeID)), nil
	case kmsg.ConfigResourceTypeGroupConfig:
		if name == "" {
			return nil, fmt.Errorf("%w: Group name must not be empty", controller.ErrInvalidRequest)
		}
		return h.Controller.Configs().DescribeGroup(im.GroupConfigs[name], im.Dynamic(h.NodeID)), nil
	}
	return nil, fmt.Errorf("%w: Unsupported resource type: %s", controller.ErrInvalidRequest, ask.ResourceType)
}

func knownResource(t kmsg.ConfigResourceType) bool {
	switch t {
	case kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger,
		kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeGroupConfig:
		return true
	}
	return false
}

func describedConfig(e *config.Entry, req *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.Value, c.ReadOnly, c.IsSensitive = e.Name, e.Value, e.ReadOnly, e.Sensitive
	c.Source, c.IsDefault = kmsg.ConfigSource(e.Source), e.Source == config.BuiltinDefaultSource
	c.ConfigType = kmsg.ConfigType(e.Type)
	if req.IncludeSynonyms {
		for _, s := range e.Synonyms {
			cs := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			cs.Name, cs.Value, cs.Source = s.Name, s.Value, kmsg.ConfigSource(s.Source)
			c.ConfigSynonyms = append(c.ConfigSynonyms, cs)
		}
	}
	if req.IncludeDocumentation {
		c.Documentation = &e.Doc
	}
	return c
}
