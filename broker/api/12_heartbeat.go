package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/group"
)

// Heartbeat, v0–v4.
//
// REBALANCE_IN_PROGRESS calls the member to join again; the session is kept alive by it all the same. While the group is
// being loaded heartbeats succeed blindly, as in Kafka. In a group of the consumer protocol a member is called to join when the group
// has another epoch, when it has partitions to give up, and when those that it waits for are free. v3 brings the instance id (KIP-345).

func (h *Handlers) heartbeat(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.HeartbeatRequest)
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.Version = req.Version
	resp.ErrorCode = groupCode(h.Groups.Coordinator().Heartbeat(group.HeartbeatRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation,
	}))
	return resp, nil
}
