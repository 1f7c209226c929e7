package worker

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/varvehq/varve/connect/topics"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/sdk"
)

func sink(extra ...string) map[string]string {
	m := map[string]string{"connector.class": "collector", "topics": "in"}
	for i := 0; i < len(extra); i += 2 {
		m[extra[i]] = extra[i+1]
	}
	return m
}

func text(i int) string { return fmt.Sprint(i) }

// awaitOffset waits until the group of a sink has committed an offset for in-0.
func (b *bench) awaitOffset(name string, want int64) {
	b.t.Helper()
	for range 2000 {
		offs, err := b.adm.FetchOffsets(b.t.Context(), sinkGroup(name))
		if err != nil {
			b.t.Fatal(err)
		}
		if o, ok := offs.Lookup("in", 0); ok && o.At == want {
			return
		}
	}
	b.t.Fatalf("offset %d was not committed", want)
}

func TestSinkDeliversAndCommits(t *testing.T) {
	c := newCollector()
	b := newBench(t, fakePlugins{"collector": c}, kfake.SeedTopics(1, "in"))
	b.produce("in", 100, text)
	b.create("snk", sink())
	c.await(t, "100 records", func() bool { return len(c.mu.recs) == 100 })
	b.awaitOffset("snk", 100)
	if a := c.assigned(); len(a) != 1 || a[0].Topic != "in" || a[0].Offset != 0 {
		t.Errorf("assigned %+v", a)
	}
	b.close()
	b.open()
	b.produce("in", 1, func(int) string { return "last" })
	c.await(t, "record 101", func() bool { return len(c.mu.recs) == 101 })
	if got := c.records()[100]; got != "in-0@100=last" {
		t.Errorf("after the restart comes %s", got)
	}
	if a := c.assigned(); len(a) != 2 || a[1].Offset != 100 {
		t.Errorf("assigned %+v", a)
	}
}

func TestSinkRetriesTheSameBatch(t *testing.T) {
	c := newCollector()
	var first []int64
	c.mu.onWrite = func(_ *collectorTask, recs []sdk.Record) error {
		if c.mu.writes > 2 {
			if len(recs) != len(first) || recs[0].Offset != first[0] {
				t.Errorf("another batch: %d records from %d", len(recs), recs[0].Offset)
			}
			return nil
		}
		first = nil
		for _, r := range recs {
			first = append(first, r.Offset)
		}
		return sdk.Retriable(errors.New("not now"))
	}
	b := newBench(t, fakePlugins{"collector": c}, kfake.SeedTopics(1, "in"))
	b.produce("in", 10, text)
	b.create("snk", sink())
	c.await(t, "10 records", func() bool { return len(c.mu.recs) == 10 })
	b.awaitOffset("snk", 10)
}

func TestSinkThatFailsCommitsNothing(t *testing.T) {
	c := newCollector()
	c.mu.onWrite = func(*collectorTask, []sdk.Record) error { return errors.New("disk full") }
	b := newBench(t, fakePlugins{"collector": c}, kfake.SeedTopics(1, "in"))
	b.produce("in", 10, text)
	b.create("snk", sink())
	if st := b.awaitState("snk", 0, topics.Failed); !strings.Contains(st.Trace, "disk full") {
		t.Errorf("trace %q", st.Trace)
	}
	if offs, _ := b.adm.FetchOffsets(t.Context(), sinkGroup("snk")); len(offs) != 0 {
		t.Errorf("committed %v", offs)
	}
	c.mu.Lock()
	c.mu.onWrite = nil
	c.mu.Unlock()
	if err := b.w.RestartTask(topics.TaskID{Connector: "snk"}); err != nil {
		t.Fatal(err)
	}
	c.await(t, "10 records", func() bool { return len(c.mu.recs) == 10 })
}

