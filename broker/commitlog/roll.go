package commitlog

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

const (
	epochFile    = "leader-epoch-checkpoint"
	metadataFile = "partition.metadata"
)

// segmentFor returns the segment that takes the batches of b, which end at lastOffset: the active one, or a new one where
// that is full, too old or missing. The caller holds mu.
func (l *Log) segmentFor(b []byte, lastOffset, maxTs int64, now time.Time, cfg *Config) (*segment, error) {
	s := l.active()
	if s != nil && !s.mustRoll(int64(len(b)), lastOffset, maxTs, now, cfg) {
		return s, nil
	}
	base := l.end.Load()
	if lastOffset-base > math.MaxInt32 { // after a gap that no index can span
		h, err := record.ParseHeader(b)
		if err != nil {
			return nil, err
		}
		base = h.BaseOffset
	}
	return l.roll(base, now)
}

// mustRoll is Kafka's rule: full, spanning more than segment.ms by record time (or by the clock where records carry no
// time), index full, or an offset too far from the base for the index.
func (s *segment) mustRoll(size, lastOffset, maxTs int64, now time.Time, cfg *Config) bool {
	if lastOffset-s.base > math.MaxInt32 {
		return true
	}
	have := s.size.Load()
	if have == 0 {
		return false
	}
	if have+size > cfg.SegmentBytes {
		return true
	}
	s.meta.Lock()
	first := s.meta.firstTs
	s.meta.Unlock()
	if first >= 0 && maxTs >= 0 {
		if maxTs-first > cfg.SegmentAge.Milliseconds() {
			return true
		}
	} else if now.Sub(s.created) > cfg.SegmentAge {
		return true
	}
	off, tim := s.tail.Load().counts()
	return off >= cfg.SegmentIndexBytes/record.OffsetIndexEntrySize || tim >= cfg.SegmentIndexBytes/record.TimeIndexEntrySize-1
}

// Roll seals the active segment, so that it can be tiered or deleted, and starts a new one. An empty one stays.
func (l *Log) Roll() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	if s := l.active(); s == nil || s.size.Load() == 0 {
		return nil
	}
	_, err := l.roll(l.end.Load(), l.env.Clock())
	return err
}

// RollIfDue rolls a segment that is older than segment.ms by the clock, which record times alone never do to a quiet log,
// and forgets producers past their expiry.
func (l *Log) RollIfDue(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	cfg := l.cfg.Load()
	if cfg.ProducerExpiry > 0 {
		l.mu.producers.expire(now, cfg.ProducerExpiry)
	}
	if s := l.active(); s == nil || s.size.Load() == 0 || now.Sub(s.created) <= cfg.SegmentAge {
		return nil
	}
	_, err := l.roll(l.end.Load(), now)
	return err
}

// roll seals the active segment, if any, and appends an empty one at base. After an error the log is as before.
func (l *Log) roll(base int64, now time.Time) (*segment, error) {
	if err := l.makeFolder(); err != nil {
		return nil, err
	}
	old := l.active()
	if old != nil && old.base == base && old.size.Load() == 0 {
		return old, nil
	}
	if old != nil {
		if err := l.syncEntries(); err != nil {
			return nil, err
		}
		if err := l.finishTail(old); err != nil {
			return nil, err
		}
		if err := l.writeSnapshot(base); err != nil {
			return nil, err
		}
		if err := l.writeEpochs(); err != nil {
			return nil, err
		}
	}
	s, err := l.createSegment(base, now)
	if err != nil {
		return nil, err
	}
	if old != nil {
		old.seal()
	}
	segs := *l.segs.Load()
	list := append(segs[:len(segs):len(segs)], s)
	l.segs.Store(&list)
	return s, nil
}

// syncEntries makes the names of the segments so far durable before there is a newer one, so that a crash cannot leave
// the newer without the older. A group commit has usually done it before.
func (l *Log) syncEntries() error {
	if l.mu.dirSynced == l.mu.dirGen {
		return nil
	}
	if err := l.env.FS.SyncDir(l.dir); err != nil {
		return err
	}
	l.mu.dirSynced = l.mu.dirGen
	return nil
}

// finishTail completes the indexes of a segment that is about to be sealed.
func (l *Log) finishTail(s *segment) error {
	s.meta.Lock()
	maxTs, off := s.meta.maxTs, s.meta.maxTsOff
	s.meta.Unlock()
	t := s.tail.Load()
	if s.size.Load() > 0 {
		t.mu.Lock()
		t.time(maxTs, int32(off-s.base))
		t.mu.Unlock()
	}
	return s.flushTail()
}

