package objstore

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// LimitConfig bounds what a bucket's users may do at once. Zero means no limit.
type LimitConfig struct {
	Requests               int   // at the same time; a download counts until it is closed
	UploadBytesPerSecond   int64 // over all uploads
	DownloadBytesPerSecond int64 // over all downloads
}

// WithLimit makes calls wait for their turn.
func WithLimit(b Bucket, cfg LimitConfig) Bucket {
	l := &limiter{Bucket: b, up: newPacer(cfg.UploadBytesPerSecond), down: newPacer(cfg.DownloadBytesPerSecond)}
	if cfg.Requests > 0 {
		l.slots = make(chan struct{}, cfg.Requests)
	}
	return l
}

type limiter struct {
	Bucket
	slots    chan struct{}
	up, down *pacer
}

// enter takes a slot; the returned function gives it back, once.
func (l *limiter) enter(ctx context.Context) (func(), error) {
	if l.slots == nil {
		return func() {}, nil
	}
	select {
	case l.slots <- struct{}{}:
		return sync.OnceFunc(func() { <-l.slots }), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("objstore: waiting for a free request: %w", ctx.Err())
	}
}

func (l *limiter) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts PutOptions) error {
	leave, err := l.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if l.up != nil {
		body = &pacedSeeker{pacedReader{ctx, body, l.up}, body}
	}
	return l.Bucket.Put(ctx, key, body, size, opts)
}

func (l *limiter) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	leave, err := l.enter(ctx)
	if err != nil {
		return nil, err
	}
	r, err := l.Bucket.Get(ctx, key, offset, length)
	if err != nil {
		leave()
		return nil, err
	}
	return &limitedBody{pacedReader{ctx, r, l.down}, r, leave}, nil
}

func (l *limiter) Stat(ctx context.Context, key string) (Info, error) {
	leave, err := l.enter(ctx)
	if err != nil {
		return Info{}, err
	}
	defer leave()
	return l.Bucket.Stat(ctx, key)
}

func (l *limiter) Delete(ctx context.Context, key string) error {
	leave, err := l.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return l.Bucket.Delete(ctx, key)
}

// List takes no slot, since its callback may call the bucket.

type limitedBody struct {
	pacedReader
	body  io.Closer
	leave func()
}

func (b *limitedBody) Close() error {
	defer b.leave()
	return b.body.Close()
}

type pacedReader struct {
	ctx context.Context // of the call whose body this is
	r   io.Reader
	p   *pacer
}

func (r pacedReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if werr := r.p.wait(r.ctx, n); werr != nil && err == nil {
		err = werr
	}
	return n, err
}

type pacedSeeker struct {
	pacedReader
	io.Seeker
}

// pacer spreads bytes over time: each piece moves the moment at which the next may go. It lends a quarter of a second.
type pacer struct {
	rate int64
	mu   struct {
		sync.Mutex
		next time.Time
	}
}

const pacerBurst = 250 * time.Millisecond

func newPacer(rate int64) *pacer {
	if rate <= 0 {
		return nil
	}
	return &pacer{rate: rate}
}

// wait is called after n bytes have gone.
func (p *pacer) wait(ctx context.Context, n int) error {
	if p == nil || n == 0 {
		return nil
	}
	now := time.Now()
	p.mu.Lock()
	if earliest := now.Add(-pacerBurst); p.mu.next.Before(earliest) {
		p.mu.next = earliest
	}
	p.mu.next = p.mu.next.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	wait := p.mu.next.Sub(now)
	p.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
