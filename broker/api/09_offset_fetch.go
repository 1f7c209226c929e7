package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/group"
	"github.com/varvehq/varve/internal/kafka"
)

// OffsetFetch, v1–v10.
//
// One group up to v7, several from v8 on (KIP-709). A null list of topics asks for all offsets of a group (v2+). A partition
// without an offset is −1 with no error. Errors of the group are on its level from v2 on, and on every partition in v1.
// require_stable (v7, KIP-447) waits for the commits under way. From v10 on topics go by id: an unknown one is
// UNKNOWN_TOPIC_ID for its partitions, and of all offsets those are left out whose topic has no id any more.
//
// Deviation: Kafka returns, to requests by name, offsets that were committed to a deleted topic of the same name.

func (h *Handlers) offsetFetch(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.OffsetFetchRequest)
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.Version = req.Version
	if req.Version >= 8 {
		for _, g := range req.Groups {
			resp.Groups = append(resp.Groups, h.fetchGroup(ctx, req.Version, req.RequireStable, g))
		}
		return resp, nil
	}
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = req.Group
	if req.Topics != nil {
		g.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, len(req.Topics))
		for i, t := range req.Topics {
			g.Topics[i].Topic, g.Topics[i].Partitions = t.Topic, t.Partitions
		}
	}
	rg := h.fetchGroup(ctx, req.Version, req.RequireStable, g)
	resp.ErrorCode = rg.ErrorCode
	for _, t := range rg.Topics {
		rt := kmsg.NewOffsetFetchResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetFetchResponseTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch = p.Partition, p.Offset, p.LeaderEpoch
			rp.Metadata, rp.ErrorCode = p.Metadata, p.ErrorCode
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

func (h *Handlers) fetchGroup(ctx context.Context, version int16, stable bool, g kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	rg := kmsg.NewOffsetFetchResponseGroup()
	rg.Group = g.Group
	var err error
	if g.Topics == nil {
		rg.Topics, err = h.fetchAllOffsets(ctx, version, stable, g.Group)
	} else {
		rg.Topics, err = h.fetchOffsets(ctx, version, stable, g)
	}
	if err != nil {
		rg.ErrorCode = groupCode(err)
		rg.Topics = nil
		if version < 2 {
			rg.Topics = fetchErrors(g, rg.ErrorCode)
		}
	}
	return rg
}

// fetchOffsets answers for the partitions asked for, in their order.
func (h *Handlers) fetchOffsets(ctx context.Context, version int16, stable bool, g kmsg.OffsetFetchRequestGroup) ([]kmsg.OffsetFetchResponseGroupTopic, error) {
	topics := fetchErrors(g, 0)
	var items []group.FetchItem
	var places []*kmsg.OffsetFetchResponseGroupTopicPartition
	for i, t := range g.Topics {
		var topic GroupTopic
		known := true
		if version >= 10 {
			topic, known = h.Groups.TopicByID(kafka.UUID(t.TopicID))
		} else if topic, _ = h.Groups.TopicByName(t.Topic); topic.Name == "" {
			topic.Name = t.Topic // it may have offsets all the same
		}
		for j := range topics[i].Partitions {
			p := &topics[i].Partitions[j]
			if !known {
				p.ErrorCode = groupCode(errUnknownTopicID)
				continue
			}
			items = append(items, group.FetchItem{Topic: topic.Name, TopicID: topic.ID, Partition: p.Partition})
			places = append(places, p)
		}
	}
	offsets, found, err := h.Groups.Coordinator().Offsets(ctx, g.Group, items, stable)
	if err != nil {
		return nil, err
	}
	for i, p := range places {
		if found[i] {
			p.Offset, p.LeaderEpoch, p.Metadata = offsets[i].Offset, offsets[i].LeaderEpoch, &offsets[i].Metadata
		}
	}
	return topics, nil
}

// fetchErrors is the answer to a request with one code for every partition and no offsets.
func fetchErrors(g kmsg.OffsetFetchRequestGroup, code int16) []kmsg.OffsetFetchResponseGroupTopic {
	topics := make([]kmsg.OffsetFetchResponseGroupTopic, len(g.Topics))
	for i, t := range g.Topics {
		topics[i].Topic, topics[i].TopicID = t.Topic, t.TopicID
		topics[i].Partitions = make([]kmsg.OffsetFetchResponseGroupTopicPartition, len(t.Partitions))
		for j, index := range t.Partitions {
			topics[i].Partitions[j] = fetchedOffset(index)
			topics[i].Partitions[j].ErrorCode = code
		}
	}
	return topics
}

// fetchedOffset is the answer for a partition without an offset.
func fetchedOffset(partition int32) kmsg.OffsetFetchResponseGroupTopicPartition {
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = partition, -1, -1, kmsg.StringPtr("")
	return p
}

// fetchAllOffsets answers with everything that the group has committed.
func (h *Handlers) fetchAllOffsets(ctx context.Context, version int16, stable bool, name string) ([]kmsg.OffsetFetchResponseGroupTopic, error) {
	offsets, err := h.Groups.Coordinator().AllOffsets(ctx, name, stable)
	if err != nil {
		return nil, err
	}
	topics := []kmsg.OffsetFetchResponseGroupTopic{}
	for i := 0; i < len(offsets); {
		t := kmsg.NewOffsetFetchResponseGroupTopic()
		t.Topic = offsets[i].Topic
		topic, exists := h.Groups.TopicByName(t.Topic)
		t.TopicID = topic.ID
		for ; i < len(offsets) && offsets[i].Topic == t.Topic; i++ {
			o := &offsets[i]
			if exists && !o.TopicID.IsZero() && o.TopicID != topic.ID {
				continue // of an earlier topic of this name
			}
			p := fetchedOffset(o.Partition)
			p.Offset, p.LeaderEpoch, p.Metadata = o.Offset.Offset, o.LeaderEpoch, &o.Metadata
			t.Partitions = append(t.Partitions, p)
		}
		if len(t.Partitions) > 0 && (exists || version < 10) {
			topics = append(topics, t)
		}
	}
	return topics, nil
}
