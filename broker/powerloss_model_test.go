//go:build !race

package broker

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/broker/group"
	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
)

// model is what the clients were told, and so what has to be there after every start.
type model struct {
	w       *world
	topics  map[string]*mTopic
	deleted map[kafka.UUID]bool // deletions that were acknowledged
	offsets map[mOffsetKey]*mOffset
	ids     map[int64]bool // producer ids given
	serial  int

	producers []*mProducer
	txns      []*mTxnClient
	txnNames  map[string]bool // topics that were in a transaction
	ended     []*mTxn
}

type topicState int

const (
	creating topicState = iota // asked for
	alive
	deleting // asked for
)

// mTopic is a topic that was asked for. Its name is free again once its deletion is acknowledged.
type mTopic struct {
	name      string
	id        kafka.UUID
	state     topicState
	busy      bool  // one change of it is under way
	retention int64 // retention.bytes, or -1
	tiered    bool
	compacted bool
	parts     int               // acknowledged
	partsMax  int               // asked for
	config    map[string]string // acknowledged values of what is changed
	tried     map[string]string // asked for since
	logs      []*mLog
}

// mLog is one partition.
type mLog struct {
	t     *mTopic
	index int32
	recs  map[int64]*mRec
	// start is the log start that was acknowledged, startMax the highest that was asked for; retention may go on.
	start, startMax, end int64
	txns                 bool // it may have markers
	// limbo are records whose append was broken off: they may be in the log, at an offset that nobody was told.
	limbo []*mRec
}

func (l *mLog) String() string { return fmt.Sprintf("%s-%d", l.t.name, l.index) }

// mRec is a record that was sent. It is durable once it was acknowledged or read.
type mRec struct {
	key, value string
	bytes      int // of its batch, at the first record
	durable    bool
}

type mOffsetKey struct {
	group string
	topic kafka.UUID
	part  int32
}

// mOffset is a committed offset: what was acknowledged last, and what was asked for since.
type mOffset struct {
	acked int64 // -1: nothing
	tried []int64
	busy  bool
}

// mProducer is an idempotent producer of one partition. It sends what was not acknowledged again, in order.
type mProducer struct {
	l       *mLog
	id      int64
	seq     int32
	unacked []*mBatch
	last    *mBatch // acknowledged
}

type mBatch struct {
	seq    int32
	values []string
	first  int64
	acked  bool
}

func newModel(w *world) *model {
	return &model{w: w, topics: map[string]*mTopic{}, deleted: map[kafka.UUID]bool{}, offsets: map[mOffsetKey]*mOffset{},
		ids: map[int64]bool{}, txnNames: map[string]bool{}}
}

// newLogs gives the topic the logs of its partitions.
func (m *model) newLogs(t *mTopic) {
	for len(t.logs) < t.partsMax {
		// A transaction that is still to end may have had partitions of an earlier topic of this name.
		t.logs = append(t.logs, &mLog{t: t, index: int32(len(t.logs)), recs: map[int64]*mRec{}, txns: m.txnNames[t.name]})
	}
}

// allFlushed notes that a clean stop makes all durable. It is called when no client waits any more.
func (m *model) allFlushed() {
	for _, t := range m.topics {
		for _, l := range t.logs {
			for _, r := range l.recs {
				r.durable = true
			}
		}
	}
}

// check compares everything with the broker that has just started, and takes over what it has of what nobody was told.
func (m *model) check() {
	m.checkTopics(m.w.b.ctl.Image())
	for _, name := range slices.Sorted(maps.Keys(m.topics)) {
		for _, l := range m.topics[name].logs {
			if m.w.failed() != nil || m.w.p.isOff() {
				return
			}
			if err := m.checkLog(l); err != nil && !m.w.gone(err) {
				m.w.violate("%s: %w", l, err)
			}
		}
	}
	m.checkOffsets()
	m.restartClients()
}

