package partition

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/varvehq/varve/broker/commitlog"
	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/internal/kafka"
)

// activeSet are the partitions that the sweep looks at: those that had appends and may have something to seal or upload.
type activeSet struct {
	mu    sync.Mutex
	parts []*Partition
}

// touch puts a partition into the active set.
func (m *Manager) touch(p *Partition) {
	if p.tier.dirtySince.Load() == 0 {
		p.tier.dirtySince.CompareAndSwap(0, m.env.Clock().UnixMilli())
	}
	if p.active.Load() || !p.active.CompareAndSwap(false, true) {
		return
	}
	m.active.mu.Lock()
	m.active.parts = append(m.active.parts, p)
	m.active.mu.Unlock()
}

// Start begins the background work: a sweep, workers for the remote tier, the scrub.
func (m *Manager) Start() {
	m.goLoop(m.cfg.SweepInterval, m.Sweep)
	m.goLoop(m.cfg.RetentionInterval, m.Retain)
	m.goLoop(m.cfg.CheckpointInterval, m.Checkpoint)
	for range m.cfg.CompactWorkers {
		m.goLoop(m.cfg.CompactInterval, m.Compact)
	}
	if m.env.Remote != nil {
		for range m.cfg.TierWorkers {
			m.wg.Go(m.tierWorker)
		}
		m.wg.Go(m.bucketWorker)
	}
	if m.cfg.ScrubInterval > 0 {
		m.goLoop(m.cfg.ScrubInterval, m.Scrub)
	}
}

func (m *Manager) goLoop(every time.Duration, f func()) {
	m.wg.Go(func() {
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				f()
			case <-m.ctx.Done():
				return
			}
		}
	})
}

// Sweep seals the segments that are due, and queues what can be uploaded. Partitions with nothing left to seal leave the
// active set.
func (m *Manager) Sweep() {
	m.active.mu.Lock()
	parts := m.active.parts
	m.active.parts = nil
	m.active.mu.Unlock()
	now := m.env.Clock()
	kept := parts[:0]
	for _, p := range parts {
		if p.Err() != nil {
			continue
		}
		if err := p.sweep(now); err != nil {
			m.workFailed("seal", p, err)
		}
		if m.idle(p) {
			p.active.Store(false)
			if m.idle(p) || !p.active.CompareAndSwap(false, true) {
				continue
			}
		}
		kept = append(kept, p)
	}
	m.active.mu.Lock()
	m.active.parts = append(m.active.parts, kept...)
	m.active.mu.Unlock()
}

// sweep does the work of one partition.
func (p *Partition) sweep(now time.Time) error {
	l := p.log.Load()
	if l == nil {
		return nil
	}
	err := errors.Join(l.RollIfDue(now), p.rollQuiet(l, now))
	if p.tiered() && p.pendingUpload(l) && now.UnixMilli() >= p.tier.retry.Load() {
		p.m.queueTier(p)
	}
	return err
}

// pendingUpload reports whether a sealed segment is not yet in the bucket, as far as is known.
func (p *Partition) pendingUpload(l *commitlog.Log) bool {
	end := p.tier.end.Load()
	segments, err := l.SegmentsFrom(max(end, l.LocalStartOffset()))
	if err != nil {
		return true
	}
	return slices.ContainsFunc(segments, func(s commitlog.SegmentInfo) bool { return s.Sealed && s.NextOffset > end })
}

// idle reports whether the sweep has nothing more to find in a partition until the next append.
func (m *Manager) idle(p *Partition) bool {
	l := p.log.Load()
	if l == nil {
		return true
	}
	segments, err := l.SegmentsFrom(l.EndOffset())
	if err != nil || len(segments) > 0 && !segments[len(segments)-1].Sealed && segments[len(segments)-1].Bytes > 0 {
		return false // the active segment has records that get older
	}
	return !p.tiered() || !p.pendingUpload(l)
}

// Retain applies retention to all partitions: to those without remote tier here, to the others by the workers.
func (m *Manager) Retain() {
	for p := range m.all {
		l := p.log.Load()
		if l == nil || p.Err() != nil || m.ctx.Err() != nil {
			continue
		}
		if p.tiered() {
			m.queueTier(p)
			continue
		}
		if err := p.retainLocal(l); err != nil {
			m.workFailed("retention", p, err)
		}
	}
}

// Checkpoint writes high watermarks, recovery points and log starts.
func (m *Manager) Checkpoint() {
	if err := m.env.Dir.Checkpoint(m.HighWatermarks()); err != nil {
		m.metrics.workErrors.Inc()
		m.env.Log.Error("checkpoint failed", "err", err)
	}
}

// Scrub reads and checks every local byte, slowly.
func (m *Manager) Scrub() {
	for p := range m.all {
		l := p.log.Load()
		if l == nil || p.Err() != nil {
			continue
		}
		if err := l.Scrub(m.ctx); err != nil && m.ctx.Err() == nil && p.Err() == nil {
			m.metrics.scrubErrors.Inc()
			m.env.Log.Error("scrub found damage", "partition", p.name(), "err", err)
		}
		if m.ctx.Err() != nil {
			return
		}
	}
}

