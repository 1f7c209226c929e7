package group

import (
	"crypto/rand"
	"encoding/hex"
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
	OffsetsLog coordinator.Log
	// TopicID tells the id of the topic that has a name now, or false where there is none. When a partition is loaded, the
	// offsets of topics that were deleted meanwhile are dropped by it. nil means that all are kept.
	TopicID func(name string) (kafka.UUID, bool)
	// Topics is what topics there are now. nil means none.
	Topics   func() Topics
	Now      func() time.Time           // nil means time.Now; timers go by package time
	MemberID func(prefix string) string // nil means prefix, a dash and a random UUID
	Log      *slog.Logger               // nil means none
}

// Manager runs the coordinators of all partitions of __consumer_offsets that this node leads. Its methods may be called
// concurrently.
type Manager struct {
	*runtime
	env Env
	cfg atomic.Pointer[Config]
}

type (
	runtime = coordinator.Runtime[*Coordinator, Event, Effects]
	shard   = coordinator.Shard[*Coordinator, Event, Effects]
)

// Pending is an answer that is still to come.
type Pending[T any] = coordinator.Pending[T]

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
	m := &Manager{env: env}
	m.cfg.Store(&cfg)
	m.runtime = coordinator.NewRuntime(coordinator.Env{Topic: env.OffsetsLog, Now: env.Now, Log: env.Log},
		coordinator.Spec[*Coordinator, Event, Effects]{
			Name:          "groups",
			NoTopic:       coordinator.ErrUnavailable,
			MaxBatchBytes: func() int { return m.cfg.Load().MaxBatchBytes },
			Loader:        m.loader,
			Loaded:        m.loaded,
			Tick:          Tick{},
			Written:       func(id uint64, err error) Event { return Written{ID: id, Err: err} },
			Act:           m.act,
		})
	return m, nil
}

func (m *Manager) loader() (func([]byte) error, func(time.Time) (*Coordinator, Effects, error)) {
	l := NewLoader()
	return l.Add, func(now time.Time) (*Coordinator, Effects, error) {
		return l.Coordinator(m.cfg.Load(), now, m.env.MemberID)
	}
}

// loaded tells a coordinator of the topics, and drops the offsets of those that went while nobody looked.
func (m *Manager) loaded(now time.Time, c *Coordinator) Effects {
	if m.env.Topics != nil {
		c.Step(now, TopicsChanged{m.env.Topics()})
	}
	gone := c.goneTopics(m.env.TopicID)
	if len(gone) == 0 {
		return Effects{}
	}
	return c.Step(now, TopicsDeleted{Topics: gone})
}

// act logs the notes of a step.
func (m *Manager) act(_ *shard, eff Effects) {
	for i := range eff.Notes {
		m.log(&eff.Notes[i])
	}
}

func (m *Manager) log(n *Note) {
	attrs := make([]any, 0, 5)
	attrs = append(attrs, slog.String("group", n.Group), slog.Int("generation", int(n.Generation)), slog.Int("members", n.Members))
	if n.Member != "" {
		attrs = append(attrs, slog.String("member", n.Member))
	}
	if n.Reason != "" {
		attrs = append(attrs, slog.String("reason", n.Reason))
	}
	m.env.Log.Info(n.What, attrs...)
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
	m.Update(func(c *Coordinator) { c.SetConfig(&cfg) })
	return nil
}

// ask sends an event to the coordinator of a group.
func ask[T any](m *Manager, group string, event func(to any) Event, refused func(error) T) *Pending[T] {
	return coordinator.Ask(m.runtime, group, event, refused, func(to any) Event { return Disconnected{Group: group, To: to} })
}

// asIs is the answer of a request that is answered with an error or nil.
func asIs(err error) error { return err }

// Join asks for membership.
func (m *Manager) Join(r JoinRequest) *Pending[JoinResponse] {
	if r.Group == "" {
		return coordinator.Answered(JoinResponse{Err: ErrInvalidGroupID, MemberID: r.MemberID})
	}
	return ask(m, r.Group, func(to any) Event { return Join{to, r} },
		func(err error) JoinResponse { return JoinResponse{Err: err, MemberID: r.MemberID} })
}

// Sync asks for the assignment.
func (m *Manager) Sync(r SyncRequest) *Pending[SyncResponse] {
	if r.Group == "" {
		return coordinator.Answered(SyncResponse{Err: ErrInvalidGroupID})
	}
	return ask(m, r.Group, func(to any) Event { return Sync{to, r} }, func(err error) SyncResponse { return SyncResponse{Err: err} })
}

// Heartbeat keeps a session alive. While the group is being loaded it succeeds blindly, as in Kafka.
func (m *Manager) Heartbeat(r HeartbeatRequest) error {
	if r.Group == "" {
		return ErrInvalidGroupID
	}
	err, _ := ask(m, r.Group, func(to any) Event { return Heartbeat{to, r} }, asIs).Now()
	if errors.Is(err, coordinator.ErrLoading) {
		return nil
	}
	return err
}

// Leave removes members.
func (m *Manager) Leave(r LeaveRequest) *Pending[LeaveResponse] {
	if r.Group == "" {
		return coordinator.Answered(LeaveResponse{Err: ErrInvalidGroupID})
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

// ConsumerHeartbeat joins, keeps or ends a membership of the consumer protocol.
func (m *Manager) ConsumerHeartbeat(r ConsumerHeartbeatRequest) *Pending[ConsumerHeartbeatResponse] {
	if r.Group == "" {
		return coordinator.Answered(ConsumerHeartbeatResponse{Err: ErrInvalidGroupID})
	}
	return ask(m, r.Group, func(to any) Event { return ConsumerHeartbeat{to, r} },
		func(err error) ConsumerHeartbeatResponse { return ConsumerHeartbeatResponse{Err: err} })
}

// TopicsChanged tells the groups of the consumer protocol that topics have changed.
func (m *Manager) TopicsChanged(t Topics) {
	for _, sh := range m.Shards() {
		_ = sh.Step(TopicsChanged{t}) // a partition that is not loaded is told when it is
	}
}
