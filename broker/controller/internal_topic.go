package controller

import (
	"context"
	"errors"
	"strconv"

	"github.com/varvehq/varve/internal/kafka"
)

// IsInternal reports whether a topic is one of the broker's own.
func IsInternal(topic string) bool {
	return topic == kafka.ConsumerOffsetsTopic || topic == kafka.TransactionStateTopic
}

// EnsureTopic returns a topic, and makes it with the defaults where there is none. The broker's own topics are compacted and
// get their number of partitions, replicas and segment size from the broker configs of their own.
func (c *Controller) EnsureTopic(ctx context.Context, name string) (*Topic, error) {
	if t := c.Image().Topic(name); t != nil {
		return t, nil
	}
	results, err := c.CreateTopics(ctx, []NewTopic{c.defaultTopic(name)}, false)
	if err != nil {
		return nil, err
	}
	if t := c.Image().Topic(name); errors.Is(results[0].Err, ErrTopicExists) && t != nil {
		return t, nil
	}
	return results[0].Topic, results[0].Err
}

func (c *Controller) defaultTopic(name string) NewTopic {
	t := NewTopic{Name: name, Partitions: -1, ReplicationFactor: -1}
	if !IsInternal(name) {
		return t
	}
	b := c.env.Configs.Broker(c.Image().Dynamic(c.env.NodeID))
	partitions, replicas, segment := b.OffsetsTopicPartitions, b.OffsetsTopicReplication, b.OffsetsTopicSegmentBytes
	compression := "producer"
	if name == kafka.TransactionStateTopic {
		partitions, replicas, segment = b.TransactionTopicPartitions, b.TransactionTopicReplication, b.TransactionTopicSegmentBytes
		compression = "uncompressed"
	}
	t.Partitions, t.ReplicationFactor, t.Internal = partitions, replicas, true
	t.Configs = map[string]string{
		"cleanup.policy": "compact", "compression.type": compression, "segment.bytes": strconv.FormatInt(segment, 10),
	}
	return t
}
