package api

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeCluster, v0–v2.
//
// The cluster's id, its brokers with their address on the listener the request came by, and who takes what is for the
// controller: this broker. From v1 on the request says what it wants endpoints of (KIP-919): brokers are 1; controllers, 2,
// have no listener for clients here and are MISMATCHED_ENDPOINT_TYPE, as on Apache Kafka's broker listeners. From v2 on
// fenced brokers are told if asked for (KIP-1073).

func (h *Handlers) describeCluster(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DescribeClusterRequest)
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.Version = req.Version
	if req.Version >= 1 && req.EndpointType != 1 {
		code, reason := kerr.UnsupportedEndpointType.Code, fmt.Sprint("Unsupported endpoint type ", req.EndpointType)
		if req.EndpointType == 2 {
			code, reason = kerr.MismatchedEndpointType.Code, "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
		}
		resp.ErrorCode, resp.ErrorMessage = code, &reason
		return resp, nil
	}
	im := h.Controller.Image()
	resp.ClusterID, resp.ControllerID = im.ClusterID, h.controllerID(im)
	resp.EndpointType = 1
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = allClusterOperations
	}
	for _, id := range sortedKeys(im.Brokers) {
		b := im.Brokers[id]
		l, ok := endpoint(b, r.Conn)
		if !ok || b.Fenced && !req.IncludeFencedBrokers {
			continue
		}
		rb := kmsg.NewDescribeClusterResponseBroker()
		rb.NodeID, rb.Host, rb.Port, rb.Rack, rb.IsFenced = id, l.Host, l.Port, rackOf(b), b.Fenced
		resp.Brokers = append(resp.Brokers, rb)
	}
	return resp, nil
}
