//go:build compat

package compat

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Java's consumer with group.protocol=consumer reads all, by name and by pattern, its offsets are the group's, and Java's tools
// tell what a group of that protocol is while a member is in it. Settings of the group are kept within the broker's bounds.
func TestJavaConsumerProtocol(t *testing.T) {
	p := start(t)
	b := []string{"--bootstrap-server", p.Kafka}
	with := func(args ...string) []string { return append(append([]string{}, b...), args...) }
	java(t, "", topics, with("--create", "--topic", "next", "--partitions", "3")...)
	lines := numbered("next ", 3000)
	java(t, lines, consoleProducer, with("--topic", "next")...)
	consumer := func(args ...string) string {
		return java(t, "", consoleConsumer, with(append(args, "--command-property", "group.protocol=consumer")...)...)
	}
	sameLines(t, sorted(consumer("--topic", "next", "--group", "modern", "--from-beginning", "--max-messages", "3000")), sorted(lines))
	sameLines(t, sorted(consumer("--include", "ne.t", "--group", "pattern", "--from-beginning", "--max-messages", "3000")), sorted(lines))
	want(t, java(t, "", consumerGroups, with("--list", "--type")...), "modern", "Consumer")
	want(t, java(t, "", consumerGroups, with("--describe", "--group", "modern")...), "modern", "next")

	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	member, err := kgo.NewClient(kgo.SeedBrokers(p.Kafka), kgo.ServerSideBalancer(), kgo.ConsumerGroup("modern"), kgo.ConsumeTopics("next"))
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	java(t, numbered("more ", 30), consoleProducer, with("--topic", "next")...)
	for got := 0; got < 30; {
		fs := member.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		got += fs.NumRecords()
	}
	want(t, java(t, "", consumerGroups, with("--describe", "--group", "modern", "--state", "--verbose")...), "uniform", "Stable")
	want(t, java(t, "", consumerGroups, with("--describe", "--group", "modern", "--members", "--verbose")...), "next:0,1,2")

	set := func(value string) []string {
		return with("--alter", "--entity-type", "groups", "--entity-name", "modern", "--add-config", "consumer.session.timeout.ms="+value)
	}
	java(t, "", configs, set("50000")...)
	want(t, java(t, "", configs, with("--describe", "--entity-type", "groups", "--entity-name", "modern")...), "consumer.session.timeout.ms=50000")
	script, err := filepath.Abs("../tools/kafka.sh")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(ctx, script, append([]string{"tool", configs}, set("1000")...)...).CombinedOutput()
	if err == nil {
		t.Error("a session timeout below the broker's bounds is taken")
	}
	want(t, string(out), "must be in the range 45000 to 60000 inclusive")
}

// sorted brings the lines of several partitions into one order.
func sorted(lines string) string {
	all := strings.SplitAfter(lines, "\n")
	slices.Sort(all)
	return strings.Join(all, "")
}
