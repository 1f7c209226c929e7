package txn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/internal/kafka"
)

// Env is what a Manager needs of its broker.
type Env struct {
	TxnLog  coordinator.Log
	Markers MarkerWriter
	// ProducerID draws a producer id that nobody was given before.
	ProducerID func(ctx context.Context) (int64, error)
	Now        func() time.Time // nil means time.Now; timers go by package time
	Log        *slog.Logger     // nil means none
}

// Manager runs the coordinators of all partitions of __transaction_state that this node leads. Its methods may be called
// concurrently. Ends of transactions that are not complete when it is closed go on when the log is loaded again.
type Manager struct {
	*runtime
	env   Env
	cfg   atomic.Pointer[Config]
	gates gates
}

type (
	runtime = coordinator.Runtime[*Coordinator, Event, Effects]
	shard   = coordinator.Shard[*Coordinator, Event, Effects]
)

// NewManager starts a manager. It serves nothing before Refresh has found partitions to lead.
func NewManager(env Env, cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if env.Now == nil {
		env.Now = time.Now
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	m := &Manager{env: env}
	m.cfg.Store(&cfg)
	m.runtime = coordinator.NewRuntime(coordinator.Env{Topic: env.TxnLog, Now: env.Now, Log: env.Log},
		coordinator.Spec[*Coordinator, Event, Effects]{
			Name:          "transactions",
			NoTopic:       coordinator.ErrNotCoordinator, // the client looks for the coordinator, which makes the topic
			MaxBatchBytes: func() int { return m.cfg.Load().MaxBatchBytes },
			Loader:        m.loader,
			Tick:          Tick{},
			Written:       func(id uint64, err error) Event { return Written{ID: id, Err: err} },
			Act:           m.act,
		})
	return m, nil
}

func (m *Manager) loader() (func([]byte) error, func(time.Time) (*Coordinator, Effects, error)) {
	l := NewLoader()
	return l.Add, func(now time.Time) (*Coordinator, Effects, error) { return l.Coordinator(m.cfg.Load(), now) }
}

// SetConfig changes the settings of a running manager.
func (m *Manager) SetConfig(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	m.cfg.Store(&cfg)
	m.Update(func(c *Coordinator) { c.SetConfig(&cfg) })
	return nil
}

// ask sends an event to the coordinator of an id and waits for the reply. What is written is not taken back when ctx ends.
func ask[T any](ctx context.Context, m *Manager, id string, event func(to any) Event, refused func(error) T) T {
	resp, err := coordinator.Ask(m.runtime, id, event, refused, func(to any) Event { return Abandoned{ID: id, To: to} }).Wait(ctx)
	if err != nil {
		return refused(err)
	}
	return resp
}

// Init gives a producer its id and epoch. The Manager sets FreshID.
func (m *Manager) Init(ctx context.Context, r InitRequest) Identity {
	fresh, err := m.env.ProducerID(ctx)
	if err != nil {
		return refused(fmt.Errorf("%w: no producer id: %w", coordinator.ErrUnavailable, err))
	}
	r.FreshID = fresh
	return ask(ctx, m, r.ID, func(to any) Event { return Init{to, r} }, refused)
}

// End commits or aborts. It returns when the decision is durable; the markers follow. The Manager sets FreshID.
func (m *Manager) End(ctx context.Context, r EndRequest) Identity {
	r.FreshID = None
	if r.Version >= 2 && r.Epoch >= lastEpoch {
		fresh, err := m.env.ProducerID(ctx)
		if err != nil {
			return refused(fmt.Errorf("%w: no producer id: %w", coordinator.ErrUnavailable, err))
		}
		r.FreshID = fresh
	}
	return ask(ctx, m, r.ID, func(to any) Event { return End{to, r} }, refused)
}

// Add puts partitions into the transaction and returns when that is durable. A nil error means that they are in.
func (m *Manager) Add(ctx context.Context, r AddRequest) error {
	return ask(ctx, m, r.ID, func(to any) Event { return Add{to, r} }, func(err error) error { return err })
}

// addWait is how long an append waits for the end of the transaction before its own.
const addWait = time.Second

// Enter lets a producer's append to a partition through: while the ongoing transaction has the partition, until release is
// called no marker of it is written. With add set, a partition that is not in it is put in first (version 2).
func (m *Manager) Enter(ctx context.Context, id string, producer int64, epoch int16, tp kafka.TopicPartition, add bool) (release func(), err error) {
	sh, err := m.ShardFor(id)
	if err != nil {
		return nil, err
	}
	release, err = m.enter(sh, id, producer, epoch, tp)
	if err == nil || !add || !errors.Is(err, ErrNotInTransaction) && !errors.Is(err, ErrConcurrent) && !errors.Is(err, ErrFenced) &&
		!errors.Is(err, ErrMapping) {
		return release, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, addWait, ErrConcurrent)
	defer cancel()
	// The id may also be fenced for the time of its own end only: Add knows.
	if err := m.Add(ctx, AddRequest{ID: id, ProducerID: producer, Epoch: epoch, Partitions: []kafka.TopicPartition{tp}, Version: 2,
		Wait: true}); err != nil {
		return nil, err
	}
	return m.enter(sh, id, producer, epoch, tp)
}

// Verify tells for each partition whether it is in the ongoing transaction: nil, or why not.
func (m *Manager) Verify(id string, producer int64, epoch int16, tps []kafka.TopicPartition) []error {
	errs := make([]error, len(tps))
	err := m.Read(id, func(c *Coordinator) {
		for i, tp := range tps {
			errs[i] = c.Covers(id, producer, epoch, tp)
		}
	})
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

// Describe tells a transactional id, or ErrNotFound.
func (m *Manager) Describe(id string) (Metadata, error) {
	var d Metadata
	var found error
	if err := m.Read(id, func(c *Coordinator) { d, found = c.Describe(id) }); err != nil {
		return d, err
	}
	return d, found
}

// List calls f with every transactional id that this node coordinates. While a led partition is being loaded, it is
// ErrLoading.
func (m *Manager) List(f func(Metadata)) error {
	return m.Each(func(c *Coordinator) { c.Each(f) })
}
