package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/group"
)

// DescribeGroups, v0–v6.
//
// The answer has the groups of the request in their order. Member metadata and the protocol are told only while a group is
// stable; the assignments are the last ones. A group that does not exist is Dead without an error up to v5 and GROUP_ID_NOT_FOUND from v6 on
// (KIP-1043). v3 brings authorized operations (KIP-430), v4 instance ids (KIP-345).

// groupOperations is the bit field of all operations that ACLs know for groups: read, delete, describe, describe configs and
// alter configs.
const groupOperations = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11

func (h *Handlers) describeGroups(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DescribeGroupsRequest)
	resp := kmsg.NewPtrDescribeGroupsResponse()
	resp.Version = req.Version
	for _, id := range req.Groups {
		g := kmsg.NewDescribeGroupsResponseGroup()
		g.Group = id
		d, err := h.Groups.Coordinator().Describe(id)
		switch {
		case errors.Is(err, group.ErrGroupNotFound):
			g.State = d.State.String()
			if req.Version >= 6 {
				g.ErrorCode = groupCode(err)
				g.ErrorMessage = kmsg.StringPtr(fmt.Sprintf("Group %s not found.", id))
				if errors.Is(err, group.ErrNotClassic) {
					g.ErrorMessage = kmsg.StringPtr(fmt.Sprintf("Group %s is not a classic group.", id))
				}
			}
		case err != nil:
			g.ErrorCode, g.ErrorMessage = groupCode(err), messageOf(err)
		default:
			describeGroup(&g, d)
		}
		if g.ErrorCode == 0 && req.IncludeAuthorizedOperations {
			g.AuthorizedOperations = groupOperations
		}
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}

func describeGroup(g *kmsg.DescribeGroupsResponseGroup, d group.Description) {
	g.State, g.ProtocolType, g.Protocol = d.State.String(), d.ProtocolType, d.Protocol
	for _, m := range d.Members {
		gm := kmsg.NewDescribeGroupsResponseGroupMember()
		gm.MemberID, gm.InstanceID, gm.ClientID, gm.ClientHost = m.MemberID, m.InstanceID, m.ClientID, m.ClientHost
		gm.ProtocolMetadata, gm.MemberAssignment = notNil(m.Metadata), notNil(m.Assignment)
		g.Members = append(g.Members, gm)
	}
}

// notNil makes empty bytes of null.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
