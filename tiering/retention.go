package tiering

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/tiering/manifest"
)

// errStop ends a walk.
var errStop = errors.New("stop")

// Expire tells where the log starts after retention: behind the oldest segments whose newest record is older than
// retentionMs, and behind as many more as the archived bytes together with localOnlyBytes, those of the local log past
// EndOffset, exceed retentionBytes. Negative means no limit. A segment counts only as a whole; segments whose copy failed
// do not count. It changes nothing: the caller moves the log start, durably, and then calls AdvanceStart.
func (p *Partition) Expire(ctx context.Context, now time.Time, retentionMs, retentionBytes, localOnlyBytes int64) (logStart int64, err error) {
	v, err := p.load(ctx)
	if err != nil {
		return 0, fmt.Errorf("tiering: expire %s: %w", p, err)
	}
	m := v.m
	logStart = m.LogStartOffset
	over := m.Bytes() + localOnlyBytes - retentionBytes
	horizon := now.UnixMilli() - retentionMs
	err = p.each(ctx, m, 0, func(s SegmentInfo) error {
		late := retentionMs >= 0 && s.MaxTimestamp >= 0 && s.MaxTimestamp < horizon
		large := retentionBytes >= 0 && over >= int64(s.Bytes)
		if s.NextOffset() > v.end || !late && !large {
			return errStop
		}
		over -= int64(s.Bytes)
		logStart = max(logStart, s.NextOffset())
		return nil
	})
	if err != nil && !errors.Is(err, errStop) {
		return 0, fmt.Errorf("tiering: expire %s: %w", p, err)
	}
	return logStart, nil
}

// AdvanceStart records a new log start. Segments that lie wholly below leave the list; Clean deletes their objects after
// the grace. A start beyond EndOffset empties the list, and the next Copy may begin there.
func (p *Partition) AdvanceStart(ctx context.Context, logStart int64) error {
	if err := p.acquire(ctx); err != nil {
		return fmt.Errorf("tiering: advance start of %s: %w", p, err)
	}
	defer p.release()
	err := p.commit(ctx, func(d *manifest.Manifest) error {
		if d.Number == 1 || logStart <= d.LogStartOffset {
			return errUnchanged
		}
		return p.advance(ctx, d, logStart)
	})
	if err != nil {
		return fmt.Errorf("tiering: advance start of %s to %d: %w", p, logStart, err)
	}
	return nil
}

func (p *Partition) advance(ctx context.Context, d *manifest.Manifest, logStart int64) error {
	condemn := func(key string) { d.Condemned = append(d.Condemned, manifest.Condemned{Key: key, Since: d.Time}) }
	for len(d.Pages) > 0 && d.Pages[0].FirstOffset < logStart {
		page, err := p.page(ctx, d.Pages[0])
		if err != nil {
			return err
		}
		n := manifest.Find(page.Segments, logStart)
		if n == 0 {
			break
		}
		for _, s := range page.Segments[:n] {
			condemn(s.Key())
		}
		condemn(d.Pages[0].Key)
		if n < len(page.Segments) {
			if d.Pages[0], err = p.putPage(ctx, page.Segments[n:]); err != nil {
				return err
			}
			break
		}
		d.Pages = d.Pages[1:]
	}
	if len(d.Pages) == 0 {
		n := manifest.Find(d.Segments, logStart)
		for _, s := range d.Segments[:n] {
			condemn(s.Key())
		}
		d.Segments = d.Segments[n:]
	}
	d.LogStartOffset = logStart
	d.EndOffset = max(d.EndOffset, logStart)
	// The epoch in which the log starts stays, the ones before go.
	for len(d.LeaderEpochs) > 1 && d.LeaderEpochs[1].StartOffset <= logStart {
		d.LeaderEpochs = d.LeaderEpochs[1:]
	}
	return nil
}

// Clean deletes the objects of segments that left the list longer than the grace ago, records that, and deletes old
// manifests. Housekeeping calls it every few minutes; what fails is tried again the next time.
func (p *Partition) Clean(ctx context.Context) error {
	if err := p.acquire(ctx); err != nil {
		return fmt.Errorf("tiering: clean %s: %w", p, err)
	}
	defer p.release()
	if err := p.writable(ctx); err != nil {
		return fmt.Errorf("tiering: clean %s: %w", p, err)
	}
	err := p.deleteCondemned(ctx)
	if len(p.w.deleted) > 0 {
		err = errors.Join(err, p.commit(ctx, func(d *manifest.Manifest) error {
			if len(d.Condemned) == len(p.current().m.Condemned) {
				return errUnchanged
			}
			return nil
		}))
	}
	if err = errors.Join(err, p.deleteManifests(ctx)); err != nil {
		return fmt.Errorf("tiering: clean %s: %w", p, err)
	}
	return nil
}

