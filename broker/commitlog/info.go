package commitlog

import (
	"errors"
	"fmt"
	"time"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// Segments describes the local segments in order. Times of segments that were not used since the start are read from
// disk the first time.
func (l *Log) Segments() ([]SegmentInfo, error) { return l.SegmentsFrom(0) }

// SegmentsFrom describes the segments from the one that holds offset on.
func (l *Log) SegmentsFrom(offset int64) ([]SegmentInfo, error) {
	segs := *l.segs.Load()
	segs = segs[max(find(segs, offset), 0):]
	out := make([]SegmentInfo, 0, len(segs))
	for _, s := range segs {
		if !s.retain() { // deleted or replaced since the list was loaded
			return l.SegmentsFrom(offset)
		}
		info, err := s.info()
		if err = errors.Join(err, s.release()); err != nil {
			return nil, err
		}
		out = append(out, info)
	}
	return out, nil
}

func (s *segment) info() (SegmentInfo, error) {
	sealed := s.sealed.Load()
	size, next := s.extent()
	firstTs, maxTs, _, err := s.times()
	return SegmentInfo{
		BaseOffset: s.base, NextOffset: next, Bytes: size, FirstTimestamp: firstTs, MaxTimestamp: maxTs,
		Records: next - s.base, Sealed: sealed, ModTime: time.UnixMilli(s.modTime.Load()),
	}, err
}

// OpenSegment opens the sealed segment with the given base offset for upload, with its indexes checked (and made again
// where they are missing or damaged), the producer state at its end and the epochs up to there. The files stay until
// Close, even past retention. ErrNotFound where there is no such sealed segment.
func (l *Log) OpenSegment(base int64) (*SegmentFiles, error) {
	segs := *l.segs.Load()
	i := find(segs, base)
	if i < 0 || segs[i].base != base || !segs[i].sealed.Load() || !segs[i].retain() {
		return nil, fmt.Errorf("%w: sealed segment %d in %s", ErrNotFound, base, l.dir)
	}
	s := segs[i]
	out := &SegmentFiles{seg: s}
	if err := out.fill(); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}

func (f *SegmentFiles) fill() (err error) {
	s := f.seg
	if f.Info, err = s.info(); err != nil {
		return err
	}
	f.LogBytes = f.Info.Bytes
	if f.open, err = s.openLog(); err != nil {
		return err
	}
	f.Log = f.open.File
	if f.OffsetIndex, f.TimeIndex, err = s.checkedIndexes(); err != nil {
		return err
	}
	txns, err := s.txns()
	if err != nil {
		return err
	}
	for _, e := range txns {
		f.TxnIndex = e.AppendTo(f.TxnIndex)
	}
	if f.ProducerSnapshot, err = s.endSnapshot(); err != nil {
		return err
	}
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	f.Epochs = l.mu.epochs.upTo(f.Info.NextOffset)
	return nil
}

// Close lets go of the files.
func (f *SegmentFiles) Close() error {
	if f.seg == nil {
		return nil
	}
	var err error
	if f.open != nil {
		err = f.open.release()
	}
	err = errors.Join(err, f.seg.release())
	f.seg, f.open, f.Log = nil, nil, nil
	return err
}

// checkedIndexes reads both indexes of a sealed segment; those that do not fit the log are made again from it.
func (s *segment) checkedIndexes() (offs, times []byte, err error) {
	read := func(suffix string) ([]byte, error) {
		b, err := s.readFile(suffix)
		if vfs.IsNotExist(err) {
			return nil, nil
		}
		return b, err
	}
	if offs, err = read(suffixIndex); err != nil {
		return nil, nil, err
	}
	if times, err = read(suffixTime); err != nil {
		return nil, nil, err
	}
	sound, err := s.indexesFit(offs, times)
	if err != nil || sound {
		return offs, times, err
	}
	return s.rebuildIndexes()
}

// indexesFit tells whether the indexes are in order, fit the log (in samples, each costs a read) and reach to its end.
func (s *segment) indexesFit(offs record.OffsetIndex, times record.TimeIndex) (bool, error) {
	if inOrder := offs.Check(s.size.Load()) == nil && times.Check() == nil; !inOrder {
		return false, nil
	}
	for i := 0; i < offs.Len(); i += 64 {
		if !s.entryFits(offs.At(i)) {
			return false, nil
		}
	}
	_, maxTs, _, err := s.times()
	if err != nil {
		return false, err
	}
	if last, ok := times.Last(); ok != (maxTs >= 0) || ok && last.Timestamp != maxTs {
		return false, nil
	}
	for i := 0; i < times.Len(); i += 64 {
		if _, fits, err := s.timeFits(times.At(i)); !fits || err != nil {
			return false, err
		}
	}
	t := newIndexTail()
	if n := offs.Len(); n > 0 {
		if t.lastOff = offs.At(n - 1); !s.entryFits(t.lastOff) {
			return false, nil
		}
	}
	interval := s.l.cfg.Load().IndexIntervalBytes
	err = s.walk(int64(max(t.lastOff.Position, 0)), func(h *record.Header, pos int64) error {
		t.note(s.base, h, pos, record.NoTimestamp, s.base, interval)
		return nil
	})
	return len(t.off) == 0, err
}

// rebuildIndexes makes the indexes of a sealed segment from its log and replaces the files.
func (s *segment) rebuildIndexes() (offs, times []byte, err error) {
	s.l.env.Log.Warn("segment indexes are made again", "file", s.name(suffixLog))
	t := newIndexTail()
	maxTs, maxTsOff := record.NoTimestamp, s.base
	interval := s.l.cfg.Load().IndexIntervalBytes
	err = s.walk(0, func(h *record.Header, pos int64) error {
		if h.MaxTimestamp > maxTs {
			maxTs, maxTsOff = h.MaxTimestamp, h.LastOffset()
		}
		t.note(s.base, h, pos, maxTs, maxTsOff, interval)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	t.time(maxTs, int32(maxTsOff-s.base))
	if err := errors.Join(s.index.drop(), s.time.drop()); err != nil {
		return nil, nil, err
	}
	fsys := s.l.env.FS
	return t.off, t.tim, errors.Join(vfs.WriteFileAtomic(fsys, s.name(suffixIndex), t.off), vfs.WriteFileAtomic(fsys, s.name(suffixTime), t.tim))
}

// endSnapshot is the producer state at the segment's end: the snapshot written when it was sealed, or one made again from
// the batches.
func (s *segment) endSnapshot() ([]byte, error) {
	b, err := vfs.ReadFile(s.l.env.FS, fileName(s.l.dir, s.next.Load(), suffixSnapshot))
	if err == nil {
		if _, err := record.ParseProducerSnapshot(b); err == nil {
			return b, nil
		}
	} else if !vfs.IsNotExist(err) {
		return nil, err
	}
	return s.replayTo()
}

// replayTo makes the producer state at the segment's end from the nearest snapshot before it and the batches since.
func (s *segment) replayTo() ([]byte, error) {
	segs := *s.l.segs.Load()
	segs = segs[:find(segs, s.base)+1]
	var t producerTable
	from := len(segs) - 1
	for ; from >= 0; from-- {
		b, err := vfs.ReadFile(s.l.env.FS, segs[from].name(suffixSnapshot))
		if err != nil && !vfs.IsNotExist(err) {
			return nil, err
		}
		if states, perr := record.ParseProducerSnapshot(b); err == nil && perr == nil {
			t.load(states)
			break
		}
	}
	for _, old := range segs[max(from, 0):] {
		if err := old.replay(&t); err != nil {
			return nil, err
		}
	}
	return t.snapshot(), nil
}

// replay takes the segment's batches into a producer state.
func (s *segment) replay(t *producerTable) error {
	return s.walk(0, func(h *record.Header, pos int64) error {
		if !h.HasProducer() {
			return nil
		}
		if !h.Control() {
			t.applyData(h, s.modTime.Load())
			return nil
		}
		b, err := s.readBatch(h, pos)
		if err != nil {
			return err
		}
		m, err := parseMarker(b, s.l.cfg.Load().DecompressLimit)
		if err == nil && isMarker(h, m) {
			t.applyMarker(h, m, s.modTime.Load())
		}
		return err
	})
}

// KnowsProducer reports whether a producer has written to the log lately.
func (l *Log) KnowsProducer(id int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.producers.byID[id] != nil
}

// Producers lists what the log knows of the producers that have written to it lately, in order of id.
func (l *Log) Producers() []record.ProducerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.producers.states()
}
