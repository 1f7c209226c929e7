package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/group"
	"github.com/varvehq/varve/internal/kafka"
)

// OffsetDelete, v0 (KIP-496).
//
// Offsets of topics that the group's members are subscribed to stay (GROUP_SUBSCRIBED_TO_TOPIC). A partition without an
// offset is no error; one that does not exist is UNKNOWN_TOPIC_OR_PARTITION. The answer mirrors the request.

func (h *Handlers) offsetDelete(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.OffsetDeleteRequest)
	resp := kmsg.NewPtrOffsetDeleteResponse()
	resp.Version = req.Version
	d := group.OffsetDeleteRequest{Group: req.Group}
	var codes []*int16
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetDeleteResponseTopic()
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.OffsetDeleteResponseTopicPartition, len(t.Partitions))
		topic, ok := h.Groups.TopicByName(t.Topic)
		for i, p := range t.Partitions {
			rp := &rt.Partitions[i]
			rp.Partition = p.Partition
			if !ok || p.Partition < 0 || p.Partition >= topic.Partitions {
				rp.ErrorCode = groupCode(errUnknownTopic)
				continue
			}
			codes = append(codes, &rp.ErrorCode)
			d.Items = append(d.Items, kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition})
		}
		resp.Topics = append(resp.Topics, rt)
	}
	a, err := h.Groups.Coordinator().OffsetDelete(d).Wait(ctx)
	if err != nil {
		return nil, err
	}
	if a.Err != nil {
		resp.ErrorCode, resp.Topics = groupCode(a.Err), nil
		return resp, nil
	}
	for i, code := range codes {
		if a.Errs != nil {
			*code = groupCode(a.Errs[i])
		}
	}
	return resp, nil
}
