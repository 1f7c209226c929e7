package group

import (
	"context"
	"crypto/rand"
	"encoding/hex"
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
	OffsetsLog OffsetsLog
	// TopicID tells the id of the topic that has a name now, or false where there is none. When a partition is loaded, the
	// offsets of topics that were deleted meanwhile are dropped by it. nil means that all are kept.
	TopicID  func(name string) (kafka.UUID, bool)
	Now      func() time.Time           // nil means time.Now; timers go by package time
	MemberID func(prefix string) string // nil means prefix, a dash and a random UUID
	Log      *slog.Logger               // nil means none
}

// Manager runs the coordinators of all partitions of __consumer_offsets that this node leads. Its methods may be called
// concurrently.
type Manager struct {
	env Env
	cfg atomic.Pointer[Config]

	ctx     context.Context // ends when Close gives up waiting
	cancel  context.CancelFunc
	wg      sync.WaitGroup // loads and appends
	loads   chan struct{}  // bounds the loads that run at once
	timers  *alarm
	stopped chan struct{}

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
	if env.MemberID == nil {
		env.MemberID = randomMemberID
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	m := &Manager{env: env, loads: make(chan struct{}, concurrentLoads), stopped: make(chan struct{})}
	m.cfg.Store(&cfg)
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.timers = newAlarm()
	go m.runTimers()
	return m, nil
}

// randomMemberID makes ids as Kafka does.
func randomMemberID(prefix string) string {
	var u [16]byte
	if _, err := rand.Read(u[:]); err != nil {
		panic(err) // crypto/rand never fails on supported systems
	}
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	h := hex.EncodeToString(u[:])
	return fmt.Sprintf("%s-%s-%s-%s-%s-%s", prefix, h[:8], h[8:12], h[12:16], h[16:20], h[20:])
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
	return nil
}

// PartitionFor is the partition that holds a group, or ok=false while there is no __consumer_offsets.
func (m *Manager) PartitionFor(group string) (partition int32, ok bool) {
	n := m.env.OffsetsLog.Partitions()
	if n <= 0 {
		return 0, false
	}
	return PartitionFor(group, n), true
}

// Refresh looks which partitions this node leads now: it begins to load those it has come to lead and gives up those it
// leads no more. It is to be called after every change of the topic's leadership.
func (m *Manager) Refresh() {
	n := m.env.OffsetsLog.Partitions()
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
		m.mu.shards = append(m.mu.shards, &shard{m: m, partition: int32(len(m.mu.shards))})
	}
	return m.mu.shards[p]
}

func (m *Manager) shards() []*shard {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*shard(nil), m.mu.shards...)
}

// shardFor returns the shard of a group's partition.
func (m *Manager) shardFor(group string) (*shard, error) {
	p, ok := m.PartitionFor(group)
	if !ok {
		return nil, ErrUnavailable
	}
	sh := m.shard(p)
	if sh == nil {
		return nil, ErrUnavailable
	}
	return sh, nil
}

// Close refuses new requests, waits for the appends under way until ctx ends, and answers everything that still waits
// with ErrUnavailable.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	if m.mu.closed {
		m.mu.Unlock()
		<-m.stopped
		return nil
	}
	m.mu.closed = true
	shards := m.mu.shards
	m.mu.Unlock()

	for _, sh := range shards {
		sh.close()
	}
	idle := make(chan struct{})
	go func() { m.wg.Wait(); close(idle) }()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = fmt.Errorf("group: close: appends to the offsets topic are unfinished: %w", ctx.Err())
	}
	m.cancel()
	<-idle
	for _, sh := range shards {
		sh.unload(ErrUnavailable)
	}
	m.timers.stop()
	close(m.stopped)
	return err
}

// runTimers lets the coordinators' timers fire.
func (m *Manager) runTimers() {
	m.timers.run(func() {
		now := m.env.Now()
		for _, sh := range m.shards() {
			if at := sh.next.Load(); at != 0 && at <= now.UnixNano() {
				sh.tick()
			}
		}
		// What the ticks left is the next alarm.
		for _, sh := range m.shards() {
			if at := sh.next.Load(); at != 0 {
				m.timers.set(time.Unix(0, at).Sub(m.env.Now()), at)
			}
		}
	})
}

