package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/group"
)

// JoinGroup, v0–v9.
//
// It is answered when all members have joined or the rebalance timeout is over. v0 has no rebalance timeout, and the session
// timeout holds for it. From v4 on a new dynamic member is sent back with a member id first (KIP-394); v5 brings static
// members (KIP-345), v8 the reason (KIP-800), v9 skip_assignment (KIP-814). Protocol name and type are null where there are
// none from v7 on, the name is empty before.
//
// In a group of the consumer protocol a member that speaks the consumers' embedded protocol is answered at once, with its epoch as
// generation and no leader (KIP-848); where group.consumer.migration.policy is disabled, it is INCONSISTENT_GROUP_PROTOCOL.
//
// Deviation: Kafka leaves a join unanswered when the same member joins again; here the first one is answered
// REBALANCE_IN_PROGRESS. The first join of an old client, whose member id nobody knows, ends with its connection.

func (h *Handlers) joinGroup(_ context.Context, r *Request) (Later, error) {
	req := r.Body.(*kmsg.JoinGroupRequest)
	j := group.JoinRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID,
		ClientID: r.Client(), ClientHost: r.Conn.Host(),
		SessionTimeout: millis(req.SessionTimeoutMillis), RebalanceTimeout: millis(req.RebalanceTimeoutMillis),
		ProtocolType: req.ProtocolType, Reason: deref(req.Reason),
		NeedsMemberID: req.Version >= 4, CanSkipAssignment: req.Version >= 9,
	}
	if req.Version == 0 {
		j.RebalanceTimeout = j.SessionTimeout
	}
	for _, p := range req.Protocols {
		j.Protocols = append(j.Protocols, group.Protocol{Name: p.Name, Metadata: p.Metadata})
	}
	return groupLater[group.JoinResponse]{h.Groups.Coordinator().Join(j), func(a group.JoinResponse) kmsg.Response {
		return joinResponse(req.Version, a)
	}}, nil
}

func joinResponse(version int16, a group.JoinResponse) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Version = version
	resp.MemberID = a.MemberID
	if version < 7 {
		resp.Protocol = kmsg.StringPtr("")
	}
	if a.Err != nil {
		resp.ErrorCode = groupCode(a.Err)
		return resp
	}
	resp.Generation, resp.LeaderID, resp.SkipAssignment = a.Generation, a.Leader, a.SkipAssignment
	resp.ProtocolType, resp.Protocol = &a.ProtocolType, &a.Protocol
	for _, m := range a.Members {
		rm := kmsg.NewJoinGroupResponseMember()
		rm.MemberID, rm.InstanceID, rm.ProtocolMetadata = m.MemberID, m.InstanceID, m.Metadata
		resp.Members = append(resp.Members, rm)
	}
	return resp
}
