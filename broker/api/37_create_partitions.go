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
// replicas as the topic has. Timeouts are as in CreateTopics, and so
// is the controller_mutation_rate, which is strict from v3 on.

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
	charge := h.mutationsOf(r, 3)
	refused := map[string]error{}
	var counts []int
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
		n := max(0, int(t.Count)-partitionsOf(h.Controller.Image(), controller.TopicRef{Name: t.Topic}))
		if err := charge.take(n); err != nil {
			refused[t.Topic] = err
			continue
		}
		asks, counts = append(asks, ask), append(counts, n)
	}
	results, err := h.Controller.CreatePartitions(ctx, asks, req.ValidateOnly)
	for i := range req.Topics {
		t := kmsg.NewCreatePartitionsResponseTopic()
		t.Topic = req.Topics[i].Topic
		terr := err
		switch {
		case times[t.Topic] > 1:
			terr = fmt.Errorf("%w: Duplicate topic name.", controller.ErrInvalidRequest) //nolint:staticcheck // Kafka's text
		case refused[t.Topic] != nil:
			terr = refused[t.Topic]
		default:
			if err == nil {
				terr, results = results[0].Err, results[1:]
			}
			if terr != nil {
				charge.giveBack(counts[0])
			}
			counts = counts[1:]
		}
		t.ErrorCode, t.ErrorMessage = codeOf(terr), reasonOf(terr)
		resp.Topics = append(resp.Topics, t)
	}
	resp.ThrottleMillis = charge.millis()
	return resp, nil
}
