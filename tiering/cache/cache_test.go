package cache_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/varvehq/varve/tiering/cache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loader counts its calls and takes a second for each.
type loader struct {
	calls atomic.Int32
	err   error
}

func (l *loader) load(ctx context.Context) (string, int64, error) {
	l.calls.Add(1)
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return "", 0, ctx.Err()
	}
	return "value", 10, l.err
}

func bubble(t *testing.T, limit int64, downloads int, f func(*testing.T, *cache.Cache[int, string])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := cache.New[int, string](limit, downloads)
		defer c.Close()
		f(t, c)
	})
}

func TestReadersShareADownload(t *testing.T) {
	bubble(t, 100, 2, func(t *testing.T, c *cache.Cache[int, string]) {
		l := &loader{}
		done := make(chan error, 10)
		for range 10 {
			go func() {
				v, err := c.Get(t.Context(), 1, l.load)
				if v != "value" {
					err = errors.Join(err, errors.New(v))
				}
				done <- err
			}()
		}
		for range 10 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if l.calls.Load() != 1 {
			t.Errorf("%d downloads", l.calls.Load())
		}
	})
}

// TestLeavingReader: a reader that gives up does not stop the download, and the next one finds the result.
func TestLeavingReader(t *testing.T) {
	bubble(t, 100, 2, func(t *testing.T, c *cache.Cache[int, string]) {
		l := &loader{}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := c.Get(ctx, 1, l.load); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("impatient reader: %v", err)
		}
		start := time.Now()
		v, err := c.Get(t.Context(), 1, l.load)
		if v != "value" || err != nil || l.calls.Load() != 1 || time.Since(start) != 500*time.Millisecond {
			t.Errorf("next reader: %q, %v, %d downloads, after %s", v, err, l.calls.Load(), time.Since(start))
		}
	})
}

func TestFailureIsForgotten(t *testing.T) {
	bubble(t, 100, 2, func(t *testing.T, c *cache.Cache[int, string]) {
		l := &loader{err: errors.New("no")}
		if _, err := c.Get(t.Context(), 1, l.load); !errors.Is(err, l.err) || l.calls.Load() != 1 {
			t.Errorf("%v, %d downloads", err, l.calls.Load())
		}
		// A reader that joins a download that fails tries for itself.
		c.Prefetch(2, l.load)
		synctest.Wait()
		good := &loader{}
		if v, err := c.Get(t.Context(), 2, good.load); v != "value" || err != nil || good.calls.Load() != 1 {
			t.Errorf("%q, %v", v, err)
		}
	})
}

func TestEviction(t *testing.T) {
	bubble(t, 30, 2, func(t *testing.T, c *cache.Cache[int, string]) {
		l := &loader{}
		for _, key := range []int{1, 2, 3, 1, 4} { // 2 is the one used longest ago
			if _, err := c.Get(t.Context(), key, l.load); err != nil {
				t.Fatal(err)
			}
		}
		if s := c.Stats(); s.Bytes != 30 || s.Evicted != 1 || s.Hits != 1 || s.Misses != 4 {
			t.Errorf("%+v", s)
		}
		for key, want := range map[int]bool{1: true, 2: false, 3: true, 4: true} {
			if c.Has(key) != want {
				t.Errorf("key %d is here: %v", key, !want)
			}
		}
		c.Drop(1)
		if c.Has(1) {
			t.Error("dropped and here")
		}
	})
}

func TestPrefetchTakesOnlyFreeSlots(t *testing.T) {
	bubble(t, 100, 2, func(t *testing.T, c *cache.Cache[int, string]) {
		l := &loader{}
		for key := range 5 {
			c.Prefetch(key, l.load)
		}
		if s := c.Stats(); s.Prefetched != 2 {
			t.Errorf("%d prefetched", s.Prefetched)
		}
		if v, err := c.Get(t.Context(), 4, l.load); v != "value" || err != nil { // waits for a slot
			t.Errorf("%q, %v", v, err)
		}
	})
}

func TestClose(t *testing.T) {
	bubble(t, 100, 1, func(t *testing.T, c *cache.Cache[int, string]) {
		l := &loader{}
		errs := make(chan error, 2)
		for key := range 2 { // one downloads, one waits for the slot
			go func() {
				_, err := c.Get(t.Context(), key, l.load)
				errs <- err
			}()
		}
		synctest.Wait()
		c.Close()
		for range 2 {
			if err := <-errs; !errors.Is(err, cache.ErrClosed) {
				t.Errorf("reader of a closed cache: %v", err)
			}
		}
		if _, err := c.Get(t.Context(), 7, l.load); !errors.Is(err, cache.ErrClosed) {
			t.Errorf("get after close: %v", err)
		}
	})
}
