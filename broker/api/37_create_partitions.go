package api

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/varvehq/varve/broker/controller"
)

// CreatePartitions, v0–v3.
//
// Raises the number of partitions of topics to a new total; each topic succeeds or fails by itself and every one is answered.
// A topic that stands twice in one request is INVALID_REQUEST. Manual assignments are for the added partitions, with as many
// replicas as the topic has. Timeouts are as in CreateTopics.

func (h *Handlers) createPartitions(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.CreatePartitionsRequest)
	resp := kmsg.NewPtrCreatePartitionsResponse()
	resp.Version = req.Version
	ctx, cancel := withTimeout(ctx, req.TimeoutMillis)
	defer cancel()

	times := make(map[string]int, len(req.Topics))
	for i := range req.Topics {
		times[req.Topics[i].Topic]++
	}
	var asks []controller.NewPartitions
	for i := range req.Topics {
		t := &req.Topics[i]
		if times[t.Topic] > 1 {
			continue
		}
		ask := controller.NewPartitions{Name: t.Topic, Count: t.Count}
		for _, a := range t.Assignment {
			ask.Assignments = append(ask.Assignments, a.Replicas)
		}
		asks = append(asks, ask)
	}
	results, err := h.Controller.CreatePartitions(ctx, asks, req.ValidateOnly)
	for i := range req.Topics {
		t := kmsg.NewCreatePartitionsResponseTopic()
		t.Topic = req.Topics[i].Topic
		terr := err
		switch {
		case times[t.Topic] > 1:
			terr = fmt.Errorf("%w: Duplicate topic name.", controller.ErrInvalidRequest) //nolint:staticcheck // Kafka's text
		case err == nil:
			terr, results = results[0].Err, results[1:]
		}
		t.ErrorCode, t.ErrorMessage = codeOf(terr), reasonOf(terr)
		resp.Topics = append(resp.Topics, t)
	}
	return resp, nil
}
