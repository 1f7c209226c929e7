package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvehq/varve/broker/api"
	"github.com/varvehq/varve/broker/internal/buffer"
)

// serverConfig bounds what connections may take.
type serverConfig struct {
	IdleTimeout   time.Duration // a connection without a request for so long is closed
	FrameTimeout  time.Duration // a begun frame must arrive within this, and a response be taken
	MaxInFlight   int           // requests of one connection that wait for their answer
	RequestMemory int64         // bytes of all requests together
	ColdReads     int           // sendfiles of bytes that are not in memory, at one time
	SendfileMin   int           // file parts of at least so many bytes go by sendfile
	MaxConns      int
	MaxPerIP      int // connections from one address
	MaxFrame      int // socket.request.max.bytes; a key's own limit may be lower
}

// server owns the listeners and connections. Each connection costs at most two goroutines.
type server struct {
	cfg      serverConfig
	handlers *api.Handlers
	log      *slog.Logger
	metrics  *serverMetrics
	budget   *buffer.Budget
	cold     chan struct{}

	ctx      context.Context // ends when connections are to be cut
	cut      context.CancelFunc
	draining atomic.Bool
	nextConn atomic.Uint64
	wg       sync.WaitGroup // listeners and connections

	mu struct {
		sync.Mutex
		listeners []net.Listener
		conns     map[*conn]struct{}
		perIP     map[string]int
		closed    bool
	}
}

func newServer(cfg serverConfig, h *api.Handlers, log *slog.Logger, m *serverMetrics) *server {
	s := &server{cfg: cfg, handlers: h, log: log, metrics: m,
		budget: buffer.NewBudget(cfg.RequestMemory), cold: make(chan struct{}, cfg.ColdReads)}
	s.ctx, s.cut = context.WithCancel(context.Background())
	s.mu.conns = map[*conn]struct{}{}
	s.mu.perIP = map[string]int{}
	return s
}

// frameLimit is the largest request of a key.
func (s *server) frameLimit(key int16) int {
	return min(s.handlers.Table().FrameLimit(key), s.cfg.MaxFrame)
}

// listener is what a listening socket needs to serve.
type listener struct {
	name string
	net.Listener
	tls *tls.Config // nil means plain
}

// serve accepts connections of l until the server closes.
func (s *server) serve(l listener) error {
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return errors.Join(net.ErrClosed, l.Close())
	}
	s.mu.listeners = append(s.mu.listeners, l.Listener)
	s.wg.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.wg.Done()
		s.accept(l)
	}()
	return nil
}

func (s *server) accept(l listener) {
	backoff := 5 * time.Millisecond
	for {
		nc, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			s.log.Warn("accept failed", "listener", l.name, "err", err)
			select { // out of descriptors: wait for some to be given back
			case <-s.ctx.Done():
				return
			case <-time.After(backoff):
			}
			backoff = min(2*backoff, time.Second)
			continue
		}
		backoff = 5 * time.Millisecond
		if l.tls != nil {
			nc = tls.Server(nc, l.tls)
		}
		if !s.start(nc, l.name) {
			_ = nc.Close()
		}
	}
}

// start serves one connection, and reports false where the server is closed or full.
func (s *server) start(nc net.Conn, listener string) bool {
	c := newConn(s, nc, listener)
	ip := c.info.Host()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed || len(s.mu.conns) >= s.cfg.MaxConns || s.mu.perIP[ip] >= s.cfg.MaxPerIP {
		c.cancel()
		return false
	}
	s.mu.conns[c] = struct{}{}
	s.mu.perIP[ip]++
	s.wg.Add(1)
	s.metrics.connections.Inc()
	go func() {
		defer s.wg.Done()
		c.run()
		s.mu.Lock()
		delete(s.mu.conns, c)
		if s.mu.perIP[ip]--; s.mu.perIP[ip] == 0 {
			delete(s.mu.perIP, ip)
		}
		s.mu.Unlock()
		s.metrics.connections.Dec()
	}()
	return true
}

// stop stops accepting and reading. Requests already read are still answered.
func (s *server) stop() error {
	s.draining.Store(true)
	s.mu.Lock()
	s.mu.closed = true
	var errs []error
	for _, l := range s.mu.listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for c := range s.mu.conns {
		c.stopReading()
	}
	s.mu.Unlock()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("broker: close listeners: %w", err)
	}
	return nil
}

// drain returns, after stop, when all connections are gone, and cuts them when ctx ends.
func (s *server) drain(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.cut()
		s.mu.Lock()
		n := len(s.mu.conns)
		for c := range s.mu.conns {
			_ = c.nc.Close() // its loops see the error and end
		}
		s.mu.Unlock()
		<-done
		if n > 0 {
			s.log.Info("cut connections that did not drain", "connections", n)
		}
	}
	s.cut()
}
