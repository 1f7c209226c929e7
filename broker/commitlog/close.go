package commitlog

import "errors"

// Close makes everything durable, with the producer state at the end, and lets go of the files. What is read or flushed
// later fails or is answered with ErrClosed.
func (l *Log) Close() error {
	job, err := l.prepareClose()
	if err == nil {
		err = l.syncJobAlone(&job)
	}
	return errors.Join(err, l.finishClose(&job, err))
}

// prepareClose writes out all that memory holds and refuses further writes. The job is what must be synced.
func (l *Log) prepareClose() (job syncJob, err error) {
	l.stopCompaction()
	l.mu.Lock()
	defer l.mu.Unlock()
	job.l = l
	if l.mu.closed {
		return job, nil
	}
	l.mu.closed = true
	if l.Failed() != nil || !l.exists.Load() {
		return job, l.Failed()
	}
	if s := l.active(); s != nil {
		if err := s.flushTail(); err != nil {
			return job, err
		}
		if err := l.writeSnapshot(l.end.Load()); err != nil {
			return job, err
		}
	}
	if err := l.writeEpochs(); err != nil {
		return job, err
	}
	if job, err = l.jobLocked(); err != nil {
		return job, err
	}
	job.recovery = true
	for _, s := range *l.segs.Load() {
		job.addAux(s)
	}
	return job, nil
}

// syncJobAlone syncs a job outside of a group commit.
func (l *Log) syncJobAlone(job *syncJob) error {
	for _, f := range job.files {
		if err := f.open.Sync(); err != nil {
			return err
		}
	}
	for _, name := range job.aux {
		if err := syncAux(l.env.FS, name); err != nil {
			return err
		}
	}
	for _, dir := range job.dirs {
		if err := l.env.FS.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// finishClose takes the outcome of the sync and closes the files.
func (l *Log) finishClose(job *syncJob, err error) error {
	moved, flushed := false, int64(0)
	l.mu.Lock()
	if err == nil && job.recovery {
		moved, flushed = l.finishJob(job)
	}
	errs := []error{job.releaseFiles()}
	for _, s := range *l.segs.Load() {
		errs = append(errs, s.dropPin())
	}
	l.mu.Unlock()
	if moved && l.env.OnFlushed != nil {
		l.env.OnFlushed(flushed)
	}
	return errors.Join(append(errs, l.closeFiles())...)
}

// discard closes the files of a log that is going to be removed, without keeping anything.
func (l *Log) discard() error {
	l.stopCompaction()
	l.mu.Lock()
	l.mu.closed = true
	gone := ErrClosed
	l.failed.CompareAndSwap(nil, &gone)
	var errs []error
	for _, s := range *l.segs.Load() {
		errs = append(errs, s.dropPin())
	}
	l.mu.Unlock()
	return errors.Join(append(errs, l.closeFiles())...)
}

// mayBeRead reports whether a reader may hold the segment that begins at an offset.
func (l *Log) mayBeRead(base int64) bool {
	for _, s := range *l.segs.Load() {
		if s.base == base {
			return s.refs.Load() > 1 // the log's own is one
		}
	}
	return true // detached, and not renamed yet
}

// onDisk reports whether the log has a folder, and so a place in the recovery checkpoint.
func (l *Log) onDisk() bool { return l.exists.Load() }
