package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvehq/varve/broker/commitlog"
	"github.com/varvehq/varve/tiering"
)

// tierState is what a partition holds of its remote tier. The zero value has touched nothing.
type tierState struct {
	known  int64 // the last manifest that the metadata named when the partition was made
	mu     sync.Mutex
	remote Remote
	loaded bool  // a reader may use remote
	epoch  int32 // of the writer, +1; 0: not open as writer

	work   sync.Mutex // one piece of background work at a time
	queued atomic.Bool
	// problem is the error of the last run, nil where it ended well.
	problem atomic.Pointer[error]
	// retry is the time before which nothing is tried again, in milliseconds of the clock, after a failure.
	retry   atomic.Int64
	backoff time.Duration // guarded by work
	// dirtySince is when the first record of the active segment came, in milliseconds of the clock; 0: it is empty.
	dirtySince atomic.Int64
	// collected is when orphans were last looked for; only the partition's one worker touches it.
	collected time.Time
	// end mirrors the remote end once it is known; -1 before.
	end atomic.Int64
}

// loadRemote returns the remote tier, ready to be read.
func (p *Partition) loadRemote(ctx context.Context) (Remote, error) {
	if p.m.env.Remote == nil {
		return nil, ErrRemoteUnavailable
	}
	t := &p.tier
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.remote == nil {
		t.remote = p.m.env.Remote(p.id, t.known)
	}
	if !t.loaded && t.epoch == 0 {
		if err := t.remote.Load(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrRemoteUnavailable, err)
		}
		t.loaded = true
		t.end.Store(t.remote.EndOffset())
	}
	return t.remote, nil
}

// writeRemote returns the remote tier, open for writing in the partition's leader epoch.
func (p *Partition) writeRemote(ctx context.Context, l *commitlog.Log, epoch int32) (Remote, error) {
	t := &p.tier
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.remote == nil {
		t.remote = p.m.env.Remote(p.id, t.known)
	}
	if t.epoch != epoch+1 {
		if err := t.remote.Open(ctx, epoch, l.EpochEntries()); err != nil {
			return nil, err
		}
		t.epoch = epoch + 1
		t.end.Store(t.remote.EndOffset())
	}
	return t.remote, nil
}

// reopen makes the next work open the remote tier anew.
func (p *Partition) reopenTier() {
	p.tier.mu.Lock()
	p.tier.epoch = 0
	p.tier.loaded = false
	p.tier.mu.Unlock()
}

// WorkTier uploads what is sealed, expires what is old and deletes locally what is uploaded. Workers call it; a second call
// waits for the first.
func (p *Partition) WorkTier(ctx context.Context) error {
	t := &p.tier
	t.work.Lock()
	defer t.work.Unlock()
	l := p.log.Load()
	epoch, err := p.leads()
	if err != nil || l == nil || p.m.env.Remote == nil {
		return nil
	}
	err = p.tierWork(ctx, l, epoch)
	if err == nil {
		t.backoff = 0
		t.retry.Store(0)
		return nil
	}
	if ctx.Err() != nil || p.Err() != nil {
		return nil // stopping
	}
	if errors.Is(err, tiering.ErrFenced) {
		p.reopenTier()
	}
	t.backoff = min(max(2*t.backoff, p.m.cfg.RetryBackoff), p.m.cfg.RetryBackoffMax)
	t.retry.Store(p.now().Add(t.backoff).UnixMilli())
	return fmt.Errorf("%s: %w", p, err)
}

func (p *Partition) tierWork(ctx context.Context, l *commitlog.Log, epoch int32) error {
	cfg := p.cfg.Load()
	if !cfg.Tiered && p.tier.known == 0 {
		return nil
	}
	remote, err := p.writeRemote(ctx, l, epoch)
	if err != nil {
		return err
	}
	if end := remote.EndOffset(); end > 0 && end < l.StartOffset() {
		// What lies between was deleted before it was copied: the next copy may begin behind it.
		if err := remote.AdvanceStart(ctx, l.StartOffset()); err != nil {
			return err
		}
	}
	if cfg.Tiered && cfg.RemoteCopy {
		if err := p.upload(ctx, l, remote, epoch); err != nil {
			return err
		}
	}
	return p.retainTiered(ctx, l, remote)
}

