package worker

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Apply sets what properties say under Kafka Connect's own names. Names that this worker does not know are refused, so that
// a misspelt one is not lost; what is wrong is named.
func (c *Config) Apply(properties map[string]string) error {
	if len(properties) == 0 {
		return nil
	}
	c.Converters = maps.Clone(c.Converters)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if err := c.apply(name, properties[name]); err != nil {
			return fmt.Errorf("connect.properties: %s: %w", name, err)
		}
	}
	return nil
}

func (c *Config) apply(name, value string) error {
	switch name {
	case "group.id":
		c.Group = value
	case "config.storage.topic":
		c.Topics.ConfigTopic = value
	case "offset.storage.topic":
		c.Topics.OffsetTopic = value
	case "status.storage.topic":
		c.Topics.StatusTopic = value
	case "config.storage.replication.factor", "offset.storage.replication.factor", "status.storage.replication.factor":
		n, err := strconv.ParseInt(value, 10, 16)
		c.Topics.ReplicationFactor = int16(n)
		return notInteger(value, err)
	case "offset.storage.partitions":
		n, err := strconv.ParseInt(value, 10, 32)
		c.Topics.OffsetPartitions = int32(n)
		return notInteger(value, err)
	case "status.storage.partitions":
		n, err := strconv.ParseInt(value, 10, 32)
		c.Topics.StatusPartitions = int32(n)
		return notInteger(value, err)
	case "offset.flush.interval.ms":
		return millis(value, &c.FlushInterval)
	case "task.shutdown.graceful.timeout.ms":
		return millis(value, &c.ShutdownTimeout)
	case "topic.creation.enable":
		b, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", value)
		}
		c.TopicCreation = b
	default:
		for _, role := range roles {
			key := string(role) + ".converter"
			if name == key || strings.HasPrefix(name, key+".") {
				c.Converters[name] = value
				return nil
			}
		}
		return fmt.Errorf("this worker has no such setting")
	}
	return nil
}

func notInteger(value string, err error) error {
	if err != nil {
		return fmt.Errorf("%q is not an integer in range", value)
	}
	return nil
}

func millis(value string, into *time.Duration) error {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not a number of milliseconds", value)
	}
	*into = time.Duration(n) * time.Millisecond
	return nil
}
