//go:build compat

package compat

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/tests/harness"
)

// console is Java's console consumer at work.
type console struct {
	cmd *exec.Cmd
	out harness.Buffer
}

func (c *console) lines() []string { return strings.SplitAfter(c.out.String(), "\n") }

// consume starts a console consumer, which is stopped at the end at the latest.
func consume(ctx context.Context, t *testing.T, args ...string) *console {
	t.Helper()
	script, err := filepath.Abs("../tools/kafka.sh")
	if err != nil {
		t.Fatal(err)
	}
	c := &console{cmd: exec.CommandContext(ctx, script, append([]string{"tool", consoleConsumer}, args...)...)}
	c.cmd.Stdout = &c.out
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.stop(t) })
	return c
}

// stop lets the consumer leave its group and end.
func (c *console) stop(t *testing.T) {
	if c.cmd.ProcessState != nil {
		return
	}
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGTERM)
	var exit *exec.ExitError
	if err := c.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Error(err)
	}
}

// until waits for what is to become true.
func until(ctx context.Context, t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("it does not come to that %s", what)
		}
	}
}

// A Java consumer with group.protocol=consumer joins a group that a classic Java consumer is in: the group changes its protocol,
// both share its partitions and read every record once, and when the one leaves the other has all of them as a classic group.
func TestJavaMigration(t *testing.T) {
	p := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	b := []string{"--bootstrap-server", p.Kafka}
	with := func(args ...string) []string { return append(append([]string{}, b...), args...) }
	client, err := kgo.NewClient(kgo.SeedBrokers(p.Kafka), kgo.DefaultProduceTopic("move"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, 4, 1, nil, "move"); err != nil {
		t.Fatal(err)
	}
	var sent []string
	produce := func(prefix string) {
		lines := strings.SplitAfter(strings.TrimSuffix(numbered(prefix, 400), "\n"), "\n")
		for i, line := range lines {
			text := strings.TrimSuffix(line, "\n")
			sent = append(sent, text+"\n")
			r := &kgo.Record{Key: []byte{byte(i), byte(i >> 8)}, Value: []byte(text)}
			if err := client.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	alone := func() bool {
		ds, err := admin.DescribeGroups(ctx, "moving")
		g := ds["moving"]
		if err != nil || g.State != "Stable" || len(g.Members) != 1 {
			return false
		}
		a, ok := g.Members[0].Assigned.AsConsumer()
		return ok && len(a.Topics) == 1 && len(a.Topics[0].Partitions) == 4
	}
	shared := func() bool {
		req := kmsg.NewPtrConsumerGroupDescribeRequest()
		req.Groups = []string{"moving"}
		resp, err := req.RequestWith(ctx, client)
		if err != nil {
			return false
		}
		g, types := resp.Groups[0], []int8{}
		for _, m := range g.Members {
			if types = append(types, m.MemberType); len(m.Assignment.TopicPartitions) != 1 || len(m.Assignment.TopicPartitions[0].Partitions) != 2 {
				return false
			}
		}
		slices.Sort(types)
		return g.State == "Stable" && slices.Equal(types, []int8{0, 1})
	}

	classic := consume(ctx, t, with("--topic", "move", "--group", "moving", "--from-beginning")...)
	until(ctx, t, "the classic consumer has all partitions", alone)
	produce("classic ")
	until(ctx, t, "the classic consumer has read all", func() bool { return len(classic.lines()) > 400 })
	modern := consume(ctx, t, with("--topic", "move", "--group", "moving", "--command-property", "group.protocol=consumer")...)
	until(ctx, t, "two consumers of either protocol share the partitions", shared)
	produce("mixed ")
	both := func() int { return len(classic.lines()) + len(modern.lines()) - 2 }
	until(ctx, t, "two consumers have read all", func() bool { return both() >= 800 })
	if len(modern.lines()) < 10 || len(classic.lines()) < 410 {
		t.Errorf("one of two consumers has read nothing: %d and %d lines", len(classic.lines()), len(modern.lines()))
	}
	want(t, java(t, "", consumerGroups, with("--describe", "--group", "moving", "--members", "--verbose")...), "move:")
	modern.stop(t)
	until(ctx, t, "the classic consumer has all partitions again", alone)
	produce("again ")
	until(ctx, t, "the classic consumer has read the rest", func() bool { return both() >= 1200 })
	classic.stop(t)
	sameLines(t, sorted(strings.Join(append(classic.lines(), modern.lines()...), "")), sorted(strings.Join(sent, "")))
}