// upload copies the sealed segments that everybody may already read, oldest first.
func (p *Partition) upload(ctx context.Context, l *commitlog.Log, remote Remote, epoch int32) error {
	segments, err := l.SegmentsFrom(max(remote.EndOffset(), l.LocalStartOffset()))
	if err != nil {
		return err
	}
	hw := p.hw.Load()
	stable := min(l.FlushedOffset(), hw, l.LastStableOffset(hw))
	copied := false
	for i := range segments {
		if err := p.Err(); err != nil {
			return err
		}
		s := &segments[i]
		if s.NextOffset <= remote.EndOffset() {
			continue
		}
		if !s.Sealed || s.NextOffset > stable || !p.eligible(segments[i:]) {
			break
		}
		if err := p.copySegment(ctx, l, remote, s, epoch); err != nil {
			return err
		}
		copied = true
	}
	if copied && p.m.env.SetManifest != nil {
		// Only a hint, for finding the newest manifest sooner after a restart.
		return p.m.env.SetManifest(ctx, p.id, remote.Manifest())
	}
	return nil
}

// eligible reports whether the first of the segments need not stay local any longer (remote.copy.lag.*).
func (p *Partition) eligible(segments []commitlog.SegmentInfo) bool {
	newer := int64(0)
	for i := range segments[1:] {
		newer += segments[1+i].Bytes
	}
	newest := segments[0].ModTime
	if ts := segments[0].MaxTimestamp; ts >= 0 {
		newest = time.UnixMilli(ts)
	}
	return p.cfg.Load().CopyEligible(p.now().Sub(newest), newer)
}

func (p *Partition) copySegment(ctx context.Context, l *commitlog.Log, remote Remote, s *commitlog.SegmentInfo, epoch int32) error {
	f, err := l.OpenSegment(s.BaseOffset)
	if err != nil {
		return err
	}
	start := p.now()
	err = remote.Copy(ctx, tiering.Segment{BaseOffset: s.BaseOffset, LastOffset: s.NextOffset - 1, LeaderEpoch: epoch,
		Log: f.Log, LogBytes: f.LogBytes, OffsetIndex: f.OffsetIndex, TimeIndex: f.TimeIndex, TxnIndex: f.TxnIndex,
		ProducerSnapshot: f.ProducerSnapshot, Epochs: f.Epochs, Records: s.Records, FirstTimestamp: s.FirstTimestamp,
		MaxTimestamp: s.MaxTimestamp})
	err = errors.Join(err, f.Close())
	if err != nil {
		p.m.metrics.uploadErrors.Inc()
		return fmt.Errorf("copy segment %d: %w", s.BaseOffset, err)
	}
	p.tier.end.Store(remote.EndOffset())
	p.m.metrics.uploads.Inc()
	p.m.metrics.uploadBytes.Add(float64(f.LogBytes))
	p.m.metrics.uploadSeconds.Observe(p.now().Sub(start).Seconds())
	return nil
}

// retainTiered moves the log start where total retention asks for it, and deletes local segments that the committed manifest
// holds.
func (p *Partition) retainTiered(ctx context.Context, l *commitlog.Log, remote Remote) error {
	cfg := p.cfg.Load()
	now := p.now()
	// Bytes that only the bucket holds are older than all local ones and go first, by Expire: they do not count here.
	d, err := l.DeletableLocal(commitlog.Retention{Now: now, HighWatermark: p.hw.Load(), TieredEnd: remote.EndOffset()})
	if err != nil {
		return err
	}
	start := max(d.Start, l.StartOffset())
	if cfg.Delete && remote.EndOffset() > 0 {
		ms := int64(commitlog.Unlimited)
		if cfg.RetentionAge >= 0 {
			ms = cfg.RetentionAge.Milliseconds()
		}
		expired, err := remote.Expire(ctx, now, ms, cfg.RetentionBytes, localOnly(l, remote))
		if err != nil {
			return err
		}
		start = max(start, expired)
	}
	start = min(start, p.hw.Load())
	if start > l.StartOffset() {
		if err := l.AdvanceStart(start); err != nil { // durable before any byte goes
			return err
		}
	}
	if remote.EndOffset() > 0 {
		if err := remote.AdvanceStart(ctx, l.StartOffset()); err != nil {
			return err
		}
	}
	if _, err := l.DeleteSegmentsBefore(d.Local); err != nil {
		return err
	}
	if remote.EndOffset() > 0 {
		if err := remote.Clean(ctx); err != nil {
			return err
		}
		return p.collectOrphans(ctx, remote)
	}
	return nil
}

