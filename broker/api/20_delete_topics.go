package api

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/internal/kafka"
)

// DeleteTopics, v1–v6.
//
// By name, from v6 on by name or id (KIP-516): both or neither is INVALID_REQUEST, as is a topic that stands twice in one
// request. The answer stands in the request's order. A deleted topic is gone when the answer is there; its files and its
// objects in the bucket go later. With delete.topic.enable=false it is TOPIC_DELETION_DISABLED, before v3 INVALID_REQUEST.
//
// Partitions are charged to the client's controller_mutation_rate; from v5 on what is above it is THROTTLING_QUOTA_EXCEEDED
// (KIP-599).

func (h *Handlers) deleteTopics(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DeleteTopicsRequest)
	resp := kmsg.NewPtrDeleteTopicsResponse()
	resp.Version = req.Version
	ctx, cancel := withTimeout(ctx, req.TimeoutMillis)
	defer cancel()

	asked := req.Topics
	if req.Version < 6 {
		asked = nil
		for i := range req.TopicNames {
			t := kmsg.NewDeleteTopicsRequestTopic()
			t.Topic = &req.TopicNames[i]
			asked = append(asked, t)
		}
	}
	errs := deletionErrors(asked)
	charge := h.mutationsOf(r, 5)
	var counts []int
	var refs []controller.TopicRef
	for i, t := range asked {
		if errs[i] != nil {
			continue
		}
		ref := topicRef(t)
		n := partitionsOf(h.Controller.Image(), ref)
		if errs[i] = charge.take(n); errs[i] == nil {
			refs, counts = append(refs, ref), append(counts, n)
		}
	}
	results, err := h.Controller.DeleteTopics(ctx, refs)
	for i, t := range asked {
		result := controller.TopicResult{ID: t.TopicID, Err: errs[i]}
		switch {
		case errs[i] != nil:
		case err != nil:
			result.Err = err
		default:
			result, results = results[0], results[1:]
		}
		if errs[i] == nil {
			if result.Err != nil {
				charge.giveBack(counts[0])
			}
			counts = counts[1:]
		}
		resp.Topics = append(resp.Topics, deletedTopic(t, result, req.Version))
	}
	resp.ThrottleMillis = charge.millis()
	return resp, nil
}

// partitionsOf is the number of partitions of a topic, 0 for an unknown one.
func partitionsOf(im *controller.Image, ref controller.TopicRef) int {
	t := im.Topic(ref.Name)
	if !ref.ID.IsZero() {
		t = im.TopicByID(ref.ID)
	}
	if t == nil {
		return 0
	}
	return len(t.Partitions)
}

func topicRef(t kmsg.DeleteTopicsRequestTopic) controller.TopicRef {
	ref := controller.TopicRef{ID: t.TopicID}
	if t.Topic != nil {
		ref.Name = *t.Topic
	}
	return ref
}

// deletionErrors finds what is wrong with the request itself.
func deletionErrors(asked []kmsg.DeleteTopicsRequestTopic) []error {
	errs := make([]error, len(asked))
	times := make(map[controller.TopicRef]int, len(asked))
	for _, t := range asked {
		times[topicRef(t)]++
	}
	for i, t := range asked {
		var reason string
		switch id := kafka.UUID(t.TopicID); {
		case t.Topic != nil && !id.IsZero():
			reason = "You may not specify both topic name and topic id."
		case t.Topic == nil && id.IsZero():
			reason = "Neither topic name nor id were specified."
		case times[topicRef(t)] > 1 && t.Topic != nil:
			reason = "Duplicate topic name."
		case times[topicRef(t)] > 1:
			reason = "Duplicate topic id."
		default:
			continue
		}
		errs[i] = fmt.Errorf("%w: %s", controller.ErrInvalidRequest, reason)
	}
	return errs
}

func deletedTopic(ask kmsg.DeleteTopicsRequestTopic, result controller.TopicResult, version int16) kmsg.DeleteTopicsResponseTopic {
	t := kmsg.NewDeleteTopicsResponseTopic()
	t.Topic, t.TopicID = ask.Topic, result.ID
	if ask.Topic == nil {
		t.Topic = optional(result.Name)
	}
	t.ErrorCode, t.ErrorMessage = codeOf(result.Err), reasonOf(result.Err)
	if version < 3 && t.ErrorCode == kerr.TopicDeletionDisabled.Code {
		t.ErrorCode = kerr.InvalidRequest.Code
	}
	return t
}
