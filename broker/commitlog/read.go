package commitlog

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/varvehq/varve/internal/record"
)

// cursorCache remembers where recent reads ended: the next read of a consumer starts there, without a look at the index.
type cursorCache struct {
	mu   sync.Mutex
	next int
	c    [4]cursor
}

type cursor struct {
	s           *segment
	offset, pos int64
}

func (c *cursorCache) get(s *segment, offset int64) (pos int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.c {
		if c.c[i].s == s && c.c[i].offset == offset {
			return c.c[i].pos, true
		}
	}
	return 0, false
}

func (c *cursorCache) put(s *segment, offset, pos int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.c {
		if c.c[i].s == s && c.c[i].offset == offset {
			return
		}
	}
	c.c[c.next] = cursor{s, offset, pos}
	c.next = (c.next + 1) % len(c.c)
}

func (c *cursorCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.c = [4]cursor{}
}

// Read returns whole batches of one segment, from the batch that contains offset on: as many as fit in maxBytes and end at
// or below upTo (exclusive; the high watermark or last stable offset). With minOne the first batch comes even where it is
// larger than maxBytes. The Slice is empty where there is nothing below upTo, or nothing that fits. ErrOffsetOutOfRange
// where offset is below LocalStartOffset or above EndOffset.
func (l *Log) Read(offset, maxBytes, upTo int64, minOne bool) (Slice, error) {
	for {
		end := l.end.Load()
		if local := l.localStart.Load(); offset < local || offset > end {
			return Slice{}, fmt.Errorf("%w: %d is not in [%d, %d]", ErrOffsetOutOfRange, offset, local, end)
		}
		upTo = min(upTo, end)
		if offset >= upTo || maxBytes <= 0 && !minOne {
			return Slice{}, nil
		}
		segs := *l.segs.Load()
		i := find(segs, offset)
		if i < 0 {
			return Slice{}, fmt.Errorf("%w: %d is below the first segment", ErrOffsetOutOfRange, offset)
		}
		if i+1 < len(segs) && offset >= segs[i].next.Load() && offset < segs[i+1].base {
			if err := segs[i].gap(offset, segs[i+1].base); err != nil {
				return Slice{}, err
			}
			offset = segs[i+1].base // in a gap between segments
			continue
		}
		if !segs[i].retain() {
			continue // deleted since the list was loaded
		}
		s, err := segs[i].slice(offset, maxBytes, upTo, minOne)
		if errors.Is(err, io.EOF) && i+1 < len(segs) {
			if err := segs[i].gap(offset, segs[i+1].base); err != nil {
				return Slice{}, err
			}
			offset = segs[i+1].base // the segment ends in a gap
			continue
		}
		if errors.Is(err, io.EOF) {
			return Slice{}, nil
		}
		return s, err
	}
}

// gap judges that no batch from offset on stands before the next segment at next. A segment begins where the one before
// ends, except after a gap that no index can span; otherwise a segment is missing or cut short.
func (s *segment) gap(offset, next int64) error {
	if next-s.base > math.MaxInt32 {
		return nil
	}
	return &CorruptError{File: s.name(suffixLog), Position: s.size.Load(), Offset: offset,
		Reason: fmt.Errorf("%w: no batch from here on, and the next segment begins at %d", record.ErrCorrupt, next)}
}

// slice reads from a retained segment; the reference passes to a Slice that is not empty.
func (s *segment) slice(offset, maxBytes, upTo int64, minOne bool) (_ Slice, err error) {
	keep := false
	defer func() {
		if !keep {
			err = errors.Join(err, s.release())
		}
	}()
	size, next := s.extent()
	pos, first, err := s.startOf(offset)
	if err != nil {
		return Slice{}, err
	}
	out := Slice{BaseOffset: first, NextOffset: next, Position: pos, seg: s}
	stop := size
	if upTo < next {
		if stop, out.NextOffset, err = s.boundary(upTo); err != nil {
			return Slice{}, err
		}
	}
	if stop-pos > maxBytes {
		if stop, out.NextOffset, err = s.cut(pos, maxBytes, stop, minOne); err != nil {
			return Slice{}, err
		}
	}
	if stop <= pos {
		return Slice{}, nil
	}
	if out.open, err = s.openLog(); err != nil {
		return Slice{}, err
	}
	out.File, out.Length = out.open.File, int(stop-pos)
	s.l.cursors.put(s, out.NextOffset, stop)
	keep = true
	return out, nil
}

