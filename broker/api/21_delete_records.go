package api

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/partition"
)

// DeleteRecords, v0–v2 (KIP-107).
//
// Moves the log start of partitions, -1 for the high watermark, and answers with it: on disk when it is told, whichever tier
// the records are in; local segments and objects below it go later, as with retention. As in Kafka a topic that is only
// compacted refuses with POLICY_VIOLATION, an offset above the high watermark with OFFSET_OUT_OF_RANGE, and one below the
// log start changes nothing.

var errOnlyCompacted = errors.New("records of a topic that is only compacted are not deleted by offset")

func (h *Handlers) deleteRecords(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DeleteRecordsRequest)
	resp := kmsg.NewPtrDeleteRecordsResponse()
	resp.Topics = make([]kmsg.DeleteRecordsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = t.Topic
		out.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			in, o := &t.Partitions[j], &out.Partitions[j]
			o.Default()
			o.Partition, o.LowWatermark = in.Partition, -1
			start, err := h.deleteRecordsOf(t.Topic, in)
			if err == nil {
				o.LowWatermark = start
			}
			o.ErrorCode = codeOf(err)
			if o.ErrorCode == kerr.UnknownServerError.Code {
				h.Log.Error("records not deleted", "topic", t.Topic, "partition", in.Partition, "err", err)
			}
		}
	}
	return resp, nil
}

func (h *Handlers) deleteRecordsOf(topic string, in *kmsg.DeleteRecordsRequestTopicPartition) (int64, error) {
	p, err := h.Data.Partition(topic, in.Partition)
	if err != nil {
		return -1, err
	}
	if cfg := p.Config(); cfg.Compact && !cfg.Delete {
		return -1, errOnlyCompacted
	}
	if in.Offset < partition.Latest {
		return -1, partition.ErrOffsetOutOfRange
	}
	return p.DeleteRecords(in.Offset)
}
