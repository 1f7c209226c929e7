package txn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvehq/varve/internal/kafka"
)

// Env is what a Manager needs of its broker.
type Env struct {
	TxnLog  Log
	Markers MarkerWriter
	// ProducerID draws a producer id that nobody was given before.
	ProducerID func(ctx context.Context) (int64, error)
	Now        func() time.Time // nil means time.Now; timers go by package time
	Log        *slog.Logger     // nil means none
}

// Manager runs the coordinators of all partitions of __transaction_state that this node leads. Its methods may be called
// concurrently.
type Manager struct {
	env Env
	cfg atomic.Pointer[Config]

	ctx    context.Context // ends when Close gives up waiting
	cancel context.CancelFunc
	wg     sync.WaitGroup // loads, appends and markers
	loads  chan struct{}  // bounds the loads that run at once
	ticker sync.WaitGroup
	quit   chan struct{}
	tuned  chan struct{} // the sweep interval may have changed

	mu struct { // taken before a shard's mutex, never after
		sync.Mutex
		shards []*shard
		closed bool
	}
}

// concurrentLoads is how many partitions are read at once.
const concurrentLoads = 4

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
	m := &Manager{env: env, loads: make(chan struct{}, concurrentLoads), quit: make(chan struct{}), tuned: make(chan struct{}, 1)}
	m.cfg.Store(&cfg)
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.ticker.Go(m.tick)
	return m, nil
}

// SetConfig changes the settings of a running manager.
func (m *Manager) SetConfig(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	m.cfg.Store(&cfg)
	for _, sh := range m.shards() {
		sh.mu.Lock()
		if sh.co != nil {
			sh.co.SetConfig(&cfg)
		}
		sh.mu.Unlock()
	}
	select {
	case m.tuned <- struct{}{}:
	default:
	}
	return nil
}

// tick lets the coordinators look at their transactions, until Close.
func (m *Manager) tick() {
	t := time.NewTicker(m.cfg.Load().SweepInterval)
	defer t.Stop()
	for {
		select {
		case <-m.quit:
			return
		case <-m.tuned:
			t.Reset(m.cfg.Load().SweepInterval)
		case <-t.C:
			for _, sh := range m.shards() {
				sh.tick()
			}
		}
	}
}

// Refresh looks which partitions this node leads now: it begins to load those it has come to lead and gives up those it
// leads no more. It is to be called after every change of the topic's leadership.
func (m *Manager) Refresh() {
	n := m.env.TxnLog.Partitions()
	for p := range n {
		if sh := m.shard(p); sh != nil {
			sh.refresh()
		}
	}
	for _, sh := range m.shards() {
		if sh.partition >= n {
			sh.refresh()
		}
	}
}

// shard returns the shard of a partition, or nil when the manager is closed.
func (m *Manager) shard(p int32) *shard {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return nil
	}
	for int(p) >= len(m.mu.shards) {
		m.mu.shards = append(m.mu.shards, &shard{m: m, partition: int32(len(m.mu.shards)), inflight: map[int64]int{}, held: map[int64]Markers{}})
	}
	return m.mu.shards[p]
}

func (m *Manager) shards() []*shard {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*shard(nil), m.mu.shards...)
}

// PartitionFor is the partition that holds a transactional id, or ok=false while there is no __transaction_state.
func (m *Manager) PartitionFor(id string) (partition int32, ok bool) {
	n := m.env.TxnLog.Partitions()
	if n <= 0 {
		return 0, false
	}
	return m.env.TxnLog.PartitionFor(id, n), true
}

func (m *Manager) shardFor(id string) (*shard, error) {
	p, ok := m.PartitionFor(id)
	if !ok {
		return nil, ErrNotCoordinator // the client looks for the coordinator, which makes the topic
	}
	sh := m.shard(p)
	if sh == nil {
		return nil, ErrUnavailable
	}
	return sh, nil
}

// Touch begins to load the partition of an id where that is still to be done.
func (m *Manager) Touch(id string) {
	if sh, err := m.shardFor(id); err == nil {
		sh.refresh()
	}
}

// Close refuses new requests, waits for the appends and markers under way until ctx ends, and answers everything that still
// waits with ErrUnavailable. Ends that are not complete go on when the log is loaded again.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	if m.mu.closed {
		m.mu.Unlock()
		<-m.ctx.Done()
		m.wg.Wait()
		return nil
	}
	m.mu.closed = true
	shards := m.mu.shards
	m.mu.Unlock()
	close(m.quit)
	m.ticker.Wait()
	for _, sh := range shards {
		sh.close()
	}
	idle := make(chan struct{})
	go func() { m.wg.Wait(); close(idle) }()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = fmt.Errorf("txn: close: ends of transactions are unfinished: %w", ctx.Err())
	}
	m.cancel()
	<-idle
	for _, sh := range shards {
		sh.mu.Lock()
		sh.drop(ErrUnavailable)
		sh.mu.Unlock()
	}
	return err
}

