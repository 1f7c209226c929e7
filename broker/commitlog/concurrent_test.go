package commitlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// TestConcurrent has writers, readers, retention, scrubbing and checkpoints at once: every read
// below the flushed offset gives the value that was written there, or an offset that is out of range by now.
func TestConcurrent(t *testing.T) {
	e := newEnv(t, vfs.NewMem(), smallConfig())
	e.cfg.SegmentBytes = 16 << 10
	e.mustStart()
	var written sync.Map // offset → value
	var done atomic.Bool
	var writers, others sync.WaitGroup
	for w := range 3 {
		writers.Go(func() {
			for i := range 400 {
				v := fmt.Sprintf("%d/%d", w, i)
				info, err := e.append(v, v+"b")
				if err != nil {
					t.Error(err)
					return
				}
				written.Store(info.FirstOffset, v)
				written.Store(info.FirstOffset+1, v+"b")
				if !e.log.Flush(info.LastOffset + 1) {
					if err := e.wait.until(e.log, info.LastOffset+1); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for r := range 2 {
		others.Go(func() {
			off := int64(0)
			for !done.Load() {
				upTo := e.log.FlushedOffset()
				if off >= upTo {
					off = e.log.LocalStartOffset()
				}
				next, err := readSome(e.log, off, upTo, int64(200+r*4000), &written)
				switch {
				case errors.Is(err, ErrOffsetOutOfRange):
					off = e.log.LocalStartOffset()
				case err != nil:
					t.Error(err)
					return
				default:
					off = next
				}
			}
		})
	}
	others.Go(func() {
		for !done.Load() {
			if _, err := e.log.DeleteSegmentsBefore(e.log.FlushedOffset() - 600); err != nil {
				t.Error(err)
			}
			if err := e.dir.Checkpoint(nil); err != nil {
				t.Error(err)
			}
			if err := e.log.Scrub(context.Background()); err != nil {
				t.Error(err)
			}
			if _, err := e.log.Segments(); err != nil {
				t.Error(err)
			}
			if _, _, _, _, err := e.log.OffsetForTimestamp(1); err != nil {
				t.Error(err)
			}
		}
	})
	writers.Wait()
	done.Store(true)
	others.Wait()
	if e.log.EndOffset() != 2400 || e.log.FlushedOffset() != 2400 {
		t.Fatalf("end %d, flushed %d", e.log.EndOffset(), e.log.FlushedOffset())
	}
	e.stop()
}

// readSome reads once and compares; what is not in written yet was appended by a writer that has not noted it.
func readSome(l *Log, off, upTo, maxBytes int64, written *sync.Map) (int64, error) {
	s, err := l.Read(off, maxBytes, upTo, true)
	if err != nil || s.Length == 0 {
		return off, err
	}
	defer s.Release()
	b := make([]byte, s.Length)
	if err := s.ReadAll(b); err != nil {
		return off, err
	}
	if s.BaseOffset > off || s.NextOffset > upTo {
		return off, fmt.Errorf("read at %d up to %d gave %d to %d", off, upTo, s.BaseOffset, s.NextOffset)
	}
	it := record.NewBatchIterator(b)
	for _, batch, ok := it.Next(); ok; _, batch, ok = it.Next() {
		if err := record.VerifyBatch(batch); err != nil {
			return off, err
		}
		err := record.ForEachRecord(batch, 1<<20, func(r *record.Record) error {
			if want, ok := written.Load(r.Offset); ok && want != string(r.Value) {
				return fmt.Errorf("offset %d: %q, was %q", r.Offset, r.Value, want)
			}
			return nil
		})
		if err != nil {
			return off, err
		}
	}
	return s.NextOffset, it.Err()
}

// TestConcurrentCompaction: readers see ascending offsets and the right record at each, and find the last value of every
// key, while the log is written, compacted, checkpointed and read.
func TestConcurrentCompaction(t *testing.T) {
	c := smallConfig()
	c.Delete, c.Compact, c.DeleteRetention = false, true, 0
	e := newEnv(t, vfs.NewMem(), c).mustStart()
	defer e.kill()
	const keys, batches = 17, 1500
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		for i := range batches {
			b := record.NewBuilder(record.BuilderOptions{Codec: record.Codec(i % 5)})
			b.Append(e.now.UnixMilli(), fmt.Append(nil, i%keys), fmt.Append(nil, i), nil)
			if _, err := e.log.Append(b.Batch(0), 0); err != nil {
				t.Error(err)
				return
			}
			if i%100 == 99 {
				if err := errors.Join(e.flush(), e.dir.Checkpoint(nil)); err != nil {
					t.Error(err)
				}
			}
		}
	})
	running := func() bool {
		select {
		case <-done:
			return false
		default:
			return true
		}
	}
	wg.Go(func() {
		for running() {
			if _, err := e.log.Compact(CompactOptions{HighWatermark: e.log.FlushedOffset(), Now: e.now, MapBytes: 300}); err != nil {
				t.Error(err)
				return
			}
			if _, err := e.log.Segments(); err != nil {
				t.Error(err)
			}
		}
	})
	for range 3 {
		wg.Go(func() {
			for running() {
				if err := foldValues(e.log, keys); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := foldValues(e.log, keys); err != nil {
		t.Error(err)
	}
}

// foldValues reads a log in which the record at offset i has key i%keys and value i, up to its end at the time of the last
// read: what took the place of a record may lie beyond the end at the time of the first. It finds every key's last record
// at the time of the first read, or a newer one.
func foldValues(l *Log, keys int64) error {
	end, last := l.EndOffset(), map[int64]int64{}
	for off := int64(0); off < l.EndOffset(); {
		s, err := l.Read(off, 2000, l.EndOffset(), true)
		if err != nil {
			return err
		}
		b := make([]byte, s.Length)
		err = s.ReadAll(b)
		next := s.NextOffset
		s.Release()
		if err != nil {
			return err
		}
		if len(b) == 0 {
			continue // all of it was replaced by what was appended meanwhile
		}
		it := record.NewBatchIterator(b)
		for h, batch, ok := it.Next(); ok; h, batch, ok = it.Next() {
			if h.LastOffset() < off || h.NextOffset() > next {
				return fmt.Errorf("batch %d to %d in a slice from %d to %d", h.BaseOffset, h.LastOffset(), off, next)
			}
			err := record.ForEachRecord(batch, 1<<20, func(r *record.Record) error {
				if string(r.Value) != fmt.Sprint(r.Offset) {
					return fmt.Errorf("offset %d has %q", r.Offset, r.Value)
				}
				last[r.Offset%keys] = r.Offset
				return nil
			})
			if err != nil {
				return err
			}
		}
		if it.Err() != nil {
			return it.Err()
		}
		off = next
	}
	for off := max(end-keys, 0); off < end; off++ {
		if last[off%keys] < off {
			return fmt.Errorf("key %d: last offset %d, was %d of %d", off%keys, last[off%keys], off, end)
		}
	}
	return nil
}
