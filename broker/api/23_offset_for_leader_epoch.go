package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/partition"
)

// OffsetForLeaderEpoch, v2–v4 (KIP-101, KIP-279, KIP-320).
//
// Tells where a leader epoch ends, so that clients and followers find the point up to which two logs agree.

func (h *Handlers) offsetForLeaderEpoch(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.OffsetForLeaderEpochRequest)
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	resp.Topics = make([]kmsg.OffsetForLeaderEpochResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = t.Topic
		out.Partitions = make([]kmsg.OffsetForLeaderEpochResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			in, o := &t.Partitions[j], &out.Partitions[j]
			o.Default()
			o.Partition, o.LeaderEpoch, o.EndOffset = in.Partition, -1, -1
			p, err := h.Data.Partition(t.Topic, in.Partition)
			if err == nil {
				var e partition.EpochEnd
				e, err = p.EpochEnd(in.LeaderEpoch, in.CurrentLeaderEpoch)
				o.LeaderEpoch, o.EndOffset = e.Epoch, e.End
			}
			o.ErrorCode = codeOf(err)
		}
	}
	return resp, nil
}
