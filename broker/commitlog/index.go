package commitlog

import (
	"errors"
	"io"
	"sync"

	"github.com/varvehq/varve/internal/record"
)

// tailBytes bounds the index entries of the last segment that are kept in memory before they are written.
const tailBytes = 4096

// indexTail holds the newest entries of the last segment's indexes. They reach the files when enough have gathered, at a
// checkpoint and when the segment is sealed; after a crash they are found again by reading the log.
type indexTail struct {
	mu        sync.Mutex
	off       []byte // entries not in the file yet
	tim       []byte
	offFile   int64 // bytes in the file
	timFile   int64
	lastOff   record.OffsetIndexEntry // of file or memory; Position -1 where there is none
	lastTime  record.TimeIndexEntry
	sinceLast int64 // log bytes since the last entry
}

func newIndexTail() *indexTail {
	t := new(indexTail)
	t.reset()
	return t
}

// reset makes it the tail of empty indexes.
func (t *indexTail) reset() {
	t.off, t.tim, t.offFile, t.timFile, t.sinceLast = nil, nil, 0, 0, 0
	t.lastOff = record.OffsetIndexEntry{RelOffset: -1, Position: -1}
	t.lastTime = record.TimeIndexEntry{Timestamp: record.NoTimestamp, RelOffset: -1}
}

// note is called for every batch. As in Kafka an entry is due when more than interval bytes were written since the last
// one; it points at the batch by its last offset.
func (t *indexTail) note(base int64, h *record.Header, pos, maxTs, maxTsOff, interval int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sinceLast > interval {
		e := record.OffsetIndexEntry{RelOffset: int32(h.LastOffset() - base), Position: int32(pos)}
		t.off = e.AppendTo(t.off)
		t.lastOff = e
		t.time(maxTs, int32(maxTsOff-base))
		t.sinceLast = 0
	}
	t.sinceLast += int64(h.Size())
}

// time adds a time index entry if it is later than the last.
func (t *indexTail) time(ts int64, rel int32) {
	if ts > t.lastTime.Timestamp && rel > t.lastTime.RelOffset {
		t.lastTime = record.TimeIndexEntry{Timestamp: ts, RelOffset: rel}
		t.tim = t.lastTime.AppendTo(t.tim)
	}
}

// counts returns the number of entries of both indexes.
func (t *indexTail) counts() (off, tim int64) {
	return (t.offFile + int64(len(t.off))) / record.OffsetIndexEntrySize, (t.timFile + int64(len(t.tim))) / record.TimeIndexEntrySize
}

// flushTail writes the entries in memory to the files. After an error they are still in memory.
func (s *segment) flushTail() error {
	t := s.tail.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(
		s.flushEntries(&s.index, suffixIndex, &t.off, &t.offFile),
		s.flushEntries(&s.time, suffixTime, &t.tim, &t.timFile))
}

func (s *segment) flushEntries(slot *fileSlot, suffix string, entries *[]byte, size *int64) error {
	if len(*entries) == 0 {
		return nil
	}
	f, err := s.openIndex(slot, suffix)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(*entries, *size); err == nil {
		*size += int64(len(*entries))
		*entries = (*entries)[:0]
		s.auxGen++
	}
	return errors.Join(err, f.release())
}

// floorOffset finds the last index entry at or below a relative offset; the zero entry (the start of the segment) where
// there is none.
func (s *segment) floorOffset(rel int64) (record.OffsetIndexEntry, error) {
	return s.floor(func(x record.OffsetIndex) (record.OffsetIndexEntry, bool) { return x.Floor(rel) },
		func(e record.OffsetIndexEntry) bool { return int64(e.RelOffset) <= rel })
}

// floorPosition finds the last index entry at or below a position.
func (s *segment) floorPosition(pos int64) (record.OffsetIndexEntry, error) {
	return s.floor(func(x record.OffsetIndex) (record.OffsetIndexEntry, bool) { return x.FloorPosition(pos) },
		func(e record.OffsetIndexEntry) bool { return int64(e.Position) <= pos })
}

func (s *segment) floor(search func(record.OffsetIndex) (record.OffsetIndexEntry, bool), below func(record.OffsetIndexEntry) bool) (e record.OffsetIndexEntry, err error) {
	size := int64(-1)
	if t := s.tail.Load(); t != nil {
		t.mu.Lock()
		e, ok := search(t.off)
		size = t.offFile
		t.mu.Unlock()
		if ok || size == 0 {
			return e, nil
		}
	}
	f, err := s.openIndex(&s.index, suffixIndex)
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, f.release()) }()
	if size < 0 {
		if size, err = f.Size(); err != nil {
			return e, err
		}
	}
	e, err = searchFile(f, int(size/record.OffsetIndexEntrySize), search, below)
	if int64(e.Position) >= s.size.Load() || e.Position < 0 {
		e = record.OffsetIndexEntry{}
	}
	return e, err
}

// searchFile is a binary search by pread over n entries, down to one block that is searched in memory.
func searchFile(f io.ReaderAt, n int, search func(record.OffsetIndex) (record.OffsetIndexEntry, bool), below func(record.OffsetIndexEntry) bool) (e record.OffsetIndexEntry, err error) {
	buf := scanBuffers.Get().(*[]byte)
	defer scanBuffers.Put(buf)
	const block = 512
	lo, hi := 0, n // the answer is in [lo, hi), or before the first entry
	for hi-lo > block {
		mid := lo + (hi-lo)/2
		if err := readFull(f, (*buf)[:record.OffsetIndexEntrySize], int64(mid)*record.OffsetIndexEntrySize); err != nil {
			return e, err
		}
		if below(record.OffsetIndex((*buf)[:record.OffsetIndexEntrySize]).At(0)) {
			lo = mid
		} else {
			hi = mid
		}
	}
	b := (*buf)[:(hi-lo)*record.OffsetIndexEntrySize]
	if err := readFull(f, b, int64(lo)*record.OffsetIndexEntrySize); err != nil {
		return e, err
	}
	e, _ = search(record.OffsetIndex(b))
	return e, nil
}

func readFull(f io.ReaderAt, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
