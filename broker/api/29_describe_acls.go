package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeAcls, v1–v3. There is no authorizer: SECURITY_DISABLED, as Kafka without one.

var errNoAuthorizer = &explained{kerr.SecurityDisabled, "No Authorizer is configured on the broker"}

func (h *Handlers) describeACLs(_ context.Context, r *Request) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeACLsResponse()
	resp.Version = r.Version
	setError(&resp.ErrorCode, &resp.ErrorMessage, errNoAuthorizer)
	return resp, nil
}
