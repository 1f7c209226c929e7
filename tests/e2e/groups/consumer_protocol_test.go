package groups_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/tests/harness"
)

// describe tells a group of the consumer protocol.
func describe(ctx context.Context, t *testing.T, c *kgo.Client, group string) kmsg.ConsumerGroupDescribeResponseGroup {
	t.Helper()
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Groups[0]
}

// A group of kgo consumers with the consumer protocol reads everything once while members come and go, half of the
// partitions each.
func TestConsumerProtocol(t *testing.T) {
	ctx, stop := context.WithTimeout(context.Background(), 100*time.Second)
	defer stop()
	node := harness.Start(t, harness.WithKafka("group.consumer.min.heartbeat.interval.ms", "100"),
		harness.WithKafka("group.consumer.heartbeat.interval.ms", "100"))
	w := &world{t: t, node: node, ctx: ctx, topic: "t"}
	if _, err := kadm.NewClient(node.Client()).CreateTopic(ctx, partitions, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	w.produce(300)
	seen := map[string]bool{}
	member := func() *kgo.Client {
		return node.Client(kgo.ConsumerGroup("g"), kgo.ServerSideBalancer(), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	}
	poll := func(until int, clients ...*kgo.Client) {
		for len(seen) < until {
			for _, c := range clients {
				pollFor(ctx, c, 200*time.Millisecond).EachRecord(func(r *kgo.Record) {
					if seen[string(r.Value)] {
						t.Errorf("%s is read twice", r.Value)
					}
					seen[string(r.Value)] = true
				})
				if err := c.CommitUncommittedOffsets(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if ctx.Err() != nil {
				t.Fatalf("%d of %d records were read", len(seen), until)
			}
		}
	}
	a := member()
	poll(300, a)
	b := member()
	for g := describe(ctx, t, a, "g"); len(g.Members) != 2 || g.State != "Stable"; g = describe(ctx, t, a, "g") {
		pollFor(ctx, a, 50*time.Millisecond)
		pollFor(ctx, b, 50*time.Millisecond)
		if ctx.Err() != nil {
			t.Fatalf("two members do not come to rest: %+v", g)
		}
	}
	w.produce(300)
	poll(600, a, b)
	g := describe(ctx, t, a, "g")
	for _, m := range g.Members {
		n := 0
		for _, tp := range m.Assignment.TopicPartitions {
			n += len(tp.Partitions)
		}
		if n != partitions/2 {
			t.Errorf("%s has %d of %d partitions", m.MemberID, n, partitions)
		}
	}
	b.Close()
	w.produce(300)
	poll(900, a)
	if now := describe(ctx, t, a, "g"); len(now.Members) != 1 || now.Epoch <= g.Epoch {
		t.Errorf("after a member has left: %s", fmt.Sprint(now))
	}
}

func pollFor(ctx context.Context, c *kgo.Client, d time.Duration) kgo.Fetches {
	short, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return c.PollFetches(short)
}
