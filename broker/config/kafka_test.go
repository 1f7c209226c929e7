package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// notKafkas are the names that Apache Kafka 4.4 does not tell in DescribeConfigs.
var notKafkas = map[string]string{
	"flush.policy":               "ours",
	"log.flush.policy":           "ours",
	"remote.copy.max.age.ms":     "ours",
	"log.remote.copy.max.age.ms": "ours",

	"leader.replication.throttled.rate":              "set and told only dynamically, by kafka-reassign-partitions",
	"follower.replication.throttled.rate":            "set and told only dynamically, by kafka-reassign-partitions",
	"replica.alter.log.dirs.io.max.bytes.per.second": "set and told only dynamically, by kafka-reassign-partitions",

	"remote.log.index.file.cache.ttl.ms":           "internal there",
	"remote.log.manager.task.retry.backoff.ms":     "internal there",
	"remote.log.manager.task.retry.backoff.max.ms": "internal there",
	"unclean.leader.election.interval.ms":          "internal there",

	"remote.log.metadata.topic.num.partitions":     "of a plugin there",
	"remote.log.metadata.topic.replication.factor": "of a plugin there",
	"remote.log.metadata.topic.min.isr":            "of a plugin there",
	"remote.log.metadata.topic.retention.ms":       "of a plugin there",
}

// What Apache Kafka 4.4 tells of a config (type, read-only, default) is what the table tells, and no topic config is missing.
func TestTableAgainstKafka(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "kafka-4.4.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	theirs := map[string]string{}
	for line := range strings.Lines(string(b)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 5 {
			continue
		}
		theirs[fields[0]+" "+fields[1]] = strings.Join(fields[2:], " ")
		if fields[0] == "TOPIC" && TopicDef(fields[1]) == nil {
			t.Errorf("topic config %s is missing", fields[1])
		}
	}
	r := resolver(t, Options{})
	for resource, entries := range map[string][]Entry{"TOPIC": r.DescribeTopic(nil, Dynamic{}), "BROKER": r.DescribeBroker(Dynamic{})} {
		for _, e := range entries {
			value := "null"
			if e.Value != nil {
				value = *e.Value
			}
			ours := fmt.Sprintf("%s %v %s", e.Type, e.ReadOnly, value)
			want, known := theirs[resource+" "+e.Name]
			switch {
			case !known && notKafkas[e.Name] == "":
				t.Errorf("%s config %s is not Kafka's", resource, e.Name)
			case known && ours != want:
				t.Errorf("%s config %s is %s, Kafka's is %s", resource, e.Name, ours, want)
			}
		}
	}
}
