package tiering

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/tiering/manifest"
)

// errUnchanged is what a change returns where there is nothing to write.
var errUnchanged = errors.New("unchanged")

// change edits the draft of the next manifest. It may run several times, on top of what other writers did.
type change func(draft *manifest.Manifest) error

// commit writes the next manifest. It holds the lock. When it returns nil the change is committed, or was not needed.
func (p *Partition) commit(ctx context.Context, apply change) error {
	if err := p.writable(ctx); err != nil {
		return err
	}
	for range maxRaces {
		draft := p.draft()
		switch err := apply(draft); {
		case errors.Is(err, errUnchanged):
			return nil
		case err != nil:
			return err
		}
		if err := p.seal(ctx, draft); err != nil {
			return err
		}
		data, err := draft.Encode()
		if err == nil {
			err = draft.Validate()
		}
		if err != nil {
			return err
		}
		committed, err := p.write(ctx, draft, data)
		if err != nil {
			return err
		}
		if committed {
			p.committed(newView(draft, data))
			return nil
		}
	}
	return fmt.Errorf("another writer was faster %d times", maxRaces)
}

// writable makes sure that this writer may write and knows the tail.
func (p *Partition) writable(ctx context.Context) error {
	switch {
	case !p.w.open:
		return ErrNotWriter
	case p.w.fenced:
		return ErrFenced
	}
	if p.w.uncertain || p.store.now().Sub(p.w.tailRead) > tailMaxAge {
		return p.readTail(ctx)
	}
	return nil
}

// draft copies the current manifest for the next number, without what is known to be dropped or deleted.
func (p *Partition) draft() *manifest.Manifest {
	cur := p.current()
	d := *cur.m
	d.Format, d.ClusterID = manifest.Format, p.store.env.ClusterID
	d.Topic, d.TopicID, d.Partition = p.id.Topic, p.id.TopicID, p.id.Partition
	d.Number = cur.m.Number + 1
	d.Previous = nil
	if cur.m.Number > 0 {
		d.Previous = &manifest.Previous{Number: cur.m.Number, SHA256: cur.sha}
	}
	d.Writer = p.w.rank
	d.Writer.Nonce = fmt.Sprintf("%016x", newNonce())
	d.Time = p.store.now()
	d.Pages, d.Segments = slices.Clone(cur.m.Pages), slices.Clone(cur.m.Segments)
	d.LeaderEpochs = slices.Clone(cur.m.LeaderEpochs)
	d.Condemned = slices.DeleteFunc(slices.Clone(cur.m.Condemned), func(c manifest.Condemned) bool {
		_, gone := p.w.deleted[c.Key]
		return gone
	})
	p.dropForeign(&d)
	return &d
}

// dropForeign takes the segments of late writers that do not fit, and all behind them, off the list.
func (p *Partition) dropForeign(d *manifest.Manifest) {
	first := slices.IndexFunc(d.Segments, func(s manifest.Segment) bool {
		_, drop := p.w.drops[s.Key()]
		return drop
	})
	if first < 0 {
		return
	}
	for _, s := range d.Segments[first:] {
		d.Condemned = append(d.Condemned, manifest.Condemned{Key: s.Key(), Since: d.Time})
	}
	d.EndOffset = max(d.LogStartOffset, d.Segments[first].BaseOffset)
	d.Segments = d.Segments[:first]
	d.LeaderEpochs = slices.DeleteFunc(d.LeaderEpochs, func(e manifest.Epoch) bool { return e.StartOffset >= d.EndOffset })
}

// write puts a manifest and finds out whether it is the one that counts. False means that another writer had the number:
// the view is then that writer's manifest.
func (p *Partition) write(ctx context.Context, draft *manifest.Manifest, data []byte) (bool, error) {
	key := p.dir + manifest.ManifestName(draft.Number)
	err := p.store.put(ctx, key, data)
	switch {
	case err == nil:
		return true, nil
	case !errors.Is(err, objstore.ErrExists):
		p.w.uncertain = true // it may be stored, or be stored yet
		return false, err
	}
	other, err := p.readManifest(ctx, draft.Number)
	if err != nil {
		p.w.uncertain = true
		return false, err
	}
	if other.m.Writer == draft.Writer {
		return true, nil // the reply of an attempt was lost
	}
	p.store.metrics.races.Inc()
	return false, p.adopt(other)
}

// adopt makes a manifest of another writer, or of an earlier attempt, the current one. What is going to be dropped is not
// shown: nobody may delete local bytes for its sake.
func (p *Partition) adopt(v *view) error {
	var err error
	if p.w.open && !p.w.fenced {
		err = p.judge(p.current().m, v.m)
	}
	for _, s := range v.m.Segments {
		if _, drop := p.w.drops[s.Key()]; drop {
			v.end = s.BaseOffset
			break
		}
	}
	p.install(v)
	return err
}

func (p *Partition) committed(v *view) {
	p.install(v)
	p.w.tailRead = v.m.Time
	clear(p.w.drops)
	for key := range p.w.deleted {
		if !slices.ContainsFunc(v.m.Condemned, func(c manifest.Condemned) bool { return c.Key == key }) {
			delete(p.w.deleted, key)
		}
	}
}

// judge looks at a manifest that another writer put on top of ours. A higher rank fences us. Of a lower one we adopt the
// new segments that lie inside our history, and drop the first that does not and all behind it: those offsets are still in
// the local log, and are copied again.
func (p *Partition) judge(before, other *manifest.Manifest) error {
	if err := p.checkRank(other); err != nil {
		return err
	}
	if other.Writer.Compare(p.w.rank) == 0 {
		return nil // an earlier attempt of this writer
	}
	dropping := false
	for _, s := range other.Segments[manifest.Find(other.Segments, before.EndOffset):] {
		dropping = dropping || !manifest.SameLineage(p.w.lineage, other.LeaderEpochs, s.BaseOffset, s.LastOffset)
		if dropping {
			p.w.drops[s.Key()] = struct{}{}
		}
	}
	p.store.env.Log.Info("went on behind a late writer's manifest", "partition", p.String(), "manifest", other.Number,
		"writer_epoch", other.Writer.LeaderEpoch, "dropped", len(p.w.drops))
	return nil
}

// seal moves the oldest segments into a page where the list has grown too long.
func (p *Partition) seal(ctx context.Context, d *manifest.Manifest) error {
	limit := p.store.cfg.PageSegments
	if len(d.Segments) <= limit {
		return nil
	}
	n := limit * 4 / 5
	ref, err := p.putPage(ctx, d.Segments[:n])
	if err != nil {
		return err
	}
	d.Pages = append(d.Pages, ref)
	d.Segments = d.Segments[n:]
	return nil
}

// putPage writes a page under a name used once.
func (p *Partition) putPage(ctx context.Context, segments []manifest.Segment) (manifest.PageRef, error) {
	page := &manifest.Page{Format: manifest.Format, TopicID: p.id.TopicID, Partition: p.id.Partition, Segments: segments}
	data, err := page.Encode()
	if err != nil {
		return manifest.PageRef{}, err
	}
	ref := page.Ref(newNonce(), data)
	if err := p.store.put(ctx, p.dir+ref.Key, data); err != nil && !errors.Is(err, objstore.ErrExists) {
		return ref, err // ErrExists: the name is ours alone, so it was an attempt whose reply was lost
	}
	return ref, nil
}