// seal ends writing: the tail is in the files, blocks reserved past the end go back.
func (s *segment) seal() {
	if o := s.log.use(); o != nil {
		if s.reserved > s.size.Load() {
			_ = o.Truncate(s.size.Load()) // frees space only; the size is the same
		}
		_ = o.release()
	}
	s.sealed.Store(true)
	s.auxGen++
	s.tail.Store(nil)
}

// createSegment makes the files of an empty segment and its entry in memory.
func (l *Log) createSegment(base int64, now time.Time) (*segment, error) {
	s := newSegment(l, base, now)
	l.mu.dirGen++
	for _, suffix := range []string{suffixIndex, suffixTime, suffixLog} {
		f, err := l.env.FS.Create(s.name(suffix))
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			return nil, errors.Join(err, s.removeFiles())
		}
	}
	s.tail.Store(newIndexTail())
	s.meta.loaded = true
	s.auxGen++
	return s, nil
}

// makeFolder makes the partition's folder before its first file.
func (l *Log) makeFolder() error {
	if l.exists.Load() {
		return nil
	}
	if err := l.env.FS.MkdirAll(l.dir); err != nil {
		return err
	}
	if err := l.writeMetadata(); err != nil {
		return err
	}
	l.exists.Store(true)
	l.mu.parentDirty = true
	l.mu.dirGen++
	return nil
}

func (l *Log) writeMetadata() error {
	if l.topicID.IsZero() {
		return nil
	}
	text := fmt.Sprintf("version: 0\ntopic_id: %s\n", l.topicID)
	return vfs.ReplaceFile(l.env.FS, l.dir+"/"+metadataFile, []byte(text), false)
}

// readMetadata returns the topic id of a partition folder; zero where it has none.
func readMetadata(fsys vfs.FS, dir string) (kafka.UUID, error) {
	b, err := vfs.ReadFile(fsys, dir+"/"+metadataFile)
	if vfs.IsNotExist(err) {
		return kafka.UUID{}, nil
	}
	if err != nil {
		return kafka.UUID{}, err
	}
	var version int
	var text string
	if _, err := fmt.Sscanf(string(b), "version: %d\ntopic_id: %s\n", &version, &text); err != nil || version != 0 {
		return kafka.UUID{}, &CorruptError{File: dir + "/" + metadataFile, Reason: errors.Join(record.ErrCorrupt, err)}
	}
	id, err := kafka.ParseUUID(text)
	if err != nil {
		return kafka.UUID{}, &CorruptError{File: dir + "/" + metadataFile, Reason: errors.Join(record.ErrCorrupt, err)}
	}
	return id, nil
}

// writeEpochs brings the epoch file up to date. It is made durable with the next checkpoint: until then recovery finds
// newer epochs in the batches themselves.
func (l *Log) writeEpochs() error {
	if !l.mu.epochs.dirty || !l.exists.Load() {
		return nil
	}
	b := record.AppendEpochCheckpoint(nil, l.mu.epochs.entries)
	if err := vfs.ReplaceFile(l.env.FS, l.dir+"/"+epochFile, b, true); err != nil {
		return err
	}
	l.mu.epochs.dirty = false
	l.mu.dirGen++
	return nil
}

// writeSnapshot writes the producer state at offset, the end of the log. Snapshots stand at the base of every segment
// and, after a clean stop, at the end; others are removed.
func (l *Log) writeSnapshot(offset int64) error {
	t := &l.mu.producers
	if t.snapshotAt == offset {
		return nil
	}
	if err := vfs.ReplaceFile(l.env.FS, fileName(l.dir, offset, suffixSnapshot), t.snapshot(), false); err != nil {
		return err
	}
	if old := t.snapshotAt; old >= 0 && !l.isBase(old) {
		if err := l.env.FS.Remove(fileName(l.dir, old, suffixSnapshot)); err != nil && !vfs.IsNotExist(err) {
			return err
		}
	}
	t.snapshotAt = offset
	if s := l.active(); s != nil {
		s.auxGen++
	}
	l.mu.dirGen++
	return nil
}

func (l *Log) isBase(offset int64) bool {
	segs := *l.segs.Load()
	i := find(segs, offset)
	return i >= 0 && segs[i].base == offset
}
