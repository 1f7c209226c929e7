package api

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

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
	var codes []*int16 // where the code of each item goes
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		rt.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(t.Partitions))
		topic, err := h.commitTopic(req.Version, t.Topic, t.TopicID)
		for i, p := range t.Partitions {
			rp := &rt.Partitions[i]
			rp.Partition = p.Partition
			switch {
			case err != nil:
				rp.ErrorCode = groupCode(err)
			case p.Partition < 0 || p.Partition >= topic.Partitions:
				rp.ErrorCode = groupCode(errUnknownTopic)
			default:
				codes = append(codes, &rp.ErrorCode)
				c.Items = append(c.Items, group.CommitItem{
					Topic: topic.Name, TopicID: topic.ID, Partition: p.Partition,
					Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: deref(p.Metadata),
				})
			}
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if len(c.Items) == 0 {
		return resp, nil
	}
	done, err := h.Groups.Coordinator().OffsetCommit(c).Wait(ctx)
	if err != nil {
		return nil, err
	}
	if errors.Is(done.Err, group.ErrRecordTooLarge) {
		done.Err = errCommitTooLarge
	}
	for i, code := range codes {
		switch {
		case done.Err != nil:
			*code = groupCode(done.Err)
		case done.Errs != nil:
			*code = groupCode(done.Errs[i])
		}
	}
	return resp, nil
}

// maxMillis is the longest time in milliseconds that a time.Duration holds.
const maxMillis = int64(1<<63-1) / int64(time.Millisecond)

// commitTopic finds the topic of a commit, by id from v10 on.
func (h *Handlers) commitTopic(version int16, name string, id [16]byte) (GroupTopic, error) {
	if version >= 10 {
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
