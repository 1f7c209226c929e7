package commitlog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// loader brings a log's folder into memory.
type loader struct {
	l         *Log
	segs      []*segment
	snapshots []int64
	txns      map[int64]bool
	hasEpochs bool
}

// load reads the folder, validates what needs it, and makes the log ready.
func (l *Log) load() error {
	state := l.env.State
	l.savedStart.Store(state.LogStart)
	ld := loader{l: l, txns: map[int64]bool{}}
	found, err := ld.list()
	if err != nil {
		return err
	}
	if !found || len(ld.segs) == 0 {
		if end := state.RecoveryPoint; end > state.LogStart {
			return &CorruptError{File: l.dir, Offset: state.LogStart, Reason: fmt.Errorf("no segments, but the recovery point is %d", end)}
		}
		l.setBounds(state.LogStart, state.LogStart)
		l.mu.durable = state.LogStart
		l.recovery.Store(state.LogStart)
		return ld.checkTopic(found)
	}
	if err := ld.checkTopic(found); err != nil {
		return err
	}
	l.segs.Store(&ld.segs)
	if err := ld.openSegments(state); err != nil {
		return err
	}
	if err := ld.loadEpochs(state); err != nil {
		return err
	}
	if err := ld.loadProducers(state); err != nil {
		return err
	}
	return ld.finish(state)
}

// list finds the segments, and removes what a crash left behind: temporary files, files already renamed for removal, and
// indexes without a log.
func (ld *loader) list() (found bool, err error) {
	l := ld.l
	entries, err := l.env.FS.ReadDir(l.dir)
	if vfs.IsNotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	l.exists.Store(true)
	if swapped, err := ld.finishSwaps(entries); err != nil {
		return true, err
	} else if swapped {
		if entries, err = l.env.FS.ReadDir(l.dir); err != nil {
			return true, err
		}
	}
	bases := map[int64]bool{}
	var indexes []string
	for _, e := range entries {
		name := e.Name()
		base, suffix, ok := parseName(name)
		switch {
		case strings.HasSuffix(name, vfs.TempSuffix) || strings.HasSuffix(name, suffixDeleted) || strings.HasSuffix(name, suffixCleaned) || strings.HasSuffix(name, suffixSwap):
			if err := l.env.FS.RemoveAll(l.dir + "/" + name); err != nil {
				return true, err
			}
		case name == epochFile:
			ld.hasEpochs = true
		case !ok:
		case suffix == suffixLog:
			info, err := e.Info()
			if err != nil {
				return true, err
			}
			ld.segs = append(ld.segs, ld.newSegment(base, info))
			bases[base] = true
		case suffix == suffixSnapshot:
			ld.snapshots = append(ld.snapshots, base)
		case suffix == suffixIndex || suffix == suffixTime || suffix == suffixTxn:
			indexes = append(indexes, name)
			ld.txns[base] = ld.txns[base] || suffix == suffixTxn
		}
	}
	for _, name := range indexes {
		if base, _, _ := parseName(name); !bases[base] {
			if err := l.env.FS.Remove(l.dir + "/" + name); err != nil {
				return true, err
			}
		}
	}
	slices.SortFunc(ld.segs, func(a, b *segment) int { return cmp.Compare(a.base, b.base) })
	slices.Sort(ld.snapshots)
	return true, nil
}

func parseName(name string) (base int64, suffix string, ok bool) {
	if len(name) < 21 {
		return 0, "", false
	}
	base, err := strconv.ParseInt(name[:20], 10, 64)
	return base, name[20:], err == nil && base >= 0
}

func (ld *loader) newSegment(base int64, info fs.FileInfo) *segment {
	s := newSegment(ld.l, base, info.ModTime())
	s.size.Store(info.Size())
	s.synced = info.Size()
	return s
}

// checkTopic compares the folder's topic id with the wanted one.
func (ld *loader) checkTopic(found bool) error {
	l := ld.l
	if !found || l.topicID.IsZero() {
		return nil
	}
	id, err := readMetadata(l.env.FS, l.dir)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	if err != nil || id.IsZero() { // never written, or torn before anything in the folder was acknowledged
		return l.writeMetadata()
	}
	if id != l.topicID {
		return fmt.Errorf("%w: %s has %s, expected %s", ErrTopicID, l.dir, id, l.topicID)
	}
	return nil
}

