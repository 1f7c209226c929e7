package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/group"
)

// LeaveGroup, v0–v5.
//
// One member up to v2, whose error is that of the answer; a batch from v3 on, with instance ids, by which an administrator
// removes static members (KIP-345, KIP-571); v5 brings reasons (KIP-800). The last members are answered when the empty group
// is durable. Members of a group of the consumer protocol are removed alike, whatever protocol they speak.

func (h *Handlers) leaveGroup(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.LeaveGroupRequest)
	resp := kmsg.NewPtrLeaveGroupResponse()
	resp.Version = req.Version
	l := group.LeaveRequest{Group: req.Group}
	if req.Version < 3 {
		l.Members = []group.LeaveMember{{MemberID: req.MemberID}}
	}
	for _, m := range req.Members {
		l.Members = append(l.Members, group.LeaveMember{MemberID: m.MemberID, InstanceID: m.InstanceID, Reason: deref(m.Reason)})
	}
	a, err := h.Groups.Coordinator().Leave(l).Wait(ctx)
	switch {
	case err != nil:
		return nil, err
	case a.Err != nil:
		resp.ErrorCode = groupCode(a.Err)
	case req.Version < 3:
		resp.ErrorCode = groupCode(a.Errs[0])
	default:
		for i, m := range req.Members {
			rm := kmsg.NewLeaveGroupResponseMember()
			rm.MemberID, rm.InstanceID, rm.ErrorCode = m.MemberID, m.InstanceID, groupCode(a.Errs[i])
			resp.Members = append(resp.Members, rm)
		}
	}
	return resp, nil
}
