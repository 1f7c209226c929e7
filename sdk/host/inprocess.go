package host

import (
	"context"
	"fmt"
	"sync"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/wire"
)

// InProcess runs a connector in the own process. A panic of the connector becomes an error of the call; a hang or a leak
// is not contained.
func InProcess(c sdk.Connector) Plugin {
	return &inProcess{connector: c, done: make(chan struct{})}
}

type inProcess struct {
	connector sdk.Connector
	once      sync.Once
	done      chan struct{}
}

func (p *inProcess) closed() error {
	select {
	case <-p.done:
		return ErrClosed
	default:
		return nil
	}
}

func (p *inProcess) Spec(context.Context) (spec sdk.Spec, err error) {
	if err := p.closed(); err != nil {
		return sdk.Spec{}, err
	}
	err = wire.Guard("Spec", func() error { spec = p.connector.Spec(); return nil })
	return spec, err
}

func (p *inProcess) Validate(ctx context.Context, cfg sdk.Config) (errs []sdk.ConfigError, err error) {
	if err := p.closed(); err != nil {
		return nil, err
	}
	err = wire.Guard("Validate", func() error { errs = sdk.ValidateConnector(ctx, p.connector, cfg); return nil })
	return errs, err
}

func (p *inProcess) Tasks(ctx context.Context, cfg sdk.Config, max int) (tasks []sdk.Config, err error) {
	if err := p.closed(); err != nil {
		return nil, err
	}
	err = wire.Guard("Tasks", func() (err error) { tasks, err = p.connector.Tasks(ctx, cfg, max); return err })
	return tasks, err
}

func (p *inProcess) AlterOffsets(ctx context.Context, cfg sdk.Config, offsets []sdk.PartitionOffset) error {
	if err := p.closed(); err != nil {
		return err
	}
	a, ok := p.connector.(sdk.OffsetAlterer)
	if !ok {
		return nil
	}
	return wire.Guard("AlterOffsets", func() error { return a.AlterOffsets(ctx, cfg, offsets) })
}

func (p *inProcess) Watch(ctx context.Context, cfg sdk.Config, reconfigure func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	w, ok := p.connector.(sdk.Watcher)
	if !ok {
		<-ctx.Done()
		return p.closed()
	}
	err := wire.Guard("Watch", func() error { return w.Watch(ctx, cfg, reconfigure) })
	if err == nil { // nothing to watch under this configuration
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return p.closed()
	}
	return err
}

func (p *inProcess) Features(_ context.Context, cfg sdk.Config) (f Features, err error) {
	if err := p.closed(); err != nil {
		return Features{}, err
	}
	err = wire.Guard("Features", func() error {
		if e, ok := p.connector.(sdk.ExactlyOnceSupporter); ok {
			f.ExactlyOnce = e.ExactlyOnce(cfg)
		}
		if d, ok := p.connector.(sdk.TransactionDefiner); ok {
			f.DefinesTransactions = d.DefinesTransactions(cfg)
		}
		_, f.Watches = p.connector.(sdk.Watcher)
		_, f.AltersOffsets = p.connector.(sdk.OffsetAlterer)
		return nil
	})
	return f, err
}

func (p *inProcess) OpenSource(ctx context.Context, env sdk.SourceEnv) (SourceTask, error) {
	if err := p.closed(); err != nil {
		return nil, err
	}
	c, ok := p.connector.(sdk.SourceConnector)
	if !ok {
		return nil, fmt.Errorf("connector %s is no source", p.connector.Spec().Name)
	}
	env.Env = env.WithDefaults()
	t := &localSource{}
	err := wire.Guard("Open", func() error { t.src = c.NewSource(); return t.src.Open(ctx, env) })
	if err != nil {
		_ = t.Close(ctx)
		return nil, err
	}
	return t, nil
}

func (p *inProcess) OpenSink(ctx context.Context, env sdk.SinkEnv) (SinkTask, error) {
	if err := p.closed(); err != nil {
		return nil, err
	}
	c, ok := p.connector.(sdk.SinkConnector)
	if !ok {
		return nil, fmt.Errorf("connector %s is no sink", p.connector.Spec().Name)
	}
	env = env.WithDefaults()
	t := &localSink{}
	err := wire.Guard("Open", func() error { t.sink = c.NewSink(); return t.sink.Open(ctx, env) })
	if err != nil {
		_ = t.Close(ctx)
		return nil, err
	}
	return t, nil
}

func (p *inProcess) Done() <-chan struct{} { return p.done }

func (p *inProcess) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

type localSource struct {
	src  sdk.Source
	once sync.Once
	err  error
}

func (t *localSource) Read(ctx context.Context) (recs []sdk.Record, err error) {
	err = wire.Guard("Read", func() (err error) { recs, err = t.src.Read(ctx); return err })
	return recs, err
}

func (t *localSource) BatchEnd() bool { return true }

func (t *localSource) Ack(ctx context.Context, at sdk.PartitionOffset) error {
	return wire.Guard("Ack", func() error { return t.src.Ack(ctx, at) })
}

func (t *localSource) Rewind(ctx context.Context, offsets []sdk.PartitionOffset) error {
	r, ok := t.src.(sdk.Rewinder)
	if !ok {
		return ErrUnsupported
	}
	return wire.Guard("Rewind", func() error { return r.Rewind(ctx, offsets) })
}

func (t *localSource) Lag() (n int64, unit string, ok bool) {
	l, ok := t.src.(sdk.Lagger)
	if !ok {
		return 0, "", false
	}
	err := wire.Guard("Lag", func() error { n, unit = l.Lag(); return nil })
	return n, unit, err == nil
}

func (t *localSource) Close(ctx context.Context) error {
	t.once.Do(func() {
		if t.src != nil {
			t.err = wire.Guard("Close", func() error { return t.src.Close(ctx) })
		}
	})
	return t.err
}

type localSink struct {
	sink sdk.Sink
	once sync.Once
	err  error
}

func (t *localSink) Assign(ctx context.Context, parts []sdk.Assignment) error {
	return wire.Guard("Assign", func() error { return t.sink.Assign(ctx, parts) })
}

func (t *localSink) Write(ctx context.Context, recs []sdk.Record) error {
	return wire.Guard("Write", func() error { return t.sink.Write(ctx, recs) })
}

func (t *localSink) Flush(ctx context.Context) (offsets map[sdk.TopicPartition]int64, err error) {
	err = wire.Guard("Flush", func() (err error) { offsets, err = t.sink.Flush(ctx); return err })
	return offsets, err
}

func (t *localSink) Revoke(ctx context.Context, parts []sdk.TopicPartition) error {
	return wire.Guard("Revoke", func() error { return t.sink.Revoke(ctx, parts) })
}

func (t *localSink) Tick(ctx context.Context) error {
	k, ok := t.sink.(sdk.Ticker)
	if !ok {
		return nil
	}
	return wire.Guard("Tick", func() error { return k.Tick(ctx) })
}

func (t *localSink) Close(ctx context.Context) error {
	t.once.Do(func() {
		if t.sink != nil {
			t.err = wire.Guard("Close", func() error { return t.sink.Close(ctx) })
		}
	})
	return t.err
}