// Pending is an answer that is still to come.
type Pending[T any] struct {
	done chan struct{}
	resp T
	gone func()
}

// Wait returns the answer, or ctx's error when that ends first; then the request is abandoned.
func (p *Pending[T]) Wait(ctx context.Context) (T, error) {
	select {
	case <-p.done:
		return p.resp, nil
	case <-ctx.Done():
		p.Abandon()
		var zero T
		return zero, context.Cause(ctx)
	}
}

// Done is closed when the answer is there.
func (p *Pending[T]) Done() <-chan struct{} { return p.done }

// Abandon tells that nobody waits for the answer any more, because the connection is gone.
func (p *Pending[T]) Abandon() {
	if p.gone != nil {
		p.gone()
	}
}

func (p *Pending[T]) answer(body any) {
	p.resp, _ = body.(T)
	close(p.done)
}

// answerer is what a request's token is.
type answerer interface{ answer(body any) }

// ask sends an event to the coordinator of a group. event gets the token; refused makes the answer where there is no
// coordinator.
func ask[T any](m *Manager, group string, event func(to any) Event, refused func(error) T) *Pending[T] {
	p := &Pending[T]{done: make(chan struct{})}
	sh, err := m.shardFor(group)
	if err == nil {
		err = sh.step(event(p))
	}
	if err != nil {
		p.resp = refused(err)
		close(p.done)
		return p
	}
	p.gone = func() {
		select {
		case <-p.done:
		default:
			_ = sh.step(Disconnected{Group: group, To: p}) // a coordinator that is gone has answered
		}
	}
	return p
}

// Join asks for membership.
func (m *Manager) Join(r JoinRequest) *Pending[JoinResponse] {
	if r.Group == "" {
		return refusedNow(JoinResponse{Err: ErrInvalidGroupID, MemberID: r.MemberID})
	}
	return ask(m, r.Group, func(to any) Event { return Join{to, r} },
		func(err error) JoinResponse { return JoinResponse{Err: err, MemberID: r.MemberID} })
}

// Sync asks for the assignment.
func (m *Manager) Sync(r SyncRequest) *Pending[SyncResponse] {
	if r.Group == "" {
		return refusedNow(SyncResponse{Err: ErrInvalidGroupID})
	}
	return ask(m, r.Group, func(to any) Event { return Sync{to, r} }, func(err error) SyncResponse { return SyncResponse{Err: err} })
}

// Heartbeat keeps a session alive. While the group is being loaded it succeeds blindly, as in Kafka.
func (m *Manager) Heartbeat(r HeartbeatRequest) error {
	if r.Group == "" {
		return ErrInvalidGroupID
	}
	p := ask(m, r.Group, func(to any) Event { return Heartbeat{to, r} }, func(err error) outcome { return outcome{err} })
	if errors.Is(p.resp.err, ErrLoading) {
		return nil
	}
	return p.resp.err
}

// Leave removes members.
func (m *Manager) Leave(r LeaveRequest) *Pending[LeaveResponse] {
	if r.Group == "" {
		return refusedNow(LeaveResponse{Err: ErrInvalidGroupID})
	}
	return ask(m, r.Group, func(to any) Event { return Leave{to, r} }, func(err error) LeaveResponse { return LeaveResponse{Err: err} })
}

// OffsetCommit stores offsets.
func (m *Manager) OffsetCommit(r CommitRequest) *Pending[CommitResponse] {
	return ask(m, r.Group, func(to any) Event { return Commit{to, r} }, func(err error) CommitResponse { return CommitResponse{Err: err} })
}

// OffsetDelete drops offsets.
func (m *Manager) OffsetDelete(r OffsetDeleteRequest) *Pending[CommitResponse] {
	return ask(m, r.Group, func(to any) Event { return OffsetDelete{to, r} }, func(err error) CommitResponse { return CommitResponse{Err: err} })
}

// outcome is an answer that is only an error or none.
type outcome struct{ err error }

func refusedNow[T any](resp T) *Pending[T] {
	p := &Pending[T]{done: make(chan struct{}), resp: resp}
	close(p.done)
	return p
}
