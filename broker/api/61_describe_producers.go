package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/internal/kafka"
)

// DescribeProducers, v0 (KIP-664): the producers that a partition remembers, with the first offset of the transaction that is
// open in it, or −1.

func (h *Handlers) describeProducers(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DescribeProducersRequest)
	resp := kmsg.NewPtrDescribeProducersResponse()
	resp.Version = req.Version
	for _, t := range req.Topics {
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = t.Topic
		for _, index := range t.Partitions {
			rt.Partitions = append(rt.Partitions, h.producersOf(t.Topic, index))
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

func (h *Handlers) producersOf(topic string, index int32) kmsg.DescribeProducersResponseTopicPartition {
	out := kmsg.NewDescribeProducersResponseTopicPartition()
	out.Partition = index
	p, err := h.Data.Partition(topic, index)
	if kafka.ValidateTopicName(topic) != nil {
		err = kerr.InvalidTopicException
	}
	if err == nil {
		states, serr := p.Producers()
		err = serr
		for _, s := range states {
			a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
			a.ProducerID, a.ProducerEpoch, a.LastSequence, a.LastTimestamp = s.ProducerID, int32(s.Epoch), s.LastSequence, s.Timestamp
			a.CoordinatorEpoch, a.CurrentTxnStartOffset = s.CoordinatorEpoch, s.CurrentTxnFirstOffset
			out.ActiveProducers = append(out.ActiveProducers, a)
		}
	}
	if err != nil {
		out.ErrorCode, out.ErrorMessage = codeOf(err), messageOf(err)
	}
	return out
}
