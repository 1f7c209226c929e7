package groups_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/tests/harness"
)

// The types of members in ConsumerGroupDescribe.
const (
	classicMember  int8 = 0
	consumerMember int8 = 1
)

// keepProducing sends records until it is stopped; stop tells how many.
func (w *world) keepProducing() (stop func() int) {
	c := w.node.Client(kgo.DefaultProduceTopic(w.topic))
	ctx, cancel := context.WithCancel(w.ctx)
	sent, done := 0, make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			s := fmt.Sprint(sent)
			if err := c.ProduceSync(w.ctx, &kgo.Record{Key: []byte(s), Value: []byte(s)}).FirstErr(); err != nil {
				done <- err
				return
			}
			sent++
			select {
			case <-time.After(2 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		done <- nil
	}()
	return func() int {
		w.t.Helper()
		cancel()
		if err := <-done; err != nil {
			w.t.Fatal(err)
		}
		c.Close()
		return sent
	}
}

// waitForConsumers waits until the consumer group is stable with members of these types, and checks that they share all partitions.
func (w *world) waitForConsumers(group string, types ...int8) {
	w.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		g := describe(w.ctx, w.t, w.node.Client(), group)
		var have []int8
		owners := map[int32]int{}
		for _, m := range g.Members {
			have = append(have, m.MemberType)
			for _, tp := range m.Assignment.TopicPartitions {
				for _, p := range tp.Partitions {
					owners[p]++
				}
			}
		}
		slices.Sort(have)
		if g.State == "Stable" && slices.Equal(have, types) && len(owners) == partitions {
			return
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("the group does not come to members of the types %v: %+v", types, g)
		}
	}
}

// groupType is what ListGroups says of a group.
func (w *world) groupType(group string) string {
	w.t.Helper()
	resp, err := kmsg.NewPtrListGroupsRequest().RequestWith(w.ctx, w.node.Client())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, g := range resp.Groups {
		if g.Group == group {
			return g.GroupType
		}
	}
	return ""
}

// A classic group of two members that read all the time is upgraded to the consumer protocol one member after the other, and
// back. Every record is read.
func TestMigration(t *testing.T) {
	for name, balancer := range map[string]kgo.GroupBalancer{"range": kgo.RangeBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
			t.Cleanup(cancel)
			w := &world{t: t, ctx: ctx, topic: "t", node: harness.Start(t, harness.WithKafka("group.consumer.min.heartbeat.interval.ms", "100"),
				harness.WithKafka("group.consumer.heartbeat.interval.ms", "100"))}
			w.admin = kadm.NewClient(w.node.Client())
			if _, err := w.admin.CreateTopic(ctx, partitions, 1, nil, w.topic); err != nil {
				t.Fatal(err)
			}
			s := newSeen()
			stop := w.keepProducing()
			classic := func() *consumer { return w.consume(s, "g", kgo.Balancers(balancer)) }
			modern := func() *consumer { return w.consume(s, "g", kgo.ServerSideBalancer()) }

			a, b := classic(), classic()
			w.checkAssignment(w.waitForMembers("g", 2))
			a.stop()
			a = modern()
			w.waitForConsumers("g", classicMember, consumerMember)
			if got := w.groupType("g"); got != "consumer" {
				t.Errorf("the group is listed as %q", got)
			}
			if rs, err := w.admin.DeleteGroups(ctx, "g"); err != nil || rs["g"].Err == nil {
				t.Errorf("a group with members was deleted: %v %v", rs, err)
			}
			b.stop()
			b = modern()
			w.waitForConsumers("g", consumerMember, consumerMember)
			w.node.Restart()
			w.waitForConsumers("g", consumerMember, consumerMember)

			a.stop()
			a = classic()
			w.waitForConsumers("g", classicMember, consumerMember)
			b.stop()
			b = classic()
			w.checkAssignment(w.waitForMembers("g", 2))
			if got := w.groupType("g"); got != "classic" {
				t.Errorf("the group is listed as %q", got)
			}
			s.waitFor(w, stop())
			w.checkCommitted("g")
			if n := s.duplicates(); n > 0 {
				t.Logf("%d records were consumed again", n)
			}
			a.stop()
			b.stop()
		})
	}
}
