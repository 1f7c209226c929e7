package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/wire"
	"github.com/varvehq/varve/sdk/wire/wirepb"
)

// exitNotice is how long to wait for the news that the process has ended once its connection broke.
const exitNotice = 2 * time.Second

// explain turns an error of gRPC into one that says what happened.
func (p *remote) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-p.closing:
		return ErrClosed
	case <-p.child.exited:
		return p.death()
	default:
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch s := status.Convert(err); s.Code() {
	case codes.ResourceExhausted, codes.Internal, codes.Unimplemented:
		return fmt.Errorf("%w: %s", ErrProtocol, s.Message())
	case codes.Unavailable, codes.Canceled:
		// The connection is gone: most likely so is the process, in a moment.
	default:
		if !errors.Is(err, io.EOF) {
			return fmt.Errorf("plugin: %s", s.Message())
		}
	}
	timer := time.NewTimer(exitNotice)
	defer timer.Stop()
	select {
	case <-p.child.exited:
		return p.death()
	case <-p.closing:
		return ErrClosed
	case <-timer.C:
		return fmt.Errorf("%w: it broke the connection: %w", ErrProtocol, err)
	}
}

func (p *remote) death() error {
	p.mu.Lock()
	why := p.mu.why
	p.mu.Unlock()
	return p.child.died(p.tail, why)
}

func (p *remote) Spec(ctx context.Context) (sdk.Spec, error) {
	r, err := p.api.Spec(ctx, &wirepb.SpecRequest{})
	if err != nil {
		return sdk.Spec{}, p.explain(ctx, err)
	}
	return wire.FromSpec(r), nil
}

func (p *remote) Validate(ctx context.Context, cfg sdk.Config) ([]sdk.ConfigError, error) {
	r, err := p.api.Validate(ctx, &wirepb.ValidateRequest{Config: cfg})
	if err != nil {
		return nil, p.explain(ctx, err)
	}
	var errs []sdk.ConfigError
	for _, e := range r.Errors {
		errs = append(errs, sdk.ConfigError{Key: e.Key, Message: e.Message})
	}
	return errs, nil
}

func (p *remote) Tasks(ctx context.Context, cfg sdk.Config, max int) ([]sdk.Config, error) {
	r, err := p.api.Tasks(ctx, &wirepb.TasksRequest{Config: cfg, Max: int32(max)})
	if err != nil {
		return nil, p.explain(ctx, err)
	}
	if r.Error != nil {
		return nil, wire.FromError(r.Error)
	}
	var tasks []sdk.Config
	for _, t := range r.Tasks {
		if t.Config == nil {
			t.Config = map[string]string{}
		}
		tasks = append(tasks, t.Config)
	}
	return tasks, nil
}

func (p *remote) AlterOffsets(ctx context.Context, cfg sdk.Config, offsets []sdk.PartitionOffset) error {
	r, err := p.api.AlterOffsets(ctx, &wirepb.AlterOffsetsRequest{Config: cfg, Offsets: wire.Offsets(offsets)})
	if err != nil {
		return p.explain(ctx, err)
	}
	return wire.FromError(r.Error)
}

func (p *remote) Features(ctx context.Context, cfg sdk.Config) (Features, error) {
	r, err := p.api.Features(ctx, &wirepb.FeaturesRequest{Config: cfg})
	if err != nil {
		return Features{}, p.explain(ctx, err)
	}
	return Features{
		ExactlyOnce: r.ExactlyOnce, DefinesTransactions: r.DefinesTransactions,
		Watches: r.Watches, AltersOffsets: r.AltersOffsets,
	}, nil
}

func (p *remote) Watch(ctx context.Context, cfg sdk.Config, reconfigure func()) error {
	err := p.watch(ctx, cfg, reconfigure)
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

func (p *remote) watch(ctx context.Context, cfg sdk.Config, reconfigure func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := p.api.Watch(ctx, &wirepb.WatchRequest{Config: cfg})
	if err != nil {
		return p.explain(ctx, err)
	}
	for {
		m, err := s.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("the connector's Watch has ended")
		case err != nil:
			return p.explain(ctx, err)
		case m.Error != nil:
			return wire.FromError(m.Error)
		}
		reconfigure()
	}
}
