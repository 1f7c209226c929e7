package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/group"
)

// SyncGroup, v0–v5.
//
// Members wait for the leader's assignment, and that is given out once it is durable. v3 brings the instance id (KIP-345),
// v5 protocol type and name, which must be those of the group (KIP-559). In a group of the consumer protocol a member gets what it
// has now, in the version of its subscription.

func (h *Handlers) syncGroup(_ context.Context, r *Request) (Later, error) {
	req := r.Body.(*kmsg.SyncGroupRequest)
	if req.Version >= 5 && (req.ProtocolType == nil || req.Protocol == nil) {
		return Ready(syncResponse(req.Version, group.SyncResponse{Err: errProtocolMissing})), nil
	}
	s := group.SyncRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation,
		ProtocolType: req.ProtocolType, Protocol: req.Protocol,
		Assignments: make(map[string][]byte, len(req.GroupAssignment)),
	}
	for _, a := range req.GroupAssignment {
		s.Assignments[a.MemberID] = a.MemberAssignment
	}
	return groupLater[group.SyncResponse]{h.Groups.Coordinator().Sync(s), func(a group.SyncResponse) kmsg.Response {
		return syncResponse(req.Version, a)
	}}, nil
}

func syncResponse(version int16, a group.SyncResponse) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.Version = version
	resp.MemberAssignment = []byte{}
	if a.Err != nil {
		resp.ErrorCode = groupCode(a.Err)
		return resp
	}
	resp.ProtocolType, resp.Protocol = &a.ProtocolType, &a.Protocol
	resp.MemberAssignment = append(resp.MemberAssignment, a.Assignment...)
	return resp
}
