package commitlog

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// Suffixes of the files of a segment.
const (
	suffixLog      = ".log"
	suffixIndex    = ".index"
	suffixTime     = ".timeindex"
	suffixTxn      = ".txnindex"
	suffixSnapshot = ".snapshot"
	suffixDeleted  = ".deleted"
	suffixCut      = ".cut-" // of a .log that recovery took out of the log; a time follows
)

// segment is one .log file with its indexes. Readers use it without the log's lock: size and next only grow while it is
// the last one, and a reference keeps its files on disk.
type segment struct {
	l    *Log
	base int64
	size atomic.Int64
	next atomic.Int64 // offset after the last batch
	// aside is added to the files' names once the segment is deleted or replaced; nameMu is held while they are renamed, so
	// that readers who still have the segment open its own files.
	nameMu sync.RWMutex
	aside  string
	// extentMu makes size and next change together for those who need both.
	extentMu sync.Mutex
	refs     atomic.Int32 // the log's own and the readers'; at 0 the files of a deleted segment are removed

	sealed  atomic.Bool
	hasTxn  atomic.Bool
	log     fileSlot
	index   fileSlot
	time    fileSlot
	created time.Time // when it began, as far as known
	modTime atomic.Int64

	// Guarded by the log's lock.
	synced int64     // bytes known durable
	pin    *openFile // keeps the descriptor that wrote un-synced bytes, whose Sync reports their errors
	// auxGen counts the changes of indexes and snapshot; auxSynced is the count that a checkpoint has made durable.
	auxGen, auxSynced int
	reserved          int64 // bytes preallocated

	meta struct {
		sync.Mutex
		loaded   bool
		firstTs  int64 // largest timestamp of the first batch
		maxTs    int64
		maxTsOff int64 // last offset of the batch that has it
	}
	// tail is what the index files do not hold yet, for the last segment and while rebuilding; nil otherwise.
	tail atomic.Pointer[indexTail]
}

func newSegment(l *Log, base int64, now time.Time) *segment {
	s := &segment{l: l, base: base, created: now}
	s.refs.Store(1)
	s.next.Store(base)
	s.modTime.Store(now.UnixMilli())
	s.meta.firstTs, s.meta.maxTs, s.meta.maxTsOff = record.NoTimestamp, record.NoTimestamp, base
	return s
}

func fileName(dir string, base int64, suffix string) string {
	return fmt.Sprintf("%s/%020d%s", dir, base, suffix)
}

func (s *segment) name(suffix string) string {
	s.nameMu.RLock()
	defer s.nameMu.RUnlock()
	return s.nameLocked(suffix)
}

func (s *segment) nameLocked(suffix string) string {
	return fileName(s.l.dir, s.base, suffix) + s.aside
}

// open opens one of the segment's files by f, whatever it is called at present.
func (s *segment) open(suffix string, f func(name string) (vfs.File, error)) (vfs.File, error) {
	s.nameMu.RLock()
	defer s.nameMu.RUnlock()
	return f(s.nameLocked(suffix))
}

// readFile reads one of the segment's files as a whole.
func (s *segment) readFile(suffix string) ([]byte, error) {
	s.nameMu.RLock()
	defer s.nameMu.RUnlock()
	return vfs.ReadFile(s.l.env.FS, s.nameLocked(suffix))
}

// setAside renames the files of a segment that is deleted or replaced; each .log is gone durably where sync is asked for.
func (s *segment) setAside(sync bool) error {
	s.nameMu.Lock()
	defer s.nameMu.Unlock()
	fsys, extra := s.l.env.FS, fmt.Sprintf(".%d%s", s.l.asides.Add(1), suffixDeleted)
	for _, suffix := range []string{suffixLog, suffixIndex, suffixTime, suffixTxn} {
		name := s.nameLocked(suffix)
		if err := fsys.Rename(name, name+extra); err != nil && !vfs.IsNotExist(err) {
			return err
		}
		if suffix == suffixLog && sync {
			if err := fsys.SyncDir(s.l.dir); err != nil {
				return err
			}
		}
	}
	s.aside = extra
	return nil
}

