package commitlog

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// txnView is what the batches of a log say, found independently of the log's own state.
type txnView struct {
	Open    map[int64]int64 // producer → first offset
	NextSeq map[int64]int32
	Aborted []record.TxnIndexEntry
	Epochs  []record.EpochEntry
}

func viewOf(l *Log) (txnView, error) {
	v := txnView{Open: map[int64]int64{}, NextSeq: map[int64]int32{}}
	for off := l.LocalStartOffset(); off < l.EndOffset(); {
		s, err := l.Read(off, 1<<20, l.EndOffset(), true)
		if err != nil {
			return v, err
		}
		b := make([]byte, s.Length)
		err = s.ReadAll(b)
		off = s.NextOffset
		s.Release()
		if err != nil {
			return v, err
		}
		it := record.NewBatchIterator(b)
		for h, batch, ok := it.Next(); ok; h, batch, ok = it.Next() {
			if n := len(v.Epochs); n == 0 || v.Epochs[n-1].Epoch < h.LeaderEpoch {
				v.Epochs = append(v.Epochs, record.EpochEntry{Epoch: h.LeaderEpoch, StartOffset: h.BaseOffset})
			}
			if err := v.add(&h, batch); err != nil {
				return v, err
			}
		}
		if it.Err() != nil {
			return v, it.Err()
		}
	}
	return v, nil
}

func (v *txnView) add(h *record.Header, batch []byte) error {
	if !h.Control() {
		v.NextSeq[h.ProducerID] = h.LastSequence() + 1
		if _, open := v.Open[h.ProducerID]; !open {
			v.Open[h.ProducerID] = h.BaseOffset
		}
		return nil
	}
	m, err := parseMarker(batch, 1000)
	if err != nil {
		return err
	}
	first, open := v.Open[h.ProducerID]
	delete(v.Open, h.ProducerID)
	if open && m.Type == record.AbortMarker {
		stable := h.BaseOffset + 1
		for _, f := range v.Open {
			stable = min(stable, f)
		}
		v.Aborted = append(v.Aborted, record.TxnIndexEntry{ProducerID: h.ProducerID, FirstOffset: first, LastOffset: h.BaseOffset, LastStableOffset: stable})
	}
	return nil
}

// compare checks the log's state against its own batches. Nothing is deleted in these runs, so both see all of them.
func (v *txnView) compare(l *Log) error {
	aborted, err := l.AbortedTxns(0, l.EndOffset())
	if err != nil {
		return err
	}
	if d := cmp.Diff(v.Aborted, aborted); d != "" {
		return fmt.Errorf("aborted transactions (batches, index): %s", d)
	}
	stable := l.EndOffset()
	for _, first := range v.Open {
		stable = min(stable, first)
	}
	if got := l.LastStableOffset(l.EndOffset()); got != stable {
		return fmt.Errorf("last stable offset %d, want %d", got, stable)
	}
	if d := cmp.Diff(v.Epochs, l.EpochEntries()); d != "" {
		return fmt.Errorf("epochs (batches, cache): %s", d)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, next := range v.NextSeq {
		p := l.mu.producers.byID[id]
		if p == nil || p.last() == nil || p.last().lastSeq+1 != next {
			return fmt.Errorf("producer %d: %+v, next sequence %d", id, p, next)
		}
	}
	return nil
}

// TestCrashTransactions: after every stop, transactions, sequences and epochs are what the batches that survived say.
func TestCrashTransactions(t *testing.T) {
	for seed := range crashSeeds / 2 {
		if err := crashTxnRun(t, seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func crashTxnRun(t *testing.T, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 3))
	disk := vfs.NewMem()
	e := newEnv(t, disk, crashConfig(rng))
	e.cfg.SegmentBytes = 2000 << rng.IntN(4)
	defer func() { e.kill() }()
	epoch := int32(0)
	for round := range 4 {
		if err := e.start(); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		v, err := viewOf(e.log)
		if err == nil {
			err = v.compare(e.log)
		}
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		epoch++
		for i := range 20 + rng.IntN(60) {
			if err := txnStep(e, rng, &v, epoch); err != nil {
				return fmt.Errorf("round %d step %d: %w", round, i, err)
			}
		}
		if v, err = viewOf(e.log); err == nil {
			err = v.compare(e.log)
		}
		if err != nil {
			return fmt.Errorf("end of round %d: %w", round, err)
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
		e.fs = disk
	}
	return nil
}

func txnStep(e *env, rng *rand.Rand, v *txnView, epoch int32) error {
	id := rng.Int64N(4)
	switch n := rng.IntN(100); {
	case n < 60:
		b := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: id, BaseSequence: v.NextSeq[id]}, Transactional: true})
		for range 1 + rng.IntN(3) {
			b.Append(e.now.UnixMilli(), nil, make([]byte, rng.IntN(200)), nil)
		}
		_, err := e.log.Append(b.Batch(0), epoch)
		v.NextSeq[id] += int32(b.Len())
		return err
	case n < 75:
		m := record.Marker{Type: record.MarkerType(rng.IntN(2))}
		_, err := e.log.Append(record.NewMarkerBatch(m, id, 0, e.now.UnixMilli()), epoch)
		return err
	case n < 85:
		return e.flush()
	case n < 90:
		return e.log.Roll()
	case n < 94:
		to := rng.Int64N(e.log.EndOffset() + 1)
		if err := e.log.TruncateTo(to); err != nil {
			return err
		}
		var err error
		if *v, err = viewOf(e.log); err != nil {
			return err
		}
		return v.compare(e.log)
	default:
		return e.dir.Checkpoint(nil)
	}
}
