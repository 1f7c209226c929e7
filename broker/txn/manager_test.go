package txn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/internal/kafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memLog is a transaction log of one partition in memory.
type memLog struct {
	mu      sync.Mutex
	batches [][]byte
	epoch   int32
	gone    bool
	// fail is asked before each append (stored says whether the batch is kept all the same).
	fail func(n int) (err error, stored bool)
	n    int
}

func (l *memLog) Partitions() int32 { return 1 }

func (l *memLog) Leads(int32) (int32, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch, !l.gone
}

func (l *memLog) Load(_ context.Context, _ int32, f func([]byte) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.batches {
		if err := f(b); err != nil {
			return err
		}
	}
	return nil
}

func (l *memLog) Append(_ context.Context, _, epoch int32, batch []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone || epoch != l.epoch {
		return coordinator.ErrNotCoordinator
	}
	l.n++
	if l.fail != nil {
		if err, stored := l.fail(l.n); err != nil {
			if stored {
				l.batches = append(l.batches, slices.Clone(batch))
			}
			return err
		}
	}
	l.batches = append(l.batches, slices.Clone(batch))
	return nil
}

// memMarkers remembers the markers, and fails as it is told.
type memMarkers struct {
	mu   sync.Mutex
	got  []Markers
	fail func() error
}

func (w *memMarkers) WriteMarkers(_ context.Context, m Markers) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail != nil {
		if err := w.fail(); err != nil {
			return err
		}
	}
	w.got = append(w.got, m)
	return nil
}

func (w *memMarkers) all() []Markers {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.got)
}

func newManager(t *testing.T, l *memLog, w *memMarkers) *Manager {
	t.Helper()
	next := int64(100)
	var mu sync.Mutex
	m, err := NewManager(Env{TxnLog: l, Markers: w, ProducerID: func(context.Context) (int64, error) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next, nil
	}}, DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	m.Refresh()
	synctest.Wait()
	return m
}

func stop(t *testing.T, m *Manager) {
	t.Helper()
	if err := m.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

var tp = kafka.TopicPartition{Topic: "t", Partition: 1}

func TestMarkersWaitForAppendsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := &memLog{}, &memMarkers{}
		m := newManager(t, l, w)
		defer stop(t, m)
		ctx := t.Context()
		id := m.Init(ctx, InitRequest{ID: "id", Timeout: time.Minute, ProducerID: None, Epoch: None})
		if err := m.Add(ctx, AddRequest{ID: "id", ProducerID: id.ProducerID, Epoch: id.Epoch, Partitions: []kafka.TopicPartition{tp}}); err != nil {
			t.Fatal(err)
		}
		release, err := m.Enter(ctx, "id", id.ProducerID, id.Epoch, tp, false)
		if err != nil {
			t.Fatal(err)
		}
		if e := m.End(ctx, EndRequest{ID: "id", ProducerID: id.ProducerID, Epoch: id.Epoch, Commit: true}); e.Err != nil {
			t.Fatal(e.Err)
		}
		synctest.Wait()
		if got := w.all(); len(got) > 0 {
			t.Fatalf("markers %v are written while an append is under way", got)
		}
		if _, err := m.Enter(ctx, "id", id.ProducerID, id.Epoch, tp, false); !errors.Is(err, ErrConcurrent) {
			t.Fatalf("an append behind the decision: %v", err)
		}
		release()
		synctest.Wait()
		if got := w.all(); len(got) != 1 || !got[0].Commit || !slices.Equal(got[0].Partitions, []kafka.TopicPartition{tp}) {
			t.Fatalf("markers %v", got)
		}
		if d, err := m.Describe("id"); err != nil || d.State != CompleteCommit {
			t.Fatalf("%v, %v", d, err)
		}
	})
}

func TestWriteToNextTransactionWaitsForTheMarkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := true
		l, w := &memLog{}, &memMarkers{}
		w.fail = func() error {
			if broken {
				return errors.New("the partition is offline")
			}
			return nil
		}
		m := newManager(t, l, w)
		defer stop(t, m)
		ctx := t.Context()
		id := m.Init(ctx, InitRequest{ID: "id", Timeout: time.Minute, ProducerID: None, Epoch: None})
		release, err := m.Enter(ctx, "id", id.ProducerID, id.Epoch, tp, true)
		if err != nil {
			t.Fatal(err)
		}
		release()
		id = m.End(ctx, EndRequest{ID: "id", ProducerID: id.ProducerID, Epoch: id.Epoch, Commit: true, Version: 2})
		if id.Err != nil || id.Epoch != 1 {
			t.Fatalf("%+v", id)
		}
		if _, err := m.Enter(ctx, "id", id.ProducerID, id.Epoch, tp, true); !errors.Is(err, ErrConcurrent) {
			t.Fatalf("while the markers cannot be written: %v", err)
		}
		w.mu.Lock()
		broken = false
		w.mu.Unlock()
		release, err = m.Enter(ctx, "id", id.ProducerID, id.Epoch, tp, true)
		if err != nil {
			t.Fatal(err)
		}
		release()
		if d, _ := m.Describe("id"); d.State != Ongoing || d.Epoch != 1 {
			t.Fatalf("%+v", d)
		}
	})
}

func TestTimeoutIsFoundWithoutARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := &memLog{}, &memMarkers{}
		m := newManager(t, l, w)
		defer stop(t, m)
		ctx := t.Context()
		id := m.Init(ctx, InitRequest{ID: "id", Timeout: 30 * time.Second, ProducerID: None, Epoch: None})
		if err := m.Add(ctx, AddRequest{ID: "id", ProducerID: id.ProducerID, Epoch: id.Epoch, Partitions: []kafka.TopicPartition{tp}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(45 * time.Second) // of the bubble's clock
		synctest.Wait()
		if got := w.all(); len(got) != 1 || got[0].Commit || got[0].Epoch != id.Epoch+1 {
			t.Fatalf("markers %v", got)
		}
	})
}

// TestEveryAppendMayFail runs one story with the n-th append failing in each way, for every n: what the client was told holds,
// and another manager on the same log ends what was decided.
func TestEveryAppendMayFail(t *testing.T) {
	for name, failure := range map[string]struct {
		err    error
		stored bool
	}{"not written": {coordinator.ErrNotWritten, false}, "unknown, lost": {errors.New("disk"), false}, "unknown, stored": {errors.New("disk"), true},
		"not leader": {coordinator.ErrNotCoordinator, false}} {
		for _, version := range []int16{0, 2} {
			for n := 1; n <= 8; n++ {
				t.Run(fmt.Sprintf("%s/v%d/%d", name, version, n), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						l, w := &memLog{}, &memMarkers{}
						l.fail = func(i int) (error, bool) {
							if i == n {
								return failure.err, failure.stored
							}
							return nil, false
						}
						m := newManager(t, l, w)
						failingStory(t, m, w, version)
						stop(t, m)
						l.fail = nil
						again := newManager(t, l, w)
						again.Refresh()
						synctest.Wait()
						d, err := again.Describe("id")
						if err != nil || d.State != CompleteAbort {
							t.Fatalf("after a restart: %+v, %v", d, err)
						}
						stop(t, again)
					})
				})
			}
		}
	}
}

// failingStory commits one transaction and aborts the next, asking again wherever it may.
func failingStory(t *testing.T, m *Manager, w *memMarkers, version int16) {
	t.Helper()
	ctx := t.Context()
	again := func(f func() error) {
		t.Helper()
		for try := 0; ; try++ {
			err := f()
			if err == nil {
				return
			}
			if try > 20 || !errors.Is(err, coordinator.ErrUnavailable) && !errors.Is(err, coordinator.ErrLoading) && !errors.Is(err, coordinator.ErrNotCoordinator) && !errors.Is(err, ErrConcurrent) {
				t.Fatalf("try %d: %v", try, err)
			}
			time.Sleep(2 * time.Second)
		}
	}
	var id Identity
	again(func() error {
		id = m.Init(ctx, InitRequest{ID: "id", Timeout: time.Hour / 4, ProducerID: None, Epoch: None})
		return id.Err
	})
	for _, commit := range []bool{true, false} {
		again(func() error {
			return m.Add(ctx, AddRequest{ID: "id", ProducerID: id.ProducerID, Epoch: id.Epoch, Partitions: []kafka.TopicPartition{tp}, Version: version})
		})
		var next Identity
		again(func() error {
			next = m.End(ctx, EndRequest{ID: "id", ProducerID: id.ProducerID, Epoch: id.Epoch, Commit: commit, Version: version})
			return next.Err
		})
		id = next
		time.Sleep(30 * time.Second)
		synctest.Wait()
		got := w.all()
		if len(got) == 0 || got[len(got)-1].Commit != commit {
			t.Fatalf("commit=%v was acknowledged, markers are %v", commit, got)
		}
	}
}

// TestReloadAtRandom drives a coordinator at random and loads its log at every step: what it knew is what is loaded.
func TestReloadAtRandom(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s := newStory(t)
		s.out = discard()
		for range 200 {
			id := fmt.Sprint("id", rng.IntN(4))
			pid, epoch := "100", "0"
			if e := s.co.entries[id]; e != nil {
				pid, epoch = fmt.Sprint(e.ProducerID), fmt.Sprint(e.Epoch-int16(rng.IntN(5)/4))
			}
			v := []string{"v1", "v2"}[rng.IntN(2)]
			switch rng.IntN(9) {
			case 0:
				s.line([]string{"init", id})
			case 1, 2, 3:
				s.line([]string{"add", id, pid, epoch, fmt.Sprint("t-", rng.IntN(5)), v})
			case 4, 5:
				s.line([]string{"end", id, pid, epoch, []string{"commit", "abort"}[rng.IntN(2)], v, "fresh=999"})
			case 6:
				s.line([]string{"tick", []string{"1s", "70s", "100h"}[rng.IntN(3)]})
			case 7:
				s.line([]string{[]string{"auto", "manual"}[rng.IntN(2)]})
				for len(s.held) > 0 {
					s.line([]string{"written"})
				}
			case 8:
				if len(s.held) > 0 {
					s.line([]string{"written"})
				}
				if s.markers[id].ID != "" {
					s.line([]string{"marked", id})
				}
				s.reload()
			}
			if t.Failed() {
				t.Fatal("seed", seed)
			}
		}
	}
}