// retain takes a reader's reference; false where the segment is gone.
func (s *segment) retain() bool {
	for {
		n := s.refs.Load()
		if n == 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release gives a reference back and removes the files of a deleted segment after the last one.
func (s *segment) release() error {
	if s.refs.Add(-1) > 0 {
		return nil
	}
	return errors.Join(s.closeFiles(), s.removeFiles())
}

func (s *segment) closeFiles() error {
	return errors.Join(s.log.drop(), s.index.drop(), s.time.drop())
}

func (s *segment) removeFiles() error {
	remove := s.l.env.FS.Remove
	if s.aside != "" { // durably, so that a crash never finds half of it under its own name
		remove = func(name string) error { return vfs.RemoveInSteps(s.l.env.FS, name) }
	}
	var errs []error
	for _, suffix := range []string{suffixLog, suffixIndex, suffixTime, suffixTxn} {
		if err := remove(s.name(suffix)); err != nil && !vfs.IsNotExist(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// openLog returns the .log file, for reading. The caller releases it.
func (s *segment) openLog() (*openFile, error) {
	if o := s.log.use(); o != nil {
		return o, nil
	}
	ro := s.sealed.Load()
	return s.l.env.Files.acquire(&s.log, ro, func() (vfs.File, error) {
		if ro {
			return s.open(suffixLog, s.l.env.FS.Open)
		}
		return s.open(suffixLog, s.l.env.FS.OpenReadWrite)
	})
}

// openForWrite returns the .log file of the last segment, for writing. The caller holds the log's lock.
func (s *segment) openForWrite() (*openFile, error) {
	for {
		o, err := s.openLog()
		if err != nil || !o.ro {
			return o, err
		}
		// Opened while the segment was sealed.
		if err := errors.Join(o.release(), s.log.drop()); err != nil {
			return nil, err
		}
	}
}

func (s *segment) openIndex(slot *fileSlot, suffix string) (*openFile, error) {
	if o := slot.use(); o != nil {
		return o, nil
	}
	return s.l.env.Files.acquire(slot, false, func() (vfs.File, error) { return s.open(suffix, s.l.env.FS.OpenReadWrite) })
}

// note adds one batch, written at pos, to the segment's size, times and indexes.
func (s *segment) note(h *record.Header, pos int64, interval int64) {
	s.meta.Lock()
	if pos == 0 {
		s.meta.firstTs = h.MaxTimestamp
		s.meta.loaded = true
	}
	if h.MaxTimestamp > s.meta.maxTs {
		s.meta.maxTs, s.meta.maxTsOff = h.MaxTimestamp, h.LastOffset()
	}
	maxTs, maxTsOff := s.meta.maxTs, s.meta.maxTsOff
	s.meta.Unlock()
	s.tail.Load().note(s.base, h, pos, maxTs, maxTsOff, interval)
	s.setExtent(pos+int64(h.Size()), h.NextOffset())
}

// setExtent moves size and next together.
func (s *segment) setExtent(size, next int64) {
	s.extentMu.Lock()
	defer s.extentMu.Unlock()
	s.size.Store(size)
	s.next.Store(next)
}

// extent returns a size and the next offset that fits it.
func (s *segment) extent() (size, next int64) {
	s.extentMu.Lock()
	defer s.extentMu.Unlock()
	return s.size.Load(), s.next.Load()
}

// times returns the largest timestamps of the first batch and of the segment, reading them from disk the first time.
func (s *segment) times() (firstTs, maxTs, maxTsOff int64, err error) {
	s.meta.Lock()
	defer s.meta.Unlock()
	if s.meta.loaded || s.size.Load() == 0 {
		return s.meta.firstTs, s.meta.maxTs, s.meta.maxTsOff, nil
	}
	f, err := s.openLog()
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, f.release()) }()
	scan := newHeaderScan(f.File, 0, s.size.Load())
	defer scan.close()
	h, _, err := scan.next()
	if err != nil {
		return 0, 0, 0, s.corrupt(0, s.base, err)
	}
	last, err := s.lastTime()
	if err != nil {
		return 0, 0, 0, err
	}
	s.meta.firstTs = h.MaxTimestamp
	s.meta.maxTs, s.meta.maxTsOff = last.Timestamp, s.base+int64(last.RelOffset)
	s.meta.loaded = true
	return s.meta.firstTs, s.meta.maxTs, s.meta.maxTsOff, nil
}

// lastTime reads the last entry of the time index, or walks the segment where there is none.
func (s *segment) lastTime() (record.TimeIndexEntry, error) {
	b, err := s.readFile(suffixTime)
	if err != nil && !vfs.IsNotExist(err) {
		return record.TimeIndexEntry{}, err
	}
	x := record.TimeIndex(b)
	if e, ok := x.Last(); ok && x.Check() == nil {
		if _, fits, err := s.timeFits(e); fits || err != nil {
			return e, err
		}
	}
	e := record.TimeIndexEntry{Timestamp: record.NoTimestamp}
	err = s.walk(0, func(h *record.Header, _ int64) error {
		if h.MaxTimestamp > e.Timestamp {
			e = record.TimeIndexEntry{Timestamp: h.MaxTimestamp, RelOffset: int32(h.LastOffset() - s.base)}
		}
		return nil
	})
	return e, err
}

// timeFits checks that a time index entry names a batch and its timestamp, and returns where the batch is.
func (s *segment) timeFits(e record.TimeIndexEntry) (pos int64, fits bool, err error) {
	offset := s.base + int64(e.RelOffset)
	h, pos, err := s.locate(offset)
	if errors.Is(err, io.EOF) {
		return 0, false, nil
	}
	return pos, err == nil && h.LastOffset() == offset && h.MaxTimestamp == e.Timestamp, err
}

// walk calls f with every batch header from position pos on.
func (s *segment) walk(pos int64, f func(h *record.Header, pos int64) error) error {
	o, err := s.openLog()
	if err != nil {
		return err
	}
	scan := newHeaderScan(o.File, pos, s.size.Load())
	defer scan.close()
	next := s.base
	for {
		h, pos, err := scan.next()
		if errors.Is(err, io.EOF) {
			return o.release()
		}
		if err != nil {
			return errors.Join(s.corrupt(pos, next, err), o.release())
		}
		next = h.NextOffset()
		if err := f(&h, pos); err != nil {
			return errors.Join(err, o.release())
		}
	}
}

// readBatch reads the whole batch with header h at pos.
func (s *segment) readBatch(h *record.Header, pos int64) ([]byte, error) {
	o, err := s.openLog()
	if err != nil {
		return nil, err
	}
	b := make([]byte, h.Size())
	_, err = o.ReadAt(b, pos)
	if err == nil || errors.Is(err, io.EOF) {
		if err = record.VerifyBatch(b); err != nil {
			err = s.corrupt(pos, h.BaseOffset, err)
		}
	}
	return b, errors.Join(err, o.release())
}

// corrupt names the place of an error of the record package; I/O errors pass as they are.
func (s *segment) corrupt(pos, offset int64, err error) error {
	if errors.Is(err, record.ErrCorrupt) || errors.Is(err, record.ErrPartial) {
		return &CorruptError{File: s.name(suffixLog), Position: pos, Offset: offset, Reason: err}
	}
	return err
}

// locate finds the first batch whose last offset is at or above offset, from the index and a walk of at most a few
// batches. io.EOF where there is none.
func (s *segment) locate(offset int64) (h record.Header, pos int64, err error) {
	f, err := s.openLog()
	if err != nil {
		return h, 0, err
	}
	defer func() { err = errors.Join(err, f.release()) }()
	e, err := s.floorOffset(offset - s.base)
	if err != nil {
		return h, 0, err
	}
	h, pos, ok, err := s.scanTo(f.File, int64(e.Position), offset)
	if err == nil && ok && e.Position > 0 && pos == int64(e.Position) && h.LastOffset() != s.base+int64(e.RelOffset) ||
		errors.Is(err, ErrCorrupt) && e.Position > 0 {
		// The index does not fit the log: start over without it; the caller may rebuild it.
		h, pos, ok, err = s.scanTo(f.File, 0, offset)
	}
	if err == nil && !ok {
		err = io.EOF
	}
	return h, pos, err
}

func (s *segment) scanTo(f vfs.File, from, offset int64) (h record.Header, pos int64, ok bool, err error) {
	scan := newHeaderScan(f, from, s.size.Load())
	defer scan.close()
	for {
		h, pos, err = scan.next()
		if errors.Is(err, io.EOF) {
			return h, pos, false, nil
		}
		if err == nil && (h.BaseOffset < s.base || s.sealed.Load() && h.NextOffset() > s.next.Load()) {
			err = fmt.Errorf("%w: offsets %d to %d in a segment from %d to %d", record.ErrCorrupt, h.BaseOffset, h.LastOffset(), s.base, s.next.Load())
		}
		if err != nil {
			return h, pos, false, s.corrupt(pos, offset, err)
		}
		if h.LastOffset() >= offset {
			return h, pos, true, nil
		}
	}
}
