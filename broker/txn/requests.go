package txn

import "slices"

func (c *Coordinator) onInit(e Init) {
	switch {
	case e.ID == "":
		c.reply(e.To, refused(ErrInvalidID))
		return
	case e.Timeout <= 0 || e.Timeout > c.cfg.MaxTimeout:
		c.reply(e.To, refused(ErrInvalidTimeout))
		return
	}
	t := c.entries[e.ID]
	if t == nil {
		t = &entry{Metadata: Metadata{ID: e.ID, ProducerID: e.FreshID, Epoch: None, PrevProducerID: None, NextProducerID: None,
			LastEpoch: None, Started: None}}
		c.entries[e.ID] = t
	}
	switch {
	case t.pending:
		t.waiting = append(t.waiting, e)
	case !t.knows(e.ProducerID, e.Epoch):
		c.reply(e.To, refused(ErrFenced))
	case t.preparing():
		c.reply(e.To, refused(ErrConcurrent))
	case t.State == Ongoing:
		// The producer before is shut out and its transaction aborted; whoever asks again then gets the epoch after.
		c.fence(t, func(err error) {
			if err == nil {
				err = ErrConcurrent
			}
			c.reply(e.To, refused(err))
		})
	default:
		c.init(t, e)
	}
}

// knows reports whether a producer that names its id and epoch may go on (KIP-360).
func (t *entry) knows(producer int64, epoch int16) bool {
	return producer == None || t.Epoch == None || producer == t.ProducerID ||
		producer == t.PrevProducerID && epoch >= lastEpoch
}

// init gives out the next epoch, or a new id where the epochs are used up.
func (c *Coordinator) init(t *entry, e Init) {
	next := t.Metadata
	next.State, next.Timeout, next.Started, next.Updated, next.Partitions = Empty, e.Timeout, None, c.millis(), nil
	named := e.ProducerID != None
	switch {
	case t.exhausted() && (!named || e.Epoch == t.Epoch):
		next.ProducerID, next.Epoch, next.LastEpoch = e.FreshID, 0, None
		if named {
			next.LastEpoch = t.Epoch
		}
	case !named:
		next.Epoch, next.LastEpoch = t.Epoch+1, None
	case t.Epoch == None || e.Epoch == t.Epoch:
		next.Epoch, next.LastEpoch = t.Epoch+1, t.Epoch
	case e.Epoch == t.LastEpoch: // the same request again: its answer was lost
	default:
		c.reply(e.To, refused(ErrFenced))
		return
	}
	c.change(t, next, func(err error) {
		if err != nil {
			c.reply(e.To, refused(err))
			return
		}
		c.reply(e.To, Identity{ProducerID: next.ProducerID, Epoch: next.Epoch})
	})
}

func (c *Coordinator) onAdd(e Add) {
	t := c.entries[e.ID]
	switch {
	case e.ID == "":
		c.reply(e.To, ErrInvalidID)
	case t == nil:
		c.reply(e.To, ErrMapping)
	case t.pending:
		t.waiting = append(t.waiting, e)
	case t.preparing() && e.Wait && t.goesOnWith(e.ProducerID, e.Epoch):
		t.waiting = append(t.waiting, e)
	case t.ProducerID != e.ProducerID:
		c.reply(e.To, ErrMapping)
	case t.Epoch != e.Epoch:
		c.reply(e.To, ErrFenced)
	case t.preparing():
		c.reply(e.To, ErrConcurrent)
	default:
		c.add(t, e)
	}
}

// goesOnWith reports whether the transaction after the one that is being ended is of this producer.
func (t *entry) goesOnWith(producer int64, epoch int16) bool {
	if t.NextProducerID != None {
		return producer == t.NextProducerID && epoch == 0
	}
	return producer == t.ProducerID && epoch == t.Epoch
}

func (c *Coordinator) add(t *entry, e Add) {
	next := t.Metadata
	next.Partitions = t.with(e.Partitions)
	if t.State == Ongoing && len(next.Partitions) == len(t.Partitions) {
		c.reply(e.To, nil)
		return
	}
	if t.State != Ongoing {
		next.State, next.Started = Ongoing, c.millis()
	}
	next.Updated, next.Version = c.millis(), e.Version
	c.change(t, next, func(err error) { c.reply(e.To, err) })
}

