package api

import (
	"cmp"
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/partition"
)

// ListOffsets, v1–v11.
//
// Timestamps are answered exactly, within a batch too, over both tiers. The special timestamps are -1 latest (the high
// watermark, or the last stable offset with read_committed), -2 earliest, -3 largest timestamp (v7), -4 earliest local (v8),
// -5 latest tiered (v9), -6 earliest pending upload (v11). A special timestamp of a later version than the request's is
// answered with UNSUPPORTED_VERSION for its partition, a partition named twice with INVALID_REQUEST, as Kafka does. The answer
// may wait for the bucket, so it comes later than those of other connections but in its own connection's order.
//
// An answer to -5 has the tagged field ProblemTag, a UTF-8 text, where the partition serves nothing any more or cannot bring
// its segments to the bucket. Clients pass over tagged fields that they do not know.

// ProblemTag is the tagged field of a ListOffsets partition that says what is wrong with it.
const ProblemTag = 21878

// specialSince is the version from which a special timestamp is understood.
var specialSince = map[int64]int16{
	partition.MaxTimestamp: 7, partition.EarliestLocal: 8, partition.LatestTiered: 9, partition.EarliestPendingUpload: 11,
}

func (h *Handlers) listOffsets(_ context.Context, r *Request) (Later, error) {
	return LaterFunc(func(ctx context.Context) (kmsg.Response, error) { return h.listAllOffsets(ctx, r) }), nil
}

func (h *Handlers) listAllOffsets(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.ListOffsetsRequest)
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = t.Topic
		out.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(t.Partitions))
		seen := make(map[int32]int, len(t.Partitions))
		for j := range t.Partitions {
			seen[t.Partitions[j].Partition]++
		}
		for j := range t.Partitions {
			in, o := &t.Partitions[j], &out.Partitions[j]
			o.Default()
			o.Partition, o.Offset, o.Timestamp, o.LeaderEpoch = in.Partition, -1, -1, -1
			switch since, special := specialSince[in.Timestamp]; {
			case seen[in.Partition] > 1:
				o.ErrorCode = kerr.InvalidRequest.Code
			case special && r.Version < since || in.Timestamp < partition.EarliestPendingUpload:
				o.ErrorCode = kerr.UnsupportedVersion.Code
			default:
				h.listOffset(ctx, t.Topic, in, req.IsolationLevel == 1, o)
			}
		}
	}
	return resp, ctx.Err()
}

func (h *Handlers) listOffset(ctx context.Context, topic string, in *kmsg.ListOffsetsRequestTopicPartition, committed bool,
	o *kmsg.ListOffsetsResponseTopicPartition) {
	p, err := h.Data.Partition(topic, in.Partition)
	if err == nil {
		var a partition.OffsetAnswer
		a, err = p.ListOffset(ctx, partition.OffsetQuery{Timestamp: in.Timestamp, LeaderEpoch: in.CurrentLeaderEpoch, Committed: committed})
		o.Offset, o.Timestamp, o.LeaderEpoch = a.Offset, a.Timestamp, a.LeaderEpoch
	}
	if err != nil {
		o.ErrorCode = codeOf(err)
		if o.ErrorCode == kerr.UnknownServerError.Code || o.ErrorCode == kerr.KafkaStorageError.Code {
			h.warn("list offsets failed", "topic", topic, "partition", in.Partition, "err", err)
		}
	}
	if in.Timestamp == partition.LatestTiered && p != nil {
		if problem := cmp.Or(p.Problem(), err); problem != nil {
			o.UnknownTags.Set(ProblemTag, []byte(problem.Error()))
		}
	}
}
