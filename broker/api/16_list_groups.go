package api

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/group"
)

// ListGroups, v0–v5.
//
// It lists the groups that this node coordinates. v4 brings states and a filter by them (KIP-518), v5 types and a filter by
// those (KIP-848); both compare without regard to case. While a partition is being loaded the answer is
// COORDINATOR_LOAD_IN_PROGRESS, since it would not be complete.

// classicGroup is the type of the groups that JoinGroup makes.
const (
	classicGroup  = "classic"
	consumerGroup = "consumer"
)

func typeOf(l group.Listed) string {
	if l.Consumer {
		return consumerGroup
	}
	return classicGroup
}

func (h *Handlers) listGroups(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.ListGroupsRequest)
	resp := kmsg.NewPtrListGroupsResponse()
	resp.Version = req.Version
	groups, err := h.Groups.Coordinator().List(func(l group.Listed) bool {
		return matches(req.StatesFilter, l.State) && matches(req.TypesFilter, typeOf(l))
	})
	if err != nil {
		resp.ErrorCode = groupCode(err)
		return resp, nil
	}
	for _, l := range groups {
		g := kmsg.NewListGroupsResponseGroup()
		g.Group, g.ProtocolType, g.GroupState, g.GroupType = l.Group, l.ProtocolType, l.State, typeOf(l)
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}

// matches reports whether a filter is empty or has the value.
func matches(filter []string, value string) bool {
	for _, f := range filter {
		if strings.EqualFold(strings.TrimSpace(f), value) {
			return true
		}
	}
	return len(filter) == 0
}
