package commitlog

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/varvehq/varve/internal/vfs"
)

// syncJob is one log's part of a group commit: what has to be synced so that everything below end is durable.
type syncJob struct {
	l         *Log
	files     []syncFile
	auxOf     []syncAuxOf
	aux       []string // files to open and sync, for a checkpoint
	dirs      []string // folders to sync
	parent    bool     // dirs has the data directory, for a new folder
	end       int64
	dirGen    int
	truncates int
	recovery  bool // end becomes the recovery point
}

type syncFile struct {
	s    *segment
	open *openFile
	size int64
}

// syncAuxOf is a segment whose indexes and snapshot a job syncs, as they were at gen.
type syncAuxOf struct {
	s   *segment
	gen int
}

// addAux adds what belongs to the segment besides its data, where that changed. The caller holds the log's lock.
func (j *syncJob) addAux(s *segment) {
	if s.auxGen == s.auxSynced {
		return
	}
	j.auxOf = append(j.auxOf, syncAuxOf{s, s.auxGen})
	j.aux = append(j.aux, s.name(suffixIndex), s.name(suffixTime), fileName(s.l.dir, s.next.Load(), suffixSnapshot))
	if s.hasTxn.Load() {
		j.aux = append(j.aux, s.name(suffixTxn))
	}
}

// Flush asks the group commit to make everything below offset durable, and returns at once: true where FlushedOffset has
// already reached it. Otherwise OnFlushed, or OnFailed, follows; with FlushOS OnFlushed follows in either case.
func (l *Log) Flush(offset int64) bool {
	done := l.flushed.Load() >= offset
	if done && l.cfg.Load().FlushPolicy == FlushSync || l.env.Syncer == nil {
		return done
	}
	l.mu.Lock()
	l.mu.want = max(l.mu.want, min(offset, l.end.Load()))
	enqueue := !l.mu.queued && l.Failed() == nil
	if enqueue {
		l.mu.queued = true
	}
	l.mu.Unlock()
	if enqueue {
		l.env.Syncer.enqueue(l)
	}
	return done
}

// beginSync collects what is not durable yet. Two jobs of one log may be under way: both then sync the same files. The
// caller ends the job by endSync.
func (l *Log) beginSync() (syncJob, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.queued = false
	return l.jobLocked()
}

func (l *Log) jobLocked() (syncJob, error) {
	job := syncJob{l: l, end: l.end.Load(), dirGen: l.mu.dirGen, truncates: l.mu.truncates}
	if err := l.Failed(); err != nil {
		return job, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	segs := *l.segs.Load()
	for i := len(segs) - 1; i >= 0; i-- {
		s := segs[i]
		size := s.size.Load()
		if size > 0 && s.next.Load() <= l.mu.durable {
			break // and all before it
		}
		if s.synced >= size {
			continue
		}
		f := s.pin
		if f == nil {
			var err error
			if f, err = s.openLog(); err != nil {
				return job, errors.Join(err, job.releaseFiles())
			}
		} else {
			f.refs.Add(1)
		}
		job.files = append(job.files, syncFile{s, f, size})
	}
	if l.mu.dirSynced < l.mu.dirGen && l.exists.Load() {
		job.dirs = append(job.dirs, l.dir)
	}
	if l.mu.parentDirty {
		job.parent = true
		job.dirs = append(job.dirs, path.Dir(l.dir))
		if !l.topicID.IsZero() {
			job.aux = append(job.aux, l.dir+"/"+metadataFile)
		}
	}
	return job, nil
}

func (j *syncJob) releaseFiles() error {
	var errs []error
	for _, f := range j.files {
		errs = append(errs, f.open.release())
	}
	return errors.Join(errs...)
}

// checkpointJob prepares a job after which end is a recovery point: indexes, epochs and snapshots are written out and
// part of it. ok is false where nothing changed since the last one.
func (l *Log) checkpointJob() (job syncJob, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.exists.Load() || l.mu.closed || l.Failed() != nil || l.recovery.Load() == l.end.Load() && !l.mu.epochs.dirty && !l.auxDirty() {
		return job, false, nil
	}
	if s := l.active(); s != nil {
		if err := s.flushTail(); err != nil {
			return job, false, err
		}
	}
	if err := l.writeEpochs(); err != nil {
		return job, false, err
	}
	if job, err = l.jobLocked(); err != nil {
		return job, false, err
	}
	job.recovery = true
	for _, s := range *l.segs.Load() {
		job.addAux(s)
	}
	return job, true, nil
}

// auxDirty reports whether a segment has indexes or a snapshot that no checkpoint has made durable. The caller holds mu.
func (l *Log) auxDirty() bool {
	return slices.ContainsFunc(*l.segs.Load(), func(s *segment) bool { return s.auxGen != s.auxSynced })
}

// syncAux syncs the files that are opened for it alone. One that is gone was deleted meanwhile.
func syncAux(fsys vfs.FS, name string) error {
	f, err := fsys.Open(name)
	if vfs.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// endSync takes the outcome of a job: it moves the durable offset and tells OnFlushed, or latches the log. This is the
// only place where FlushedOffset moves with FlushSync, and it comes after the sync.
func (l *Log) endSync(job *syncJob, err error) {
	if err != nil {
		l.latch(errors.Join(err, job.releaseFiles()))
		return
	}
	l.mu.Lock()
	moved, flushed := l.finishJob(job)
	again := l.mu.want > l.flushed.Load() && !l.mu.queued && l.mu.durable < l.end.Load()
	if again {
		l.mu.queued = true
	}
	l.mu.Unlock()
	if err := job.releaseFiles(); err != nil {
		l.env.Log.Warn("close after sync", "dir", l.dir, "error", err)
	}
	if again {
		l.env.Syncer.enqueue(l)
	}
	if moved && l.env.OnFlushed != nil {
		l.env.OnFlushed(flushed)
	}
}

// finishJob marks what a successful job has made durable. The caller holds mu.
func (l *Log) finishJob(job *syncJob) (moved bool, flushed int64) {
	l.mu.dirSynced = max(l.mu.dirSynced, job.dirGen)
	if job.parent {
		l.mu.parentDirty = false
	}
	if job.truncates != l.mu.truncates {
		return false, 0 // the job's offsets are of a log that is no more
	}
	for _, f := range job.files {
		f.s.synced = max(f.s.synced, f.size)
		if f.s.pin != nil && f.s.synced >= f.s.size.Load() {
			_ = f.s.dropPin() // synced; the job still holds it
		}
	}
	if job.end > l.mu.durable {
		l.mu.durable = job.end
	}
	for _, a := range job.auxOf {
		a.s.auxSynced = max(a.s.auxSynced, a.gen)
	}
	if job.recovery {
		l.recovery.Store(max(l.recovery.Load(), job.end))
	}
	if job.end > l.flushed.Load() {
		l.flushed.Store(job.end)
		moved = true
	}
	return moved || l.cfg.Load().FlushPolicy == FlushOS, l.flushed.Load()
}
