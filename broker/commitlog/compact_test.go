package commitlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// event is one batch that was appended.
type event struct {
	first, last int64
	pid         int64 // -1 none; below 10 transactional
	seq         int32
	marker      int // -1 data, or the marker's type
	recs        []rec
}

type rec struct {
	Key, Value string
	Null       bool
	Time       int64
}

// compactModel is all that was appended to a compacted log.
type compactModel struct {
	events []event
	serial int
}

func (m *compactModel) cut(end int64) {
	m.events = slices.DeleteFunc(m.events, func(e event) bool { return e.first >= end })
}

func (m *compactModel) end() int64 {
	if len(m.events) == 0 {
		return 0
	}
	return m.events[len(m.events)-1].last + 1
}

// next is the sequence that a producer goes on with, and whether it has a transaction open.
func (m *compactModel) next(pid int64) (seq int32, open bool) {
	for _, e := range m.events {
		if e.pid == pid {
			if e.marker < 0 {
				seq = e.seq + int32(len(e.recs))
			}
			open = e.marker < 0
		}
	}
	return seq, open && pid >= 0 && pid < 10
}

// fold is what a consumer at read_committed makes of everything below an offset.
func (m *compactModel) fold(upTo int64) map[string]string {
	out := map[string]string{}
	for i, e := range m.events {
		if e.first >= upTo || e.marker >= 0 || m.aborted(i) {
			continue
		}
		for _, r := range e.recs {
			if r.Null {
				delete(out, r.Key)
			} else {
				out[r.Key] = r.Value
			}
		}
	}
	return out
}

func (m *compactModel) aborted(i int) bool {
	pid := m.events[i].pid
	if pid < 0 || pid >= 10 {
		return false
	}
	for _, e := range m.events[i+1:] {
		if e.pid == pid && e.marker >= 0 {
			return e.marker == int(record.AbortMarker)
		}
	}
	return false
}

// step does one random operation.
func (m *compactModel) step(e *env, rng *rand.Rand) error {
	e.now = e.now.Add(time.Duration(rng.IntN(2000)) * time.Millisecond)
	switch n := rng.IntN(100); {
	case n < 60:
		return m.append(e, rng)
	case n < 72:
		return e.flush()
	case n < 80:
		return e.log.Roll()
	case n < 88:
		if err := e.flush(); err != nil {
			return err
		}
		return e.dir.Checkpoint(nil)
	default:
		_, err := e.log.Compact(CompactOptions{HighWatermark: e.log.FlushedOffset(), Now: e.now, MapBytes: int64(100 + rng.IntN(2000))})
		return err
	}
}

func (m *compactModel) append(e *env, rng *rand.Rand) error {
	ev := event{first: e.log.EndOffset(), pid: -1, marker: -1}
	switch rng.IntN(3) {
	case 0:
		ev.pid = rng.Int64N(3)
	case 1:
		ev.pid = 10 + rng.Int64N(3)
	}
	var open bool
	ev.seq, open = m.next(ev.pid)
	var b []byte
	if open && rng.IntN(2) == 0 {
		ev.marker = rng.IntN(2)
		b = record.NewMarkerBatch(record.Marker{Type: record.MarkerType(ev.marker)}, ev.pid, 0, e.now.UnixMilli())
		ev.last = ev.first
	} else {
		b = m.data(e, rng, &ev)
	}
	info, err := e.log.Append(b, 0)
	if err != nil {
		return err
	}
	if info.FirstOffset != ev.first || info.LastOffset != ev.last || info.Duplicate {
		return fmt.Errorf("append got %+v, expected %d to %d", info, ev.first, ev.last)
	}
	m.events = append(m.events, ev)
	return nil
}

func (m *compactModel) data(e *env, rng *rand.Rand, ev *event) []byte {
	o := record.BuilderOptions{Codec: record.Codec(rng.IntN(5))}
	if ev.pid >= 0 {
		o.Producer = &record.Producer{ID: ev.pid, BaseSequence: ev.seq}
		o.Transactional = ev.pid < 10
	}
	b := record.NewBuilder(o)
	for range 1 + rng.IntN(4) {
		m.serial++
		r := rec{Key: fmt.Sprint("k", rng.IntN(20)), Null: rng.IntN(4) == 0, Time: e.now.UnixMilli() - rng.Int64N(50)}
		var v []byte
		if !r.Null {
			r.Value = fmt.Sprint(m.serial, strings.Repeat("x", rng.IntN(200)))
			v = []byte(r.Value)
		}
		b.Append(r.Time, []byte(r.Key), v, []record.RecordHeader{{Key: []byte("h"), Value: []byte(r.Key)}})
		ev.recs = append(ev.recs, r)
	}
	ev.last = ev.first + int64(b.Len()) - 1
	return b.Batch(0)
}

