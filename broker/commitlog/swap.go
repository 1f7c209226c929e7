package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// Replacing segments by a compacted one, with Kafka's names:
//
//  1. The new segment is written and synced as <base>.log.cleaned and so on. A crash removes these.
//  2. The indexes are renamed to .swap, then the .log: with <base>.log.swap durable the replacement is decided.
//  3. The old files are renamed to .deleted, the indexes and last the .log to their final names.
//
// Recovery completes what has a <base>.log.swap: it removes the segments in its range of offsets and does step 3. Other
// .swap files are removed.
const (
	suffixCleaned = ".cleaned"
	suffixSwap    = ".swap"
)

// indexSuffixes are the files of a segment beside its .log.
var indexSuffixes = [...]string{suffixIndex, suffixTime, suffixTxn}

// cleanedSegment is a segment that is written to replace others.
type cleanedSegment struct {
	l        *Log
	s        *segment
	next     int64 // where the last segment that is replaced ends
	f        vfs.File
	buf      []byte
	flushed  int64
	interval int64
	out      []byte // one batch
	txns     []record.TxnIndexEntry
}

const cleanedBuffer = 1 << 20

func newCleanedSegment(l *Log, group []*segment) (*cleanedSegment, error) {
	first, last := group[0], group[len(group)-1]
	w := &cleanedSegment{l: l, s: newSegment(l, first.base, first.created), next: last.next.Load(), interval: l.cfg.Load().IndexIntervalBytes}
	w.s.tail.Store(newIndexTail())
	w.s.meta.loaded = true
	w.s.sealed.Store(true)
	modTime := int64(0)
	for _, s := range group {
		entries, err := s.txns()
		if err != nil {
			return nil, err
		}
		w.txns = append(w.txns, entries...)
		modTime = max(modTime, s.modTime.Load())
	}
	w.s.modTime.Store(modTime)
	var err error
	w.f, err = l.env.FS.Create(w.s.name(suffixLog) + suffixCleaned)
	return w, err
}

// dropMarker forgets the aborted transaction whose marker goes.
func (w *cleanedSegment) dropMarker(h *record.Header) {
	if h.Control() {
		w.txns = slices.DeleteFunc(w.txns, func(e record.TxnIndexEntry) bool { return e.LastOffset == h.BaseOffset })
	}
}

// write appends whole batches.
func (w *cleanedSegment) write(b []byte) error {
	it := record.NewBatchIterator(b)
	for h, _, ok := it.Next(); ok; h, _, ok = it.Next() {
		pos := w.flushed + int64(len(w.buf))
		if pos+int64(h.Size()) > math.MaxInt32 {
			return fmt.Errorf("the compacted segment %s would be larger than 2 GiB", w.s.name(suffixLog))
		}
		w.s.note(&h, pos, w.interval)
		w.buf = append(w.buf, b[:h.Size()]...)
		b = b[h.Size():]
	}
	if len(w.buf) < cleanedBuffer {
		return it.Err()
	}
	return errors.Join(it.Err(), w.flush())
}

func (w *cleanedSegment) flush() error {
	if _, err := w.f.WriteAt(w.buf, w.flushed); err != nil {
		return err
	}
	w.flushed += int64(len(w.buf))
	w.buf = w.buf[:0]
	return nil
}

// finish makes the .cleaned files complete and durable.
func (w *cleanedSegment) finish() error {
	if err := w.flush(); err != nil {
		return err
	}
	if err := errors.Join(w.f.SetModTime(time.UnixMilli(w.s.modTime.Load())), w.f.Sync()); err != nil {
		return err
	}
	s := w.s
	s.synced = s.size.Load()
	s.next.Store(w.next)
	t := s.tail.Load()
	t.time(s.meta.maxTs, int32(s.meta.maxTsOff-s.base))
	var txns []byte
	for _, e := range w.txns {
		txns = e.AppendTo(txns)
	}
	s.hasTxn.Store(len(txns) > 0)
	for i, b := range [...][]byte{t.off, t.tim, txns} {
		if err := writeSynced(w.l.env.FS, s.name(indexSuffixes[i])+suffixCleaned, b); err != nil {
			return err
		}
	}
	s.tail.Store(nil)
	err := w.f.Close()
	w.f = nil
	return err
}

