package commitlog

import (
	"errors"
	"fmt"
	"time"

	"github.com/varvehq/varve/internal/vfs"
)

// DeletableLocal tells what retention allows, from oldest to newest and never at or above the high watermark. It deletes
// nothing. Total retention (retention.ms, retention.bytes) and the log start apply to every log; local retention
// (local.retention.*) to a tiered one, and then only to segments that the committed manifest holds. A bucket that cannot
// be reached does not keep the local log from total retention, so the disk stays bounded. The active segment counts once
// all before it may go; DeleteSegmentsBefore seals it then.
func (l *Log) DeletableLocal(r Retention) (Deletable, error) {
	cfg := l.cfg.Load()
	segs := *l.segs.Load()
	out := Deletable{Local: l.localStart.Load(), Start: l.start.Load()}
	local := l.Size() // what only the bucket holds is older and goes before any of it
	for _, s := range segs {
		end, size := s.next.Load(), s.size.Load()
		if end > r.HighWatermark || size == 0 && !s.sealed.Load() {
			break
		}
		if !s.retain() { // deleted or replaced since the list was loaded
			return l.DeletableLocal(r)
		}
		age, err := s.age(r.Now)
		if err = errors.Join(err, s.release()); err != nil {
			return out, err
		}
		expired := end <= l.start.Load() || cfg.Delete && (over(age, cfg.RetentionAge) || cfg.RetentionBytes >= 0 && local-size >= cfg.RetentionBytes)
		localOnly := !expired && cfg.Tiered && end <= r.TieredEnd && s.sealed.Load() && cfg.localExpired(age, local-size)
		if !expired && !localOnly {
			break
		}
		out.Local = max(out.Local, end)
		if expired {
			out.Start = max(out.Start, end)
		}
		local -= size
	}
	if !cfg.Tiered {
		out.Start = max(out.Start, out.Local)
	}
	return out, nil
}

func over(age, limit time.Duration) bool { return limit >= 0 && age > limit }

// localExpired applies local.retention.*, which follows retention.* where it is FollowTotal. left are the local bytes
// that would remain.
func (c *Config) localExpired(age time.Duration, left int64) bool {
	maxAge, maxBytes := c.LocalRetentionAge, c.LocalRetentionBytes
	if maxAge == FollowTotal {
		maxAge = c.RetentionAge
	}
	if maxBytes == FollowTotal {
		maxBytes = c.RetentionBytes
	}
	return over(age, maxAge) || maxBytes >= 0 && left >= maxBytes
}

// age is the time since a segment's largest timestamp, or since its last write where records have none.
func (s *segment) age(now time.Time) (time.Duration, error) {
	_, maxTs, _, err := s.times()
	if err != nil {
		return 0, err
	}
	if maxTs < 0 {
		maxTs = s.modTime.Load()
	}
	return time.Duration(now.UnixMilli()-maxTs) * time.Millisecond, nil
}

// DeleteSegmentsBefore removes the local segments that end at or below offset and returns their number. LocalStartOffset
// moves before the first file goes, and StartOffset too unless the log is tiered. Where that is all of the log, the active
// segment is sealed first, so that a log always has one.
func (l *Log) DeleteSegmentsBefore(offset int64) (n int, err error) {
	l.deleteMu.Lock()
	defer l.deleteMu.Unlock()
	if err := l.recoverableFrom(offset); err != nil {
		return 0, err
	}
	gone, err := l.detach(offset)
	l.undeleted = append(l.undeleted, gone...)
	if start := l.start.Load(); err == nil && !l.cfg.Load().Tiered && l.savedStart.Load() < start {
		err = l.saveStart(start) // durable before any file goes
	}
	if err != nil {
		return 0, err
	}
	for len(l.undeleted) > 0 { // oldest first, each durable before the next: a crash leaves no hole
		s := l.undeleted[0]
		if err := s.markDeleted(); err != nil {
			return n, err
		}
		l.undeleted = l.undeleted[1:]
		if err := l.dropSnapshot(s.base); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// recoverableFrom makes sure that a recovery does not need the segments below offset that are about to go: producers, open
// transactions and leader epochs that began in them are on disk for what stays, and the recovery point says so. Where all of the
// log goes, the active segment is sealed.
func (l *Log) recoverableFrom(offset int64) error {
	job, ok, err := l.retreatJob(offset)
	if err != nil || !ok {
		return err
	}
	return l.moveRecovery(job)
}

// moveRecovery does a checkpoint's job, and writes the recovery point that is its outcome.
func (l *Log) moveRecovery(job syncJob) error {
	l.env.Syncer.commit([]syncJob{job})
	if err := l.Failed(); err != nil {
		return fmt.Errorf("%w: %w", ErrFailed, err)
	}
	if l.env.SaveRecoveryPoint == nil {
		return nil
	}
	return l.env.SaveRecoveryPoint(l.recovery.Load())
}

// retreatJob is the checkpoint that the deletion of the segments below offset needs; not ok: it needs none.
func (l *Log) retreatJob(offset int64) (job syncJob, ok bool, err error) {
	if l.env.Syncer == nil {
		return job, false, nil
	}
	l.mu.Lock()
	n, err := l.goingBelow(offset)
	segs := *l.segs.Load()
	ready := n == 0 || n < len(segs) && l.recovery.Load() >= segs[n].base && segs[n-1].auxGen == segs[n-1].auxSynced && !l.mu.epochs.dirty
	l.mu.Unlock()
	if err != nil || ready {
		return job, false, err
	}
	return l.checkpointJob()
}

// goingBelow tells how many segments end at or below offset. Where that is all of the log, it seals the active one first, so that
// a log always has one. The caller holds mu.
func (l *Log) goingBelow(offset int64) (n int, err error) {
	if err := l.writable(); err != nil {
		return 0, err
	}
	segs := *l.segs.Load()
	for n < len(segs) && segs[n].next.Load() <= offset && (segs[n].sealed.Load() || segs[n].size.Load() > 0) {
		n++
	}
	if n > 0 && n == len(segs) {
		_, err = l.roll(l.end.Load(), l.env.Clock())
	}
	return n, err
}

// detach takes the segments out of the list and moves the starts.
func (l *Log) detach(offset int64) ([]*segment, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.goingBelow(offset)
	if n == 0 || err != nil {
		return nil, err // what is left from before is still removed
	}
	segs := *l.segs.Load()
	start := segs[n].base
	l.localStart.Store(max(l.localStart.Load(), start))
	if !l.cfg.Load().Tiered && start > l.start.Load() {
		l.start.Store(start)
		l.mu.epochs.truncateStart(start)
	}
	rest := append([]*segment(nil), segs[n:]...)
	l.segs.Store(&rest)
	l.cursors.clear()
	var errs []error
	for _, s := range segs[:n] {
		errs = append(errs, s.dropPin())
	}
	return segs[:n], errors.Join(errs...)
}

func (l *Log) dropSnapshot(base int64) error {
	if err := l.env.FS.Remove(fileName(l.dir, base, suffixSnapshot)); err != nil && !vfs.IsNotExist(err) {
		return err
	}
	return nil
}