// check compares the log with the model: the fold of its records as a consumer at read_committed reads them, every record
// by itself, and the producers.
func (m *compactModel) check(l *Log) error {
	stable := l.LastStableOffset(l.FlushedOffset())
	want := m.fold(stable)
	got := map[string]string{}
	err := m.readCommitted(l, stable, func(r *record.Record) error {
		i, found := slices.BinarySearchFunc(m.events, r.Offset, func(e event, o int64) int {
			if e.last < o {
				return -1
			} else if e.first > o {
				return 1
			}
			return 0
		})
		if !found || m.events[i].marker >= 0 {
			return fmt.Errorf("record at offset %d, where none was appended", r.Offset)
		}
		w := m.events[i].recs[r.Offset-m.events[i].first]
		if m.aborted(i) {
			return fmt.Errorf("record of an aborted transaction at offset %d", r.Offset)
		}
		if g := (rec{string(r.Key), string(r.Value), r.Value == nil, r.Timestamp}); g != w || len(r.Headers) != 1 {
			return fmt.Errorf("offset %d: %+v, was %+v", r.Offset, g, w)
		}
		if w.Null {
			delete(got, w.Key)
		} else {
			got[w.Key] = w.Value
		}
		return nil
	})
	if err != nil {
		return err
	}
	if d := cmp.Diff(want, got); d != "" {
		return fmt.Errorf("folded up to %d (appended, read): %s", stable, d)
	}
	return m.checkProducers(l)
}

// readCommitted gives the records below an offset as clients pick them: aborted ones are told by the list of aborted
// transactions and by the markers.
func (m *compactModel) readCommitted(l *Log, upTo int64, f func(*record.Record) error) error {
	start := l.LocalStartOffset()
	txns, err := l.AbortedTxns(start, upTo)
	if err != nil {
		return err
	}
	slices.SortFunc(txns, func(a, b record.TxnIndexEntry) int { return int(a.FirstOffset - b.FirstOffset) })
	skip := map[int64]bool{}
	for off := start; off < upTo; {
		s, err := l.Read(off, 2000, upTo, true)
		if err != nil {
			return err
		}
		if s.Length == 0 {
			return fmt.Errorf("empty read at %d of %d", off, upTo)
		}
		b := make([]byte, s.Length)
		err = s.ReadAll(b)
		off = s.NextOffset
		s.Release()
		if err != nil {
			return err
		}
		it := record.NewBatchIterator(b)
		for h, batch, ok := it.Next(); ok; h, batch, ok = it.Next() {
			if err := record.VerifyBatch(batch); err != nil {
				return err
			}
			for len(txns) > 0 && txns[0].FirstOffset <= h.LastOffset() {
				skip[txns[0].ProducerID] = true
				txns = txns[1:]
			}
			if h.Control() {
				mk, err := parseMarker(batch, 1000)
				if err != nil {
					return err
				}
				if mk.Type == record.AbortMarker {
					delete(skip, h.ProducerID)
				}
				continue
			}
			if h.Transactional() && skip[h.ProducerID] {
				continue
			}
			if err := record.ForEachRecord(batch, 1<<20, f); err != nil {
				return err
			}
		}
		if it.Err() != nil {
			return it.Err()
		}
	}
	return nil
}

func (m *compactModel) checkProducers(l *Log) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for pid := range int64(13) {
		next, open := m.next(pid)
		p := l.mu.producers.byID[pid]
		if next == 0 && p == nil {
			continue
		}
		if p == nil || p.last() == nil || p.last().lastSeq+1 != next || (p.txnFirst != noTxn) != open {
			return fmt.Errorf("producer %d: %+v, next sequence %d, open %v", pid, p, next, open)
		}
	}
	return nil
}

func compactConfig(rng *rand.Rand) Config {
	c := smallConfig()
	c.SegmentBytes = 2048 << rng.IntN(3)
	c.IndexIntervalBytes = int64(rng.IntN(1000))
	c.Delete, c.Compact = false, true
	c.DeleteRetention = time.Duration(rng.IntN(3)) * 20 * time.Second
	c.TimestampAfterMax = Unlimited
	return c
}