func TestSinkSeeks(t *testing.T) {
	c := newCollector()
	// At Assign it asks for 5, and after record 9 once more for 7.
	c.mu.onAsgn = func(s *collectorTask, parts []sdk.Assignment) { s.env.Seek(parts[0].TopicPartition, 5) }
	again := false
	c.mu.onWrite = func(s *collectorTask, recs []sdk.Record) error {
		if last := recs[len(recs)-1]; last.Offset == 9 && !again {
			again = true
			s.env.Seek(sdk.TopicPartition{Topic: last.Topic, Partition: last.Partition}, 7)
		}
		return nil
	}
	b := newBench(t, fakePlugins{"collector": c}, kfake.SeedTopics(1, "in"))
	b.produce("in", 10, text)
	b.create("snk", sink())
	c.await(t, "8 records", func() bool { return len(c.mu.recs) == 8 })
	got := strings.Join(c.records(), " ")
	if want := "in-0@5=5 in-0@6=6 in-0@7=7 in-0@8=8 in-0@9=9 in-0@7=7 in-0@8=8 in-0@9=9"; got != want {
		t.Errorf("got %s", got)
	}
}

// A sink that holds more than the partition has saw another topic of that name.
func TestSinkSeeksPastTheEnd(t *testing.T) {
	c := newCollector()
	c.mu.onAsgn = func(s *collectorTask, parts []sdk.Assignment) { s.env.Seek(parts[0].TopicPartition, 11) }
	b := newBench(t, fakePlugins{"collector": c}, kfake.SeedTopics(1, "in"))
	b.produce("in", 10, text)
	b.create("snk", sink())
	if st := b.awaitState("snk", 0, topics.Failed); !strings.Contains(st.Trace, "in-0 before offset 11, but the partition ends at 10") {
		t.Errorf("trace %q", st.Trace)
	}
	if offs, _ := b.adm.FetchOffsets(t.Context(), sinkGroup("snk")); len(offs) != 0 {
		t.Errorf("committed %v", offs)
	}
}

func TestSinkForgetsAnOffsetPastTheEnd(t *testing.T) {
	c := newCollector()
	b := newBench(t, fakePlugins{"collector": c}, kfake.SeedTopics(1, "in"))
	b.produce("in", 10, text)
	var old kadm.Offsets
	old.AddOffset("in", 0, 99, -1)
	if _, err := b.adm.CommitOffsets(t.Context(), sinkGroup("snk"), old); err != nil {
		t.Fatal(err)
	}
	b.create("snk", sink())
	c.await(t, "10 records", func() bool { return len(c.mu.recs) == 10 })
	if a := c.assigned(); len(a) != 1 || a[0].Offset != 0 {
		t.Errorf("assigned %+v", a)
	}
}

// A sink is told which topic it gets, so that it can tell it from another one of that name.
func TestSinkIsToldTheTopicID(t *testing.T) {
	c := newCollector()
	b := newBench(t, fakePlugins{"collector": c}, kfake.SeedTopics(1, "in"))
	b.produce("in", 1, text)
	b.create("snk", sink())
	c.await(t, "a record", func() bool { return len(c.mu.recs) == 1 })
	details, err := b.adm.ListTopics(t.Context(), "in")
	if err != nil {
		t.Fatal(err)
	}
	if a := c.assigned(); len(a) != 1 || a[0].TopicID == "" || a[0].TopicID != kafka.UUID(details["in"].ID).String() {
		t.Errorf("assigned %+v", a)
	}
}

