package sdktest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/host"
)

// Sink says how to test a sink connector.
type Sink struct {
	Connector sdk.SinkConnector
	// Program is the connector as a plugin's executable, instead of Connector.
	Program *host.Options
	// Config is a valid configuration.
	Config sdk.Config
	// Record makes the record at an offset; nil: text values. Topic, partition and offset are set by the suite.
	Record func(offset int64) sdk.Record
	// Arrived returns the offsets of the partition's records that are durable downstream, in the order in which they are there.
	Arrived func(t *testing.T, tp sdk.TopicPartition) []int64
	// Prepare makes the downstream empty; it runs before every subtest.
	Prepare func(t *testing.T)
	// ExactlyOnce: what was delivered twice is there once.
	ExactlyOnce bool
}

// RunSink checks a sink connector: its spec, required keys, that what Flush names is durable, that it goes on after a stop
// and after a crash, and that partitions can come and go.
func RunSink(t *testing.T, s Sink) {
	everywhere(t, s.Connector, s.Program, func(t *testing.T, open func(*testing.T) host.Plugin) {
		sub := func(name string, f func(t *testing.T, p host.Plugin)) {
			t.Run(name, func(t *testing.T) {
				if s.Prepare != nil {
					s.Prepare(t)
				}
				f(t, open(t))
			})
		}
		sub("spec", func(t *testing.T, p host.Plugin) { checkSpec(t, p, sdk.SinkKind, s.Config) })
		sub("write", s.write)
		sub("resume", s.resume)
		sub("crash", s.crash)
		sub("reassign", s.reassign)
	})
}

// writer is a running task as a worker would drive it: it keeps the next offset of each partition.
type writer struct {
	t         *testing.T
	s         Sink
	task      host.SinkTask
	next      map[sdk.TopicPartition]int64
	committed map[sdk.TopicPartition]int64
}

func (s Sink) start(t *testing.T, p host.Plugin, generation int64, committed map[sdk.TopicPartition]int64) *writer {
	t.Helper()
	w := &writer{t: t, s: s, next: map[sdk.TopicPartition]int64{}, committed: committed}
	seek := func(tp sdk.TopicPartition, offset int64) { w.next[tp] = offset }
	task, err := p.OpenSink(bounded(t), sdk.SinkEnv{
		Env:  sdk.Env{Connector: "acceptance", Config: tasks(t, p, s.Config), Generation: generation},
		Seek: seek,
	})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	w.task = task
	return w
}

func (w *writer) assign(tps ...sdk.TopicPartition) {
	w.t.Helper()
	var parts []sdk.Assignment
	for _, tp := range tps {
		w.next[tp] = w.committed[tp]
		parts = append(parts, sdk.Assignment{TopicPartition: tp, Offset: w.committed[tp]})
	}
	if err := w.task.Assign(bounded(w.t), parts); err != nil {
		w.t.Fatalf("Assign: %v", err)
	}
}

// write delivers up to the offset end, exclusive, in batches of 7.
func (w *writer) write(tp sdk.TopicPartition, end int64) {
	w.t.Helper()
	for w.next[tp] < end {
		var batch []sdk.Record
		for ; w.next[tp] < end && len(batch) < 7; w.next[tp]++ {
			r := sdk.Record{Value: sdk.TextValue(fmt.Sprintf("value %d", w.next[tp])), Key: sdk.TextValue(fmt.Sprint(w.next[tp] % 3))}
			if w.s.Record != nil {
				r = w.s.Record(w.next[tp])
			}
			r.Topic, r.Partition, r.Offset = tp.Topic, tp.Partition, w.next[tp]
			batch = append(batch, r)
		}
		if err := w.task.Write(bounded(w.t), batch); err != nil {
			w.t.Fatalf("Write: %v", err)
		}
	}
}

// flush checks that what Flush names was written, does not go back and is downstream.
func (w *writer) flush() {
	w.t.Helper()
	offsets, err := w.task.Flush(bounded(w.t))
	if err != nil {
		w.t.Fatalf("Flush: %v", err)
	}
	for tp, o := range offsets {
		if o > w.next[tp] || o < w.committed[tp] {
			w.t.Fatalf("Flush names offset %d of %v: written up to %d, committed %d", o, tp, w.next[tp], w.committed[tp])
		}
		w.committed[tp] = o
		w.s.check(w.t, tp, o)
	}
}

func (w *writer) close() {
	w.t.Helper()
	if err := w.task.Close(bounded(w.t)); err != nil {
		w.t.Fatalf("Close: %v", err)
	}
}

// check demands every offset below end, and each once where the sink says so.
func (s Sink) check(t *testing.T, tp sdk.TopicPartition, end int64) {
	t.Helper()
	got := s.Arrived(t, tp)
	var want []int64
	for o := range end {
		want = append(want, o)
	}
	if s.ExactlyOnce {
		if i := slices.Index(got, end); i >= 0 {
			got = got[:i] // a sink may be ahead of what it says
		}
	} else {
		slices.Sort(got)
		got = slices.Compact(got)
		got = slices.DeleteFunc(got, func(o int64) bool { return o >= end })
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%v below offset %d (-want +there):\n%s", tp, end, diff)
	}
}

var (
	one   = sdk.TopicPartition{Topic: "acceptance", Partition: 0}
	other = sdk.TopicPartition{Topic: "acceptance.two", Partition: 3}
)

func (s Sink) write(t *testing.T, p host.Plugin) {
	w := s.start(t, p, 1, map[sdk.TopicPartition]int64{})
	w.assign(one, other)
	for end := int64(10); end <= 30; end += 10 {
		w.write(one, end)
		w.write(other, end/2)
		w.flush()
	}
	w.flush() // with nothing new
	if err := w.task.Tick(bounded(t)); err != nil {
		t.Errorf("Tick: %v", err)
	}
	w.close()
}

func (s Sink) resume(t *testing.T, p host.Plugin) {
	committed := map[sdk.TopicPartition]int64{}
	for i := range int64(3) {
		w := s.start(t, p, i+1, committed)
		w.assign(one)
		w.write(one, (i+1)*10)
		w.flush()
		w.close()
	}
}

// crash ends tasks without a flush, and loses a commit.
func (s Sink) crash(t *testing.T, p host.Plugin) {
	committed := map[sdk.TopicPartition]int64{}
	for i := range int64(4) {
		w := s.start(t, p, i+1, committed)
		w.assign(one, other)
		w.write(one, i*20+10)
		w.write(other, i*20+10)
		before := map[sdk.TopicPartition]int64{one: committed[one], other: committed[other]}
		w.flush()
		if i%2 == 1 { // durable downstream, but the worker died before it could commit
			committed = before
		}
		w.write(one, i*20+15)
		w.close()
	}
	w := s.start(t, p, 9, committed)
	w.assign(one, other)
	w.write(one, 100)
	w.write(other, 100)
	w.flush()
	w.close()
}

func (s Sink) reassign(t *testing.T, p host.Plugin) {
	w := s.start(t, p, 1, map[sdk.TopicPartition]int64{})
	w.assign(one)
	w.write(one, 10)
	w.assign(other)
	w.write(other, 10)
	w.flush()
	if err := w.task.Revoke(bounded(t), []sdk.TopicPartition{one}); err != nil {
		t.Fatalf("Revoke: %v", err)
	}
	w.write(other, 20)
	w.flush()
	w.assign(one)
	w.write(one, 20)
	w.flush()
	w.close()
}
