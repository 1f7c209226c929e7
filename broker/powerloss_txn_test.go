//go:build !race

package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing/synctest"
	"time"

	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/broker/txn"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tiering/archive"
)

// mTxnClient is a transactional producer.
type mTxnClient struct {
	id          string
	ready, busy bool
	pid         int64
	epoch       int16
	seqs        map[*mLog]int32
	cur         *mTxn
}

// mTxn is one transaction. Its records are visible to who reads committed records all together or not at all.
type mTxn struct {
	id      string
	records []mTxnRecord
	unacked int
	commit  bool // was asked for
	abort   bool // was asked for
	acked   bool // and answered
}

type mTxnRecord struct {
	l     *mLog
	value string
}

// transact lets one of the transactional producers take its next step.
func (w *world) transact() {
	m := w.model
	if len(m.txns) == 0 {
		m.txns = []*mTxnClient{{id: "x0"}, {id: "x1"}}
	}
	c := m.txns[w.rng.IntN(len(m.txns))]
	switch {
	case c.busy:
	case !c.ready:
		w.initTxn(c)
	case c.cur != nil && c.cur.unacked == 0 && w.rng.IntN(3) == 0:
		w.endTxn(c)
	default:
		w.produceTxn(c)
	}
}

func (w *world) initTxn(c *mTxnClient) {
	c.busy = true
	w.note("%s begins", c.id)
	w.goClient(func() {
		r := w.b.txns.Load().Init(w.ctx, txn.InitRequest{ID: c.id, Timeout: time.Minute, ProducerID: txn.None, Epoch: txn.None})
		w.p.live(func() {
			c.busy = false
			switch {
			case errors.Is(r.Err, txn.ErrConcurrent), r.Err != nil && w.ctx.Err() != nil:
			case r.Err != nil:
				w.violate("%s: init: %w", c.id, r.Err)
			default:
				c.ready, c.pid, c.epoch, c.seqs = true, r.ProducerID, r.Epoch, map[*mLog]int32{}
			}
		})
	})
}

func (w *world) produceTxn(c *mTxnClient) {
	l := w.pickLog()
	if l == nil || l.t.compacted {
		return
	}
	p := w.partition(l)
	if p == nil {
		return
	}
	if c.cur == nil {
		c.cur = &mTxn{id: c.id}
		w.model.ended = append(w.model.ended, c.cur)
	}
	t, values := c.cur, w.values()
	batch, keys := w.batch(values, record.BuilderOptions{Transactional: true,
		Producer: &record.Producer{ID: c.pid, Epoch: c.epoch, BaseSequence: c.seqs[l]}})
	c.seqs[l] += int32(len(values))
	t.unacked++
	for _, v := range values {
		t.records = append(t.records, mTxnRecord{l, v})
	}
	c.busy, l.txns = true, true
	w.model.txnNames[l.t.name] = true
	w.note("%s (%d, %d) produces to %s", c.id, c.pid, c.epoch, l)
	w.goClient(func() {
		release, err := w.b.txns.Load().Enter(w.ctx, c.id, c.pid, c.epoch, kafka.TopicPartition{Topic: l.t.name, Partition: l.index}, true)
		if err != nil {
			w.lostTxn(c, l, "enter", err)
			return
		}
		first, ok := w.append(l, p, batch, keys, values, -1, -1)
		w.note("%s (%d, %d) has produced to %s at %d, %v", c.id, c.pid, c.epoch, l, first, ok)
		release()
		c.busy = false
		if !ok {
			c.ready, c.cur = false, nil
			return
		}
		w.await(l, p, first, len(values), -1, func() {
			w.count("transactional")
			t.unacked--
		})
	})
}

// lostTxn makes a producer begin anew after an error. Its transaction was put an end to by its timeout, or by the next begin.
func (w *world) lostTxn(c *mTxnClient, l *mLog, what string, err error) {
	w.p.live(func() {
		c.busy, c.ready, c.cur = false, false, nil
		if w.ctx.Err() == nil && l.t.state == alive && !errors.Is(err, txn.ErrFenced) && !errors.Is(err, txn.ErrConcurrent) {
			w.violate("%s: %s of %s: %w", c.id, what, l, err)
		}
	})
}

func (w *world) endTxn(c *mTxnClient) {
	t := c.cur
	t.commit = w.rng.IntN(3) > 0
	t.abort = !t.commit
	c.busy = true
	w.note("%s ends, commit %v", c.id, t.commit)
	w.goClient(func() {
		r := w.b.txns.Load().End(w.ctx, txn.EndRequest{ID: c.id, ProducerID: c.pid, Epoch: c.epoch, Commit: t.commit, Version: 2})
		w.p.live(func() {
			c.busy, c.cur = false, nil
			if r.Err != nil { // the life ends, or the transaction was put an end to after its timeout
				c.ready = false
				late := errors.Is(r.Err, txn.ErrFenced) || errors.Is(r.Err, txn.ErrConcurrent) || errors.Is(r.Err, txn.ErrInvalidState)
				if w.ctx.Err() == nil && !late {
					w.violate("%s: end: %w", c.id, r.Err)
				}
				return
			}
			t.acked = true
			if t.commit {
				w.count("commit")
			} else {
				w.count("abort")
			}
			c.pid, c.epoch, c.seqs = r.ProducerID, r.Epoch, map[*mLog]int32{}
		})
	})
}

