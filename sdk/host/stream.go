package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/wire"
	"github.com/varvehq/varve/sdk/wire/wirepb"
)

// metricsInterval is how often a task is asked for its metrics.
const metricsInterval = 5 * time.Second

// lastMetricsTimeout bounds the last time, before a task is stopped.
const lastMetricsTimeout = 500 * time.Millisecond

// stream is what source and sink tasks have in common: the Task stream, its calls, its one terminal error. Two goroutines
// serve it, one each way, so that no caller blocks in gRPC.
type stream struct {
	p      *remote
	env    sdk.Env
	grpc   grpc.BidiStreamingClient[wirepb.HostMessage, wirepb.PluginMessage]
	cancel context.CancelFunc
	handle func(*wirepb.PluginMessage) error // what only sources or only sinks understand

	started  chan *wirepb.Started // capacity 1
	stopped  chan *wirepb.Stopped // capacity 1
	failed   chan struct{}        // closed after err is set
	err      error
	fail1    sync.Once
	wake     chan struct{} // capacity 1: the outbox has something
	running  sync.WaitGroup
	close1   sync.Once
	calls    atomic.Int64 // the number of the last call
	closeErr error

	mu struct {
		sync.Mutex
		outbox []*wirepb.HostMessage
		calls  map[int64]chan *wirepb.Done
		lag    int64
		unit   string
		lags   bool
	}
}

// openStream starts a task and waits for Started.
func (p *remote) openStream(ctx context.Context, env sdk.Env, start *wirepb.Start, s *stream) (*wirepb.Started, error) {
	life, cancel := context.WithCancel(context.Background())
	s.p, s.env, s.cancel = p, env.WithDefaults(), cancel
	s.started, s.stopped = make(chan *wirepb.Started, 1), make(chan *wirepb.Stopped, 1)
	s.failed, s.wake = make(chan struct{}), make(chan struct{}, 1)
	s.mu.calls = map[int64]chan *wirepb.Done{}
	if err := p.register(s); err != nil {
		cancel()
		return nil, err
	}
	g, err := p.api.Task(life, grpc.MaxCallRecvMsgSize(wire.MaxStreamMessage))
	if err != nil {
		cancel()
		p.unregister(s)
		return nil, p.explain(ctx, err)
	}
	s.grpc = g
	start.Connector, start.Task, start.Config = env.Connector, int32(env.Task), env.Config
	start.MaxFrameBytes, start.MaxRecordBytes = wire.MaxFrame, int64(p.opts.MaxRecord)
	s.send(&wirepb.HostMessage{Body: &wirepb.HostMessage_Start{Start: start}})
	s.running.Go(s.receive)
	s.running.Go(s.deliver)
	var m *wirepb.Started
	select {
	case m = <-s.started:
		err = wire.FromError(m.Error)
	case <-s.failed:
		if m = take(s.started); m == nil { // its last word may have come just before the end
			err = s.err
		} else {
			err = wire.FromError(m.Error)
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		s.abandon(ctx, err)
		return nil, err
	}
	s.running.Go(s.pollMetrics)
	return m, nil
}

// abandon ends a task whose Open failed; one that did not even answer costs the process its life.
func (s *stream) abandon(ctx context.Context, why error) {
	if ctx.Err() != nil {
		s.p.kill(fmt.Errorf("%w: killed since task %d did not open in time", ErrHung, s.env.Task))
	}
	s.fail(why)
	s.running.Wait()
	s.p.unregister(s)
}

func (p *remote) register(s *stream) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.tasks == nil {
		return ErrClosed
	}
	p.mu.tasks[s] = struct{}{}
	return nil
}

func (p *remote) unregister(s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.tasks, s)
}

// fail makes err the task's terminal error, unless it has one, and ends the stream.
func (s *stream) fail(err error) {
	s.fail1.Do(func() {
		s.err = err
		close(s.failed)
		s.cancel()
	})
}

// send queues messages in order. The queue is short: every caller waits for an answer, or for records.
func (s *stream) send(msgs ...*wirepb.HostMessage) {
	for _, m := range msgs {
		m.Generation = s.env.Generation
	}
	s.mu.Lock()
	s.mu.outbox = append(s.mu.outbox, msgs...)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *stream) deliver() {
	for {
		select {
		case <-s.failed:
			return
		case <-s.wake:
		}
		s.mu.Lock()
		msgs := s.mu.outbox
		s.mu.outbox = nil
		s.mu.Unlock()
		for _, m := range msgs {
			if err := s.grpc.Send(m); err != nil {
				return // the receiver learns why
			}
		}
	}
}

func (s *stream) receive() {
	for {
		m, err := s.grpc.Recv()
		select {
		case <-s.failed:
			return // we ended it
		default:
		}
		if err == nil {
			err = s.dispatch(m)
		} else if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: it ended the task's stream", ErrProtocol)
		} else {
			err = s.p.explain(context.Background(), err)
		}
		if err != nil {
			s.fail(err)
			return
		}
	}
}