func writeSynced(fsys vfs.FS, name string, b []byte) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	if len(b) > 0 {
		_, err = f.WriteAt(b, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// abandon removes the files of a segment that replaces nothing.
func (w *cleanedSegment) abandon() error {
	var errs []error
	if w.f != nil {
		errs = append(errs, w.f.Close())
		w.f = nil
	}
	for _, name := range append([]string{suffixLog}, indexSuffixes[:]...) {
		for _, extra := range []string{suffixCleaned, suffixSwap} {
			if err := w.l.env.FS.Remove(w.s.name(name) + extra); err != nil && !vfs.IsNotExist(err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// swap puts a finished segment in the place of a group. From the moment it is decided an error latches the log: opening it
// again completes the replacement.
func (l *Log) swap(group []*segment, w *cleanedSegment, truncates int) error {
	l.deleteMu.Lock()
	defer l.deleteMu.Unlock()
	if err := l.unchanged(group, truncates); err != nil {
		return errors.Join(err, w.abandon())
	}
	fsys := l.env.FS
	for _, suffix := range indexSuffixes {
		if err := fsys.Rename(w.s.name(suffix)+suffixCleaned, w.s.name(suffix)+suffixSwap); err != nil {
			return errors.Join(err, w.abandon())
		}
	}
	if err := fsys.SyncDir(l.dir); err != nil {
		return errors.Join(err, w.abandon())
	}
	if err := l.replaceFiles(group, w); err != nil {
		l.latch(err)
		return err
	}
	l.publish(group, w)
	for _, s := range group {
		if err := s.release(); err != nil {
			l.env.Log.Warn("old files of a compacted segment", "file", s.name(suffixLog), "error", err)
		}
	}
	for _, s := range group[1:] {
		if err := l.dropSnapshot(s.base); err != nil {
			l.env.Log.Warn("snapshot of a compacted segment", "file", s.name(suffixSnapshot), "error", err)
		}
	}
	return nil
}

// unchanged checks that the group is still part of the log and nothing was truncated since its keys were read.
func (l *Log) unchanged(group []*segment, truncates int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	segs := *l.segs.Load()
	i := slices.Index(segs, group[0])
	if i < 0 || truncates != l.mu.truncates || len(segs) <= i+len(group) || !slices.Equal(segs[i:i+len(group)], group) {
		return errStopCompaction
	}
	return nil
}

// replaceFiles decides the replacement and renames the files.
func (l *Log) replaceFiles(group []*segment, w *cleanedSegment) error {
	fsys, s := l.env.FS, w.s
	if err := fsys.Rename(s.name(suffixLog)+suffixCleaned, s.name(suffixLog)+suffixSwap); err != nil {
		return err
	}
	if err := fsys.SyncDir(l.dir); err != nil {
		return err
	}
	for _, old := range group {
		if err := old.setAside(false); err != nil {
			return err
		}
	}
	return l.finishSwap(s.base, s.hasTxn.Load())
}

// finishSwap gives a segment whose replacement is decided its final names, the .log last.
func (l *Log) finishSwap(base int64, hasTxn bool) error {
	fsys := l.env.FS
	for _, suffix := range indexSuffixes {
		name := fileName(l.dir, base, suffix)
		if err := fsys.Rename(name+suffixSwap, name); err != nil && !vfs.IsNotExist(err) {
			return err
		}
	}
	if err := fsys.SyncDir(l.dir); err != nil {
		return err
	}
	name := fileName(l.dir, base, suffixLog)
	if err := fsys.Rename(name+suffixSwap, name); err != nil {
		return err
	}
	if err := fsys.SyncDir(l.dir); err != nil {
		return err
	}
	if hasTxn {
		return nil
	}
	if err := fsys.Remove(fileName(l.dir, base, suffixTxn)); err != nil && !vfs.IsNotExist(err) {
		return err
	}
	return nil
}

// publish puts the new segment into the list.
func (l *Log) publish(group []*segment, w *cleanedSegment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	segs := *l.segs.Load()
	i := slices.Index(segs, group[0])
	for _, s := range group {
		if s.auxGen != s.auxSynced {
			w.s.auxGen++
		}
		_ = s.dropPin() // its bytes are not needed any more
	}
	list := slices.Concat(segs[:i], []*segment{w.s}, segs[i+len(group):])
	l.segs.Store(&list)
	l.cursors.clear()
}

// finishSwaps completes or takes back the replacements that a crash broke off. done says that there were any.
func (ld *loader) finishSwaps(entries []fs.DirEntry) (done bool, err error) {
	l := ld.l
	for _, e := range entries {
		base, suffix, ok := parseName(e.Name())
		if !ok || suffix != suffixLog+suffixSwap {
			continue
		}
		done = true
		next, err := l.swapEnd(base)
		if err != nil {
			return done, err
		}
		if err := l.removeReplaced(entries, base, next); err != nil {
			return done, err
		}
		if err := l.finishSwap(base, true); err != nil {
			return done, err
		}
	}
	return done, nil
}

// swapEnd reads where the segment in a .log.swap file ends.
func (l *Log) swapEnd(base int64) (next int64, err error) {
	name := fileName(l.dir, base, suffixLog) + suffixSwap
	f, err := l.env.FS.Open(name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	next = base
	r := batchReader{f: f, size: size}
	for pos := int64(0); pos < size; {
		h, _, err := r.read(pos)
		if err != nil {
			if errors.Is(err, record.ErrCorrupt) || errors.Is(err, record.ErrPartial) {
				err = &CorruptError{File: name, Position: pos, Offset: next, Reason: err}
			}
			return 0, err
		}
		next = h.NextOffset()
		pos += int64(h.Size())
	}
	return next, nil
}

// removeReplaced removes the segments after base that begin below next, with their snapshots.
func (l *Log) removeReplaced(entries []fs.DirEntry, base, next int64) error {
	for _, e := range entries {
		at, suffix, ok := parseName(e.Name())
		if !ok || at <= base || at >= next || strings.HasSuffix(suffix, suffixSwap) {
			continue
		}
		if err := l.env.FS.Remove(l.dir + "/" + e.Name()); err != nil && !vfs.IsNotExist(err) {
			return err
		}
	}
	return nil
}