func (m *model) checkTopics(im *controller.Image) {
	for id := range m.deleted {
		if im.TopicByID(id) != nil {
			m.w.violate("topic %s is back, its deletion was acknowledged", id)
		}
	}
	for name, t := range m.topics {
		got := im.TopicByID(t.id)
		t.busy = false
		switch {
		case got == nil && t.state == alive:
			m.w.violate("topic %s is gone", name)
		case got == nil:
			m.deleted[t.id] = m.deleted[t.id] || t.state == deleting
			delete(m.topics, name)
		}
		if got == nil {
			continue
		}
		t.state = alive
		if n := len(got.Partitions); n < t.parts || n > t.partsMax {
			m.w.violate("topic %s has %d partitions, %d were acknowledged and %d asked for", name, n, t.parts, t.partsMax)
		} else {
			t.parts, t.partsMax = n, n
			t.logs = t.logs[:n]
		}
		for k, v := range t.config {
			if got.Configs[k] != v && got.Configs[k] != t.tried[k] {
				m.w.violate("topic %s: %s is %q, was set to %q", name, k, got.Configs[k], v)
			}
			t.config[k] = got.Configs[k]
		}
		clear(t.tried)
	}
}

// gotRec is a record that was read.
type gotRec struct {
	key, value string
	control    bool
}

// checkLog reads a partition from end to end.
func (m *model) checkLog(l *mLog) error {
	p, err := m.w.b.parts.Get(l.t.name, l.index)
	if err != nil {
		return err
	}
	earliest, err := p.ListOffset(m.w.ctx, partition.OffsetQuery{Timestamp: partition.Earliest, LeaderEpoch: -1})
	if err != nil {
		return err
	}
	start, end := earliest.Offset, p.EndOffset()
	if hw := p.HighWatermark(); hw != end {
		return fmt.Errorf("the high watermark is %d, the end %d", hw, end)
	}
	for o, r := range l.recs {
		if r.durable && o >= end {
			return fmt.Errorf("offset %d was acknowledged or read, the log ends at %d", o, end)
		}
	}
	if err := l.checkStart(start); err != nil {
		return err
	}
	got, err := m.w.readAll(p, start, end)
	if err != nil {
		return err
	}
	if err := l.compare(got, start, end); err != nil {
		return err
	}
	maps.DeleteFunc(l.recs, func(o int64, _ *mRec) bool { return got[o] == nil })
	for _, r := range l.recs {
		r.durable = true // it has just been read
	}
	l.start, l.startMax, l.end, l.limbo = start, start, end, nil
	return nil
}

// checkStart finds deleted records that came back, and records that were deleted without leave.
func (l *mLog) checkStart(start int64) error {
	if start < l.start {
		return fmt.Errorf("the log starts at %d, at %d before", start, l.start)
	}
	if start <= l.startMax {
		return nil
	}
	bytes := int64(0)
	for o, r := range l.recs {
		if o < start {
			continue
		}
		if bytes += int64(r.bytes); l.txns {
			bytes += 80 // a marker, perhaps
		}
		if l.t.tiered && r.bytes > 0 {
			bytes += 700 // an object has more than its log: indexes, checksums, the producers' state
		}
	}
	if l.t.retention < 0 || bytes < l.t.retention {
		return fmt.Errorf("the log starts at %d with %d bytes left; deletion was asked for up to %d, retention.bytes is %d", start, bytes,
			l.startMax, l.t.retention)
	}
	return nil
}

// compare checks what was read against what was sent. Nothing else may be there, and no hole.
func (l *mLog) compare(got map[int64]*gotRec, start, end int64) error {
	newest := map[string]int64{} // of each key, for compacted topics
	where := map[string]int64{}
	for o, g := range got {
		newest[g.key] = max(newest[g.key], o)
		r := l.recs[o]
		if g.control && l.txns && (r == nil || !r.durable) {
			delete(l.recs, o) // lost, and the coordinator was here before this check
			continue
		}
		if r == nil {
			r = l.found(o, g)
		}
		if r == nil {
			return fmt.Errorf("offset %d has %.30q, which was never given out or was lost once", o, g.value)
		}
		if g.control || g.value != r.value {
			return fmt.Errorf("offset %d has %.30q, it was given to %.30q", o, g.value, r.value)
		}
		if before, twice := where[g.value]; twice {
			return fmt.Errorf("%.30q is at offsets %d and %d", g.value, before, o)
		}
		where[g.value] = o
	}
	for o := start; o < end; o++ {
		if got[o] != nil {
			continue
		}
		r := l.recs[o]
		if l.t.compacted && (r == nil || newest[r.key] > o) {
			continue
		}
		return fmt.Errorf("nothing is at offset %d of [%d, %d)", o, start, end)
	}
	return nil
}