// openSegments sets the segments' ends, validating those above the recovery point after an unclean stop.
func (ld *loader) openSegments(state State) error {
	l := ld.l
	for i, s := range ld.segs {
		s.hasTxn.Store(ld.txns[s.base])
		if i+1 < len(ld.segs) {
			s.sealed.Store(true)
			s.next.Store(ld.segs[i+1].base)
		}
	}
	if !state.Clean {
		if err := ld.recover(state); err != nil {
			return err
		}
	}
	if err := ld.dropEmptyTail(); err != nil {
		return err
	}
	last := ld.segs[len(ld.segs)-1]
	last.sealed.Store(false)
	if last.tail.Load() == nil {
		if err := last.loadTail(math.MaxInt64); err != nil {
			return err
		}
	}
	l.segs.Store(&ld.segs)
	if end := last.next.Load(); end < state.RecoveryPoint {
		return &CorruptError{File: last.name(suffixLog), Position: last.size.Load(), Offset: end,
			Reason: fmt.Errorf("the log ends below its recovery point %d", state.RecoveryPoint)}
	}
	return nil
}

// dropEmptyTail removes an empty last segment whose base is not the end of the one before: a roll that failed halfway
// left it, and the log went on in the old one.
func (ld *loader) dropEmptyTail() error {
	for n := len(ld.segs); n > 1 && ld.segs[n-1].size.Load() == 0; n = len(ld.segs) {
		prev, s := ld.segs[n-2], ld.segs[n-1]
		next, err := prev.scanEnd()
		if err != nil || next <= s.base {
			return err
		}
		if err := s.removeFiles(); err != nil {
			return err
		}
		prev.sealed.Store(false)
		ld.segs = ld.segs[:n-1]
	}
	return nil
}

// scanEnd finds the offset after the last batch, from the last index entry on.
func (s *segment) scanEnd() (next int64, err error) {
	e, err := s.floorPosition(s.size.Load())
	if err != nil {
		return 0, err
	}
	next = s.base
	err = s.walk(int64(e.Position), func(h *record.Header, _ int64) error {
		next = h.NextOffset()
		return nil
	})
	return next, err
}

// loadTail makes s writable again: it reads the indexes, keeps their sound entries below offset trust, walks the batches
// behind the last one and adds the entries that are missing.
func (s *segment) loadTail(trust int64) error {
	pos, err := s.startTail(trust)
	if err != nil {
		return err
	}
	size, interval := s.size.Load(), s.l.cfg.Load().IndexIntervalBytes
	err = s.walk(pos, func(h *record.Header, pos int64) error {
		s.noteAgain(h, pos, interval)
		return nil
	})
	s.size.Store(size)
	return errors.Join(err, s.loadFirstTime())
}

// startTail prepares the index tail and returns the position from which batches have to be noted again.
func (s *segment) startTail(trust int64) (pos int64, err error) {
	t := newIndexTail()
	if pos, err = s.loadIndexes(t, trust); err != nil {
		return 0, err
	}
	s.tail.Store(t)
	s.meta.Lock()
	s.meta.maxTs, s.meta.maxTsOff = t.lastTime.Timestamp, s.base+int64(max(t.lastTime.RelOffset, 0))
	s.meta.Unlock()
	s.next.Store(s.base)
	return pos, nil
}

// noteAgain is note for a batch found on disk; the one that the last index entry points at has its entry.
func (s *segment) noteAgain(h *record.Header, pos, interval int64) {
	if t := s.tail.Load(); pos > 0 && pos == int64(t.lastOff.Position) {
		t.sinceLast = int64(h.Size())
		s.setExtent(pos+int64(h.Size()), h.NextOffset())
		return
	}
	s.note(h, pos, interval)
}

func (s *segment) loadFirstTime() error {
	s.meta.Lock()
	defer s.meta.Unlock()
	s.meta.loaded = true
	if s.size.Load() == 0 {
		return nil
	}
	f, err := s.openLog()
	if err != nil {
		return err
	}
	scan := newHeaderScan(f.File, 0, s.size.Load())
	defer scan.close()
	h, _, err := scan.next()
	s.meta.firstTs = h.MaxTimestamp
	return errors.Join(s.corrupt(0, s.base, err), f.release())
}

