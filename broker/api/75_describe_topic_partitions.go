package api

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/internal/kafka"
)

// DescribeTopicPartitions, v0 (KIP-966).
//
// The named topics, or all, in order of name, with as many partitions as the request's limit and
// max.request.partition.size.limit allow, at least one. What is left out begins at NextCursor; a request with that cursor
// goes on there, also when the cursor's topic is gone by then. Eligible leader replicas are empty: every replica that could be one
// is in the ISR. Topics that fail count for nothing in the limit. A cursor of a negative partition, or of a topic that is not
// among those that are named, is INVALID_REQUEST, which this response can only tell for each topic that is named.

func (h *Handlers) describeTopicPartitions(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DescribeTopicPartitionsRequest)
	resp := kmsg.NewPtrDescribeTopicPartitionsResponse()
	resp.Version = req.Version
	im := h.Controller.Image()
	names, first := namesFromCursor(im, req)
	if first < 0 {
		for i := range req.Topics {
			failed := failedTopic(req.Topics[i].Topic, kerr.InvalidRequest)
			failed.IsInternal = false
			resp.Topics = append(resp.Topics, failed)
		}
		return resp, nil
	}
	left := min(h.Controller.Configs().Broker(im.Dynamic(h.NodeID)).MaxRequestPartitions, req.ResponsePartitionLimit)
	left = max(left, 1)
	for _, name := range names {
		if left == 0 {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name}
			break
		}
		t := im.Topic(name)
		if t == nil {
			failed := failedTopic(name, topicNameError(name))
			failed.AuthorizedOperations = allTopicOperations
			resp.Topics = append(resp.Topics, failed)
			continue
		}
		from := 0
		if req.Cursor != nil && name == req.Cursor.Topic {
			from = min(int(first), len(t.Partitions))
		}
		to := min(from+int(left), len(t.Partitions))
		resp.Topics = append(resp.Topics, describedTopic(im, t, from, to))
		if left -= int32(to - from); to < len(t.Partitions) {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: int32(to)}
			break
		}
	}
	return resp, nil
}

// namesFromCursor are the topics to tell in order, and the partition to begin at in the cursor's topic: negative where the
// cursor cannot be.
func namesFromCursor(im *controller.Image, req *kmsg.DescribeTopicPartitionsRequest) ([]string, int32) {
	names := im.TopicNames()
	if len(req.Topics) > 0 {
		names = make([]string, 0, len(req.Topics))
		for i := range req.Topics {
			names = append(names, req.Topics[i].Topic)
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	if req.Cursor == nil {
		return names, 0
	}
	at, found := slices.BinarySearch(names, req.Cursor.Topic)
	if !found && len(req.Topics) > 0 {
		return nil, -1
	}
	return names[at:], req.Cursor.Partition
}

func topicNameError(name string) error {
	if err := kafka.ValidateTopicName(name); err != nil {
		return fmt.Errorf("%w: %w", controller.ErrInvalidTopic, err)
	}
	return controller.ErrUnknownTopic
}

func failedTopic(name string, err error) kmsg.DescribeTopicPartitionsResponseTopic {
	t := kmsg.NewDescribeTopicPartitionsResponseTopic()
	t.ErrorCode, t.Topic, t.IsInternal = codeOf(err), &name, controller.IsInternal(name)
	return t
}

func describedTopic(im *controller.Image, topic *controller.Topic, from, to int) kmsg.DescribeTopicPartitionsResponseTopic {
	t := kmsg.NewDescribeTopicPartitionsResponseTopic()
	t.Topic, t.TopicID, t.IsInternal = &topic.Name, topic.ID, controller.IsInternal(topic.Name)
	t.AuthorizedOperations = allTopicOperations
	for i := from; i < to; i++ {
		p := &topic.Partitions[i]
		rp := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		rp.Partition, rp.LeaderID, rp.LeaderEpoch = int32(i), p.Leader, p.LeaderEpoch
		rp.Replicas, rp.ISR, rp.OfflineReplicas = p.Replicas, p.ISR, offline(im, p.Replicas)
		rp.EligibleLeaderReplicas, rp.LastKnownELR = []int32{}, []int32{}
		if b := im.Brokers[p.Leader]; b == nil || b.Fenced {
			rp.ErrorCode, rp.LeaderID = kerr.LeaderNotAvailable.Code, controller.NoLeader
		}
		t.Partitions = append(t.Partitions, rp)
	}
	return t
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