func TestDeadLetterQueue(t *testing.T) {
	c := newCollector()
	c.mu.onWrite = func(s *collectorTask, recs []sdk.Record) error {
		for i := range recs {
			if recs[i].Offset == 7 {
				if err := s.env.Report(&recs[i], errors.New("too big")); err != nil {
					return err
				}
			}
		}
		return nil
	}
	b := newBench(t, fakePlugins{"collector": c}, kfake.SeedTopics(1, "in"))
	b.produce("in", 10, func(i int) string {
		if i == 3 {
			return "{no json"
		}
		return text(i)
	})
	json := []string{"value.converter", "json", "value.converter.schemas.enable", "false"}
	b.create("strict", sink(json...))
	if st := b.awaitState("strict", 0, topics.Failed); !strings.Contains(st.Trace, "VALUE_CONVERTER") {
		t.Errorf("trace %q", st.Trace)
	}
	if err := b.w.SetTarget(t.Context(), "strict", topics.Stopped); err != nil {
		t.Fatal(err)
	}
	b.awaitState("strict", -1, topics.StoppedNow)
	b.create("snk", sink(append(json, "errors.tolerance", "all", "errors.deadletterqueue.topic.name", "dlq",
		"errors.deadletterqueue.context.headers.enable", "true")...))
	c.await(t, "9 records", func() bool { return len(c.mu.recs) == 9 })
	b.awaitOffset("snk", 10)
	recs := b.read("dlq", 2)
	for i, want := range []struct{ value, offset, stage, message string }{
		{"{no json", "3", "VALUE_CONVERTER", "invalid JSON"}, {"7", "7", "TASK_PUT", "too big"},
	} {
		h := map[string]string{}
		for _, x := range recs[i].Headers {
			h[strings.TrimPrefix(x.Key, contextPrefix)] = string(x.Value)
		}
		if string(recs[i].Value) != want.value || h["topic"] != "in" || h["partition"] != "0" || h["offset"] != want.offset || h["connector.name"] != "snk" ||
			h["task.id"] != "0" || h["stage"] != want.stage || !strings.Contains(h["exception.message"], want.message) {
			t.Errorf("dead letter %d: %s %v", i, recs[i].Value, h)
		}
	}
}

func TestSinkPausesResumesAndRebalances(t *testing.T) {
	c := newCollector()
	b := newBench(t, fakePlugins{"collector": c}, kfake.SeedTopics(4, "in"))
	ctx := t.Context()
	b.create("snk", sink("tasks.max", "2"))
	b.awaitState("snk", 0, topics.Running)
	b.awaitState("snk", 1, topics.Running)
	b.produce("in", 50, text)
	c.await(t, "50 records", func() bool { return len(c.mu.recs) == 50 })
	if err := b.w.SetTarget(ctx, "snk", topics.Paused); err != nil {
		t.Fatal(err)
	}
	b.awaitState("snk", 0, topics.PausedNow)
	b.awaitState("snk", 1, topics.PausedNow)
	b.produce("in", 50, text)
	if err := b.w.SetTarget(ctx, "snk", topics.Started); err != nil {
		t.Fatal(err)
	}
	c.await(t, "100 records", func() bool { return len(c.mu.recs) == 100 })
	seen := map[string]bool{}
	for _, r := range c.records() {
		if seen[r] {
			t.Errorf("%s came twice", r)
		}
		seen[r] = true
	}
	if err := b.w.SetTarget(ctx, "snk", topics.Stopped); err != nil {
		t.Fatal(err)
	}
	b.awaitState("snk", -1, topics.StoppedNow)
	for {
		if info, _ := b.w.Connector("snk"); len(info.Tasks) == 0 {
			break
		}
	}
	offs, err := b.w.Offsets(ctx, "snk")
	if err != nil || len(offs) == 0 {
		t.Fatalf("offsets %v %v", offs, err)
	}
	if _, err := b.w.AlterOffsets(ctx, "snk", []Offset{{[]byte(`{"kafka_topic":"in","kafka_partition":0}`), []byte(`{"kafka_offset":0}`)}}); err != nil {
		t.Error(err)
	}
	if _, err := b.w.ResetOffsets(ctx, "snk"); err != nil {
		t.Error(err)
	}
	if offs, _ := b.w.Offsets(ctx, "snk"); len(offs) != 0 {
		t.Errorf("offsets after the reset: %v", offs)
	}
}
