package controller

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// op is one call. prepare runs in the loop: it checks the call against everything proposed so far, and adds its records. finish,
// if set, runs in the loop with the image that holds them. The caller reads what they captured after done was closed.
type op struct {
	prepare func(*proposal) error
	finish  func(*Image)
	err     error
	done    chan struct{}
}

// batch is the ops of one entry of the log.
type batch struct {
	ops []*op
	at  logPosition
}

// run is the loop. All Raft state belongs to it.
func (c *Controller) run() {
	defer close(c.done)
	err := c.start()
	for err == nil {
		ops, messages, closed := c.take()
		if closed {
			c.refuse(ErrClosed, ops)
			break
		}
		if len(ops) == 0 && len(messages) == 0 {
			<-c.wake
			continue
		}
		err = c.turn(ops, messages)
	}
	if err != nil {
		c.fail(err)
	}
	c.closeErr = c.store.Close()
	c.stop()
}

// start applies what the log holds and campaigns where this node is the only voter.
func (c *Controller) start() error {
	err := c.process()
	if err == nil && len(c.conf.Voters) == 1 && len(c.conf.VotersOutgoing) == 0 {
		if err = c.node.Campaign(); err == nil {
			err = c.process()
		}
	}
	if err == nil {
		c.publish()
		close(c.led)
	}
	return err
}

// take empties the queue. It leaves the token of wake alone: at worst the loop looks once for nothing.
func (c *Controller) take() (ops []*op, messages []*raftpb.Message, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ops, messages = c.mu.queue, c.mu.messages
	c.mu.queue, c.mu.messages = nil, nil
	return ops, messages, c.mu.closed
}

// turn does one round: messages in, proposals, disk, application, publication, answers.
func (c *Controller) turn(ops []*op, messages []*raftpb.Message) error {
	for _, m := range messages {
		if err := c.node.Step(m); err != nil {
			c.env.Log.Debug("raft message refused", "type", m.GetType().String(), "error", err)
		}
	}
	for len(ops) > 0 {
		if err := c.process(); err != nil {
			c.refuse(fmt.Errorf("%w: %w", ErrFailed, err), ops)
			return err
		}
		n := c.propose(ops)
		ops = ops[n:]
	}
	if err := c.process(); err != nil {
		return err
	}
	c.publish()
	return c.maybeSnapshot()
}

// maxBatchBytes bounds the records of one entry; one call may pass it by what it alone asks for.
const maxBatchBytes = 1 << 20

// propose makes one entry of as many ops as fit and hands it to Raft. It returns how many it took.
func (c *Controller) propose(ops []*op) int {
	if !c.ready {
		c.refuse(ErrNotLeader, ops)
		return len(ops)
	}
	p := &proposal{editor: c.spec.edit(), env: &c.env}
	b := &batch{}
	for len(b.ops) < len(ops) && len(p.data) < maxBatchBytes {
		o := ops[len(b.ops)]
		o.err = p.run(o.prepare)
		b.ops = append(b.ops, o)
	}
	switch {
	case len(p.data) == 0 && len(c.proposed)+len(c.inflight) == 0:
		c.settled = append(c.settled, b)
	case len(p.data) == 0:
		c.unsent = append(c.unsent, b)
	default:
		if err := c.node.Propose(p.data); err != nil {
			c.refuse(fmt.Errorf("%w: %w", ErrNotLeader, err), b.ops)
			break
		}
		c.spec = p.editor.image()
		c.proposed = append(c.proposed, b)
	}
	return len(b.ops)
}

// process does what Raft has ready until there is nothing more.
func (c *Controller) process() error {
	for c.node.HasReady() {
		rd := c.node.Ready()
		c.follow(rd)
		// An acknowledgement, to a caller or to another voter, comes after this line only: it makes entries durable.
		if err := c.store.save(rd); err != nil {
			return err
		}
		if c.env.Transport != nil && len(rd.Messages) > 0 {
			c.env.Transport.Send(rd.Messages)
		}
		for _, e := range rd.CommittedEntries {
			if err := c.commit(e); err != nil {
				return err
			}
		}
		c.node.Advance(rd)
	}
	return nil
}

// follow keeps track of leadership, and of the indexes that Raft gave to proposals: a leader appends nothing but its own.
func (c *Controller) follow(rd raft.Ready) {
	if rd.SoftState != nil {
		if lead := rd.RaftState == raft.StateLeader; lead != c.lead {
			c.lead, c.ready, c.spec = lead, false, nil
			c.env.Log.Info("metadata leadership", "leads", lead)
		}
	}
	for _, e := range rd.Entries {
		if len(c.proposed) > 0 && e.GetType() == raftpb.EntryNormal && len(e.GetData()) > 0 {
			b := c.proposed[0]
			b.at = logPosition{index: e.GetIndex(), term: e.GetTerm()}
			c.proposed = c.proposed[1:]
			c.inflight = append(c.inflight, b)
		}
	}
}

