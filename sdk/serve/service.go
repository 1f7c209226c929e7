package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"google.golang.org/grpc"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/wire"
	"github.com/varvehq/varve/sdk/wire/wirepb"
)

// service is the gRPC service over a Connector.
type service struct {
	wirepb.UnimplementedConnectorServer
	connector sdk.Connector
	log       *slog.Logger

	mu struct {
		sync.Mutex
		tasks map[taskKey]*running
	}
}

type taskKey struct {
	task       int32
	generation int64
}

// running is a task between Start and the end of its last goroutine.
type running struct {
	metrics
	ended chan struct{}
}

func newService(c sdk.Connector, log *slog.Logger) *service {
	s := &service{connector: c, log: log}
	s.mu.tasks = map[taskKey]*running{}
	return s
}

func (s *service) Spec(context.Context, *wirepb.SpecRequest) (r *wirepb.SpecReply, err error) {
	err = wire.Guard("Spec", func() error { r = wire.Spec(s.connector.Spec()); return nil })
	return r, err
}

func (s *service) Validate(ctx context.Context, q *wirepb.ValidateRequest) (*wirepb.ValidateReply, error) {
	r := &wirepb.ValidateReply{}
	err := wire.Guard("Validate", func() error {
		for _, e := range sdk.ValidateConnector(ctx, s.connector, config(q.Config)) {
			r.Errors = append(r.Errors, &wirepb.ConfigError{Key: e.Key, Message: e.Message})
		}
		return nil
	})
	return r, err
}

// config is never nil.
func config(m map[string]string) sdk.Config {
	if m == nil {
		return sdk.Config{}
	}
	return m
}

func (s *service) Tasks(ctx context.Context, q *wirepb.TasksRequest) (*wirepb.TasksReply, error) {
	r := &wirepb.TasksReply{}
	err := wire.Guard("Tasks", func() error {
		tasks, err := s.connector.Tasks(ctx, config(q.Config), int(q.Max))
		for _, t := range tasks {
			r.Tasks = append(r.Tasks, &wirepb.TaskConfig{Config: t})
		}
		return err
	})
	r.Error = wire.Error(err)
	return r, nil
}

func (s *service) AlterOffsets(ctx context.Context, q *wirepb.AlterOffsetsRequest) (*wirepb.AlterOffsetsReply, error) {
	a, ok := s.connector.(sdk.OffsetAlterer)
	if !ok {
		return &wirepb.AlterOffsetsReply{}, nil
	}
	err := wire.Guard("AlterOffsets", func() error {
		return a.AlterOffsets(ctx, config(q.Config), fromOffsets(q.Offsets))
	})
	return &wirepb.AlterOffsetsReply{Error: wire.Error(err)}, nil
}

func fromOffsets(offsets []*wirepb.PartitionOffset) []sdk.PartitionOffset {
	out := make([]sdk.PartitionOffset, len(offsets))
	for i, o := range offsets {
		out[i] = wire.FromOffset(o, nil)
	}
	return out
}

func (s *service) Features(_ context.Context, q *wirepb.FeaturesRequest) (*wirepb.FeaturesReply, error) {
	r := &wirepb.FeaturesReply{}
	err := wire.Guard("Features", func() error {
		if e, ok := s.connector.(sdk.ExactlyOnceSupporter); ok {
			r.ExactlyOnce = e.ExactlyOnce(config(q.Config))
		}
		if d, ok := s.connector.(sdk.TransactionDefiner); ok {
			r.DefinesTransactions = d.DefinesTransactions(config(q.Config))
		}
		_, r.Watches = s.connector.(sdk.Watcher)
		_, r.AltersOffsets = s.connector.(sdk.OffsetAlterer)
		return nil
	})
	return r, err
}

