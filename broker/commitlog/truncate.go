package commitlog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/varvehq/varve/internal/vfs"
)

// TruncateTo cuts the log so that EndOffset is at most offset; a batch that contains offset goes as a whole. Epochs and
// producer state follow. The recovery point is lowered first, durably, so that a crash in between finds a log that
// fits it. Below LocalStartOffset it is TruncateFullyAndStartAt.
func (l *Log) TruncateTo(offset int64) error {
	l.deleteMu.Lock()
	defer l.deleteMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	if offset >= l.end.Load() {
		return nil
	}
	local := l.localStart.Load()
	segs := *l.segs.Load()
	i := find(segs, offset)
	if i < 0 || offset < local {
		return l.resetTo(offset)
	}
	pos, end, err := segs[i].positionOf(offset)
	if err != nil {
		return err
	}
	if end < local { // the batch that goes also holds deleted records below the start
		return l.resetTo(local)
	}
	if err := l.truncate(segs, i, pos, end); err != nil {
		l.latch(err)
		return err
	}
	return nil
}

// truncate cuts segment i at pos, where the log ends at offset then.
func (l *Log) truncate(segs []*segment, i int, pos, offset int64) (err error) {
	s := segs[i]
	if err := l.lowerRecovery(offset); err != nil {
		return err
	}
	// Readers and acknowledgements stop at the new end before the bytes go.
	l.mu.truncates++
	list := segs[: i+1 : i+1]
	l.segs.Store(&list)
	l.cursors.clear()
	l.end.Store(offset)
	l.flushed.Store(min(l.flushed.Load(), offset))
	l.mu.durable, l.mu.want = min(l.mu.durable, offset), min(l.mu.want, offset)
	s.setExtent(pos, offset)
	if err := l.removeSegments(segs[i+1:]); err != nil {
		return err
	}
	s.sealed.Store(false)
	if err = errors.Join(s.dropPin(), s.closeFiles()); err != nil {
		return err
	}
	s.synced, s.reserved = pos, 0
	if err := truncateFile(l.env.FS, s.name(suffixLog), pos); err != nil {
		return err
	}
	if err := s.loadTail(offset); err != nil {
		return err
	}
	if err := s.cutTxn(offset); err != nil {
		return err
	}
	l.mu.epochs.truncateEnd(offset)
	if err := l.writeEpochs(); err != nil {
		return err
	}
	return l.reloadProducers()
}

// positionOf is where the first batch begins that ends at or above offset, and the offset where the log ends then.
func (s *segment) positionOf(offset int64) (pos, end int64, err error) {
	if offset == s.base {
		return 0, offset, nil
	}
	return s.boundary(offset)
}

func (l *Log) lowerRecovery(to int64) error {
	if err := l.lowerCleaned(to); err != nil {
		return err
	}
	if to >= l.recovery.Load() {
		return nil
	}
	l.recovery.Store(to)
	if l.env.SaveRecoveryPoint == nil {
		return nil
	}
	return l.env.SaveRecoveryPoint(to)
}

// reloadProducers makes the producer state again after a truncation.
func (l *Log) reloadProducers() error {
	l.mu.producers.reset()
	l.mu.producers.snapshotAt = -1
	ld := loader{l: l, segs: *l.segs.Load()}
	entries, err := l.env.FS.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if base, suffix, ok := parseName(e.Name()); ok && suffix == suffixSnapshot {
			ld.snapshots = append(ld.snapshots, base)
		}
	}
	return ld.loadProducers(State{Clean: true})
}

// TruncateFullyAndStartAt removes every local record; the next one gets offset, which is also the new start, except that
// the start of a tiered log does not move up.
func (l *Log) TruncateFullyAndStartAt(offset int64) error {
	l.deleteMu.Lock()
	defer l.deleteMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	return l.resetTo(offset)
}

// resetTo removes all segments and starts an empty one at offset. The caller holds mu, or is opening the log.
func (l *Log) resetTo(offset int64) error {
	if offset < 0 {
		return fmt.Errorf("%w: start at %d", ErrOffsetOutOfRange, offset)
	}
	if err := l.doReset(offset); err != nil {
		l.latch(err)
		return err
	}
	return nil
}

func (l *Log) doReset(offset int64) error {
	// What retention could not remove yet goes too: a segment that begins anew may have its name.
	segs := append(slices.Clone(l.undeleted), *l.segs.Load()...)
	recovery := min(offset, l.start.Load())
	if len(segs) > 0 {
		recovery = min(recovery, segs[0].base) // a crash may leave any number of the first ones
	}
	if err := l.lowerRecovery(recovery); err != nil {
		return err
	}
	l.undeleted = nil
	l.mu.truncates++
	start := offset
	if l.cfg.Load().Tiered {
		start = min(start, l.start.Load())
	}
	l.segs.Store(&[]*segment{})
	l.setBounds(start, offset)
	l.mu.durable, l.mu.want = offset, 0
	if err := l.removeSegments(segs); err != nil {
		return err
	}
	l.cursors.clear()
	l.mu.producers.reset()
	l.mu.producers.snapshotAt = -1
	if err := l.removeSnapshots(); err != nil {
		return err
	}
	l.mu.epochs = epochCache{dirty: true}
	l.recovery.Store(offset)
	if _, err := l.roll(offset, l.env.Clock()); err != nil {
		return err
	}
	if err := l.writeEpochs(); err != nil {
		return err
	}
	if err := l.env.FS.SyncDir(l.dir); err != nil {
		return err
	}
	return l.saveStart(start)
}

func (l *Log) removeSnapshots() error {
	entries, err := l.env.FS.ReadDir(l.dir)
	if vfs.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, suffix, ok := parseName(e.Name()); ok && suffix == suffixSnapshot {
			if err := l.env.FS.Remove(l.dir + "/" + e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Log) saveStart(offset int64) error {
	if l.env.SaveStart != nil {
		if err := l.env.SaveStart(offset); err != nil {
			return err
		}
	}
	l.savedStart.Store(offset)
	return nil
}

// removeSegments takes segments that are in no list any more off the disk: each .log is renamed and the folder synced
// before the next, from the last one backwards, so that a crash leaves no hole. Files go when the last reader lets go of
// them. The caller holds mu.
func (l *Log) removeSegments(segs []*segment) error {
	for n := range segs {
		s := segs[len(segs)-1-n]
		if err := errors.Join(s.dropPin(), s.markDeleted()); err != nil {
			return err
		}
	}
	return nil
}

func (s *segment) markDeleted() error {
	if err := s.setAside(true); err != nil {
		return err
	}
	return s.release()
}

// dropPin lets go of the descriptor kept for un-synced bytes. The caller holds the log's lock.
func (s *segment) dropPin() error {
	if s.pin == nil {
		return nil
	}
	err := s.pin.release()
	s.pin = nil
	return err
}

// AdvanceStart moves the log start up to offset (DeleteRecords, or total retention), durably. Whole segments below it
// become deletable; it deletes none itself.
func (l *Log) AdvanceStart(offset int64) error {
	l.mu.Lock()
	if err := l.writable(); err != nil {
		l.mu.Unlock()
		return err
	}
	if offset > l.end.Load() {
		l.mu.Unlock()
		return fmt.Errorf("%w: start at %d, the log ends at %d", ErrOffsetOutOfRange, offset, l.end.Load())
	}
	if offset <= l.start.Load() {
		l.mu.Unlock()
		return nil
	}
	l.start.Store(offset)
	l.localStart.Store(max(l.localStart.Load(), offset))
	l.mu.epochs.truncateStart(offset)
	l.mu.Unlock()
	return l.saveStart(offset)
}
