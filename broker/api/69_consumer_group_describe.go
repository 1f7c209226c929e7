package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/group"
	"github.com/varvehq/varve/broker/group/assignor"
)

// ConsumerGroupDescribe, v0–v1 (KIP-848).
//
// Groups of the consumer protocol with their epochs, members, and what each has and is to have. A classic group is
// GROUP_ID_NOT_FOUND. v1 tells by which protocol a member came: 0 for the classic
// one, 1 for that of consumer groups.

// The types of members, by the protocol that they speak.
const (
	classicMember  = 0
	consumerMember = 1
)

func (h *Handlers) consumerGroupDescribe(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.ConsumerGroupDescribeRequest)
	resp := kmsg.NewPtrConsumerGroupDescribeResponse()
	resp.Version = req.Version
	for _, id := range req.Groups {
		g := kmsg.NewConsumerGroupDescribeResponseGroup()
		g.Group = id
		d, err := h.Groups.Coordinator().DescribeConsumer(ctx, id)
		switch {
		case id == "":
			err = group.ErrInvalidGroupID
			g.ErrorCode, g.ErrorMessage = groupCode(err), messageOf(err)
		case errors.Is(err, group.ErrGroupNotFound):
			g.ErrorCode, g.ErrorMessage = groupCode(err), kmsg.StringPtr(fmt.Sprintf("Group %s not found.", id))
		case err != nil:
			g.ErrorCode, g.ErrorMessage = groupCode(err), messageOf(err)
		default:
			h.describeConsumer(&g, d)
			if req.IncludeAuthorizedOperations {
				g.AuthorizedOperations = groupOperations
			}
		}
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}

func (h *Handlers) describeConsumer(g *kmsg.ConsumerGroupDescribeResponseGroup, d group.ConsumerDescription) {
	g.State, g.Epoch, g.AssignmentEpoch, g.AssignorName = d.State, d.Epoch, d.TargetEpoch, d.Assignor
	for _, m := range d.Members {
		gm := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		gm.MemberID, gm.InstanceID, gm.RackID, gm.MemberEpoch = m.MemberID, m.InstanceID, m.RackID, m.Epoch
		gm.ClientID, gm.ClientHost, gm.SubscribedTopics, gm.SubscribedTopicRegex = m.ClientID, m.ClientHost, m.Topics, &m.Regex
		gm.MemberType = consumerMember
		if m.Classic {
			gm.MemberType = classicMember
		}
		gm.Assignment, gm.TargetAssignment = h.describeSet(m.Assigned), h.describeSet(m.Target)
		g.Members = append(g.Members, gm)
	}
}

// describeSet names the topics of an assignment; those that do not exist any more are left out.
func (h *Handlers) describeSet(set assignor.Set) kmsg.Assignment {
	var a kmsg.Assignment
	for _, id := range sortedSet(set) {
		if t, ok := h.Groups.TopicByID(id); ok {
			a.TopicPartitions = append(a.TopicPartitions, kmsg.AssignmentTopicPartition{TopicID: id, Topic: t.Name, Partitions: set[id]})
		}
	}
	return a
}