// loadIndexes reads both indexes, cuts them to their longest sound part below offset trust, and returns the position
// of the last offset entry.
func (s *segment) loadIndexes(t *indexTail, trust int64) (pos int64, err error) {
	if trust == math.MaxInt64 {
		if ok, err := s.lastEntries(t); ok || err != nil {
			return int64(t.lastOff.Position), err
		}
		t.reset()
	}
	offs, err := s.readIndex(suffixIndex)
	if err != nil {
		return 0, err
	}
	times, err := s.readIndex(suffixTime)
	if err != nil {
		return 0, err
	}
	off, n := record.OffsetIndex(offs), 0
	for ; n < off.Len(); n++ {
		if e := off.At(n); e.RelOffset <= t.lastOff.RelOffset || e.Position <= t.lastOff.Position ||
			int64(e.Position) >= s.size.Load() || s.base+int64(e.RelOffset) >= trust {
			break
		}
		t.lastOff = off.At(n)
	}
	if n > 0 && !s.entryFits(t.lastOff) {
		n, t.lastOff = 0, newIndexTail().lastOff
	}
	tim, m := record.TimeIndex(times), 0
	for ; m < tim.Len() && n > 0; m++ {
		e := tim.At(m)
		if e.RelOffset <= t.lastTime.RelOffset || e.Timestamp <= t.lastTime.Timestamp || e.RelOffset > t.lastOff.RelOffset {
			break
		}
		t.lastTime = e
	}
	if n > 0 && m == 0 { // the largest timestamp up to the last offset entry is not known
		n, t.lastOff = 0, newIndexTail().lastOff
	}
	t.offFile, t.timFile = int64(n*record.OffsetIndexEntrySize), int64(m*record.TimeIndexEntrySize)
	return int64(max(t.lastOff.Position, 0)), errors.Join(
		s.cutIndex(&s.index, suffixIndex, int64(len(offs)), t.offFile),
		s.cutIndex(&s.time, suffixTime, int64(len(times)), t.timFile))
}

// lastEntries takes the last entries of indexes that were closed cleanly, without reading the rest. ok is false where they
// are not what the log says.
func (s *segment) lastEntries(t *indexTail) (ok bool, err error) {
	var off [record.OffsetIndexEntrySize]byte
	var tim [record.TimeIndexEntrySize]byte
	if t.offFile, err = s.lastEntry(suffixIndex, off[:]); t.offFile <= 0 || err != nil {
		return false, err
	}
	if t.timFile, err = s.lastEntry(suffixTime, tim[:]); t.timFile <= 0 || err != nil {
		return false, err
	}
	t.lastOff, t.lastTime = record.OffsetIndex(off[:]).At(0), record.TimeIndex(tim[:]).At(0)
	if t.lastOff.RelOffset < 0 || t.lastOff.Position < 0 || t.lastTime.RelOffset > t.lastOff.RelOffset || !s.entryFits(t.lastOff) {
		return false, nil
	}
	_, ok, err = s.timeFits(t.lastTime)
	return ok, err
}

// lastEntry reads the last entry of an index file into b and returns the file's size; 0 where there is no whole entry.
func (s *segment) lastEntry(suffix string, b []byte) (size int64, err error) {
	f, err := s.l.env.FS.Open(s.name(suffix))
	if vfs.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	size, err = f.Size()
	if n := int64(len(b)); err == nil && size >= n && size%n == 0 {
		err = readFull(f, b, size-n)
	} else {
		size = 0
	}
	return size, errors.Join(err, f.Close())
}

func (s *segment) readIndex(suffix string) ([]byte, error) {
	b, err := vfs.ReadFile(s.l.env.FS, s.name(suffix))
	if vfs.IsNotExist(err) {
		s.l.mu.dirGen++
		return nil, nil
	}
	return b, err
}

// entryFits checks that an offset entry points at the batch it names.
func (s *segment) entryFits(e record.OffsetIndexEntry) bool {
	f, err := s.openLog()
	if err != nil {
		return false
	}
	scan := newHeaderScan(f.File, int64(e.Position), s.size.Load())
	defer scan.close()
	h, _, err := scan.next()
	return errors.Join(err, f.release()) == nil && h.LastOffset() == s.base+int64(e.RelOffset)
}

func (s *segment) cutIndex(slot *fileSlot, suffix string, size, keep int64) error {
	if size == keep && size > 0 {
		return nil
	}
	f, err := s.openIndex(slot, suffix)
	if err != nil {
		return err
	}
	s.auxGen++
	return errors.Join(f.Truncate(keep), f.release())
}

