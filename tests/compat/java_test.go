//go:build compat

package compat

import (
	"testing"
)

func TestJavaTools(t *testing.T) {
	p := start(t)
	b := []string{"--bootstrap-server", p.Kafka}
	with := func(args ...string) []string { return append(append([]string{}, b...), args...) }

	want(t, java(t, "", brokerVersions, b...), "Produce(0): 0 to 13", "Fetch(1): 4 to 18", "DescribeTopicPartitions(75)")

	want(t, java(t, "", topics, with("--create", "--topic", "lines", "--partitions", "3", "--config", "retention.ms=86400000")...), "Created topic lines.")
	want(t, java(t, "", topics, with("--list")...), "lines")
	want(t, java(t, "", topics, with("--describe", "--topic", "lines")...), "Topic: lines", "PartitionCount: 3", "ReplicationFactor: 1",
		"retention.ms=86400000", "Partition: 2", "Leader: 1", "Isr: 1")
	want(t, java(t, "", configs, with("--describe", "--all", "--entity-type", "topics", "--entity-name", "lines")...),
		"retention.ms=86400000", "cleanup.policy=delete", "segment.bytes=1073741824")

	java(t, "", topics, with("--create", "--topic", "one", "--partitions", "1")...)
	lines := numbered("java ", 5000)
	java(t, lines, consoleProducer, with("--topic", "one", "--producer-property", "compression.type=zstd")...)
	want(t, java(t, "", getOffsets, with("--topic", "one")...), "one:0:5000")
	got := java(t, "", consoleConsumer, with("--topic", "one", "--group", "readers", "--from-beginning", "--max-messages", "5000")...)
	sameLines(t, got, lines)
	want(t, java(t, "", consumerGroups, with("--list")...), "readers")
	want(t, java(t, "", consumerGroups, with("--describe", "--group", "readers")...), "one", "5000")
	want(t, java(t, "", consumerGroups, with("--reset-offsets", "--group", "readers", "--topic", "one", "--to-offset", "4990", "--execute")...), "4990")
	got = java(t, "", consoleConsumer, with("--topic", "one", "--group", "readers", "--max-messages", "10")...)
	want(t, got, "java 4990\n", "java 4999\n")
	want(t, java(t, "", consumerGroups, with("--delete", "--group", "readers")...), "was successful")
	java(t, "", topics, with("--delete", "--topic", "one")...)
	if out := java(t, "", topics, with("--list")...); out != "lines\n__consumer_offsets\n" && out != "__consumer_offsets\nlines\n" {
		t.Errorf("topics after the deletion:\n%s", out)
	}
}
