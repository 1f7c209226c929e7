package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteGroups, v0–v3.
//
// Empty groups go with their offsets (KIP-229), once that is durable; others are NON_EMPTY_GROUP, and those that do not exist
// GROUP_ID_NOT_FOUND. A group that is named twice is answered once, as in Kafka. v3 brings messages (KIP-1331), which Kafka
// leaves null for these errors, as here.

func (h *Handlers) deleteGroups(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DeleteGroupsRequest)
	resp := kmsg.NewPtrDeleteGroupsResponse()
	resp.Version = req.Version
	var groups []string
	seen := make(map[string]bool, len(req.Groups))
	for _, g := range req.Groups {
		if !seen[g] {
			seen[g] = true
			groups = append(groups, g)
		}
	}
	errs := h.Groups.Coordinator().Delete(ctx, groups)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for i, err := range errs {
		g := kmsg.NewDeleteGroupsResponseGroup()
		g.Group, g.ErrorCode = groups[i], groupCode(err)
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}
