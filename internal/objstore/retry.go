package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// RetryConfig says how calls are tried again.
type RetryConfig struct {
	Attempts int           // in all; 1 never tries again
	Base     time.Duration // the first wait lies within [Base/2, Base]; it doubles from attempt to attempt
	Max      time.Duration // of one wait
	// Timeout is the deadline of one attempt; an upload gets in addition its size over MinBytesPerSecond. A download
	// has it anew after each piece that arrives.
	Timeout           time.Duration
	MinBytesPerSecond int64
}

// DefaultRetryConfig bears a store that is away for some 20 seconds.
func DefaultRetryConfig() RetryConfig {
	return RetryConfig{Attempts: 8, Base: 200 * time.Millisecond, Max: 5 * time.Second, Timeout: 30 * time.Second, MinBytesPerSecond: 512 << 10}
}

// Validate names the field that is wrong.
func (c *RetryConfig) Validate() error {
	if c.Attempts < 1 || c.Base <= 0 || c.Max < c.Base || c.Timeout <= 0 || c.MinBytesPerSecond <= 0 {
		return fmt.Errorf("objstore: retry: attempts, base, max, timeout and min_bytes_per_second must be positive, max not below base: %+v", *c)
	}
	return nil
}

// errStalled is the cause of an attempt that ended by its own deadline.
var errStalled = errors.New("objstore: attempt timed out")

// Permanent tells whether trying again is useless: the store has answered, and would answer the same.
func Permanent(err error) bool {
	for _, e := range []error{ErrNotFound, ErrNoBucket, ErrKey, ErrExists, ErrRange, ErrForbidden, ErrUnsupported} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// WithRetry makes b try failed calls again, with exponential backoff, jitter and a deadline per attempt. Permanent errors
// are returned at once. A put-if-absent whose reply was lost is tried again too, and may then find its own object:
// whoever gets ErrExists reads back. A download that breaks off goes on where it broke; List starts again behind what it
// gave already.
func WithRetry(b Bucket, cfg RetryConfig) Bucket { return &retrier{b, cfg} }

type retrier struct {
	Bucket
	cfg RetryConfig
}

// do runs attempts of f until one succeeds, fails for good, or the attempts are used up.
func (r *retrier) do(ctx context.Context, size int64, f func(context.Context) error) error {
	timeout := r.cfg.Timeout + time.Duration(float64(size)/float64(r.cfg.MinBytesPerSecond)*float64(time.Second))
	for attempt := 1; ; attempt++ {
		actx, cancel := context.WithTimeoutCause(ctx, timeout, errStalled)
		err := f(actx)
		if err != nil && ctx.Err() == nil && actx.Err() != nil {
			err = fmt.Errorf("%w after %s: %w", errStalled, timeout, err)
		}
		cancel()
		if err == nil || !r.again(ctx, attempt, err) {
			return err
		}
	}
}

// again waits before the next attempt, or tells that there is none.
func (r *retrier) again(ctx context.Context, attempt int, err error) bool {
	if Permanent(err) || attempt >= r.cfg.Attempts || ctx.Err() != nil {
		return false
	}
	wait := r.cfg.Max
	if shift := attempt - 1; shift < 30 {
		wait = min(wait, r.cfg.Base<<shift)
	}
	wait = wait/2 + rand.N(wait/2+1)
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *retrier) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts PutOptions) error {
	return r.do(ctx, size, func(ctx context.Context) error { return r.Bucket.Put(ctx, key, body, size, opts) })
}

func (r *retrier) Stat(ctx context.Context, key string) (info Info, err error) {
	err = r.do(ctx, 0, func(ctx context.Context) error {
		info, err = r.Bucket.Stat(ctx, key)
		return err
	})
	return info, err
}

func (r *retrier) Delete(ctx context.Context, key string) error {
	return r.do(ctx, 0, func(ctx context.Context) error { return r.Bucket.Delete(ctx, key) })
}

func (r *retrier) List(ctx context.Context, prefix string, opts ListOptions, f func(Info) error) error {
	var stop error // what f returned: never tried again
	for attempt := 1; ; attempt++ {
		progress := newWatchdog(ctx, r.cfg.Timeout)
		err := r.Bucket.List(progress.ctx, prefix, opts, func(i Info) error {
			progress.pause()
			defer progress.resume()
			attempt, opts.After = 1, i.Key
			stop = f(i)
			return stop
		})
		err = progress.end(err)
		if err == nil || stop != nil || !r.again(ctx, attempt, err) {
			return err
		}
	}
}

