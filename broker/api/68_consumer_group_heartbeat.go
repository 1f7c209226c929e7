package api

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/group"
	"github.com/varvehq/varve/broker/group/assignor"
	"github.com/varvehq/varve/internal/kafka"
)

// ConsumerGroupHeartbeat, v0–v1 (KIP-848).
//
// Joins a group of the consumer protocol (epoch 0), keeps and changes a membership, and ends it (−1, or −2 for a static member
// that comes back). What is null is as before. The answer has an assignment where it has changed or the request tells
// everything. In v0 the coordinator may be left to choose the member id; v1 knows regular expressions, of RE2's syntax. Where the
// feature group.version is 0, it is UNSUPPORTED_VERSION.
//
// A classic group that has members becomes one of this protocol when a member joins it so, and members of the classic one go on in
// it (see package group); where group.consumer.migration.policy has no upgrade, or its members do not speak the consumers'
// embedded protocol, the answer is GROUP_ID_NOT_FOUND.
//
// Deviation: a change of a group's subscriptions is assigned at once, with no least time between two assignments.

func (h *Handlers) consumerGroupHeartbeat(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.ConsumerGroupHeartbeatRequest)
	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	resp.Version = req.Version
	if err := h.checkConsumerHeartbeat(req); err != nil {
		setError(&resp.ErrorCode, &resp.ErrorMessage, err)
		return resp, nil
	}
	ask := group.ConsumerHeartbeatRequest{Group: req.Group, MemberID: req.MemberID, Epoch: req.MemberEpoch, InstanceID: req.InstanceID,
		RackID: req.RackID, RebalanceTimeout: time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond, Topics: req.SubscribedTopicNames,
		Regex: req.SubscribedTopicRegex, Assignor: req.ServerAssignor, Owned: ownedSet(req.Topics)}
	if ask.MemberID == "" {
		ask.MemberID = kafka.NewUUID().String()
	}
	ask.ClientID, ask.ClientHost = r.Client(), r.Conn.Host()
	done, err := h.Groups.Coordinator().ConsumerHeartbeat(ask).Wait(ctx)
	if err != nil {
		return nil, err
	}
	if done.Err != nil {
		resp.ErrorCode, resp.ErrorMessage = groupCode(done.Err), reasonOf(done.Err)
		return resp, nil
	}
	resp.MemberID, resp.MemberEpoch = &done.MemberID, done.Epoch
	resp.HeartbeatIntervalMillis = int32(done.Interval / time.Millisecond)
	if done.Assigned != nil {
		a := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
		for _, t := range sortedSet(done.Assigned) {
			at := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
			at.TopicID, at.Partitions = t, done.Assigned[t]
			a.Topics = append(a.Topics, at)
		}
		resp.Assignment = &a
	}
	return resp, nil
}

// checkConsumerHeartbeat tells what is wrong with the form of a request.
func (h *Handlers) checkConsumerHeartbeat(req *kmsg.ConsumerGroupHeartbeatRequest) error {
	invalid := func(text string) error { return &explained{kerr.InvalidRequest, text} }
	empty := func(s *string) bool { return s != nil && *s == "" }
	switch {
	case h.Controller.Image().Features[groupVersion] < 1:
		return &explained{kerr.UnsupportedVersion, "The cluster does not support the consumer group protocol."}
	case req.MemberID == "" && (req.Version >= 1 || req.MemberEpoch != group.JoinEpoch):
		return invalid("MemberId can't be empty.")
	case req.Group == "":
		return invalid("GroupId can't be empty.")
	case empty(req.InstanceID):
		return invalid("InstanceId can't be empty.")
	case empty(req.RackID):
		return invalid("RackId can't be empty.")
	case req.MemberEpoch < group.StaticLeaveEpoch:
		return invalid(fmt.Sprintf("MemberEpoch is %d, but must be greater than or equal to -2.", req.MemberEpoch))
	case req.MemberEpoch == group.StaticLeaveEpoch && req.InstanceID == nil:
		return invalid("InstanceId can't be null.")
	case req.MemberEpoch != group.JoinEpoch:
		return nil
	case req.RebalanceTimeoutMillis == -1:
		return invalid("RebalanceTimeoutMs must be provided in first request.")
	case req.Topics == nil || len(req.Topics) > 0:
		return invalid("TopicPartitions must be empty when (re-)joining.")
	case req.SubscribedTopicNames == nil && req.SubscribedTopicRegex == nil:
		return invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
	}
	return nil
}

// groupVersion is the feature that tells which group protocols the cluster knows.
const groupVersion = "group.version"

func ownedSet(topics []kmsg.ConsumerGroupHeartbeatRequestTopic) assignor.Set {
	if topics == nil {
		return nil
	}
	set := assignor.Set{}
	for _, t := range topics {
		set[kafka.UUID(t.TopicID)] = slices.Clone(t.Partitions)
	}
	return set
}

func sortedSet(set assignor.Set) []kafka.UUID {
	topics := make([]kafka.UUID, 0, len(set))
	for t := range set {
		topics = append(topics, t)
	}
	slices.SortFunc(topics, assignor.Compare)
	return topics
}
