package coordinator_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/broker/coordinator/coordinatortest"
	"github.com/varvehq/varve/internal/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemLog(t *testing.T) {
	coordinatortest.RunLogSuite(t, func(t *testing.T) coordinatortest.LogUnderTest {
		l := coordinatortest.NewMemLog(2)
		return coordinatortest.LogUnderTest{
			Log:    l,
			Resign: func(*testing.T) { l.SetLeader(0, 7, true) },
			Reopen: func(*testing.T) coordinator.Log { return l.Clone() },
		}
	})
}

func TestPartitionForIsKafkas(t *testing.T) {
	for _, c := range []struct {
		key  string
		hash int32 // of Java's String.hashCode, without its sign
	}{
		{"", 0}, {"a", 97}, {"hello", 99162322}, {"Hello World", 862545276}, // -862545276
		{"polygenelubricants", 0}, // Integer.MIN_VALUE, of which Kafka makes 0
		{"😀", 1772899},
	} {
		for _, n := range []int32{1, 50, 1<<31 - 1} {
			if got := coordinator.PartitionFor(c.key, n); got != c.hash%n {
				t.Errorf("PartitionFor(%q, %d) = %d, want %d", c.key, n, got, c.hash%n)
			}
		}
	}
}

// list is a machine that keeps the keys of its log. Every event but a tick adds one.
type list struct {
	keys    []string
	waiting map[uint64]addKey
	next    uint64
}

type (
	addKey struct {
		to  any
		key string
	}
	written struct {
		id  uint64
		err error
	}
)

func (l *list) Step(_ time.Time, e any) (eff coordinator.Effects) {
	switch e := e.(type) {
	case addKey:
		l.next++
		l.waiting[l.next] = e
		eff.Writes = []coordinator.Write{{ID: l.next, Records: []coordinator.Record{{Key: []byte(e.key)}}}}
	case written:
		w := l.waiting[e.id]
		delete(l.waiting, e.id)
		if e.err == nil {
			l.keys = append(l.keys, w.key)
		}
		eff.Replies = []coordinator.Reply{{To: w.to, Body: e.err}}
	}
	return eff
}

func (l *list) Unload(_ time.Time, err error) (eff coordinator.Effects) {
	for _, w := range l.waiting {
		eff.Replies = append(eff.Replies, coordinator.Reply{To: w.to, Body: err})
	}
	return eff
}

func (l *list) Next() (time.Time, bool) { return time.Time{}, false }

type lists = coordinator.Runtime[*list, any, coordinator.Effects]

func startLists(t *testing.T, l coordinator.Log) *lists {
	r := coordinator.NewRuntime(coordinator.Env{Topic: l, Now: time.Now, Log: slog.New(slog.DiscardHandler)},
		coordinator.Spec[*list, any, coordinator.Effects]{
			Name: "lists", NoTopic: coordinator.ErrUnavailable, MaxBatchBytes: func() int { return 1 << 20 },
			Loader: func() (func([]byte) error, func(time.Time) (*list, coordinator.Effects, error)) {
				m := &list{waiting: map[uint64]addKey{}}
				return func(b []byte) error {
						return record.ForEachRecord(b, 1<<20, func(r *record.Record) error {
							m.keys = append(m.keys, string(r.Key))
							return nil
						})
					}, func(time.Time) (*list, coordinator.Effects, error) {
						return m, coordinator.Effects{}, nil
					}
			},
			Written: func(id uint64, err error) any { return written{id, err} },
		})
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	r.Refresh()
	synctest.Wait()
	return r
}

func add(r *lists, key string) *coordinator.Pending[error] {
	return coordinator.Ask(r, "k", func(to any) any { return addKey{to, key} }, func(err error) error { return err }, nil)
}

func keys(t *testing.T, r *lists) []string {
	t.Helper()
	var out []string
	if err := r.Read("k", func(l *list) { out = slices.Clone(l.keys) }); err != nil {
		t.Fatal(err)
	}
	return out
}

// brokenLoads fails loads while it is told to.
type brokenLoads struct {
	*coordinatortest.MemLog
	broken atomic.Bool
}

func (l *brokenLoads) Load(ctx context.Context, p int32, f func([]byte) error) error {
	if l.broken.Load() {
		return errors.New("the disk is gone")
	}
	return l.MemLog.Load(ctx, p, f)
}

// A load that failed is tried again although nobody asks: what the log says to do may be due.
func TestFailedLoadIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &brokenLoads{MemLog: coordinatortest.NewMemLog(1)}
		l.broken.Store(true)
		r := startLists(t, l)
		if err, _ := add(r, "a").Now(); !errors.Is(err, coordinator.ErrUnavailable) {
			t.Fatalf("a request behind a load that failed: %v", err)
		}
		l.broken.Store(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := keys(t, r); len(got) != 0 {
			t.Fatal(got)
		}
	})
}

// What the log did with a batch decides what a machine hears, and whether it is read again.
func TestWhatBecomesOfAWrite(t *testing.T) {
	lost := errors.New("lost power")
	for name, c := range map[string]struct {
		fail   error // of the append
		stored bool  // what the log did all the same
		want   error
		keys   []string
	}{
		"written":          {nil, true, nil, []string{"a"}},
		"not written":      {coordinator.ErrNotWritten, false, coordinator.ErrUnavailable, nil},
		"too large":        {errors.Join(coordinator.ErrNotWritten, coordinator.ErrRecordTooLarge), false, coordinator.ErrRecordTooLarge, nil},
		"fenced":           {errors.Join(coordinator.ErrNotWritten, coordinator.ErrProducerFenced), false, coordinator.ErrProducerFenced, nil},
		"unknown, lost":    {lost, false, coordinator.ErrUnavailable, nil},
		"unknown, there":   {lost, true, coordinator.ErrUnavailable, []string{"a"}},
		"another node has": {coordinator.ErrNotCoordinator, false, coordinator.ErrNotCoordinator, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := coordinatortest.NewMemLog(1)
				hook := func(int32, []byte) error { return c.fail }
				if c.stored {
					l.AfterAppend = hook
				} else {
					l.BeforeAppend = hook
				}
				r := startLists(t, l)
				if err, _ := add(r, "a").Wait(t.Context()); !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
				r.Refresh()
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if got := keys(t, r); !slices.Equal(got, c.keys) {
					t.Errorf("the machine has %q, want %q", got, c.keys)
				}
			})
		})
	}
}
