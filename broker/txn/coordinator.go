package txn

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/internal/kafka"
)

// Event is what can happen to a Coordinator. To, where an event has it, is an opaque token that the Reply carries.
type Event interface{ event() }

// The events.
type (
	// Init is answered with an Identity.
	Init struct {
		To any
		InitRequest
	}
	// Add is answered with an error or nil.
	Add struct {
		To any
		AddRequest
	}
	// End is answered with an Identity: that of the next transaction (version 2).
	End struct {
		To any
		EndRequest
	}
	// Abandoned takes back an Add that waits; it is answered with ErrConcurrent where it still does.
	Abandoned struct {
		ID string
		To any
	}
	// Written reports that a Write is durable, or that nothing of it is in the log.
	Written struct {
		ID  uint64
		Err error
	}
	// Marked reports that the markers of a transaction are durable.
	Marked struct {
		ID         string
		ProducerID int64
		Epoch      int16
	}
	// Tick lets timers fire.
	Tick struct{}
)

func (Init) event()      {}
func (Add) event()       {}
func (End) event()       {}
func (Abandoned) event() {}
func (Written) event()   {}
func (Marked) event()    {}
func (Tick) event()      {}

// What the machine shares with the runtime. The Body of a Reply is an Identity, or an error or nil.
type (
	Record = coordinator.Record
	Write  = coordinator.Write
	Reply  = coordinator.Reply
)

// Effects is what a step asks for.
type Effects struct {
	coordinator.Effects
	Markers []Markers
	// TimedOut are the transactions that this step began to abort for their age.
	TimedOut []Metadata
}

// entry is one transactional id.
type entry struct {
	Metadata
	stored  bool // the log has a record of it
	pending bool // a write is under way
	ending  bool // that write ends the transaction
	marking bool // its markers are being written
	waiting []Event
}

// Coordinator is the state machine of all transactional ids of one partition of __transaction_state. It is not safe for
// concurrent use.
type Coordinator struct {
	cfg     *Config
	entries map[string]*entry
	sweepAt time.Time

	nextWrite uint64
	pending   map[uint64]func(error)

	// of the step that runs
	now time.Time
	eff Effects
}

// NewCoordinator returns a coordinator of no transactional ids.
func NewCoordinator(cfg *Config, now time.Time) *Coordinator {
	return &Coordinator{cfg: cfg, entries: map[string]*entry{}, pending: map[uint64]func(error){}, now: now,
		sweepAt: now.Add(cfg.SweepInterval)}
}

// SetConfig replaces the settings.
func (c *Coordinator) SetConfig(cfg *Config) {
	if at := c.now.Add(cfg.SweepInterval); at.Before(c.sweepAt) {
		c.sweepAt = at
	}
	c.cfg = cfg
}

// Step takes an event at a time that never goes back, and returns what is to be done.
func (c *Coordinator) Step(now time.Time, e Event) Effects {
	c.begin(now)
	c.dispatch(e)
	return c.end()
}

func (c *Coordinator) dispatch(e Event) {
	switch e := e.(type) {
	case Init:
		c.onInit(e)
	case Add:
		c.onAdd(e)
	case End:
		c.onEnd(e)
	case Abandoned:
		c.onAbandoned(e)
	case Written:
		if done := c.pending[e.ID]; done != nil {
			delete(c.pending, e.ID)
			done(e.Err)
		}
	case Marked:
		c.onMarked(e)
	case Tick:
		c.sweep()
	}
}

// Unload answers everything that waits with err. The coordinator takes no more events.
func (c *Coordinator) Unload(now time.Time, err error) Effects {
	c.begin(now)
	for _, t := range c.entries {
		for _, e := range t.waiting {
			c.refuse(e, err)
		}
		t.waiting = nil // so that what is answered below begins nothing new
	}
	for id, done := range c.pending {
		delete(c.pending, id)
		done(err)
	}
	c.entries = map[string]*entry{}
	return Effects{Effects: coordinator.Effects{Replies: c.end().Replies}}
}

func (c *Coordinator) refuse(e Event, err error) {
	switch e := e.(type) {
	case Init:
		c.reply(e.To, refused(err))
	case Add:
		c.reply(e.To, err)
	case End:
		c.reply(e.To, refused(err))
	}
}

func refused(err error) Identity { return Identity{Err: err, ProducerID: None, Epoch: None} }

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

func (c *Coordinator) millis() int64 { return c.now.UnixMilli() }

// change writes the id's next state, which holds once it is durable. done runs then, before what waited meanwhile.
func (c *Coordinator) change(t *entry, next Metadata, done func(error)) {
	t.ending = next.preparing()
	next.PrevProducerID = t.ProducerID
	c.write(t, encode(&next), func(err error) {
		if err == nil {
			t.Metadata, t.stored = next, true
			c.mark(t)
		} else if !t.stored {
			delete(c.entries, t.ID)
		}
		done(err)
	})
}