// answer is where the reply to a request comes.
type answer chan any

// ask sends an event to the coordinator of an id and waits for the reply. What is written is not taken back when ctx ends.
func (m *Manager) ask(ctx context.Context, id string, event func(to any) Event) (any, error) {
	sh, err := m.shardFor(id)
	if err != nil {
		return nil, err
	}
	a := make(answer, 1)
	if err := sh.step(event(a)); err != nil {
		return nil, err
	}
	select {
	case body := <-a:
		return body, nil
	case <-ctx.Done():
	}
	_ = sh.step(Abandoned{ID: id, To: a}) // a coordinator that is gone has answered
	select {
	case body := <-a:
		return body, nil
	default:
		return nil, context.Cause(ctx)
	}
}

func (m *Manager) identity(ctx context.Context, id string, event func(to any) Event) Identity {
	body, err := m.ask(ctx, id, event)
	if err != nil {
		return refused(err)
	}
	return body.(Identity)
}

// Init gives a producer its id and epoch. The Manager sets FreshID.
func (m *Manager) Init(ctx context.Context, r InitRequest) Identity {
	fresh, err := m.env.ProducerID(ctx)
	if err != nil {
		return refused(fmt.Errorf("%w: no producer id: %w", ErrUnavailable, err))
	}
	r.FreshID = fresh
	return m.identity(ctx, r.ID, func(to any) Event { return Init{to, r} })
}

// End commits or aborts. It returns when the decision is durable; the markers follow. The Manager sets FreshID.
func (m *Manager) End(ctx context.Context, r EndRequest) Identity {
	r.FreshID = None
	if r.Version >= 2 && r.Epoch >= lastEpoch {
		fresh, err := m.env.ProducerID(ctx)
		if err != nil {
			return refused(fmt.Errorf("%w: no producer id: %w", ErrUnavailable, err))
		}
		r.FreshID = fresh
	}
	return m.identity(ctx, r.ID, func(to any) Event { return End{to, r} })
}

// Add puts partitions into the transaction and returns when that is durable. A nil error means that they are in.
func (m *Manager) Add(ctx context.Context, r AddRequest) error {
	body, err := m.ask(ctx, r.ID, func(to any) Event { return Add{to, r} })
	if err != nil {
		return err
	}
	err, _ = body.(error)
	return err
}

// addWait is how long an append waits for the end of the transaction before its own.
const addWait = time.Second

// Enter lets a producer's append to a partition through: while the ongoing transaction has the partition, until release is
// called no marker of it is written. With add set, a partition that is not in it is put in first (version 2).
func (m *Manager) Enter(ctx context.Context, id string, producer int64, epoch int16, tp kafka.TopicPartition, add bool) (release func(), err error) {
	sh, err := m.shardFor(id)
	if err != nil {
		return nil, err
	}
	release, err = sh.enter(id, producer, epoch, tp)
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
	return sh.enter(id, producer, epoch, tp)
}

// Verify tells for each partition whether it is in the ongoing transaction: nil, or why not.
func (m *Manager) Verify(id string, producer int64, epoch int16, tps []kafka.TopicPartition) []error {
	errs := make([]error, len(tps))
	sh, err := m.shardFor(id)
	if err == nil {
		err = sh.read(func(c *Coordinator) {
			for i, tp := range tps {
				errs[i] = c.Covers(id, producer, epoch, tp)
			}
		})
	}
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

// Describe tells a transactional id, or ErrNotFound.
func (m *Manager) Describe(id string) (Metadata, error) {
	sh, err := m.shardFor(id)
	if err != nil {
		return Metadata{}, err
	}
	var d Metadata
	var found error
	if err := sh.read(func(c *Coordinator) { d, found = c.Describe(id) }); err != nil {
		return d, err
	}
	return d, found
}

// List calls f with every transactional id that this node coordinates. While a led partition is being loaded, it is
// ErrLoading.
func (m *Manager) List(f func(Metadata)) error {
	for p := range m.env.TxnLog.Partitions() {
		sh := m.shard(p)
		if sh == nil {
			return ErrUnavailable
		}
		if err := sh.read(func(c *Coordinator) { c.Each(f) }); err != nil && !errors.Is(err, ErrNotCoordinator) {
			return err
		}
	}
	return nil
}
