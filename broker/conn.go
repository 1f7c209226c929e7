package broker

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/varvehq/varve/broker/api"
)

// readBuffer is small: frames beyond it are read straight into their own buffer.
const readBuffer = 4 << 10

// decodeFactor bounds what a decoded request takes, as a multiple of its frame: the table's frame limits and the decoder's
// own checks of array lengths keep it there.
const decodeFactor = 16

// conn is one client connection: a reader that decodes and begins requests in order, and a writer that answers them in the
// same order. The writer starts with the first request.
type conn struct {
	s    *server
	nc   net.Conn
	info *api.ConnInfo
	fr   frameReader

	ctx      context.Context
	cancel   context.CancelFunc
	queue    chan *pending
	inFlight atomic.Int64
	muted    atomic.Int64 // until when no request is taken, in nanoseconds of the handlers' clock; 0: they are
	out      responseWriter
}

// pending is a request on its way from the reader to the writer.
type pending struct {
	call     api.Call
	frame    frame
	received time.Time
	throttle time.Duration // of the quotas that the request itself was charged to
}

func newConn(s *server, nc net.Conn, listener string) *conn {
	c := &conn{s: s, nc: nc, queue: make(chan *pending, s.cfg.MaxInFlight)}
	c.info = &api.ConnInfo{ID: s.nextConn.Add(1), RemoteAddr: nc.RemoteAddr(), LocalAddr: nc.LocalAddr(),
		Listener: listener, Principal: api.AnonymousPrincipal}
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	c.fr = frameReader{r: bufio.NewReaderSize(nc, readBuffer), limit: s.frameLimit, budget: s.budget,
		wait: s.cfg.FrameTimeout}
	c.out = newResponseWriter(s, nc)
	return c
}

// run serves the connection until it ends.
func (c *conn) run() {
	written := make(chan struct{})
	started := false
	err := c.readLoop(func() {
		if !started {
			started = true
			go func() {
				defer close(written)
				c.writeLoop()
			}()
		}
	})
	close(c.queue)
	if !errors.Is(err, errDraining) {
		c.cancel() // the peer is gone or talks nonsense: nobody waits for what is parked
		if !errors.Is(err, io.EOF) {
			c.s.metrics.connErrors.WithLabelValues(reasonOf(err)).Inc()
			c.s.log.Debug("connection closed", "remote", c.info.RemoteAddr, "listener", c.info.Listener, "err", err)
		}
	}
	if started {
		<-written
	}
	c.cancel()
	_ = c.nc.Close()
}

var errDraining = errors.New("the server is draining")

// readLoop reads, decodes and begins requests until the connection ends or breaks.
func (c *conn) readLoop(startWriter func()) error {
	for {
		if err := c.awaitFrame(); err != nil {
			return err
		}
		if err := c.awaitUnmuted(); err != nil {
			return err
		}
		if err := c.nc.SetReadDeadline(time.Now().Add(c.s.cfg.FrameTimeout)); err != nil {
			return err
		}
		f, err := c.fr.next(c.ctx)
		if err != nil {
			if c.s.draining.Load() && errors.Is(err, os.ErrDeadlineExceeded) {
				return errDraining // cut short by stopReading; what was read before is answered
			}
			return err
		}
		startWriter()
		if err := c.begin(f); err != nil {
			return err
		}
	}
}

// awaitFrame waits for the first bytes of a frame. A connection is idle only while nothing is in flight on it.
func (c *conn) awaitFrame() error {
	if c.fr.r.Buffered() >= 4 && !c.s.draining.Load() {
		return nil
	}
	for {
		if err := c.nc.SetReadDeadline(time.Now().Add(c.s.cfg.IdleTimeout)); err != nil {
			return err
		}
		if c.s.draining.Load() { // after the deadline is set, so that stopReading cannot be overwritten unseen
			return errDraining
		}
		_, err := c.fr.r.Peek(4)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded) && c.s.draining.Load():
			return errDraining
		case errors.Is(err, os.ErrDeadlineExceeded) && c.inFlight.Load() > 0:
			continue
		case errors.Is(err, io.EOF) && c.fr.r.Buffered() > 0:
			return io.ErrUnexpectedEOF
		default:
			return err
		}
	}
}

// mute makes the reader take no request for a while: the client is above its quota.
func (c *conn) mute(d time.Duration) {
	if d <= 0 {
		return
	}
	until := c.s.handlers.Clock().Add(d).UnixNano()
	for old := c.muted.Load(); old < until && !c.muted.CompareAndSwap(old, until); old = c.muted.Load() {
	}
}