// startOf finds the batch that contains offset: its position and base offset.
func (s *segment) startOf(offset int64) (pos, base int64, err error) {
	if pos, ok := s.l.cursors.get(s, offset); ok {
		return pos, offset, nil
	}
	h, pos, err := s.locate(offset)
	return pos, h.BaseOffset, err
}

// boundary finds where the batches end that lie wholly below offset: the position and the offset after them.
func (s *segment) boundary(offset int64) (pos, next int64, err error) {
	if pos, ok := s.l.cursors.get(s, offset); ok {
		return pos, offset, nil
	}
	h, pos, err := s.locate(offset)
	if errors.Is(err, io.EOF) {
		pos, next = s.extent()
		return pos, next, nil
	}
	return pos, min(h.BaseOffset, offset), err
}

// cut finds the last batch boundary in (pos, pos+maxBytes], or the end of the first batch where there is none and one is
// wanted.
func (s *segment) cut(pos, maxBytes, stop int64, minOne bool) (end, nextOffset int64, err error) {
	f, err := s.openLog()
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, f.release()) }()
	from := pos
	if e, err := s.floorPosition(pos + maxBytes); err != nil {
		return 0, 0, err
	} else if int64(e.Position) > pos {
		from = int64(e.Position)
	}
	end, nextOffset, err = s.cutFrom(f, from, pos, maxBytes, stop, minOne)
	if errors.Is(err, ErrCorrupt) && from > pos { // the index does not fit the log
		end, nextOffset, err = s.cutFrom(f, pos, pos, maxBytes, stop, minOne)
	}
	return end, nextOffset, err
}

func (s *segment) cutFrom(f *openFile, from, pos, maxBytes, stop int64, minOne bool) (end, nextOffset int64, err error) {
	scan := newHeaderScan(f.File, from, stop)
	defer scan.close()
	end = from
	for {
		h, at, err := scan.next()
		if errors.Is(err, io.EOF) {
			return end, nextOffset, nil
		}
		if err != nil {
			return 0, 0, s.corrupt(at, nextOffset, err)
		}
		batchEnd := at + int64(h.Size())
		if batchEnd-pos > maxBytes && (at > pos || !minOne) {
			return at, h.BaseOffset, nil
		}
		end, nextOffset = batchEnd, h.NextOffset()
		if batchEnd-pos >= maxBytes {
			return end, nextOffset, nil
		}
	}
}

// Release gives the file back.
func (s *Slice) Release() {
	if s.seg == nil || s.open == nil {
		return
	}
	seg, open := s.seg, s.open
	s.seg, s.open, s.File = nil, nil, nil
	if err := errors.Join(open.release(), seg.release()); err != nil {
		seg.l.env.Log.Warn("release of a segment", "file", seg.name(suffixLog), "error", err)
	}
}

// ReadAll reads the slice's bytes into b, which must have Length bytes, for those that do not send the file itself.
func (s *Slice) ReadAll(b []byte) error {
	if s.Length == 0 {
		return nil
	}
	if err := readFull(s.File, b[:s.Length], s.Position); err != nil {
		return fmt.Errorf("read %s at %d: %w", s.File.Name(), s.Position, err)
	}
	return nil
}

// verifiers are the readers of Verify.
var verifiers = sync.Pool{New: func() any { return new(batchReader) }}

// Verify reads the slice and checks every batch, for those that do not send the file itself. good is the length of the sound
// batches at its beginning; the error, a CorruptError or the file's own, says what follows them.
func (s *Slice) Verify() (good int, err error) {
	if s.Length == 0 {
		return 0, nil
	}
	r := verifiers.Get().(*batchReader)
	defer func() {
		r.f, r.buf = nil, r.buf[:0]
		if cap(r.buf) <= 4*readerChunk {
			verifiers.Put(r)
		}
	}()
	r.f, r.size, r.at = s.File, s.Position+int64(s.Length), 0
	next := s.BaseOffset
	for pos := s.Position; pos < r.size; {
		h, _, err := r.read(pos)
		if err == nil && h.BaseOffset < next {
			err = fmt.Errorf("%w: base offset %d, expected %d", record.ErrCorrupt, h.BaseOffset, next)
		}
		if err != nil {
			return int(pos - s.Position), s.seg.corrupt(pos, next, err)
		}
		next = h.NextOffset()
		pos += int64(h.Size())
	}
	return s.Length, nil
}
