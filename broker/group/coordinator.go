package group

import (
	"time"

	"github.com/varvehq/varve/broker/coordinator"
)

// What the machine shares with the runtime. The Body of a Reply is a JoinResponse, SyncResponse, LeaveResponse, CommitResponse
// or, for the other events, an error or nil.
type (
	Record   = coordinator.Record
	Producer = coordinator.Producer
	Write    = coordinator.Write
	Reply    = coordinator.Reply
)

// Note tells an operator what became of a group: that it rebalances and why, and what came of it.
type Note struct {
	Group      string
	What       string
	Member     string // "" where it is not of one
	Reason     string // the client's own, or ""
	Generation int32
	Members    int
}

// Effects is what a step asks for.
type Effects struct {
	coordinator.Effects
	Notes []Note
}

// Event is what can happen to a Coordinator. To, where an event has it, is an opaque token that the Reply carries.
type Event interface{ event() }

// The events.
type (
	// Join is answered when the group's next generation is there.
	Join struct {
		To any
		JoinRequest
	}
	// Sync is answered when the leader's assignment is durable.
	Sync struct {
		To any
		SyncRequest
	}
	// Heartbeat is answered at once.
	Heartbeat struct {
		To any
		HeartbeatRequest
	}
	// Leave is answered at once, or when the empty group is durable.
	Leave struct {
		To any
		LeaveRequest
	}
	// Commit is answered when the offsets are durable.
	Commit struct {
		To any
		CommitRequest
	}
	// OffsetDelete is answered, with a CommitResponse, when the offsets' tombstones are durable.
	OffsetDelete struct {
		To any
		OffsetDeleteRequest
	}
	// Delete removes an empty group and its offsets.
	Delete struct {
		To    any
		Group string
	}
	// TopicsDeleted drops the offsets of topics.
	TopicsDeleted struct {
		To     any
		Topics []DeletedTopic
	}
	// Barrier is answered when everything that the group is writing now is durable.
	Barrier struct {
		To    any
		Group string
	}
	// Written reports that a Write is durable, or that nothing of it is in the log.
	Written struct {
		ID  uint64
		Err error
	}
	// Disconnected reports that the connection of a waiting Join or Sync is gone; it is not answered any more.
	Disconnected struct {
		Group string
		To    any
	}
	// Tick lets timers fire.
	Tick struct{}
	// ConsumerHeartbeat is answered, with a ConsumerHeartbeatResponse, when what it changes is durable.
	ConsumerHeartbeat struct {
		To any
		ConsumerHeartbeatRequest
	}
	// TopicsChanged tells what topics there are.
	TopicsChanged struct{ Topics Topics }
)

func (ConsumerHeartbeat) event() {}
func (TopicsChanged) event()     {}

func (Join) event()          {}
func (Sync) event()          {}
func (Heartbeat) event()     {}
func (Leave) event()         {}
func (Commit) event()        {}
func (OffsetDelete) event()  {}
func (Delete) event()        {}
func (TopicsDeleted) event() {}
func (Barrier) event()       {}
func (Written) event()       {}
func (Disconnected) event()  {}
func (Tick) event()          {}

// Coordinator is the state machine of all groups of one partition of __consumer_offsets. It is not safe for concurrent
// use.
type Coordinator struct {
	cfg      *Config
	memberID func(prefix string) string

	groups map[string]*group
	timers timerHeap

	nextWrite uint64
	pending   map[uint64]func(error)
	closed    error
	topics    Topics
	// inTxn has the groups with offsets in a producer's undecided transaction.
	inTxn map[int64][]string

	// of the step that runs
	now time.Time
	eff Effects
}

// NewCoordinator returns a coordinator of no groups. memberID makes a member id that nobody else has, beginning with
// prefix.
func NewCoordinator(cfg *Config, now time.Time, memberID func(prefix string) string) *Coordinator {
	c := &Coordinator{cfg: cfg, memberID: memberID, groups: map[string]*group{}, pending: map[uint64]func(error){}, inTxn: map[int64][]string{}, now: now, topics: noTopics{}}
	c.startRetention()
	return c
}

// SetConfig replaces the settings. Timers that run keep their times.
func (c *Coordinator) SetConfig(cfg *Config) { c.cfg = cfg }

// Step takes an event at a time that never goes back, and returns what is to be done.
func (c *Coordinator) Step(now time.Time, e Event) Effects {
	c.begin(now)
	switch e := e.(type) {
	case Join:
		c.onJoin(e)
	case Sync:
		c.onSync(e)
	case Heartbeat:
		c.onHeartbeat(e)
	case Leave:
		c.onLeave(e)
	case Commit:
		c.onCommit(e)
	case TxnCommit:
		c.onTxnCommit(e)
	case TxnEnded:
		c.onTxnEnded(e)
	case OffsetDelete:
		c.onOffsetDelete(e)
	case Delete:
		c.onDelete(e)
	case TopicsDeleted:
		c.onTopicsDeleted(e)
	case Barrier:
		c.onBarrier(e)
	case Written:
		if done := c.pending[e.ID]; done != nil {
			delete(c.pending, e.ID)
			done(e.Err)
		}
	case ConsumerHeartbeat:
		c.onConsumerHeartbeat(e)
	case TopicsChanged:
		c.onTopicsChanged(e)
	case Disconnected:
		if g := c.groups[e.Group]; g != nil {
			g.disconnected(e.To)
			c.reap(g)
		}
	case Tick:
		c.tick()
	}
	return c.end()
}

// Unload answers everything that waits with err. The coordinator takes no more events.
func (c *Coordinator) Unload(now time.Time, err error) Effects {
	c.begin(now)
	c.closed = err
	for _, g := range c.groups {
		for _, m := range g.order {
			g.answerJoin(m, JoinResponse{Err: err, MemberID: m.id})
			g.answerSync(m, SyncResponse{Err: err})
		}
		g.state = Dead
	}
	for id, done := range c.pending {
		delete(c.pending, id)
		done(err)
	}
	c.timers, c.groups = nil, map[string]*group{}
	eff := c.end()
	eff.Writes = nil
	return eff
}

func (c *Coordinator) begin(now time.Time) {
	if now.After(c.now) {
		c.now = now
	}
	c.eff = Effects{}
}

func (c *Coordinator) end() Effects {
	eff := c.eff
	c.eff = Effects{}
	return eff
}

func (c *Coordinator) reply(to, body any) {
	if to != nil {
		c.eff.Replies = append(c.eff.Replies, Reply{To: to, Body: body})
	}
}

// write asks for records; done runs when they are durable, or with the error when they are not in the log.
func (c *Coordinator) write(records []Record, done func(error)) { c.writeAs(nil, records, done) }

func (c *Coordinator) writeAs(p *Producer, records []Record, done func(error)) {
	c.nextWrite++
	c.pending[c.nextWrite] = done
	c.eff.Writes = append(c.eff.Writes, Write{ID: c.nextWrite, Records: records, Producer: p})
}

// Settled reports whether no write is under way.
func (c *Coordinator) Settled() bool { return len(c.pending) == 0 }

// millis is the time as records have it.
func (c *Coordinator) millis() int64 { return c.now.UnixMilli() }

// reap forgets a group that has nothing worth keeping and nothing in the log.
func (c *Coordinator) reap(g *group) {
	if g.vacant() && c.groups[g.id] == g {
		delete(c.groups, g.id)
	}
}

// open returns a group, making it where there is none.
func (c *Coordinator) open(id string) *group {
	g := c.groups[id]
	if g == nil {
		g = newGroup(c, id)
		c.groups[id] = g
	}
	return g
}
