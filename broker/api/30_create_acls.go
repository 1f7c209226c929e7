package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateAcls, v1–v3. There is no authorizer: SECURITY_DISABLED for each.

func (h *Handlers) createACLs(_ context.Context, r *Request) (kmsg.Response, error) {
	resp := kmsg.NewPtrCreateACLsResponse()
	resp.Version = r.Version
	resp.Results = make([]kmsg.CreateACLsResponseResult, len(r.Body.(*kmsg.CreateACLsRequest).Creations))
	for i := range resp.Results {
		setError(&resp.Results[i].ErrorCode, &resp.Results[i].ErrorMessage, errNoAuthorizer)
	}
	return resp, nil
}
