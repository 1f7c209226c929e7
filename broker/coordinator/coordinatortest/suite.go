package coordinatortest

import (
	"context"
	"errors"
	"testing"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/internal/record"
)

// LogUnderTest is a coordinator's topic of at least two partitions, both led by this node.
type LogUnderTest struct {
	Log coordinator.Log
	// Resign makes the node lose partition 0 and then lead it again in a later epoch.
	Resign func(t *testing.T)
	// Reopen returns the topic as the next process finds it, or is nil.
	Reopen func(t *testing.T) coordinator.Log
}

// RunLogSuite checks that a Log keeps its promises.
func RunLogSuite(t *testing.T, open func(t *testing.T) LogUnderTest) {
	ctx := context.Background()
	batch := func(keys ...string) []byte {
		b := record.NewBuilder(record.BuilderOptions{})
		for i, k := range keys {
			var value []byte
			if i%2 == 0 {
				value = []byte("value of " + k)
			}
			b.Append(1000, []byte(k), value, nil)
		}
		return b.Batch(0)
	}
	keys := func(t *testing.T, l coordinator.Log, partition int32) []string {
		t.Helper()
		var out []string
		next := int64(-1)
		err := l.Load(ctx, partition, func(b []byte) error {
			return record.ForEachRecord(b, 1<<20, func(r *record.Record) error {
				if r.Offset <= next {
					t.Errorf("offset %d after %d", r.Offset, next)
				}
				next = r.Offset
				out = append(out, string(r.Key))
				return nil
			})
		})
		if err != nil {
			t.Fatalf("Load: %v", err)
		}
		return out
	}
	appendTo := func(t *testing.T, l coordinator.Log, partition int32, b []byte) {
		t.Helper()
		epoch, ok := l.Leads(partition)
		if !ok {
			t.Fatalf("partition %d is not led", partition)
		}
		if err := l.Append(ctx, partition, epoch, b); err != nil {
			t.Fatalf("Append: %v", err)
		}
	}
	equal := func(t *testing.T, got []string, want ...string) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("loaded %q, want %q", got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("loaded %q, want %q", got, want)
			}
		}
	}

	t.Run("an empty partition loads nothing", func(t *testing.T) {
		equal(t, keys(t, open(t).Log, 1))
	})
	t.Run("what was appended is loaded in order", func(t *testing.T) {
		u := open(t)
		appendTo(t, u.Log, 0, batch("a", "b"))
		appendTo(t, u.Log, 1, batch("x"))
		appendTo(t, u.Log, 0, batch("c"))
		equal(t, keys(t, u.Log, 0), "a", "b", "c")
		equal(t, keys(t, u.Log, 1), "x")
		if u.Reopen != nil {
			l := u.Reopen(t)
			equal(t, keys(t, l, 0), "a", "b", "c")
			appendTo(t, l, 0, batch("d"))
			equal(t, keys(t, l, 0), "a", "b", "c", "d")
		}
	})
	t.Run("an error of the callback ends the load", func(t *testing.T) {
		u := open(t)
		appendTo(t, u.Log, 0, batch("a"))
		appendTo(t, u.Log, 0, batch("b"))
		stop, calls := errors.New("stop"), 0
		err := u.Log.Load(ctx, 0, func([]byte) error { calls++; return stop })
		if !errors.Is(err, stop) || calls != 1 {
			t.Fatalf("Load returned %v after %d calls", err, calls)
		}
	})
	t.Run("an append of an earlier epoch is refused", func(t *testing.T) {
		u := open(t)
		old, _ := u.Log.Leads(0)
		appendTo(t, u.Log, 0, batch("a"))
		u.Resign(t)
		if now, ok := u.Log.Leads(0); !ok || now <= old {
			t.Fatalf("Leads = %d, %v after epoch %d", now, ok, old)
		}
		if err := u.Log.Append(ctx, 0, old, batch("b")); !errors.Is(err, coordinator.ErrNotCoordinator) {
			t.Fatalf("Append in an old epoch: %v", err)
		}
		appendTo(t, u.Log, 0, batch("c"))
		equal(t, keys(t, u.Log, 0), "a", "c")
	})
	t.Run("partitions outside the topic are not led", func(t *testing.T) {
		l := open(t).Log
		if _, ok := l.Leads(l.Partitions()); ok {
			t.Fatal("a partition that does not exist is led")
		}
	})
}