func (c *Coordinator) onEnd(e End) {
	t := c.entries[e.ID]
	switch {
	case e.ID == "":
		c.reply(e.To, refused(ErrInvalidID))
	case t == nil:
		c.reply(e.To, refused(ErrMapping))
	case t.pending:
		t.waiting = append(t.waiting, e)
	case e.Version >= 2:
		c.endBumping(t, e)
	default:
		c.endPlain(t, e)
	}
}

// endPlain ends a transaction of a client that does not know epoch bumps (EndTxn v4 and older).
func (c *Coordinator) endPlain(t *entry, e End) {
	done := CompleteAbort
	prepare := PrepareAbort
	if e.Commit {
		done, prepare = CompleteCommit, PrepareCommit
	}
	switch {
	case t.ProducerID != e.ProducerID:
		c.reply(e.To, refused(ErrMapping))
	case t.Epoch != e.Epoch:
		c.reply(e.To, refused(ErrFenced))
	case t.State == Ongoing:
		c.prepare(t, e, prepare)
	case t.State == done:
		c.reply(e.To, Identity{ProducerID: t.ProducerID, Epoch: t.Epoch}) // asked again
	case t.State == prepare:
		c.reply(e.To, refused(ErrConcurrent))
	default:
		c.reply(e.To, refused(ErrInvalidState))
	}
}

// endBumping ends a transaction of version 2 (KIP-890): the epoch goes up with the decision, so that a request of this
// transaction that comes late cannot touch the next.
func (c *Coordinator) endBumping(t *entry, e End) {
	overflow := t.PrevProducerID == e.ProducerID && e.Epoch == lastEpoch && t.Epoch == 0
	bumped := t.ProducerID == e.ProducerID && t.Epoch == e.Epoch+1
	again := overflow || bumped
	valid := again && t.State != Empty && t.State != Ongoing
	if !t.preparing() {
		valid = valid || t.Epoch == e.Epoch
	}
	switch {
	case t.preparing() && t.goesOnWith(e.ProducerID, e.Epoch):
		// The answer to the end before, with the new epoch, goes out before its markers are written: this is the next
		// transaction's end, given up before anything was added to it.
		t.waiting = append(t.waiting, e)
	case t.ProducerID != e.ProducerID && !overflow:
		c.reply(e.To, refused(ErrMapping))
	case !valid:
		c.reply(e.To, refused(ErrFenced))
	case t.preparing():
		if e.Commit == (t.State == PrepareCommit) {
			c.reply(e.To, refused(ErrConcurrent))
		} else {
			c.reply(e.To, refused(ErrInvalidState))
		}
	case t.State == Ongoing && e.Commit:
		c.prepare(t, e, PrepareCommit)
	case t.State == Ongoing || !e.Commit && !again:
		c.prepare(t, e, PrepareAbort) // an abort may come before any partition was added
	case t.State == CompleteCommit && e.Commit && again, t.State == CompleteAbort && !e.Commit && again:
		c.reply(e.To, Identity{ProducerID: t.ProducerID, Epoch: t.Epoch})
	default:
		c.reply(e.To, refused(ErrInvalidState))
	}
}

// prepare decides the end. The answer goes out once the decision is durable; the markers follow it.
func (c *Coordinator) prepare(t *entry, e End, to State) {
	next := t.Metadata
	next.State, next.Updated, next.Version = to, c.millis(), e.Version
	if t.State != Ongoing {
		next.Started, next.Partitions = c.millis(), nil
	}
	answer := Identity{ProducerID: t.ProducerID, Epoch: t.Epoch}
	if e.Version >= 2 {
		next.LastEpoch, next.Epoch = t.Epoch, t.Epoch+1
		answer.Epoch = next.Epoch
		if t.exhausted() {
			next.NextProducerID = e.FreshID
			answer = Identity{ProducerID: e.FreshID, Epoch: 0}
		}
	}
	next.Partitions = slices.Clip(next.Partitions)
	c.change(t, next, func(err error) {
		if err != nil {
			answer = refused(err)
		}
		c.reply(e.To, answer)
	})
}
