package api

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/txn"
	"github.com/varvehq/varve/internal/kafka"
)

// WriteTxnMarkers, v1–v2.
//
// The coordinator of this node writes its markers itself; the request is for tools that abort a hanging transaction (KIP-664).
// The answer comes when the markers are durable.

func (h *Handlers) writeTxnMarkers(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.WriteTxnMarkersRequest)
	resp := kmsg.NewPtrWriteTxnMarkersResponse()
	resp.Version = req.Version
	resp.Markers = make([]kmsg.WriteTxnMarkersResponseMarker, len(req.Markers))
	var wg sync.WaitGroup
	for i := range req.Markers {
		in, out := &req.Markers[i], &resp.Markers[i]
		out.ProducerID = in.ProducerID
		out.Topics = make([]kmsg.WriteTxnMarkersResponseMarkerTopic, len(in.Topics))
		m := txn.Markers{ProducerID: in.ProducerID, Epoch: in.ProducerEpoch, Commit: in.Committed, CoordinatorEpoch: in.CoordinatorEpoch}
		for j, t := range in.Topics {
			rt := &out.Topics[j]
			rt.Topic = t.Topic
			rt.Partitions = make([]kmsg.WriteTxnMarkersResponseMarkerTopicPartition, len(t.Partitions))
			for k, p := range t.Partitions {
				rt.Partitions[k].Partition = p
				code := &rt.Partitions[k].ErrorCode
				wg.Go(func() { *code = codeOf(h.Txns.WriteMarker(ctx, kafka.TopicPartition{Topic: t.Topic, Partition: p}, m)) })
			}
		}
	}
	wg.Wait()
	return resp, nil
}