// scrubPace keeps the scrub slow.
func (m *Manager) scrubPace(n int) error {
	m.metrics.scrubBytes.Add(float64(n))
	if m.cfg.ScrubRate <= 0 {
		return m.ctx.Err()
	}
	m.pause(time.Duration(float64(n) / float64(m.cfg.ScrubRate) * float64(time.Second)))
	return m.ctx.Err()
}

// pause waits, but not for a manager that closes.
func (m *Manager) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-m.ctx.Done():
	}
}

func (m *Manager) workFailed(what string, p *Partition, err error) {
	if p.Err() != nil || m.ctx.Err() != nil {
		return // closed or deleted meanwhile
	}
	m.metrics.workErrors.Inc()
	m.env.Log.Warn("background work failed", "work", what, "partition", p.name(), "err", err)
}

// queueTier hands a partition to the workers of the remote tier, once.
func (m *Manager) queueTier(p *Partition) {
	if p.tier.queued.CompareAndSwap(false, true) {
		m.tierQueue.put(p)
	}
}

func (m *Manager) tierWorker() {
	for {
		p, ok := m.tierQueue.take()
		if !ok {
			return
		}
		p.tier.queued.Store(false)
		err := p.WorkTier(m.ctx)
		changed := p.noteTier(err)
		switch {
		case err == nil && changed:
			m.env.Log.Info("remote tier works again", "partition", p.name())
		case err != nil && changed:
			m.workFailed("remote tier", p, err)
			m.touch(p)
		case err != nil: // said once; the metric counts on
			m.metrics.workErrors.Inc()
			m.touch(p)
		}
	}
}

// queue is an unbounded queue of partitions; each is in it once at most, so it is bounded by their number.
type queue struct {
	mu     sync.Mutex
	cond   sync.Cond
	parts  []*Partition
	closed bool
}

func newQueue() *queue {
	q := &queue{}
	q.cond.L = &q.mu
	return q
}

func (q *queue) put(p *Partition) {
	q.mu.Lock()
	q.parts = append(q.parts, p)
	q.mu.Unlock()
	q.cond.Signal()
}

func (q *queue) take() (*Partition, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.parts) == 0 && !q.closed {
		q.cond.Wait()
	}
	return q.pop()
}

func (q *queue) pop() (*Partition, bool) {
	if len(q.parts) == 0 || q.closed {
		return nil, false
	}
	p := q.parts[0]
	q.parts = q.parts[1:]
	return p, true
}

func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.cond.Broadcast()
}

// bucketDeletes are the deleted topics whose objects are to be removed.
type bucketDeletes struct {
	mu      sync.Mutex
	pending map[kafka.UUID]controller.PendingDelete
	kick    chan struct{}
}

func newBucketDeletes() *bucketDeletes { return &bucketDeletes{kick: make(chan struct{}, 1)} }

func (b *bucketDeletes) set(pending map[kafka.UUID]controller.PendingDelete) {
	b.mu.Lock()
	b.pending = pending
	b.mu.Unlock()
	if len(pending) > 0 {
		select {
		case b.kick <- struct{}{}:
		default:
		}
	}
}

func (b *bucketDeletes) list() map[kafka.UUID]controller.PendingDelete {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.pending)
}

// bucketWorker removes the objects of deleted topics: at once when there are new ones, and from time to time what failed.
func (m *Manager) bucketWorker() {
	t := time.NewTicker(m.cfg.RetentionInterval)
	defer t.Stop()
	for {
		select {
		case <-m.bucket.kick:
		case <-t.C:
		case <-m.ctx.Done():
			return
		}
		m.DeleteBuckets(m.ctx)
	}
}

// DeleteBuckets removes the objects of the deleted topics that the newest image names.
func (m *Manager) DeleteBuckets(ctx context.Context) {
	if m.env.DeleteRemote == nil {
		return
	}
	for id, d := range m.bucket.list() {
		if ctx.Err() != nil {
			return
		}
		m.awaitUploads(id)
		if err := m.env.DeleteRemote(ctx, d.Name, id); err != nil {
			m.metrics.workErrors.Inc()
			m.env.Log.Warn("objects of a deleted topic not removed", "topic", d.Name, "topic_id", id, "err", err)
			continue
		}
		if m.env.RemoteDeleted == nil {
			continue
		}
		if err := m.env.RemoteDeleted(ctx, id); err != nil && ctx.Err() == nil {
			m.env.Log.Warn("deletion of a topic's objects not recorded", "topic", d.Name, "topic_id", id, "err", err)
		}
	}
}

// awaitUploads returns when no partition of a deleted topic works on the bucket any more.
func (m *Manager) awaitUploads(id kafka.UUID) {
	m.mu.Lock()
	parts := m.mu.dying[id]
	delete(m.mu.dying, id)
	m.mu.Unlock()
	for _, p := range parts {
		p.tier.work.Lock()   // held for the whole of one run, which sees that the partition has failed and begins nothing new
		p.tier.work.Unlock() //nolint:staticcheck // only the waiting counts
	}
}
