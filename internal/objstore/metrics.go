package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// WithMetrics counts and times the calls of b in reg. Put it below WithRetry to see each attempt.
func WithMetrics(b Bucket, reg prometheus.Registerer) (Bucket, error) {
	m := &meter{
		Bucket: b,
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "varve_objstore_calls_total", Help: "Calls to the object store, by operation and result.",
		}, []string{"operation", "result"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "varve_objstore_bytes_total", Help: "Bytes of object bodies, by operation.",
		}, []string{"operation"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "varve_objstore_call_seconds", Help: "Time to the end of a call; of a get, to its first byte.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 13),
		}, []string{"operation"}),
	}
	for _, c := range []prometheus.Collector{m.calls, m.bytes, m.seconds} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("objstore: metrics: %w", err)
		}
	}
	return m, nil
}

type meter struct {
	Bucket
	calls, bytes *prometheus.CounterVec
	seconds      *prometheus.HistogramVec
}

func (m *meter) done(op string, start time.Time, err error) {
	m.seconds.WithLabelValues(op).Observe(time.Since(start).Seconds())
	m.calls.WithLabelValues(op, result(err)).Inc()
}

func result(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrNotFound):
		return "not_found"
	case errors.Is(err, ErrExists):
		return "exists"
	case errors.Is(err, ErrForbidden):
		return "forbidden"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return "error"
}

func (m *meter) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts PutOptions) error {
	start := time.Now()
	err := m.Bucket.Put(ctx, key, body, size, opts)
	m.done("put", start, err)
	if err == nil {
		m.bytes.WithLabelValues("put").Add(float64(size))
	}
	return err
}

func (m *meter) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	start := time.Now()
	r, err := m.Bucket.Get(ctx, key, offset, length)
	m.done("get", start, err)
	if err != nil {
		return nil, err
	}
	return &countedBody{r, m.bytes.WithLabelValues("get")}, nil
}

func (m *meter) Stat(ctx context.Context, key string) (Info, error) {
	start := time.Now()
	info, err := m.Bucket.Stat(ctx, key)
	m.done("stat", start, err)
	return info, err
}

func (m *meter) Delete(ctx context.Context, key string) error {
	start := time.Now()
	err := m.Bucket.Delete(ctx, key)
	m.done("delete", start, err)
	return err
}

func (m *meter) List(ctx context.Context, prefix string, opts ListOptions, f func(Info) error) error {
	start := time.Now()
	err := m.Bucket.List(ctx, prefix, opts, f)
	m.done("list", start, err)
	return err
}

type countedBody struct {
	io.ReadCloser
	n prometheus.Counter
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(float64(n))
	return n, err
}