// restartTxns lets the transactional producers begin anew.
func (m *model) restartTxns() {
	for _, c := range m.txns {
		*c = mTxnClient{id: c.id}
	}
}

// settle lets everything come to rest and looks at the whole: transactions, and the bucket.
func (w *world) settle() {
	w.p.setGates(false)
	for range 20 {
		time.Sleep(20 * time.Second) // the timeouts of transactions that nobody ended
		w.b.parts.Sweep()
		synctest.Wait()
		if w.unstable() == "" {
			break
		}
	}
	if l := w.unstable(); l != "" {
		w.violate("a transaction has no end in %s", l)
		return
	}
	if err := w.checkTransactions(); err != nil {
		w.violate("%w", err)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(w.model.topics)) {
		t := w.model.topics[name]
		for _, l := range t.logs {
			p := w.partition(l)
			if p == nil || !t.tiered {
				continue
			}
			if err := p.WorkTier(w.ctx); err != nil {
				w.violate("%s: work on the bucket: %w", l, err)
				return
			}
		}
	}
	w.b.parts.DeleteBuckets(w.ctx)
	w.model.check()
	if err := w.checkBucket(); err != nil {
		w.violate("bucket: %w", err)
	}
}

// unstable names a partition with an undecided transaction, or none.
func (w *world) unstable() string {
	for _, t := range w.model.topics {
		for _, l := range t.logs {
			if p := w.partition(l); p == nil || p.LastStableOffset() != p.EndOffset() {
				return fmt.Sprintf("%s: stable up to %d of %d", l, p.LastStableOffset(), p.EndOffset())
			}
		}
	}
	return ""
}

// checkTransactions reads everything as a consumer of committed records does.
func (w *world) checkTransactions() error {
	visible, there := map[*mLog]map[string]bool{}, map[*mLog]map[string]bool{}
	for _, t := range w.model.topics {
		for _, l := range t.logs {
			p := w.partition(l)
			v, err := w.readCommitted(p)
			if err != nil {
				return fmt.Errorf("%s: read committed: %w", l, err)
			}
			visible[l], there[l] = v, map[string]bool{}
			all, err := w.readAll(p, p.LogStart(), p.EndOffset())
			if err != nil {
				return fmt.Errorf("%s: %w", l, err)
			}
			for _, g := range all {
				there[l][g.value] = true
			}
		}
	}
	for _, t := range w.model.ended {
		if err := t.check(visible, there); err != nil {
			return err
		}
	}
	return nil
}

// check compares what is visible of a transaction with what is still there of it.
func (t *mTxn) check(visible, there map[*mLog]map[string]bool) error {
	seen, total := 0, 0
	for _, r := range t.records {
		if there[r.l][r.value] {
			total++
		}
		if visible[r.l][r.value] {
			seen++
		}
	}
	ok := seen == 0 || seen == total
	switch {
	case t.acked && t.commit:
		ok = seen == total
	case !t.commit:
		ok = seen == 0
	}
	if !ok {
		return fmt.Errorf("transaction of %s: %d of %d records are visible; commit asked %v, abort asked %v, answered %v", t.id, seen,
			total, t.commit, t.abort, t.acked)
	}
	return nil
}

// readCommitted gives the values that are not of aborted transactions.
func (w *world) readCommitted(p *partition.Partition) (map[string]bool, error) {
	out, end := map[string]bool{}, p.EndOffset()
	for o := p.LogStart(); o < end; {
		b, aborted, err := w.read(p, o, 1500, true)
		if err != nil {
			return nil, err
		}
		next, err := filterCommitted(b, o, aborted, out)
		if err != nil {
			return nil, err
		}
		if next == o {
			return out, nil
		}
		o = next
	}
	return out, nil
}

// filterCommitted is the rule of Kafka's consumer: the list of aborted transactions and their markers tell which batches count.
func filterCommitted(b []byte, from int64, aborted []partition.AbortedTxn, out map[string]bool) (next int64, err error) {
	open := map[int64]bool{}
	next = from
	it := record.NewBatchIterator(b)
	for h, batch, ok := it.Next(); ok; h, batch, ok = it.Next() {
		next = h.NextOffset()
		for _, a := range aborted {
			if a.FirstOffset <= h.LastOffset() && a.FirstOffset >= 0 {
				open[a.ProducerID] = true
			}
		}
		aborted = slices.DeleteFunc(aborted, func(a partition.AbortedTxn) bool { return a.FirstOffset <= h.LastOffset() })
		if h.Control() {
			delete(open, h.ProducerID)
			continue
		}
		if h.Transactional() && open[h.ProducerID] {
			continue
		}
		recs := map[int64]*gotRec{}
		if err := addRecords(recs, &h, batch, from); err != nil {
			return 0, err
		}
		for _, g := range recs {
			out[g.value] = true
		}
	}
	return next, nil
}

// checkBucket reads every byte of the bucket as `varve archive verify` does.
func (w *world) checkBucket() error {
	ctx := context.Background()
	a, err := archive.Open(ctx, w.bucket)
	if err != nil {
		return err
	}
	defer a.Close()
	topics, err := a.Topics(ctx)
	if err != nil {
		return err
	}
	for _, t := range topics {
		r, err := a.Verify(ctx, t.Partitions, nil)
		if err != nil {
			return err
		}
		if len(r.Faults) > 0 {
			return fmt.Errorf("%s: %v", t.Name, r.Faults)
		}
		w.stats["objects"] += r.Segments
		w.stats["manifests"] += r.Manifests
	}
	return nil
}
