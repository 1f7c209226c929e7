package group

import (
	"slices"

	"github.com/varvehq/varve/broker/coordinator"
)

// Offsets of transactions are in the log at once, in batches of their producer, and count from the commit marker on. Until
// then they are pending: of several for one partition the last that was written counts.

// TxnCommitRequest stores offsets within a producer's transaction. Generation is negative and MemberID empty for clients that
// name no membership; others are checked against the group (KIP-447).
type TxnCommitRequest struct {
	CommitRequest
	ProducerID    int64
	ProducerEpoch int16
}

type (
	// TxnCommit is answered, with a CommitResponse, when the offsets are durable as part of the transaction.
	TxnCommit struct {
		To any
		TxnCommitRequest
	}
	// TxnEnded tells that the marker of a producer's transaction is durable in the partition.
	TxnEnded struct {
		ProducerID int64
		Commit     bool
	}
)

func (TxnCommit) event() {}
func (TxnEnded) event()  {}

func (c *Coordinator) onTxnCommit(e TxnCommit) {
	g, err := c.txnCommitter(e.CommitRequest)
	if err != nil {
		c.reply(e.To, CommitResponse{Err: err})
		return
	}
	defer c.reap(g)
	var r CommitResponse
	changes := make([]offsetChange, 0, len(e.Items))
	for i, it := range e.Items {
		if textLength(it.Metadata) > c.cfg.OffsetMetadataMax {
			if r.Errs == nil {
				r.Errs = make([]error, len(e.Items))
			}
			r.Errs[i] = ErrMetadataTooLarge
			continue
		}
		changes = append(changes, offsetChange{topicPartition{it.Topic, it.Partition}, &Offset{
			Offset: it.Offset, LeaderEpoch: it.LeaderEpoch, Metadata: it.Metadata,
			CommitTime: c.millis(), ExpireTime: -1, TopicID: it.TopicID,
		}})
	}
	if len(changes) == 0 {
		c.reply(e.To, r)
		return
	}
	records := make([]Record, len(changes))
	for i, ch := range changes {
		records[i] = Record{Key: offsetKey(g.id, ch.topic, ch.partition), Value: offsetValue(*ch.to)}
	}
	g.writes++
	c.writeAs(&Producer{ID: e.ProducerID, Epoch: e.ProducerEpoch}, records, func(err error) {
		g.writes--
		if err != nil {
			r = CommitResponse{Err: err}
		} else {
			c.addPending(g, e.ProducerID, changes)
		}
		c.reply(e.To, r)
		c.reap(g)
	})
}

// txnCommitter finds the group that a transactional commit may go to.
func (c *Coordinator) txnCommitter(r CommitRequest) (*group, error) {
	if c.closed != nil {
		return nil, c.closed
	}
	if r.Group == "" {
		return nil, ErrInvalidGroupID
	}
	g := c.groups[r.Group]
	switch {
	case g == nil && r.Generation < 0:
		return c.open(r.Group), nil
	case g == nil && r.NotFoundError:
		return nil, ErrGroupNotFound
	case g == nil:
		return nil, ErrIllegalGeneration
	case g.state == Dead:
		return nil, coordinator.ErrUnavailable
	case g.consumer != nil:
		if err := g.consumer.checkTxnCommit(r); err != nil {
			return nil, err
		}
		return g, nil
	case r.Generation < 0 && (g.state == Empty || r.MemberID == "" && r.InstanceID == nil):
		return g, nil // a client from before KIP-447, or one without group management
	}
	m, err := g.check(r.MemberID, r.InstanceID)
	switch {
	case err != nil:
		return nil, err
	case !g.ofGeneration(m, r.Generation):
		return nil, ErrIllegalGeneration
	}
	return g, nil
}

// addPending keeps offsets that are in the log and wait for their marker.
func (c *Coordinator) addPending(g *group, producer int64, changes []offsetChange) {
	if g.pending == nil {
		g.pending = map[int64][]offsetChange{}
	}
	if _, ok := g.pending[producer]; !ok {
		c.inTxn[producer] = append(c.inTxn[producer], g.id)
	}
	for _, ch := range changes {
		g.pending[producer] = slices.DeleteFunc(g.pending[producer], func(o offsetChange) bool { return o.topicPartition == ch.topicPartition })
		g.pending[producer] = append(g.pending[producer], ch)
	}
}

// onTxnEnded takes over or drops what waited for the marker.
func (c *Coordinator) onTxnEnded(e TxnEnded) {
	ids := c.inTxn[e.ProducerID]
	delete(c.inTxn, e.ProducerID)
	for _, id := range ids {
		g := c.groups[id]
		if g == nil {
			continue
		}
		changes := g.pending[e.ProducerID]
		if delete(g.pending, e.ProducerID); len(g.pending) == 0 {
			g.pending = nil
		}
		if e.Commit {
			for _, ch := range changes {
				g.setOffset(ch.topicPartition, ch.to)
			}
		}
		c.reap(g)
	}
}

// Unstable reports whether a partition has an offset in a transaction that is not decided yet.
func (c *Coordinator) Unstable(group string, it FetchItem) bool {
	g := c.groups[group]
	if g == nil {
		return false
	}
	for _, changes := range g.pending {
		if slices.ContainsFunc(changes, func(ch offsetChange) bool { return ch.topicPartition == topicPartition{it.Topic, it.Partition} }) {
			return true
		}
	}
	return false
}

// UnstableOffsets lists the partitions of a group with an offset in a transaction that is not decided yet, in order.
func (c *Coordinator) UnstableOffsets(group string) []FetchItem {
	g := c.groups[group]
	if g == nil {
		return nil
	}
	seen := map[topicPartition]bool{}
	var items []FetchItem
	for _, changes := range g.pending {
		for _, ch := range changes {
			if !seen[ch.topicPartition] {
				seen[ch.topicPartition] = true
				items = append(items, FetchItem{Topic: ch.topic, Partition: ch.partition})
			}
		}
	}
	slices.SortFunc(items, func(a, b FetchItem) int {
		if a.Topic != b.Topic {
			if a.Topic < b.Topic {
				return -1
			}
			return 1
		}
		return int(a.Partition - b.Partition)
	})
	return items
}

// TxnOffsetCommit stores offsets within a transaction.
func (m *Manager) TxnOffsetCommit(r TxnCommitRequest) *Pending[CommitResponse] {
	return ask(m, r.Group, func(to any) Event { return TxnCommit{to, r} }, func(err error) CommitResponse { return CommitResponse{Err: err} })
}

// TxnEnded tells the coordinator of a partition of the offsets topic that the marker of a transaction is durable in it. Where
// the partition is not loaded there is nothing to tell: the load sees the marker, or coordinator.ErrLoading says to ask again.
func (m *Manager) TxnEnded(partition int32, producer int64, commit bool) error {
	sh := m.Shard(partition)
	if sh == nil {
		return coordinator.ErrUnavailable
	}
	return sh.Step(TxnEnded{ProducerID: producer, Commit: commit})
}
