package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteAcls, v1–v3. There is no authorizer: SECURITY_DISABLED for each filter.

func (h *Handlers) deleteACLs(_ context.Context, r *Request) (kmsg.Response, error) {
	resp := kmsg.NewPtrDeleteACLsResponse()
	resp.Version = r.Version
	resp.Results = make([]kmsg.DeleteACLsResponseResult, len(r.Body.(*kmsg.DeleteACLsRequest).Filters))
	for i := range resp.Results {
		setError(&resp.Results[i].ErrorCode, &resp.Results[i].ErrorMessage, errNoAuthorizer)
	}
	return resp, nil
}