// orphanInterval is how often a partition looks for objects of uploads that never became part of it. It is no matter of
// correctness: they only cost money. Looking costs a LIST.
const orphanInterval = 24 * time.Hour

// collectOrphans deletes them; the first time an interval after the partition was opened.
func (p *Partition) collectOrphans(ctx context.Context, remote Remote) error {
	now := p.m.env.Clock()
	if p.tier.collected.IsZero() {
		p.tier.collected = now
	}
	if now.Sub(p.tier.collected) < orphanInterval {
		return nil
	}
	p.tier.collected = now
	orphans, err := remote.Collect(ctx, false)
	if len(orphans) > 0 {
		p.m.env.Log.Info("objects of unfinished uploads deleted", "partition", p.name().String(), "objects", len(orphans))
	}
	return err
}

// localOnly counts the local bytes that the bucket does not hold.
func localOnly(l *commitlog.Log, remote Remote) int64 {
	segments, err := l.SegmentsFrom(remote.EndOffset())
	if err != nil {
		return 0 // retention by size then keeps more, not less
	}
	n := int64(0)
	for i := range segments {
		if segments[i].BaseOffset >= remote.EndOffset() {
			n += segments[i].Bytes
		}
	}
	return n
}

// retainLocal applies retention to a partition without remote tier.
func (p *Partition) retainLocal(l *commitlog.Log) error {
	d, err := l.DeletableLocal(commitlog.Retention{Now: p.now(), HighWatermark: p.hw.Load()})
	if err != nil {
		return err
	}
	start := min(d.Start, p.hw.Load())
	if start > l.StartOffset() {
		if err := l.AdvanceStart(start); err != nil {
			return err
		}
	}
	_, err = l.DeleteSegmentsBefore(d.Local)
	return err
}

// Problem tells what keeps the partition from doing all that its topic asks for, or nil: it serves nothing any more, or what
// is sealed cannot be brought to the bucket.
func (p *Partition) Problem() error {
	if err := p.Err(); err != nil {
		return err
	}
	if !p.tiered() {
		return nil
	}
	if p.m.env.RemoteErr != nil {
		if err := p.m.env.RemoteErr(); err != nil {
			return err
		}
	}
	if err := p.tier.problem.Load(); err != nil {
		return *err
	}
	return nil
}

// noteTier keeps the outcome of a run, and reports whether it is another than that of the run before: well or not.
func (p *Partition) noteTier(err error) (changed bool) {
	var now *error
	if err != nil {
		now = &err
	}
	before := p.tier.problem.Swap(now)
	if (before == nil) == (now == nil) {
		return false
	}
	p.m.metrics.tierFailing.Add(map[bool]float64{true: 1, false: -1}[now != nil])
	return true
}

// tiered reports whether the partition has, or had, a remote tier.
func (p *Partition) tiered() bool {
	return p.m.env.Remote != nil && (p.cfg.Load().Tiered || p.tier.known > 0)
}

// rollQuiet seals the active segment of a tiered partition that has waited long enough for more (remote.copy.max.age.ms).
func (p *Partition) rollQuiet(l *commitlog.Log, now time.Time) error {
	since := p.tier.dirtySince.Load()
	age := p.cfg.Load().RemoteCopyMaxAge
	if since == 0 || age < 0 || !p.cfg.Load().Tiered || now.UnixMilli()-since < age.Milliseconds() {
		return nil
	}
	p.tier.dirtySince.Store(0) // before: an append meanwhile dates the next segment
	return l.Roll()
}