func (s *service) Watch(q *wirepb.WatchRequest, out grpc.ServerStreamingServer[wirepb.Reconfigure]) error {
	ctx := out.Context()
	w, ok := s.connector.(sdk.Watcher)
	if !ok {
		<-ctx.Done()
		return nil
	}
	var mu sync.Mutex
	send := func(m *wirepb.Reconfigure) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Send(m) // fails when the host is gone, which ctx says too
	}
	err := wire.Guard("Watch", func() error {
		return w.Watch(ctx, config(q.Config), func() { send(&wirepb.Reconfigure{}) })
	})
	if err == nil { // nothing to watch under this configuration
		<-ctx.Done()
	}
	if ctx.Err() == nil {
		send(&wirepb.Reconfigure{Error: wire.Error(err)})
	}
	return nil
}

// Task runs one task. Its first message is Start.
func (s *service) Task(g grpc.BidiStreamingServer[wirepb.HostMessage, wirepb.PluginMessage]) error {
	m, err := g.Recv()
	if err != nil {
		return err
	}
	start := m.GetStart()
	if start == nil {
		return errors.New("a task's first message is Start")
	}
	key := taskKey{start.Task, m.Generation}
	run := &running{ended: make(chan struct{})}
	s.mu.Lock()
	_, dup := s.mu.tasks[key]
	if !dup {
		s.mu.tasks[key] = run
	}
	s.mu.Unlock()
	if dup {
		return fmt.Errorf("task %d of generation %d runs already", key.task, key.generation)
	}
	defer func() {
		s.mu.Lock()
		delete(s.mu.tasks, key)
		s.mu.Unlock()
		close(run.ended)
	}()
	t := &task{grpc: g, generation: m.Generation, start: start}
	t.env = sdk.Env{
		Connector: start.Connector, Task: int(start.Task), Config: config(start.Config), Generation: m.Generation,
		Log: s.log.With("connector", start.Connector, "task", start.Task), Metrics: run,
	}
	switch c := s.connector.(type) {
	case sdk.SourceConnector:
		if start.Kind == string(sdk.SourceKind) {
			return runSource(t, c, run)
		}
	case sdk.SinkConnector:
		if start.Kind == string(sdk.SinkKind) {
			return runSink(t, c)
		}
	}
	return t.send(&wirepb.PluginMessage{Body: &wirepb.PluginMessage_Started{Started: &wirepb.Started{
		Error: &wirepb.Error{Text: fmt.Sprintf("the connector is no %s", start.Kind)},
	}}})
}

// Metrics returns what a task published, or waits for its end.
func (s *service) Metrics(ctx context.Context, q *wirepb.MetricsRequest) (*wirepb.MetricsReply, error) {
	s.mu.Lock()
	run := s.mu.tasks[taskKey{q.Task, q.Generation}]
	s.mu.Unlock()
	r := &wirepb.MetricsReply{}
	switch {
	case run == nil:
	case q.AwaitEnd:
		select {
		case <-run.ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	default:
		run.collect(r)
	}
	return r, nil
}

// metrics is the sdk.Metrics of a task.
type metrics struct {
	mu struct {
		sync.Mutex
		gauges, counters map[string]float64
		lagger           sdk.Lagger // nil: the task does not say
	}
}

func (m *metrics) lagBy(l sdk.Lagger) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.lagger = l
}

func (m *metrics) Set(name string, v float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.gauges == nil {
		m.mu.gauges = map[string]float64{}
	}
	m.mu.gauges[name] = v
}

func (m *metrics) Add(name string, v float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.counters == nil {
		m.mu.counters = map[string]float64{}
	}
	m.mu.counters[name] += v
}

func (m *metrics) collect(r *wirepb.MetricsReply) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.Gauges, r.Counters = maps.Clone(m.mu.gauges), m.mu.counters
	m.mu.counters = nil
	if m.mu.lagger == nil {
		return
	}
	_ = wire.Guard("Lag", func() error { // a lag unknown for now is no reason to fail
		n, unit := m.mu.lagger.Lag()
		r.Lag, r.LagUnit = &n, unit
		return nil
	})
}