// commit applies one committed entry and settles the proposals that it decides.
func (c *Controller) commit(e *raftpb.Entry) error {
	if e.GetType() != raftpb.EntryNormal {
		return fmt.Errorf("%w: entry %d changes the voters", ErrUnsupported, e.GetIndex())
	}
	records, err := DecodeRecords(e.GetData())
	if err != nil {
		return fmt.Errorf("entry %d: %w", e.GetIndex(), err)
	}
	if c.applied, err = Apply(c.applied, int64(e.GetIndex()), records); err != nil {
		return err
	}
	for len(c.inflight) > 0 && c.inflight[0].at.index <= e.GetIndex() {
		b := c.inflight[0]
		c.inflight = c.inflight[1:]
		if b.at != (logPosition{index: e.GetIndex(), term: e.GetTerm()}) {
			c.refuse(ErrNotLeader, b.ops)
			continue
		}
		c.settled = append(c.settled, b)
	}
	if len(c.proposed)+len(c.inflight) == 0 {
		c.settled = append(c.settled, c.unsent...)
		c.unsent = nil
	}
	c.ready = c.ready || c.lead && e.GetTerm() == c.store.state.GetTerm()
	if c.ready && len(c.proposed)+len(c.inflight) == 0 {
		c.spec = c.applied
	}
	return nil
}

// publish shows the applied image to readers and subscribers, and then answers the callers.
func (c *Controller) publish() {
	c.publishQuorum()
	c.subs.Lock()
	if old := c.image.Load(); old != c.applied {
		c.image.Store(c.applied)
		for _, f := range c.subs.list {
			(*f)(old, c.applied)
		}
	}
	c.subs.Unlock()
	for _, b := range c.settled {
		for _, o := range b.ops {
			if o.err == nil && o.finish != nil {
				o.finish(c.applied)
			}
			close(o.done)
		}
	}
	c.settled = nil
}

func (c *Controller) refuse(err error, ops []*op) {
	for _, o := range ops {
		o.err = err
		close(o.done)
	}
}

// maybeSnapshot replaces the log by a snapshot once it has grown enough, and by no less than a snapshot is long, so that what is
// written for snapshots is never more than what is written for the log. A snapshot that fails is tried again later, since
// the log holds everything; a log that cannot be replaced is fatal.
func (c *Controller) maybeSnapshot() error {
	if c.store.grown() < max(c.env.SnapshotBytes, c.store.snapshotSize) {
		return nil
	}
	index := uint64(c.applied.Version)
	term, err := c.store.Term(index)
	if err != nil {
		return err
	}
	snap := &snapshotContent{
		at: logPosition{index: index, term: term}, conf: c.conf, records: AppendRecords(nil, c.applied.Records()...),
	}
	if err := c.store.saveSnapshot(snap); err != nil {
		c.env.Log.Warn("metadata snapshot failed", "index", index, "error", err)
		c.store.headSize = c.store.size
		return nil
	}
	return c.store.dropBefore(snap)
}

// fail latches the first failure.
func (c *Controller) fail(err error) {
	err = fmt.Errorf("%w: %w", ErrFailed, err)
	c.mu.Lock()
	c.mu.failed = err
	c.mu.Unlock()
	c.env.Log.Error("metadata controller failed", "error", err)
	for _, list := range [][]*batch{c.settled, c.proposed, c.inflight, c.unsent} {
		for _, b := range list {
			c.refuse(err, b.ops)
		}
	}
	if c.env.OnFailed != nil {
		c.env.OnFailed(err)
	}
}

// stop answers what is still in the queue when the loop ends.
func (c *Controller) stop() {
	c.mu.Lock()
	if c.mu.failed == nil {
		c.mu.failed = ErrClosed
	}
	err, ops := c.mu.failed, c.mu.queue
	c.mu.queue = nil
	c.mu.Unlock()
	c.refuse(err, ops)
	for _, list := range [][]*batch{c.proposed, c.inflight, c.unsent} {
		if errors.Is(err, ErrClosed) {
			for _, b := range list {
				c.refuse(err, b.ops)
			}
		}
	}
	select {
	case <-c.led:
	default:
		close(c.led)
	}
}