// dispatch handles one message. One of another generation is late: dropped.
func (s *stream) dispatch(m *wirepb.PluginMessage) error {
	if m.Generation != s.env.Generation {
		return nil
	}
	switch b := m.Body.(type) {
	case *wirepb.PluginMessage_Started:
		return offer(s.started, b.Started)
	case *wirepb.PluginMessage_Stopped:
		return offer(s.stopped, b.Stopped)
	case *wirepb.PluginMessage_Done:
		if err := s.handle(m); err != nil {
			return err
		}
		s.mu.Lock()
		c := s.mu.calls[b.Done.Call]
		delete(s.mu.calls, b.Done.Call)
		s.mu.Unlock()
		if c != nil { // else its caller has given up
			c <- b.Done
		}
		return nil
	}
	return s.handle(m)
}

// offer refuses what comes a second time.
func offer[T any](c chan T, v T) error {
	select {
	case c <- v:
		return nil
	default:
		return fmt.Errorf("%w: %T came twice", ErrProtocol, v)
	}
}

// take returns what c holds, or nil.
func take[T any](c chan *T) *T {
	select {
	case v := <-c:
		return v
	default:
		return nil
	}
}

// call sends messages, the last of which asks for an answer, and waits for it.
func (s *stream) call(ctx context.Context, msgs ...*wirepb.HostMessage) (*wirepb.Done, error) {
	return s.callAs(ctx, s.calls.Add(1), msgs...)
}

// callAs is call under a number from s.calls.
func (s *stream) callAs(ctx context.Context, id int64, msgs ...*wirepb.HostMessage) (*wirepb.Done, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	answer := make(chan *wirepb.Done, 1)
	s.mu.Lock()
	s.mu.calls[id] = answer
	s.mu.Unlock()
	msgs[len(msgs)-1].Call = id
	s.send(msgs...)
	select {
	case d := <-answer:
		return d, wire.FromError(d.Error)
	case <-s.failed:
		if d := take(answer); d != nil {
			return d, wire.FromError(d.Error)
		}
		return nil, s.err
	case <-ctx.Done():
		s.mu.Lock()
		delete(s.mu.calls, id)
		s.mu.Unlock()
		return nil, ctx.Err()
	}
}

// stop ends the task: Stop, Stopped, and the stream. A task that does not stop until ctx ends takes the process with it.
func (s *stream) stop(ctx context.Context) error {
	s.close1.Do(func() {
		s.lastMetrics(ctx)
		s.send(&wirepb.HostMessage{Body: &wirepb.HostMessage_Stop{Stop: &wirepb.Stop{}}})
		select {
		case m := <-s.stopped:
			s.closeErr = wire.FromError(m.Error)
		case <-s.failed:
			if m := take(s.stopped); m != nil {
				s.closeErr = wire.FromError(m.Error)
			} else {
				s.closeErr = s.stopFailed(ctx)
			}
		case <-ctx.Done():
			s.closeErr = fmt.Errorf("%w: task %d did not stop in time", ErrHung, s.env.Task)
			s.p.kill(fmt.Errorf("%w: killed since task %d did not stop in time", ErrHung, s.env.Task))
		}
		s.fail(ErrClosed)
		s.running.Wait()
		s.p.unregister(s)
	})
	return s.closeErr
}

// stopFailed is the end of a task whose stream broke before: its goroutines in the plugin may still run, unless the
// process is gone. The plugin ends them when the stream ends, and says so by answering a call that it holds back until then.
func (s *stream) stopFailed(ctx context.Context) error {
	select {
	case <-s.p.child.exited:
		return nil
	case <-s.p.closing:
		return nil
	default:
	}
	_, err := s.p.api.Metrics(ctx, &wirepb.MetricsRequest{Task: int32(s.env.Task), Generation: s.env.Generation, AwaitEnd: true})
	if err != nil && ctx.Err() != nil {
		s.p.kill(fmt.Errorf("%w: killed since task %d did not end in time", ErrHung, s.env.Task))
		return fmt.Errorf("%w: task %d did not end in time", ErrHung, s.env.Task)
	}
	return nil
}

func (s *stream) pollMetrics() {
	ticker := time.NewTicker(metricsInterval)
	defer ticker.Stop()
	for {
		select {
		case <-s.failed:
			return
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), metricsInterval)
		s.fetchMetrics(ctx)
		cancel()
	}
}

// lastMetrics fetches what a task counted since the last time; a task that does not answer at once is not waited for.
func (s *stream) lastMetrics(ctx context.Context) {
	select {
	case <-s.failed:
		return
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, lastMetricsTimeout)
	defer cancel()
	s.fetchMetrics(ctx)
}

func (s *stream) fetchMetrics(ctx context.Context) {
	m, err := s.p.api.Metrics(ctx, &wirepb.MetricsRequest{Task: int32(s.env.Task), Generation: s.env.Generation})
	if err != nil {
		return // the health check judges
	}
	for name, v := range m.Gauges {
		s.env.Metrics.Set(name, v)
	}
	for name, v := range m.Counters {
		s.env.Metrics.Add(name, v)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.lag, s.mu.unit, s.mu.lags = m.GetLag(), m.LagUnit, m.Lag != nil
}