// awaitUnmuted waits until requests are taken again.
func (c *conn) awaitUnmuted() error {
	for {
		until := c.muted.Load()
		if until == 0 {
			return nil
		}
		left := time.Unix(0, until).Sub(c.s.handlers.Clock())
		if left <= 0 {
			c.muted.CompareAndSwap(until, 0)
			continue
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-c.s.handlers.Draining:
			timer.Stop()
			return errDraining
		case <-c.ctx.Done():
			timer.Stop()
			return c.ctx.Err()
		}
	}
}

// stopReading makes a reader that waits for a frame return.
func (c *conn) stopReading() { _ = c.nc.SetReadDeadline(time.Unix(1, 0)) }

// begin dispatches a frame and queues its answer.
func (c *conn) begin(f frame) error {
	now := c.s.handlers.Clock()
	size := int64(len(f.bytes()))
	if err := f.reserveDecode(c.ctx, c.s.cfg.FrameTimeout); err != nil {
		f.release()
		return err
	}
	began := time.Now()
	call, err := c.s.handlers.Dispatch(c.ctx, c.info, f.bytes(), now)
	if call.Entry != nil {
		c.s.metrics.request(call.Entry.Key).bytes.Add(float64(size))
	}
	if err != nil {
		f.drop()
		return err
	}
	p := &pending{call: call, frame: f, received: now}
	p.throttle = c.s.handlers.Charge(c.info, call.Header, int(size), time.Since(began))
	c.mute(p.throttle)
	c.inFlight.Add(1)
	select {
	case c.queue <- p:
		return nil
	case <-c.ctx.Done():
		c.abandon(p)
		return c.ctx.Err()
	}
}

// reserveDecode charges what decoding a frame may take. Large frames are Produce's, whose batches stay where they are.
func (f *frame) reserveDecode(ctx context.Context, wait time.Duration) error {
	more := int64(len(f.bytes())) * decodeFactor
	if len(f.bytes()) > api.DefaultFrameLimit {
		more = api.DefaultFrameLimit * decodeFactor
	}
	got, err := f.budget.Acquire(ctx, wait, min(more, f.budget.Size()-f.held))
	f.held += got
	return err
}

// writeLoop answers the queued requests in order. After a failed write it only releases what is left.
func (c *conn) writeLoop() {
	broken := false
	for p := range c.queue {
		if broken {
			c.abandon(p)
			continue
		}
		if err := c.answer(p); err != nil {
			broken = true
			c.cancel()
			_ = c.nc.Close() // wakes the reader
			if !isGone(err) {
				c.s.log.Debug("connection closed", "remote", c.info.RemoteAddr, "listener", c.info.Listener, "err", err)
			}
		}
	}
	c.out.close()
}

// answer waits for the response of p and writes it.
func (c *conn) answer(p *pending) error {
	resp, err := p.call.Response, error(nil)
	if p.call.Later != nil {
		if len(c.queue) == 0 || !isReady(p.call.Later) {
			if err := c.out.flush(); err != nil {
				c.abandon(p)
				return err
			}
		}
		resp, err = p.call.Later.Wait(c.ctx)
	}
	if err != nil {
		_ = c.out.flush() // earlier answers may wait for this one; the connection ends in any case
		c.done(p)
		return err
	}
	if resp != nil {
		resp.SetVersion(p.call.Header.Version)
		c.mute(api.Throttle(resp, p.throttle))
		err = c.out.write(p.call.Header, resp, len(c.queue) > 0)
	}
	if resp == nil && len(c.queue) == 0 {
		err = c.out.flush()
	}
	m := c.s.metrics.request(p.call.Entry.Key)
	m.latency.Observe(c.s.handlers.Clock().Sub(p.received).Seconds())
	c.done(p)
	return err
}

// isReady reports whether Wait of l is known not to block.
func isReady(l api.Later) bool {
	r, ok := l.(interface{ Ready() bool })
	return ok && r.Ready()
}

func (c *conn) abandon(p *pending) {
	if p.call.Later != nil {
		p.call.Later.Abandon()
	} else if s, ok := p.call.Response.(api.Streamed); ok {
		s.Release()
	}
	c.done(p)
}

// done releases the frame of p.
func (c *conn) done(p *pending) {
	if p.call.Entry.ReusesFrame {
		p.frame.release()
	} else {
		p.frame.drop()
	}
	c.inFlight.Add(-1)
}

// isGone reports whether err says that the peer or the connection is no more.
func isGone(err error) bool {
	var ne net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, context.Canceled) || errors.As(err, &ne)
}

func reasonOf(err error) string {
	switch {
	case errors.Is(err, errFrameSize):
		return "frame_size"
	case errors.Is(err, api.ErrMalformed):
		return "malformed"
	case errors.Is(err, api.ErrUnsupported):
		return "unsupported"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.DeadlineExceeded):
		return "memory"
	case isGone(err):
		return "gone"
	default:
		return "request"
	}
}