func (c *Coordinator) write(t *entry, r Record, done func(error)) {
	t.pending = true
	c.nextWrite++
	c.pending[c.nextWrite] = func(err error) {
		t.pending, t.ending = false, false
		done(err)
		c.resume(t)
	}
	c.eff.Writes = append(c.eff.Writes, Write{ID: c.nextWrite, Records: []Record{r}})
}

// resume takes the events that waited for a write or for the end of the transaction.
func (c *Coordinator) resume(t *entry) {
	events := t.waiting
	t.waiting = nil
	for _, e := range events {
		c.dispatch(e) // it waits again where it has to
	}
}

// mark asks for the markers of a transaction whose end is decided.
func (c *Coordinator) mark(t *entry) {
	if !t.preparing() || t.marking {
		return
	}
	t.marking = true
	c.eff.Markers = append(c.eff.Markers, Markers{ID: t.ID, ProducerID: t.ProducerID, Epoch: t.Epoch,
		Commit: t.State == PrepareCommit, Partitions: t.Partitions})
}

func (c *Coordinator) onMarked(e Marked) {
	t := c.entries[e.ID]
	if t == nil || !t.preparing() || t.ProducerID != e.ProducerID || t.Epoch != e.Epoch || t.pending {
		return
	}
	t.marking = false
	next := t.Metadata
	next.State = CompleteAbort
	if t.State == PrepareCommit {
		next.State = CompleteCommit
	}
	next.Partitions, next.Updated = nil, c.millis()
	if next.NextProducerID != None {
		next.ProducerID, next.Epoch, next.NextProducerID = t.NextProducerID, 0, None
	}
	c.change(t, next, func(error) {}) // where it fails, the next sweep begins again with the markers
}

func (c *Coordinator) onAbandoned(e Abandoned) {
	t := c.entries[e.ID]
	if t == nil {
		return
	}
	t.waiting = slices.DeleteFunc(t.waiting, func(w Event) bool {
		a, ok := w.(Add)
		if ok && a.To == e.To {
			c.reply(a.To, ErrConcurrent)
			return true
		}
		return false
	})
}

// Next is when the coordinator wants its next Tick.
func (c *Coordinator) Next() (time.Time, bool) { return c.sweepAt, len(c.entries) > 0 }

// sweep aborts what is over its time, forgets ids that were silent for long, and goes on with ends that got stuck.
func (c *Coordinator) sweep() {
	if c.now.Before(c.sweepAt) {
		return
	}
	c.sweepAt = c.now.Add(c.cfg.SweepInterval)
	for _, t := range c.sorted() {
		switch {
		case t.pending:
		case t.State == Ongoing:
			if c.millis()-t.Started > t.Timeout.Milliseconds() {
				c.eff.TimedOut = append(c.eff.TimedOut, t.Metadata)
				c.fence(t, func(error) {})
			}
		case t.preparing():
			c.mark(t)
		case c.millis()-t.Updated >= c.cfg.Expiration.Milliseconds():
			c.forget(t)
		}
	}
}

func (c *Coordinator) forget(t *entry) {
	c.write(t, Record{Key: encodeKey(t.ID)}, func(err error) {
		if err == nil {
			delete(c.entries, t.ID)
		}
	})
}

// fence begins to abort the ongoing transaction and shuts its producer out. Of a transaction of version 2 it takes two
// epochs, as Kafka does: one more is what an end that the producer asked for itself takes, and its commit that comes late would
// look like that end asked again, and be told of an invalid state, which ends a client, where it is fenced.
func (c *Coordinator) fence(t *entry, done func(error)) {
	next := t.Metadata
	next.State, next.Epoch, next.LastEpoch, next.Updated = PrepareAbort, t.Epoch+1, None, c.millis()
	if t.Version >= 2 && next.Epoch < math.MaxInt16 {
		next.Epoch++
	}
	c.change(t, next, done)
}

func (c *Coordinator) sorted() []*entry {
	out := make([]*entry, 0, len(c.entries))
	for _, t := range c.entries {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *entry) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Settled reports whether no write is under way.
func (c *Coordinator) Settled() bool { return len(c.pending) == 0 }

// Describe tells an id, or ErrNotFound.
func (c *Coordinator) Describe(id string) (Metadata, error) {
	t := c.entries[id]
	if t == nil || !t.stored {
		return Metadata{}, ErrNotFound
	}
	return t.Metadata, nil
}

// Each calls f with every id, in order.
func (c *Coordinator) Each(f func(Metadata)) {
	for _, t := range c.sorted() {
		if t.stored {
			f(t.Metadata)
		}
	}
}

// Covers tells whether records of a producer for a partition are in its ongoing transaction now: nil, or why not.
func (c *Coordinator) Covers(id string, producer int64, epoch int16, tp kafka.TopicPartition) error {
	t := c.entries[id]
	switch {
	case id == "":
		return ErrInvalidID
	case t == nil || t.ProducerID != producer:
		return ErrMapping
	case t.Epoch != epoch:
		return ErrFenced
	case t.ending || t.preparing():
		return ErrConcurrent
	case t.State != Ongoing || !t.has(tp):
		return ErrNotInTransaction
	}
	return nil
}
