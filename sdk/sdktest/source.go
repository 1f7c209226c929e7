package sdktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/host"
)

// Source says how to test a source connector.
type Source struct {
	Connector sdk.SourceConnector
	// Program is the connector as a plugin's executable, instead of Connector.
	Program *host.Options
	// Config is a valid configuration under which one task delivers at least Records records, the same every time.
	Config  sdk.Config
	Records int
	// Prepare makes the upstream as it is at the start; it runs before every subtest. nil: nothing to do.
	Prepare func(t *testing.T)
}

// RunSource checks a source connector: its spec, required keys, that it delivers, goes on behind acknowledged offsets,
// delivers again what was not acknowledged, and heeds its context.
func RunSource(t *testing.T, s Source) {
	everywhere(t, s.Connector, s.Program, func(t *testing.T, open func(*testing.T) host.Plugin) {
		sub := func(name string, f func(t *testing.T, p host.Plugin)) {
			t.Run(name, func(t *testing.T) {
				if s.Prepare != nil {
					s.Prepare(t)
				}
				f(t, open(t))
			})
		}
		sub("spec", func(t *testing.T, p host.Plugin) { checkSpec(t, p, sdk.SourceKind, s.Config) })
		sub("read", s.read)
		sub("resume", s.resume)
		sub("redeliver", s.redeliver)
		sub("rewind", s.rewind)
		sub("context", s.context)
	})
}

// reader is a running task and what it was given.
type reader struct {
	t    *testing.T
	task host.SourceTask
	// got are the fingerprints, last the newest offset by source partition.
	got  []string
	last map[string]sdk.PartitionOffset
	rest []sdk.Record // of the last Read
}

func (s Source) start(t *testing.T, p host.Plugin, generation int64, offsets map[string]sdk.PartitionOffset) *reader {
	t.Helper()
	env := sdk.SourceEnv{Env: sdk.Env{Connector: "acceptance", Config: tasks(t, p, s.Config), Generation: generation}}
	r := &reader{t: t, last: map[string]sdk.PartitionOffset{}}
	for k, o := range offsets {
		r.last[k] = o
		env.Offsets = append(env.Offsets, o)
	}
	task, err := p.OpenSource(bounded(t), env)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	r.task = task
	return r
}

// read takes exactly n records.
func (r *reader) read(n int) {
	r.t.Helper()
	ctx := bounded(r.t)
	for range n {
		for len(r.rest) == 0 {
			recs, err := r.task.Read(ctx)
			if err != nil {
				r.t.Fatalf("Read after %d records: %v", len(r.got), err)
			}
			r.rest = recs
		}
		r.take(&r.rest[0])
		r.rest = r.rest[1:]
	}
}

func (r *reader) take(rec *sdk.Record) {
	r.t.Helper()
	print, err := fingerprint(rec)
	if err != nil {
		r.t.Fatalf("record %d: %v", len(r.got), err)
	}
	r.got = append(r.got, print)
	if rec.Source == nil {
		r.t.Fatalf("record %d has no source partition", len(r.got))
	}
	if err := object(rec.Source.JSON); err != nil {
		r.t.Fatalf("source partition: %v", err)
	}
	if rec.SourceOffset == nil {
		return
	}
	if err := object(rec.SourceOffset); err != nil {
		r.t.Fatalf("source offset: %v", err)
	}
	r.last[string(rec.Source.JSON)] = sdk.PartitionOffset{
		Source: sdk.NewSourcePartition(string(rec.Source.JSON)), Offset: append(sdk.SourceOffset{}, rec.SourceOffset...),
	}
}

func (r *reader) ack() {
	r.t.Helper()
	for _, o := range r.last {
		if err := r.task.Ack(bounded(r.t), o); err != nil {
			r.t.Fatalf("Ack of %s: %v", o.Offset, err)
		}
	}
}

func (r *reader) close() {
	r.t.Helper()
	if err := r.task.Close(bounded(r.t)); err != nil {
		r.t.Fatalf("Close: %v", err)
	}
}

func (s Source) read(t *testing.T, p host.Plugin) {
	r := s.start(t, p, 1, nil)
	r.read(s.Records)
	r.ack()
	r.ack() // again: cumulative acknowledgements may repeat
	r.close()
}

func (s Source) resume(t *testing.T, p host.Plugin) {
	whole := s.start(t, p, 1, nil)
	whole.read(s.Records)
	whole.close()
	if s.Prepare != nil {
		s.Prepare(t)
	}
	var got []string
	offsets := map[string]sdk.PartitionOffset{}
	for i, n := range []int{s.Records / 2, 1, s.Records - s.Records/2 - 1} {
		r := s.start(t, p, int64(i+2), offsets)
		r.read(n)
		r.ack()
		r.close()
		got, offsets = append(got, r.got...), r.last
	}
	if diff := cmp.Diff(whole.got, got); diff != "" {
		t.Errorf("read in three parts (-in one go +in parts):\n%s", diff)
	}
}

func (s Source) redeliver(t *testing.T, p host.Plugin) {
	first := s.start(t, p, 1, nil)
	first.read(s.Records)
	first.close()
	second := s.start(t, p, 2, nil)
	second.read(s.Records)
	second.close()
	if diff := cmp.Diff(first.got, second.got); diff != "" {
		t.Errorf("without an acknowledgement all comes again (-first +second):\n%s", diff)
	}
}

func (s Source) rewind(t *testing.T, p host.Plugin) {
	r := s.start(t, p, 1, nil)
	defer r.close()
	r.read(s.Records / 2)
	var offsets []sdk.PartitionOffset
	for _, o := range r.last {
		offsets = append(offsets, o)
	}
	before := len(r.got)
	r.read(s.Records - before)
	err := r.task.Rewind(bounded(t), offsets)
	if errors.Is(err, host.ErrUnsupported) {
		return
	}
	if err != nil {
		t.Fatalf("Rewind: %v", err)
	}
	r.rest = nil
	want := r.got[before:]
	r.got = nil
	r.read(len(want))
	if diff := cmp.Diff(want, r.got); diff != "" {
		t.Errorf("after Rewind (-before +after):\n%s", diff)
	}
}

// context reads until nothing comes, or ends the context while something does: Read has to return in either case.
func (s Source) context(t *testing.T, p host.Plugin) {
	r := s.start(t, p, 1, nil)
	defer r.close()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	for {
		recs, err := r.task.Read(ctx)
		if err == nil {
			continue
		}
		if len(recs) > 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Read at the end of its context: %d records, %v", len(recs), err)
		}
		return
	}
}
