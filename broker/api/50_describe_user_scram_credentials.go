package api

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeUserScramCredentials, v0 (KIP-554). No user has credentials: none are told where all are asked for, and each that is
// named is RESOURCE_NOT_FOUND, or DUPLICATE_RESOURCE where it is named twice.

func (h *Handlers) describeScramCredentials(_ context.Context, r *Request) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeUserSCRAMCredentialsResponse()
	users := r.Body.(*kmsg.DescribeUserSCRAMCredentialsRequest).Users
	times := make(map[string]int, len(users))
	for i := range users {
		times[users[i].Name]++
	}
	for i := range users {
		name := users[i].Name
		if times[name] == 0 {
			continue // told already
		}
		res := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
		res.User = name
		err := &explained{kerr.ResourceNotFound, fmt.Sprintf("Attempt to describe a user credential that does not exist: %s", name)}
		if times[name] > 1 {
			err = &explained{kerr.DuplicateResource, fmt.Sprintf("Cannot describe SCRAM credentials for the same user twice in a single request: %s", name)}
		}
		setError(&res.ErrorCode, &res.ErrorMessage, err)
		resp.Results = append(resp.Results, res)
		times[name] = 0
	}
	return resp, nil
}
