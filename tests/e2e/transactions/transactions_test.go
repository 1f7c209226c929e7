// Package transactions_test moves records exactly once through a broker that is killed while it does.
package transactions_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"go.uber.org/goleak"

	"github.com/varvehq/varve/tests/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const records = 2000

// TestExactlyOnceAcrossKills reads a topic in a group and writes another, in transactions, while the broker dies by SIGKILL
// between the records and the commit, and right behind the commit: every record arrives once and in order.
func TestExactlyOnceAcrossKills(t *testing.T) {
	if _, err := harness.Binary(); err != nil {
		t.Skip(err)
	}
	for name, opts := range map[string][]kgo.Opt{"v2": nil, "v1": {kgo.MaxVersions(kversion.V3_8_0())}} {
		t.Run(name, func(t *testing.T) {
			p := harness.StartProcess(t, harness.ProcessOptions{Roles: "broker,controller"})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			fill(ctx, t, p)
			move(ctx, t, p, opts)
			check(ctx, t, p)
		})
	}
}

func fill(ctx context.Context, t *testing.T, p *harness.Process) {
	t.Helper()
	c := harness.NewClient(t, p.Kafka, kgo.DefaultProduceTopic("in"))
	if _, err := kadm.NewClient(c).CreateTopics(ctx, 1, 1, nil, "in", "out"); err != nil {
		t.Fatal(err)
	}
	var recs []*kgo.Record
	for i := range records {
		recs = append(recs, &kgo.Record{Value: fmt.Append(nil, i)})
	}
	if err := c.ProduceSync(ctx, recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func move(ctx context.Context, t *testing.T, p *harness.Process, opts []kgo.Opt) {
	t.Helper()
	s, err := kgo.NewGroupTransactSession(append(opts, kgo.SeedBrokers(p.Kafka), kgo.TransactionalID("mover"), kgo.ConsumerGroup("movers"),
		kgo.ConsumeTopics("in"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DefaultProduceTopic("out"))...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for moved, round := 0, 1; moved < records; round++ {
		poll, done := context.WithTimeout(ctx, 5*time.Second)
		recs := s.PollRecords(poll, 100).Records()
		done()
		if ctx.Err() != nil {
			t.Fatalf("%d of %d records are moved", moved, records)
		}
		if len(recs) == 0 {
			continue
		}
		if err := s.Begin(); err != nil {
			t.Fatal(err)
		}
		first := kgo.AbortingFirstErrPromise(s.Client())
		for _, r := range recs {
			s.Produce(ctx, &kgo.Record{Value: r.Value}, first.Promise())
		}
		if round%4 == 1 {
			p.Kill9()
			p.Restart(t)
		}
		committed, err := s.End(ctx, kgo.TransactionEndTry(first.Err() == nil && round%7 != 0))
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if committed {
			moved += len(recs)
		}
		if round%4 == 3 {
			p.Kill9()
			p.Restart(t)
		}
	}
}

func check(ctx context.Context, t *testing.T, p *harness.Process) {
	t.Helper()
	c := harness.NewClient(t, p.Kafka, kgo.ConsumeTopics("out"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	next := 0
	for next < records {
		fs := c.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("after %d records: %v", next, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if string(r.Value) != fmt.Sprint(next) {
				t.Fatalf("record %d is %q", next, r.Value)
			}
			next++
		})
	}
	ends, err := kadm.NewClient(c).ListCommittedOffsets(ctx, "out")
	if err != nil {
		t.Fatal(err)
	}
	latest, err := kadm.NewClient(c).ListEndOffsets(ctx, "out")
	if err != nil {
		t.Fatal(err)
	}
	e, _ := ends.Lookup("out", 0)
	l, _ := latest.Lookup("out", 0)
	if next != records || e.Offset != l.Offset {
		t.Fatalf("%d records of %d; stable to %d of %d", next, records, e.Offset, l.Offset)
	}
}
