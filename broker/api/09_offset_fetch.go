package api

import (
	"cmp"
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/group"
	"github.com/varvehq/varve/internal/kafka"
)

// OffsetFetch, v1–v10.
//
// One group up to v7, several from v8 on (KIP-709). A null list of topics asks for all offsets of a group (v2+). A partition
// without an offset is −1 with no error. Errors of the group are on its level from v2 on, and on every partition in v1.
// require_stable (v7, KIP-447) waits for the commits under way, and a partition with an offset in an undecided transaction is
// UNSTABLE_OFFSET_COMMIT. From v10 on topics go by id: an unknown one is
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
	err := h.Groups.Coordinator().CheckFetch(g.Group, group.FetchMember{ID: deref(g.MemberID), Epoch: g.MemberEpoch})
	switch {
	case err != nil:
	case g.Topics == nil:
		rg.Topics, err = h.fetchAllOffsets(ctx, version, stable, g.Group)
	default:
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
	unstable := make([]bool, len(items))
	if stable { // asked first: an offset whose transaction is decided now is among those read after
		var err error
		if unstable, err = h.Groups.Coordinator().Unstable(ctx, g.Group, items); err != nil {
			return nil, err
		}
	}
	offsets, found, err := h.Groups.Coordinator().Offsets(ctx, g.Group, items, stable)
	if err != nil {
		return nil, err
	}
	for i, p := range places {
		switch {
		case unstable[i]:
			p.ErrorCode = kerr.UnstableOffsetCommit.Code
		case found[i]:
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
	unstable, err := h.allUnstable(ctx, stable, name)
	if err != nil {
		return nil, err
	}
	offsets, err := h.Groups.Coordinator().AllOffsets(ctx, name, stable)
	if err != nil {
		return nil, err
	}
	offsets = withUnstable(offsets, unstable)
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
			if unstable[kafka.TopicPartition{Topic: o.Topic, Partition: o.Partition}] {
				p.ErrorCode = kerr.UnstableOffsetCommit.Code
			} else {
				p.Offset, p.LeaderEpoch, p.Metadata = o.Offset.Offset, o.LeaderEpoch, &o.Metadata
			}
			t.Partitions = append(t.Partitions, p)
		}
		if len(t.Partitions) > 0 && (exists || version < 10) {
			topics = append(topics, t)
		}
	}
	return topics, nil
}

// allUnstable is the set of a group's partitions with an offset in an undecided transaction, for requests that ask for stable
// offsets.
func (h *Handlers) allUnstable(ctx context.Context, stable bool, name string) (map[kafka.TopicPartition]bool, error) {
	if !stable {
		return nil, nil
	}
	items, err := h.Groups.Coordinator().AllUnstable(ctx, name)
	set := make(map[kafka.TopicPartition]bool, len(items))
	for _, it := range items {
		set[kafka.TopicPartition{Topic: it.Topic, Partition: it.Partition}] = true
	}
	return set, err
}

// withUnstable adds the partitions that have no other offset yet, so that a client sees that they are unstable.
func withUnstable(offsets []group.PartitionOffset, unstable map[kafka.TopicPartition]bool) []group.PartitionOffset {
	if len(unstable) == 0 {
		return offsets
	}
	missing := make(map[kafka.TopicPartition]bool, len(unstable))
	for tp := range unstable {
		missing[tp] = true
	}
	for _, o := range offsets {
		delete(missing, kafka.TopicPartition{Topic: o.Topic, Partition: o.Partition})
	}
	for tp := range missing {
		offsets = append(offsets, group.PartitionOffset{Topic: tp.Topic, Partition: tp.Partition})
	}
	slices.SortFunc(offsets, func(a, b group.PartitionOffset) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return offsets
}
