// Package topics owns the three internal topics of a Connect cluster: what the connectors are to do (config), how far the
// sources have come (offset), and how everything fares (status). It promises Kafka Connect's own record formats, so that
// either worker understands the other's topics; task configurations that take effect only as a whole; and answers that
// are durable: a Put returns when the brokers have acknowledged the record. It never runs a connector.
//
// Keys and values are JSON without schema; a null value deletes.
//
//	config topic, one partition, compacted
//	  connector-<c>           {"properties":{…}}
//	  task-<c>-<i>            {"properties":{…}}             takes effect at the commit record that follows
//	  commit-<c>              {"tasks":<n>}
//	  target-state-<c>        {"state":"STARTED|PAUSED","state.v2":"STARTED|PAUSED|STOPPED"}
//	  restart-connector-<c>   {"include-tasks":<bool>,"only-failed":<bool>}
//	offset topic, 25 partitions, compacted
//	  ["<c>",{<source partition>}]   {<source offset>}
//	status topic, 5 partitions, compacted
//	  status-connector-<c>    {"state","trace","worker_id","generation","version"}
//	  status-task-<c>-<i>     the same
//	  status-topic-<t>:connector-<c>   {"topic":{"name","connector","task","discoverTimestamp"}}
package topics

import "fmt"

// Config names and shapes the internal topics.
type Config struct {
	ConfigTopic, OffsetTopic, StatusTopic string
	// ReplicationFactor of topics that are created; -1 is the brokers' default.
	ReplicationFactor                  int16
	OffsetPartitions, StatusPartitions int32
}

// DefaultConfig has the embedded worker's names and Kafka Connect's numbers of partitions.
func DefaultConfig() Config {
	return Config{ConfigTopic: "varve-connect-configs", OffsetTopic: "varve-connect-offsets", StatusTopic: "varve-connect-status",
		ReplicationFactor: -1, OffsetPartitions: 25, StatusPartitions: 5}
}

// Validate names the first field that cannot be used.
func (c Config) Validate() error {
	names := map[string]string{}
	for _, f := range []struct{ field, topic string }{
		{"config_topic", c.ConfigTopic}, {"offset_topic", c.OffsetTopic}, {"status_topic", c.StatusTopic},
	} {
		if f.topic == "" {
			return fmt.Errorf("topics.%s: must not be empty", f.field)
		}
		if other, ok := names[f.topic]; ok {
			return fmt.Errorf("topics.%s: %s is already topics.%s", f.field, f.topic, other)
		}
		names[f.topic] = f.field
	}
	if c.ReplicationFactor == 0 || c.ReplicationFactor < -1 {
		return fmt.Errorf("topics.replication_factor: %d is neither -1 nor positive", c.ReplicationFactor)
	}
	if c.OffsetPartitions < 1 || c.StatusPartitions < 1 {
		return fmt.Errorf("topics.offset_partitions, topics.status_partitions: must be positive")
	}
	return nil
}