// loadEpochs reads the epoch file and adds what the batches above the recovery point say. A missing or damaged file is
// made again from all batches.
func (ld *loader) loadEpochs(state State) error {
	l := ld.l
	from := state.RecoveryPoint
	if state.Clean {
		from = ld.end()
	}
	var entries []record.EpochEntry
	var err error
	if ld.hasEpochs {
		var b []byte
		if b, err = vfs.ReadFile(l.env.FS, l.dir+"/"+epochFile); err == nil {
			entries, err = record.ParseEpochCheckpoint(b)
		}
	}
	switch {
	case errors.Is(err, ErrCorrupt):
		l.env.Log.Warn("leader epochs are read from the log again", "dir", l.dir, "error", err)
		entries, from = nil, 0
	case err != nil:
		return err
	case !ld.hasEpochs:
		from = 0
	}
	l.mu.epochs.entries = entries
	l.mu.epochs.truncateEnd(from) // above it the file may be older than a truncation
	l.mu.epochs.dirty = l.mu.epochs.dirty || from == 0 && ld.end() > ld.segs[0].base
	err = ld.walkFrom(from, func(_ *segment, h *record.Header, _ int64) error {
		l.mu.epochs.assign(h.LeaderEpoch, h.BaseOffset)
		return nil
	})
	l.mu.epochs.truncateEnd(ld.end())
	return err
}

func (ld *loader) end() int64 { return ld.segs[len(ld.segs)-1].next.Load() }

// walkFrom calls f with every batch that ends above offset.
func (ld *loader) walkFrom(offset int64, f func(s *segment, h *record.Header, pos int64) error) error {
	for i := max(find(ld.segs, offset), 0); i < len(ld.segs); i++ {
		s := ld.segs[i]
		pos := int64(0)
		if offset > s.base {
			var err error
			if _, pos, err = s.locate(offset); errors.Is(err, io.EOF) {
				continue
			} else if err != nil {
				return err
			}
		}
		if err := s.walk(pos, func(h *record.Header, pos int64) error { return f(s, h, pos) }); err != nil {
			return err
		}
	}
	return nil
}

// finish sets the log's bounds.
func (ld *loader) finish(state State) error {
	l := ld.l
	end := ld.end()
	first := ld.segs[0].base
	start := state.LogStart
	if !l.cfg.Load().Tiered {
		if err := ld.checkFirst(state); err != nil {
			return err
		}
		start = max(start, first)
	}
	if start > end {
		// Everything on disk is below the log start: a reset to that offset was interrupted.
		l.end.Store(end)
		l.start.Store(first)
		l.localStart.Store(first)
		l.mu.durable = end
		l.recovery.Store(end)
		return l.resetTo(start)
	}
	l.start.Store(start)
	l.localStart.Store(max(start, first))
	l.mu.epochs.truncateStart(start) // the batches know of epochs below it
	if state.Cleaned <= end {
		l.cleaned.Store(state.Cleaned)
	}
	l.end.Store(end)
	l.mu.durable = end
	l.recovery.Store(min(max(state.RecoveryPoint, first), end))
	if state.Clean {
		l.recovery.Store(end)
	}
	l.flushed.Store(end)
	if state.Clean || state.Synced {
		return nil
	}
	return l.syncAll()
}

// checkFirst finds that segments are gone from the log's beginning: the start is durable before retention deletes what is
// below it. An empty log that begins above was being reset when the last run ended.
func (ld *loader) checkFirst(state State) error {
	first := ld.segs[0]
	if !state.StartSaved || first.base <= state.LogStart {
		return nil
	}
	if len(ld.segs) == 1 && first.size.Load() == 0 && state.RecoveryPoint <= state.LogStart {
		return nil
	}
	return &CorruptError{File: first.name(suffixLog), Offset: state.LogStart, Reason: missing(state.LogStart, first.base)}
}

// syncAll makes what is in the files durable before anything is served from them: after a crash of the process alone, it
// may still be in the page cache only.
func (l *Log) syncAll() error {
	for _, s := range *l.segs.Load() {
		if s.next.Load() <= l.recovery.Load() {
			continue
		}
		f, err := s.openLog()
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.release()); err != nil {
			return err
		}
	}
	return l.env.FS.SyncDir(l.dir)
}

func (l *Log) setBounds(start, end int64) {
	l.start.Store(start)
	l.localStart.Store(end)
	l.end.Store(end)
	l.flushed.Store(end)
}
