package api

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/broker/controller"
)

// CreateTopics, v2–v7.
//
// Each topic succeeds or fails by itself; a name that stands twice in one request fails. -1 partitions or replicas take the
// broker's defaults (KIP-464), as do manual assignments, which must cover partitions from 0 on without a gap. With
// ValidateOnly nothing is made, and the answer is what it would be. From v5 on the answer has the partitions, replicas and
// effective configs (KIP-525), from v7 on the topic's id, which stays zero with ValidateOnly. When the answer is there the
// partitions can be written.
//
// Partitions are charged to the client's controller_mutation_rate; from v6 on what is above it is THROTTLING_QUOTA_EXCEEDED
// (KIP-599).
//
// A timeout that passes is REQUEST_TIMED_OUT for all topics, and they may still be made. Values of 0 and below wait for as
// long as it takes.

func (h *Handlers) createTopics(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.CreateTopicsRequest)
	resp := kmsg.NewPtrCreateTopicsResponse()
	resp.Version = req.Version
	ctx, cancel := withTimeout(ctx, req.TimeoutMillis)
	defer cancel()

	asks := make([]controller.NewTopic, 0, len(req.Topics))
	errs := make(map[int]error)
	charge := h.mutationsOf(r, 6)
	for i := range req.Topics {
		ask := newTopic(&req.Topics[i])
		if err := charge.take(h.newPartitions(&ask)); err != nil {
			errs[i] = err
			continue
		}
		asks = append(asks, ask)
	}
	results, err := h.Controller.CreateTopics(ctx, asks, req.ValidateOnly)
	for i := range req.Topics {
		result := controller.TopicResult{Err: err}
		switch {
		case errs[i] != nil:
			result.Err = errs[i]
		case err == nil:
			result, results = results[0], results[1:]
		}
		if errs[i] == nil {
			if result.Err != nil {
				charge.giveBack(h.newPartitions(&asks[0]))
			}
			asks = asks[1:]
		}
		resp.Topics = append(resp.Topics, h.createdTopic(&req.Topics[i], result, req.ValidateOnly))
	}
	resp.ThrottleMillis = charge.millis()
	return resp, nil
}

// newTopic reads one topic of a request.
func newTopic(t *kmsg.CreateTopicsRequestTopic) controller.NewTopic {
	ask := controller.NewTopic{Name: t.Topic, Partitions: t.NumPartitions, ReplicationFactor: t.ReplicationFactor}
	for _, c := range t.Configs {
		if c.Value == nil {
			ask.Invalid = fmt.Errorf("%w: Null value not supported for topic configs: %s", config.ErrInvalid, c.Name)
			return ask
		}
		if ask.Configs == nil {
			ask.Configs = make(map[string]string, len(t.Configs))
		}
		ask.Configs[c.Name] = *c.Value
	}
	sorted := slices.Clone(t.ReplicaAssignment)
	slices.SortFunc(sorted, func(a, b kmsg.CreateTopicsRequestTopicReplicaAssignment) int {
		return int(a.Partition) - int(b.Partition)
	})
	for i, a := range sorted {
		if a.Partition != int32(i) {
			ask.Invalid = fmt.Errorf("%w: partitions should be a consecutive 0-based integer sequence", controller.ErrInvalidAssignment)
			return ask
		}
		ask.Assignments = append(ask.Assignments, a.Replicas)
	}
	return ask
}

func (h *Handlers) createdTopic(ask *kmsg.CreateTopicsRequestTopic, result controller.TopicResult, validateOnly bool) kmsg.CreateTopicsResponseTopic {
	t := kmsg.NewCreateTopicsResponseTopic()
	t.Topic, t.ErrorCode, t.ErrorMessage = ask.Topic, codeOf(result.Err), reasonOf(result.Err)
	if result.Err != nil {
		t.NumPartitions, t.ReplicationFactor = -1, -1
		return t
	}
	if !validateOnly {
		t.TopicID = result.ID
	}
	t.NumPartitions = int32(len(result.Topic.Partitions))
	t.ReplicationFactor = int16(len(result.Topic.Partitions[0].Replicas))
	entries := h.Controller.Configs().DescribeTopic(result.Topic.Configs, h.Controller.Image().Dynamic(h.NodeID))
	t.Configs = make([]kmsg.CreateTopicsResponseTopicConfig, len(entries))
	for i, e := range entries {
		c := &t.Configs[i]
		c.Default()
		c.Name, c.Value, c.ReadOnly, c.Source, c.IsSensitive = e.Name, e.Value, e.ReadOnly, int8(e.Source), e.Sensitive
	}
	return t
}