func (r *retrier) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	g := &resumingReader{r: r, ctx: ctx, key: key, offset: offset, length: length}
	for attempt := 1; ; attempt++ {
		err := g.open()
		if err == nil {
			return g, nil
		}
		if !r.again(ctx, attempt, err) {
			return nil, err
		}
	}
}

// resumingReader reads a range over as many requests as it takes.
type resumingReader struct {
	r              *retrier
	ctx            context.Context // of the Get: a reader ends with it
	key            string
	offset, length int64
	body           io.ReadCloser // nil: to be opened
	dog            *watchdog
	skip           int64 // of the open body
	given          int64 // bytes of a suffix, whose start is not known: they are read again and skipped
	failed         int   // attempts since the last byte
	done           bool
}

func (g *resumingReader) open() error {
	dog := newWatchdog(g.ctx, g.r.cfg.Timeout)
	body, err := g.r.Bucket.Get(dog.ctx, g.key, g.offset, g.length)
	dog.pause()
	if err != nil {
		return dog.end(err)
	}
	g.body, g.dog, g.skip = body, dog, g.given
	return nil
}

func (g *resumingReader) Read(p []byte) (int, error) {
	if g.done {
		return 0, io.EOF
	}
	for {
		n, err := g.read(p)
		g.advance(n)
		if err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			g.done = err != nil
			return n, err
		}
		g.failed++
		// Bytes that did not match their checksum cannot be taken back.
		if errors.Is(err, ErrChecksum) || !g.r.again(g.ctx, g.failed, err) {
			return n, err
		}
		if g.length == 0 {
			g.done = true
		}
		if n > 0 || g.done {
			return n, nil
		}
	}
}

func (g *resumingReader) advance(n int) {
	if n == 0 {
		return
	}
	g.failed = 0
	if g.offset < 0 {
		g.given += int64(n)
	} else {
		g.offset += int64(n)
		if g.length > 0 {
			g.length -= int64(n)
		}
	}
}

func (g *resumingReader) read(p []byte) (int, error) {
	if g.body == nil {
		err := g.open()
		if errors.Is(err, ErrRange) && g.length < 0 {
			return 0, io.EOF // it broke off behind the last byte
		}
		if err != nil {
			return 0, err
		}
	}
	g.dog.resume()
	n, err := g.readBody(p)
	g.dog.pause()
	if err != nil && !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		_ = g.body.Close() // the read has failed already
		g.body = nil
		err = g.dog.end(err)
	}
	return n, err
}

func (g *resumingReader) readBody(p []byte) (int, error) {
	if g.skip > 0 {
		n, err := io.CopyN(io.Discard, g.body, g.skip)
		g.skip -= n
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // it was longer before
		}
		if err != nil {
			return 0, err
		}
	}
	return g.body.Read(p)
}

func (g *resumingReader) Close() error {
	if g.body == nil {
		return nil
	}
	err := g.body.Close()
	g.body = nil
	_ = g.dog.end(nil)
	return err
}

// watchdog ends a context when nothing happens for a while. Time that the caller takes is not counted.
type watchdog struct {
	ctx     context.Context
	parent  context.Context
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	timeout time.Duration
}

func newWatchdog(parent context.Context, timeout time.Duration) *watchdog {
	ctx, cancel := context.WithCancelCause(parent)
	w := &watchdog{ctx: ctx, parent: parent, cancel: cancel, timeout: timeout}
	w.timer = time.AfterFunc(timeout, func() { cancel(errStalled) })
	return w
}

func (w *watchdog) pause()  { w.timer.Stop() }
func (w *watchdog) resume() { w.timer.Reset(w.timeout) }

// end stops the watch and says in err whether it bit.
func (w *watchdog) end(err error) error {
	w.timer.Stop()
	if err != nil && w.parent.Err() == nil && errors.Is(context.Cause(w.ctx), errStalled) {
		err = fmt.Errorf("%w after %s without progress: %w", errStalled, w.timeout, err)
	}
	w.cancel(nil)
	return err
}
