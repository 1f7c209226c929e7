package commitlog

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/varvehq/varve/internal/record"
)

// windowSize is how many of a producer's last batches are remembered to recognise a retry.
const windowSize = 5

const noTxn = -1

type batchMeta struct {
	lastOffset int64
	lastSeq    int32
	delta      int32 // last sequence minus first
}

func (b *batchMeta) firstSeq() int32    { return record.AddSequence(b.lastSeq, -b.delta) }
func (b *batchMeta) firstOffset() int64 { return b.lastOffset - int64(b.delta) }

// producer is what the log knows of one producer id.
type producer struct {
	id               int64
	timestamp        int64
	txnFirst         int64 // first offset of the open transaction, or noTxn
	coordinatorEpoch int32
	epoch            int16
	n                int8 // batches in window, oldest first
	window           [windowSize]batchMeta
}

func (p *producer) last() *batchMeta {
	if p.n == 0 {
		return nil
	}
	return &p.window[p.n-1]
}

func (p *producer) push(b batchMeta) {
	if p.n == windowSize {
		copy(p.window[:], p.window[1:])
		p.n--
	}
	p.window[p.n] = b
	p.n++
}

// txn is a transaction's first offset and, once decided, its marker's.
type txn struct {
	producer, first, marker int64
}

// noCoordinator is the epoch of the coordinator of which no marker was seen.
const noCoordinator = -1

// producerTable is the producer state of a log, guarded by its lock.
type producerTable struct {
	byID map[int64]*producer
	// open are the undecided transactions by first offset; decided are those whose marker may be above the high watermark.
	open, decided []txn
	// unstable is the number of both, for readers without the lock.
	unstable atomic.Int32
	// snapshotAt is the offset of the newest snapshot file, -1 where there is none.
	snapshotAt int64
}

func (t *producerTable) reset() {
	t.byID, t.open, t.decided = nil, nil, nil
	t.unstable.Store(0)
}

// check validates a data batch of an idempotent producer. dup is the stored batch where h repeats one.
func (t *producerTable) check(h *record.Header) (dup *batchMeta, err error) {
	p := t.byID[h.ProducerID]
	if p == nil {
		return nil, nil // unknown or expired: any sequence starts it
	}
	if h.ProducerEpoch < p.epoch {
		return nil, fmt.Errorf("%w: producer %d writes with epoch %d, the log has %d", ErrInvalidProducerEpoch, h.ProducerID, h.ProducerEpoch, p.epoch)
	}
	if fromCoordinator(h) {
		return nil, nil
	}
	if h.ProducerEpoch == p.epoch {
		for i := range p.window[:p.n] {
			if b := &p.window[i]; b.firstSeq() == h.BaseSequence && b.lastSeq == h.LastSequence() && b.delta == h.LastOffsetDelta {
				return b, nil
			}
		}
	}
	if err := p.checkSequence(h); err != nil {
		return nil, err
	}
	if !h.Transactional() && p.txnFirst != noTxn {
		return nil, fmt.Errorf("%w: producer %d has a transaction open and wrote outside of it", ErrInvalidTxnState, h.ProducerID)
	}
	return nil, nil
}

func (p *producer) checkSequence(h *record.Header) error {
	want := int32(0)
	if last := p.last(); h.ProducerEpoch == p.epoch && last != nil {
		want = record.AddSequence(last.lastSeq, 1)
	}
	if h.BaseSequence != want {
		return fmt.Errorf("%w: producer %d epoch %d: sequence %d, expected %d", ErrOutOfOrderSequence, h.ProducerID, h.ProducerEpoch, h.BaseSequence, want)
	}
	return nil
}

// checkMarker validates the end of a transaction.
func (t *producerTable) checkMarker(h *record.Header, m record.Marker) error {
	p := t.byID[h.ProducerID]
	if p == nil {
		if m.CoordinatorEpoch < noCoordinator {
			return fmt.Errorf("%w: coordinator epoch %d", ErrCoordinatorFenced, m.CoordinatorEpoch)
		}
		return nil
	}
	if h.ProducerEpoch < p.epoch {
		return fmt.Errorf("%w: marker of producer %d has epoch %d, the log has %d", ErrInvalidProducerEpoch, h.ProducerID, h.ProducerEpoch, p.epoch)
	}
	if m.CoordinatorEpoch < p.coordinatorEpoch {
		return fmt.Errorf("%w: coordinator epoch %d, the log has %d", ErrCoordinatorFenced, m.CoordinatorEpoch, p.coordinatorEpoch)
	}
	return nil
}

func (t *producerTable) get(id int64) *producer {
	p := t.byID[id]
	if p == nil {
		if t.byID == nil {
			t.byID = map[int64]*producer{}
		}
		p = &producer{id: id, epoch: record.NoProducerEpoch, txnFirst: noTxn, coordinatorEpoch: noCoordinator}
		t.byID[id] = p
	}
	return p
}

// applyData takes a data batch into the state. now is the clock of the append, or the file's time when replaying.
func (t *producerTable) applyData(h *record.Header, now int64) {
	if !h.HasProducer() {
		return
	}
	p := t.get(h.ProducerID)
	if p.epoch != h.ProducerEpoch {
		p.epoch, p.n = h.ProducerEpoch, 0
	}
	p.timestamp = max(h.MaxTimestamp, now)
	if !fromCoordinator(h) {
		p.push(batchMeta{lastOffset: h.LastOffset(), lastSeq: h.LastSequence(), delta: h.LastOffsetDelta})
	}
	if h.Transactional() && p.txnFirst == noTxn {
		p.txnFirst = h.BaseOffset
		t.open = append(t.open, txn{producer: p.id, first: h.BaseOffset})
		t.unstable.Add(1)
	}
}