func (p *Partition) deleteCondemned(ctx context.Context) error {
	cur, now := p.current().m, p.store.now()
	for _, c := range cur.Condemned {
		if _, gone := p.w.deleted[c.Key]; gone || now.Sub(c.Since) < p.store.cfg.CondemnedGrace {
			continue
		}
		if err := p.store.env.Bucket.Delete(ctx, p.dir+c.Key); err != nil {
			return err
		}
		p.w.deleted[c.Key] = struct{}{}
		p.store.metrics.deleted.Inc()
	}
	return nil
}

// deleteManifests deletes manifests that are older than ManifestAge and not among the newest ManifestCount, oldest first,
// so that the numbers left stay contiguous. The first call lists the folder; later ones know where to go on.
func (p *Partition) deleteManifests(ctx context.Context) error {
	last := p.current().m.Number - int64(p.store.cfg.ManifestCount)
	if p.w.cleaned > last {
		return nil
	}
	before := p.store.now().Add(-p.store.cfg.ManifestAge)
	if err := deleteNumbered(ctx, p.store.env.Bucket, p.dir+manifest.ManifestFolder, last, before); err != nil {
		return err
	}
	// The next candidate is too young now: look again after another ManifestCount numbers.
	p.w.cleaned = last + int64(p.store.cfg.ManifestCount)
	return nil
}

// deleteNumbered deletes the files of a folder up to a number that are older than a time, oldest first.
func deleteNumbered(ctx context.Context, b objstore.Bucket, folder string, last int64, before time.Time) error {
	var old []string
	err := b.List(ctx, folder, objstore.ListOptions{}, func(i objstore.Info) error {
		n, ok := manifest.ParseNumber(i.Key)
		if !ok {
			return nil
		}
		if n > last || !i.Modified.Before(before) {
			return errStop
		}
		old = append(old, i.Key)
		return nil
	})
	if ignoreStop(err) != nil {
		return err
	}
	for _, key := range old {
		if err := b.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// Orphan is an object that no manifest names.
type Orphan struct {
	Key   string // full
	Bytes int64
	Age   time.Duration
}

// Collect finds objects of the partition that no manifest names and that are older than any upload under way can be,
// and deletes them unless dryRun.
func (p *Partition) Collect(ctx context.Context, dryRun bool) ([]Orphan, error) {
	if err := p.acquire(ctx); err != nil {
		return nil, fmt.Errorf("tiering: collect %s: %w", p, err)
	}
	defer p.release()
	orphans, err := p.collect(ctx, dryRun)
	if err != nil {
		return nil, fmt.Errorf("tiering: collect %s: %w", p, err)
	}
	return orphans, nil
}

func (p *Partition) collect(ctx context.Context, dryRun bool) ([]Orphan, error) {
	if err := p.writable(ctx); err != nil {
		return nil, err
	}
	now := p.store.now()
	var old []Orphan
	for _, folder := range []string{manifest.SegmentFolder, manifest.PageFolder} {
		if err := p.store.env.Bucket.List(ctx, p.dir+folder, objstore.ListOptions{}, func(i objstore.Info) error {
			if age := now.Sub(i.Modified); age > p.store.cfg.OrphanAge {
				old = append(old, Orphan{i.Key, i.Size, age})
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	// The tail is read after the list: what is named since is named in it, and what is named later is younger.
	if err := p.readTail(ctx); err != nil {
		return nil, err
	}
	named, err := p.named(ctx)
	if err != nil {
		return nil, err
	}
	old = slices.DeleteFunc(old, func(o Orphan) bool { return named[o.Key[len(p.dir):]] })
	if dryRun {
		return old, nil
	}
	for _, o := range old {
		if err := p.store.env.Bucket.Delete(ctx, o.Key); err != nil {
			return nil, err
		}
	}
	return old, nil
}

// named gives all keys that the current manifest names.
func (p *Partition) named(ctx context.Context) (map[string]bool, error) {
	m := p.current().m
	named := map[string]bool{}
	for _, c := range m.Condemned {
		named[c.Key] = true
	}
	for _, ref := range m.Pages {
		named[ref.Key] = true
	}
	err := p.each(ctx, m, 0, func(s SegmentInfo) error {
		named[s.Key()] = true
		return nil
	})
	return named, err
}