// found takes a record out of limbo that has turned up at an offset.
func (l *mLog) found(offset int64, g *gotRec) *mRec {
	if offset < l.end {
		return nil
	}
	i := slices.IndexFunc(l.limbo, func(r *mRec) bool { return r.value == g.value })
	if i < 0 {
		return nil
	}
	l.recs[offset] = l.limbo[i]
	return l.recs[offset]
}

// readAll reads [start, end) of a partition, over both tiers.
func (w *world) readAll(p *partition.Partition, start, end int64) (map[int64]*gotRec, error) {
	out := map[int64]*gotRec{}
	for o := start; o < end; {
		b, _, err := w.read(p, o, 3000, false)
		if err != nil {
			return nil, fmt.Errorf("read at %d: %w", o, err)
		}
		next := o
		it := record.NewBatchIterator(b)
		for h, batch, ok := it.Next(); ok; h, batch, ok = it.Next() {
			if err := addRecords(out, &h, batch, start); err != nil {
				return nil, err
			}
			next = h.NextOffset()
		}
		if err := it.Err(); err != nil && !errors.Is(err, record.ErrPartial) {
			return nil, err
		}
		if next == o {
			return out, nil // the end of a compacted log may hold nothing
		}
		o = next
	}
	return out, nil
}

func addRecords(out map[int64]*gotRec, h *record.Header, batch []byte, from int64) error {
	if err := record.VerifyBatch(batch); err != nil {
		return err
	}
	return record.ForEachRecord(batch, 1<<20, func(r *record.Record) error {
		if r.Offset >= from {
			out[r.Offset] = &gotRec{string(r.Key), string(r.Value), h.Control()}
		}
		return nil
	})
}

// read gets batches from whichever tier has the offset.
func (w *world) read(p *partition.Partition, offset int64, maxBytes int, committed bool) ([]byte, []partition.AbortedTxn, error) {
	res, err := p.Read(partition.ReadSpec{Offset: offset, MaxBytes: maxBytes, MinOne: true, LeaderEpoch: -1, LastFetchedEpoch: -1,
		Committed: committed})
	if err != nil {
		return nil, nil, err
	}
	if res.Remote {
		return w.readRemote(p, offset, maxBytes, committed)
	}
	defer res.Records.Release()
	b := make([]byte, res.Records.Size())
	if len(b) > 0 {
		_, err = res.Records.File.ReadAt(b, res.Records.Pos)
	}
	return b, res.Aborted, err
}

func (w *world) readRemote(p *partition.Partition, offset int64, maxBytes int, committed bool) ([]byte, []partition.AbortedTxn, error) {
	r := p.ReadRemote(offset, maxBytes, committed)
	defer r.Detach()
	sig := partition.NewSignal()
	r.Notify(sig)
	<-sig.C()
	records, aborted, _, err := r.Take()
	if err != nil {
		return nil, nil, err
	}
	defer records.Release()
	w.count("remote read")
	return slices.Clone(records.Data), aborted, nil
}

// checkOffsets looks at every committed offset of a topic that is there.
func (m *model) checkOffsets() {
	for key, o := range m.offsets {
		o.busy = false
		t := m.topicByID(key.topic)
		if t == nil {
			delete(m.offsets, key)
			continue
		}
		found, ok, err := m.w.b.groups.Load().Offsets(m.w.ctx, key.group,
			[]group.FetchItem{{Topic: t.name, TopicID: t.id, Partition: key.part}}, false)
		if err != nil {
			if !m.w.p.isOff() {
				m.w.violate("offset of %v: %w", key, err)
			}
			return
		}
		value := int64(-1)
		if ok[0] {
			value = found[0].Offset
		}
		if value != o.acked && !slices.Contains(o.tried, value) {
			m.w.violate("group %s, %s-%d: offset %d is committed, %d was acknowledged, %v asked for", key.group, t.name, key.part, value,
				o.acked, o.tried)
		}
		o.acked, o.tried = value, nil
	}
}

func (m *model) topicByID(id kafka.UUID) *mTopic {
	for _, t := range m.topics {
		if t.id == id {
			return t
		}
	}
	return nil
}
