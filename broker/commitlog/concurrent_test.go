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
