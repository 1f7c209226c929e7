package objstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/fault"
	"github.com/varvehq/varve/internal/objstore/mem"
	"github.com/varvehq/varve/internal/objstore/objstoretest"
	"github.com/varvehq/varve/internal/objstore/selftest"
)

// quick is for tests in real time.
func quick() objstore.RetryConfig {
	cfg := objstore.DefaultRetryConfig()
	cfg.Base, cfg.Max = time.Millisecond, 5*time.Millisecond
	return cfg
}

func TestDecoratorsKeepTheContract(t *testing.T) {
	metered, err := objstore.WithMetrics(mem.New(nil), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	b := objstore.WithRetry(objstore.WithLimit(metered, objstore.LimitConfig{Requests: 4, UploadBytesPerSecond: 1 << 40, DownloadBytesPerSecond: 1 << 40}), quick())
	objstoretest.Conformance(t, objstore.WithPrefix(b, "p"), objstoretest.Options{})
}

// TestRetryUnderFaults runs calls against every kind of fault until they succeed, in fake time.
func TestRetryUnderFaults(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			store := mem.New(nil)
			faulty := fault.New(store, fault.Random(seed, 0.4, fault.Refuse, fault.Stall, fault.LostReply, fault.TornBody, fault.ShortBody))
			cfg := objstore.DefaultRetryConfig()
			cfg.Attempts = 100
			b := objstore.WithRetry(faulty, cfg)
			data := objstoretest.Bytes(50_000, seed)
			err := b.Put(t.Context(), "a/b", bytes.NewReader(data), int64(len(data)), objstore.PutOptions{IfAbsent: true})
			if err != nil && !errors.Is(err, objstore.ErrExists) {
				t.Fatalf("seed %d: put: %v", seed, err)
			}
			for _, r := range [][2]int64{{0, -1}, {100, 40_000}, {49_999, 1}, {10, -1}, {-40, -1}, {-30_000, -1}} {
				got, err := objstore.ReadAll(t.Context(), b, "a/b", r[0], r[1], 1<<20)
				from, to, _ := objstore.CutRange(int64(len(data)), r[0], r[1])
				if err != nil || !bytes.Equal(got, data[from:to]) {
					t.Fatalf("seed %d: range %v: %d bytes, %v", seed, r, len(got), err)
				}
			}
			if _, err := b.Stat(t.Context(), "a/b"); err != nil {
				t.Fatalf("seed %d: stat: %v", seed, err)
			}
			if err := b.Delete(t.Context(), "a/b"); err != nil {
				t.Fatalf("seed %d: delete: %v", seed, err)
			}
			if _, err := store.Stat(t.Context(), "a/b"); !errors.Is(err, objstore.ErrNotFound) {
				t.Fatalf("seed %d: after delete: %v", seed, err)
			}
		})
	}
}

func TestRetryGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		always := fault.New(mem.New(nil), func(fault.Op, string) fault.Kind { return fault.Stall })
		cfg := objstore.RetryConfig{Attempts: 3, Base: time.Second, Max: time.Second, Timeout: 10 * time.Second, MinBytesPerSecond: 100}
		b := objstore.WithRetry(always, cfg)
		err := b.Put(t.Context(), "k", strings.NewReader(strings.Repeat("x", 1000)), 1000, objstore.PutOptions{})
		if err == nil || !strings.Contains(err.Error(), "timed out after 20s") {
			t.Errorf("put: %v", err)
		}
		if took := time.Since(start); took < 61*time.Second || took > 62*time.Second {
			t.Errorf("three attempts of 20 s took %s", took)
		}
		if _, err := b.Get(t.Context(), "k", 0, -1); !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "without progress") {
			t.Errorf("get: %v", err)
		}
		if n := always.Hits()[fault.Stall]; n != 6 {
			t.Errorf("%d attempts, want 6", n)
		}
	})
}