// applyMarker ends a transaction. It returns the entry for the transaction index where the transaction had records and
// was aborted.
func (t *producerTable) applyMarker(h *record.Header, m record.Marker, now int64) (aborted record.TxnIndexEntry, ok bool) {
	p := t.get(h.ProducerID)
	aborted, ok = t.abortEntry(h, m)
	if p.txnFirst != noTxn {
		i := slices.IndexFunc(t.open, func(x txn) bool { return x.producer == p.id })
		x := t.open[i]
		x.marker = h.BaseOffset
		t.open = slices.Delete(t.open, i, i+1)
		t.decided = append(t.decided, x)
		p.txnFirst = noTxn
	}
	if p.epoch != h.ProducerEpoch {
		p.epoch, p.n = h.ProducerEpoch, 0
	}
	p.coordinatorEpoch = max(p.coordinatorEpoch, m.CoordinatorEpoch)
	p.timestamp = max(h.MaxTimestamp, now)
	return aborted, ok
}

// abortEntry is what applyMarker will return, without changing anything.
func (t *producerTable) abortEntry(h *record.Header, m record.Marker) (record.TxnIndexEntry, bool) {
	p := t.byID[h.ProducerID]
	if p == nil || p.txnFirst == noTxn || m.Type != record.AbortMarker {
		return record.TxnIndexEntry{}, false
	}
	stable := h.BaseOffset + 1
	for _, x := range t.open {
		if x.producer != p.id {
			stable = x.first
			break
		}
	}
	return record.TxnIndexEntry{ProducerID: p.id, FirstOffset: p.txnFirst, LastOffset: h.BaseOffset, LastStableOffset: stable}, true
}

// lastStable is the last stable offset under a high watermark, and forgets transactions decided below it.
func (t *producerTable) lastStable(highWatermark int64) int64 {
	t.decided = slices.DeleteFunc(t.decided, func(x txn) bool { return x.marker < highWatermark })
	t.unstable.Store(int32(len(t.open) + len(t.decided)))
	stable := highWatermark
	for _, x := range t.decided {
		stable = min(stable, x.first)
	}
	if len(t.open) > 0 {
		stable = min(stable, t.open[0].first)
	}
	return stable
}

// expire forgets producers that have not written for a while and have no transaction open.
func (t *producerTable) expire(now time.Time, after time.Duration) {
	for id, p := range t.byID {
		if p.txnFirst == noTxn && now.UnixMilli()-p.timestamp >= after.Milliseconds() {
			delete(t.byID, id)
		}
	}
}

// snapshot is the state as a .snapshot file.
func (t *producerTable) snapshot() []byte { return record.AppendProducerSnapshot(nil, t.states()) }

// states lists the producers in order of id.
func (t *producerTable) states() []record.ProducerState {
	states := make([]record.ProducerState, 0, len(t.byID))
	for _, p := range t.byID {
		s := record.ProducerState{
			ProducerID: p.id, Epoch: p.epoch, LastSequence: record.NoSequence, LastOffset: -1, Timestamp: p.timestamp,
			CoordinatorEpoch: p.coordinatorEpoch, CurrentTxnFirstOffset: p.txnFirst,
		}
		if b := p.last(); b != nil {
			s.LastSequence, s.LastOffset, s.OffsetDelta = b.lastSeq, b.lastOffset, b.delta
		}
		states = append(states, s)
	}
	slices.SortFunc(states, func(a, b record.ProducerState) int { return cmp.Compare(a.ProducerID, b.ProducerID) })
	return states
}

// load replaces the state by a snapshot's.
func (t *producerTable) load(states []record.ProducerState) {
	t.reset()
	for _, s := range states {
		p := t.get(s.ProducerID)
		p.epoch, p.timestamp, p.coordinatorEpoch, p.txnFirst = s.Epoch, s.Timestamp, s.CoordinatorEpoch, s.CurrentTxnFirstOffset
		if s.LastSequence >= 0 && s.LastOffset >= 0 {
			p.push(batchMeta{lastOffset: s.LastOffset, lastSeq: s.LastSequence, delta: s.OffsetDelta})
		}
		if p.txnFirst >= 0 {
			t.open = append(t.open, txn{producer: p.id, first: p.txnFirst})
		} else {
			p.txnFirst = noTxn
		}
	}
	slices.SortFunc(t.open, func(a, b txn) int { return cmp.Compare(a.first, b.first) })
	t.unstable.Store(int32(len(t.open)))
}

// refill puts a batch that is older than what a snapshot kept in front of its producer's window, so that a retry of it
// is recognised after a restart. Batches come newest first.
func (t *producerTable) refill(h *record.Header) {
	p := t.byID[h.ProducerID]
	if p == nil || p.epoch != h.ProducerEpoch || p.n == 0 || p.n == windowSize || h.BaseSequence < 0 {
		return
	}
	if oldest := &p.window[0]; h.LastOffset() < oldest.firstOffset() && record.AddSequence(h.LastSequence(), 1) == oldest.firstSeq() {
		copy(p.window[1:], p.window[:p.n])
		p.window[0] = batchMeta{lastOffset: h.LastOffset(), lastSeq: h.LastSequence(), delta: h.LastOffsetDelta}
		p.n++
	}
}