// TestCompactCrash: whatever a power loss leaves of a log that is compacted, no key is lost and no older value is back,
// records of aborted transactions stay away, and producers go on with their sequence numbers.
func TestCompactCrash(t *testing.T) {
	for seed := range crashSeeds * 3 / 4 {
		if err := compactCrashRun(t, seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func compactCrashRun(t *testing.T, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 11))
	disk := vfs.NewMem()
	e := newEnv(t, disk, compactConfig(rng))
	defer func() { e.kill() }()
	m := &compactModel{}
	for round := range 5 {
		if err := e.start(); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		m.cut(e.log.EndOffset())
		if err := m.check(e.log); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		for i := range 20 + rng.IntN(80) {
			if err := m.step(e, rng); err != nil {
				return fmt.Errorf("round %d step %d: %w", round, i, err)
			}
			if rng.IntN(10) == 0 {
				if err := m.check(e.log); err != nil {
					return fmt.Errorf("round %d step %d: %w", round, i, err)
				}
			}
		}
		switch rng.IntN(4) {
		case 0:
			e.kill()
		case 1:
			e.stop()
		default:
			after := disk.CrashClone(rng)
			e.kill()
			disk = after
		}
		if rng.IntN(5) == 0 { // without the recovery point everything is validated from the start
			_ = disk.Remove(testRoot + "/" + recoveryFile)
			_ = disk.Remove(testRoot + "/" + cleanFile)
		}
		e.fs = disk
	}
	return nil
}

// TestCompactCrashWithin: the power goes at every operation of a compaction.
func TestCompactCrashWithin(t *testing.T) {
	for seed := range uint64(12) {
		for n := 0; ; n++ {
			more, err := compactCrashWithin(t, seed, n)
			if err != nil {
				t.Fatalf("seed %d operation %d: %v", seed, n, err)
			}
			if !more {
				break
			}
		}
	}
}

func compactCrashWithin(t *testing.T, seed uint64, n int) (more bool, err error) {
	rng := rand.New(rand.NewPCG(seed, 12))
	disk := vfs.NewMem()
	var after *vfs.Mem
	armed, count := false, 0
	hook := func(op vfs.Op, _ string) error {
		if armed && op.Mutates() {
			if count == n {
				after = disk.CrashClone(rand.New(rand.NewPCG(seed, uint64(n))))
			}
			count++
		}
		return nil
	}
	e := newEnv(t, vfs.InjectErrors(disk, hook), compactConfig(rng))
	defer func() { e.kill() }()
	if err := e.start(); err != nil {
		return false, err
	}
	m := &compactModel{}
	for range 150 {
		if err := m.step(e, rng); err != nil {
			return false, err
		}
	}
	if err := errors.Join(e.log.Roll(), e.flush(), e.dir.Checkpoint(nil)); err != nil {
		return false, err
	}
	e.now = e.now.Add(time.Minute)
	armed = true
	_, err = e.log.Compact(CompactOptions{HighWatermark: e.log.FlushedOffset(), Now: e.now, MapBytes: 600})
	armed = false
	if err != nil {
		return false, err
	}
	if err := m.check(e.log); err != nil || after == nil {
		return false, err
	}
	e.kill()
	e.fs = after
	if err := e.start(); err != nil {
		return false, err
	}
	if e.log.EndOffset() != m.end() {
		return false, fmt.Errorf("end %d, was %d", e.log.EndOffset(), m.end())
	}
	if err := m.check(e.log); err != nil {
		return false, err
	}
	// It goes on where it was broken off.
	e.now = e.now.Add(time.Minute)
	if _, err := e.log.Compact(CompactOptions{HighWatermark: e.log.FlushedOffset(), Now: e.now, MapBytes: 1 << 20}); err != nil {
		return false, err
	}
	return true, m.check(e.log)
}

// TestCompactNthError: every operation of a run fails once; nothing is lost, and a log that latched opens again.
func TestCompactNthError(t *testing.T) {
	fired := 0
	for n := range 400 {
		for _, mutating := range []bool{true, false} {
			did, err := compactNthErrorRun(t, n*3, mutating)
			if err != nil {
				t.Fatalf("operation %d (mutating %v): %v", n*3, mutating, err)
			}
			if did {
				fired++
			}
		}
	}
	if fired < 300 {
		t.Fatalf("only %d errors were injected", fired)
	}
}

func compactNthErrorRun(t *testing.T, n int, mutating bool) (fired bool, err error) {
	rng := rand.New(rand.NewPCG(uint64(n), 13))
	disk := vfs.NewMem()
	fail, did := vfs.NthError(n, func(op vfs.Op, _ string) bool { return op.Mutates() == mutating })
	e := newEnv(t, vfs.InjectErrors(disk, fail), compactConfig(rng))
	defer func() { e.kill() }()
	m := &compactModel{}
	if err := e.start(); err == nil {
		for range 150 {
			if err := m.step(e, rng); err != nil && !errors.Is(err, vfs.ErrInjected) && !errors.Is(err, ErrFailed) {
				return did(), err
			}
		}
	} else if !errors.Is(err, vfs.ErrInjected) {
		return did(), err
	}
	flushed := int64(0)
	if e.log != nil {
		flushed = e.log.FlushedOffset()
	}
	after := disk.CrashClone(rng)
	e.kill()
	e.fs = after
	if err := e.start(); err != nil {
		return did(), err
	}
	if e.log.EndOffset() < flushed {
		return did(), fmt.Errorf("end %d, flushed was %d", e.log.EndOffset(), flushed)
	}
	m.cut(e.log.EndOffset())
	return did(), m.check(e.log)
}