func TestRetryLeavesPermanentErrors(t *testing.T) {
	for _, want := range []error{objstore.ErrExists, objstore.ErrNotFound, objstore.ErrForbidden, objstore.ErrRange, objstore.ErrNoBucket, objstore.ErrUnsupported} {
		calls := 0
		b := objstore.WithRetry(failing{mem.New(nil), func() error { calls++; return fmt.Errorf("wrapped: %w", want) }}, objstore.DefaultRetryConfig())
		if _, err := b.Stat(t.Context(), "k"); !errors.Is(err, want) || calls != 1 {
			t.Errorf("%v: %d calls, %v", want, calls, err)
		}
	}
}

type failing struct {
	objstore.Bucket
	err func() error
}

func (f failing) Stat(context.Context, string) (objstore.Info, error) {
	return objstore.Info{}, f.err()
}

// TestRetriedListGoesOn: objects that the callback has seen do not come again.
func TestRetriedListGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New(nil)
		for i := range 10 {
			objstoretest.Put(t, store, fmt.Sprintf("l/%d", i), nil, objstore.PutOptions{})
		}
		b := objstore.WithRetry(&brokenList{store, 3}, objstore.DefaultRetryConfig())
		var got []string
		err := b.List(t.Context(), "l/", objstore.ListOptions{}, func(i objstore.Info) error {
			got = append(got, i.Key[2:])
			return nil
		})
		if err != nil || strings.Join(got, "") != "0123456789" {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// brokenList fails after every so many objects.
type brokenList struct {
	objstore.Bucket
	every int
}

func (b *brokenList) List(ctx context.Context, prefix string, opts objstore.ListOptions, f func(objstore.Info) error) error {
	n := 0
	return b.Bucket.List(ctx, prefix, opts, func(i objstore.Info) error {
		if n++; n > b.every {
			return errors.New("page lost")
		}
		return f(i)
	})
}

func TestLimitRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New(nil)
		objstoretest.Put(t, store, "k", []byte("x"), objstore.PutOptions{})
		b := objstore.WithLimit(store, objstore.LimitConfig{Requests: 1})
		r, err := b.Get(t.Context(), "k", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Stat(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("second request while a body is open: %v", err)
		}
		for range 2 { // closing twice gives back one slot
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.Stat(t.Context(), "k"); err != nil {
			t.Errorf("after close: %v", err)
		}
	})
}

func TestLimitBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := objstore.WithLimit(mem.New(nil), objstore.LimitConfig{UploadBytesPerSecond: 100_000, DownloadBytesPerSecond: 50_000})
		data := objstoretest.Bytes(1_000_000, 1)
		start := time.Now()
		objstoretest.Put(t, b, "k", data, objstore.PutOptions{})
		if took := time.Since(start); took < 9*time.Second || took > 10*time.Second {
			t.Errorf("upload of 10 s took %s", took)
		}
		start = time.Now()
		r, err := b.Get(t.Context(), "k", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 19*time.Second || took > 20*time.Second {
			t.Errorf("download of 20 s took %s", took)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// ignoring drops the condition of a put, as many stores do.
type ignoring struct{ objstore.Bucket }

func (b ignoring) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, _ objstore.PutOptions) error {
	return b.Bucket.Put(ctx, key, body, size, objstore.PutOptions{})
}

// wholeOnly ignores ranges.
type wholeOnly struct{ objstore.Bucket }

func (b wholeOnly) Get(ctx context.Context, key string, _, _ int64) (io.ReadCloser, error) {
	return b.Bucket.Get(ctx, key, 0, -1)
}

func TestSelftestFindsBadStores(t *testing.T) {
	if err := selftest.Run(t.Context(), ignoring{mem.New(nil)}, "st"); !errors.Is(err, selftest.ErrNoConditions) || !errors.Is(err, objstore.ErrUnsupported) {
		t.Errorf("store that ignores conditions: %v", err)
	}
	if err := selftest.Run(t.Context(), wholeOnly{mem.New(nil)}, "st"); err == nil || errors.Is(err, selftest.ErrNoConditions) {
		t.Errorf("store that ignores ranges: %v", err)
	}
}
