package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListPartitionReassignments, v0 (KIP-455).
//
// Reassignments that are under way: none ever is.

func (h *Handlers) listReassignments(_ context.Context, r *Request) (kmsg.Response, error) {
	resp := kmsg.NewPtrListPartitionReassignmentsResponse()
	resp.Version = r.Version
	return resp, nil
}
