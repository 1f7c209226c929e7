package api

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/broker/group"
	"github.com/varvehq/varve/internal/kafka"
)

// OffsetCommit, v2–v10.
//
// Offsets are answered once they are durable. The answer has every topic and partition of the request, in its order. Up to
// v9 topics go by name, from v10 on by id (KIP-848). v2 to v4 carry a retention of their own (KIP-211), v6 the leader epoch
// (KIP-320), v7 the instance id (KIP-345). From v9 on a group that does not exist is GROUP_ID_NOT_FOUND, before
// ILLEGAL_GENERATION.
//
// It is answered before the connection's next request is begun, so that a fetch behind a commit sees it.

func (h *Handlers) offsetCommit(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.OffsetCommitRequest)
	resp := kmsg.NewPtrOffsetCommitResponse()
	resp.Version = req.Version
	c := group.CommitRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation,
		Retention: -1, NotFoundError: req.Version >= 9,
	}
	if req.Version <= 4 && req.RetentionTimeMillis >= 0 {
		c.Retention = time.Duration(min(req.RetentionTimeMillis, maxMillis)) * time.Millisecond
	}
	var plan commitPlan
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		rt.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(t.Partitions))
		plan.topic, plan.err = h.commitTopic(req.Version >= 10, t.Topic, t.TopicID)
		for i, p := range t.Partitions {
			rt.Partitions[i].Partition = p.Partition
			plan.add(&rt.Partitions[i].ErrorCode, p.Partition, p.Offset, p.LeaderEpoch, p.Metadata)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if c.Items = plan.items; len(c.Items) == 0 {
		return resp, nil
	}
	done, err := h.Groups.Coordinator().OffsetCommit(c).Wait(ctx)
	if err != nil {
		return nil, err
	}
	plan.answer(commitCode(done.Err), done.Errs)
	return resp, nil
}

// maxMillis is the longest time in milliseconds that a time.Duration holds.
const maxMillis = int64(1<<63-1) / int64(time.Millisecond)

// commitPlan gathers the partitions of a commit that the coordinator is asked for, and where the code of each goes.
type commitPlan struct {
	topic GroupTopic // of the partitions that are added
	err   error      // why there is no such topic

	items []group.CommitItem
	codes []*int16
}

func (p *commitPlan) add(code *int16, partition int32, offset int64, leaderEpoch int32, metadata *string) {
	switch {
	case p.err != nil:
		*code = groupCode(p.err)
	case partition < 0 || partition >= p.topic.Partitions:
		*code = groupCode(errUnknownTopic)
	default:
		p.codes = append(p.codes, code)
		p.items = append(p.items, group.CommitItem{Topic: p.topic.Name, TopicID: p.topic.ID, Partition: partition,
			Offset: offset, LeaderEpoch: leaderEpoch, Metadata: deref(metadata)})
	}
}

// answer fills the codes: all, where it is not 0, or what errs, where it is not nil, has for each.
func (p *commitPlan) answer(all int16, errs []error) {
	for i, code := range p.codes {
		switch {
		case all != 0:
			*code = all
		case errs != nil:
			*code = groupCode(errs[i])
		}
	}
}

// commitCode is groupCode for a whole commit.
func commitCode(err error) int16 {
	if errors.Is(err, coordinator.ErrRecordTooLarge) {
		err = errCommitTooLarge
	}
	return groupCode(err)
}

// commitTopic finds the topic of a commit.
func (h *Handlers) commitTopic(byID bool, name string, id [16]byte) (GroupTopic, error) {
	if byID {
		if t, ok := h.Groups.TopicByID(kafka.UUID(id)); ok {
			return t, nil
		}
		return GroupTopic{}, errUnknownTopicID
	}
	if t, ok := h.Groups.TopicByName(name); ok {
		return t, nil
	}
	return GroupTopic{}, errUnknownTopic
}
