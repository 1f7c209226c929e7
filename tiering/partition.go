package tiering

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tiering/manifest"
)

// Partition is one partition in the bucket. Reads may run concurrently with each other and with the writer; writes
// (Open, Copy, AdvanceStart, Clean, Collect) wait for each other.
type Partition struct {
	store *Store
	id    PartitionID
	dir   string
	known atomic.Int64         // highest manifest number heard of before anything was read
	view  atomic.Pointer[view] // nil: nothing read yet

	// uploading is set while a segment object is put: that may take long, and the view is the newest.
	uploading atomic.Bool

	// lock serializes writers and readers of the tail; it is a channel so that waiting ends with a context.
	lock chan struct{}
	w    writerState // guarded by lock
}

// view is a manifest as it was read or written. Nobody changes it.
type view struct {
	m   *manifest.Manifest // Number 0: nothing is archived
	sha string
	end int64 // m.EndOffset, or below it where segments of a late writer are going to be dropped
}

func newView(m *manifest.Manifest, data []byte) *view {
	return &view{m: m, sha: manifest.SHA256(data), end: m.EndOffset}
}

type writerState struct {
	open      bool
	fenced    bool
	uncertain bool // a put failed without an answer: read the tail before the next write
	rank      manifest.Writer
	tailRead  time.Time
	lineage   []manifest.Epoch    // of the local log, as far as known
	drops     map[string]struct{} // segments of a late writer that do not fit our history
	deleted   map[string]struct{} // condemned objects that are gone
	cleaned   int64               // manifests below this number were deleted
}

func newPartition(s *Store, id PartitionID, known int64) *Partition {
	p := &Partition{store: s, id: id, dir: manifest.PartitionDir(id.Topic, id.TopicID, id.Partition), lock: make(chan struct{}, 1)}
	p.known.Store(known)
	return p
}

// ID names the partition.
func (p *Partition) ID() PartitionID { return p.id }

func (p *Partition) String() string { return fmt.Sprintf("%s-%d", p.id.Topic, p.id.Partition) }

func (p *Partition) acquire(ctx context.Context) error {
	select {
	case p.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *Partition) release() { <-p.lock }

// Open makes this broker the partition's writer in a leader epoch: it reads the tail of the manifests. A tail written by
// a higher rank is ErrFenced. lineage are the local log's leader epochs, oldest first; they let segments of a late writer
// be adopted rather than copied again. Opening again, with a higher epoch or the same, is fine.
func (p *Partition) Open(ctx context.Context, leaderEpoch int32, lineage []record.EpochEntry) error {
	if p.store.env.ReadOnly {
		return fmt.Errorf("tiering: open %s: %w", p, ErrNotWriter)
	}
	if err := p.acquire(ctx); err != nil {
		return fmt.Errorf("tiering: open %s: %w", p, err)
	}
	defer p.release()
	p.w = writerState{
		rank:    manifest.Writer{Incarnation: p.store.Incarnation(), LeaderEpoch: leaderEpoch, Broker: p.store.env.BrokerID},
		drops:   map[string]struct{}{},
		deleted: map[string]struct{}{},
		cleaned: p.w.cleaned,
		lineage: fromRecord(lineage),
	}
	if err := p.readTail(ctx); err != nil {
		return fmt.Errorf("tiering: open %s: %w", p, err)
	}
	p.w.open = true
	if err := p.checkRank(p.current().m); err != nil {
		return fmt.Errorf("tiering: open %s: %w", p, err)
	}
	return nil
}

// CloseWriter ends writing, when leadership is given up. Reads go on.
func (p *Partition) CloseWriter(ctx context.Context) error {
	if err := p.acquire(ctx); err != nil {
		return err
	}
	defer p.release()
	p.w.open = false
	return nil
}

func fromRecord(entries []record.EpochEntry) []manifest.Epoch {
	out := make([]manifest.Epoch, len(entries))
	for i, e := range entries {
		out[i] = manifest.Epoch{Epoch: e.Epoch, StartOffset: e.StartOffset}
	}
	return out
}

// checkRank fences this writer where m was written by one of higher rank, or by another broker of the same rank.
func (p *Partition) checkRank(m *manifest.Manifest) error {
	if m.Number == 0 {
		return nil
	}
	c := m.Writer.Compare(p.w.rank)
	if c < 0 || c == 0 && m.Writer.Broker == p.w.rank.Broker {
		return nil
	}
	p.w.fenced = true
	return fmt.Errorf("%w: manifest %d is of broker %d in incarnation %d, leader epoch %d; this is broker %d in %d, %d", ErrFenced, m.Number,
		m.Writer.Broker, m.Writer.Incarnation, m.Writer.LeaderEpoch, p.w.rank.Broker, p.w.rank.Incarnation, p.w.rank.LeaderEpoch)
}

// current is the newest view known; before the first read it is empty.
func (p *Partition) current() *view {
	if v := p.view.Load(); v != nil {
		return v
	}
	return &view{m: &manifest.Manifest{}}
}

// load gives a view, reading the tail where nothing was read yet.
func (p *Partition) load(ctx context.Context) (*view, error) {
	if v := p.view.Load(); v != nil {
		return v, nil
	}
	if err := p.acquire(ctx); err != nil {
		return nil, err
	}
	defer p.release()
	if v := p.view.Load(); v != nil {
		return v, nil
	}
	if err := p.readTailAsReader(ctx); err != nil {
		return nil, err
	}
	return p.current(), nil
}

// Load reads the tail where nothing was read yet, so that StartOffset, EndOffset and Manifest tell of the bucket.
func (p *Partition) Load(ctx context.Context) error {
	if _, err := p.load(ctx); err != nil {
		return fmt.Errorf("tiering: load %s: %w", p, err)
	}
	return nil
}

// Refresh reads the tail, for brokers that do not write and hear of a newer manifest.
func (p *Partition) Refresh(ctx context.Context) error {
	if err := p.acquire(ctx); err != nil {
		return fmt.Errorf("tiering: refresh %s: %w", p, err)
	}
	defer p.release()
	if err := p.readTailAsReader(ctx); err != nil {
		return fmt.Errorf("tiering: refresh %s: %w", p, err)
	}
	return nil
}

// readTail finds and reads the newest manifest. It never goes back behind one that was seen.
func (p *Partition) readTail(ctx context.Context) error {
	now := p.store.now()
	known := max(p.known.Load(), p.current().m.Number)
	number, err := newestNumber(ctx, p.store.env.Bucket, p.dir+manifest.ManifestFolder, known)
	if err != nil {
		return err
	}
	if number < known {
		return fmt.Errorf("%w: manifest %d of %s is known, but the newest in the bucket is %d: objects were deleted from outside", ErrCorrupt, known, p.dir, number)
	}
	switch v := p.view.Load(); {
	case number == 0:
		p.view.Store(p.current())
	case v == nil || v.m.Number < number:
		nv, err := p.readManifest(ctx, number)
		if err != nil {
			return err
		}
		if err := p.adopt(nv); err != nil {
			return err
		}
	}
	p.w.tailRead, p.w.uncertain = now, false
	return nil
}

// readTailAsReader is readTail for those who do not mind that this broker may no longer write.
func (p *Partition) readTailAsReader(ctx context.Context) error {
	if err := p.readTail(ctx); err != nil && !errors.Is(err, ErrFenced) {
		return err
	}
	return nil
}

func (p *Partition) install(v *view) {
	p.view.Store(v)
	p.known.Store(v.m.Number)
}

func (p *Partition) readManifest(ctx context.Context, number int64) (*view, error) {
	key := p.dir + manifest.ManifestName(number)
	data, err := objstore.ReadAll(ctx, p.store.env.Bucket, key, 0, -1, maxJSON)
	if err != nil {
		return nil, err
	}
	m, err := manifest.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, classify(err))
	}
	if m.Number != number || m.TopicID != p.id.TopicID || m.Partition != p.id.Partition {
		return nil, fmt.Errorf("%w: %s says it is manifest %d of topic id %s partition %d", ErrCorrupt, key, m.Number, m.TopicID, m.Partition)
	}
	return newView(m, data), nil
}

// StartOffset is the log start as the newest known manifest has it.
func (p *Partition) StartOffset() int64 { return p.current().m.LogStartOffset }

// EndOffset is the offset after the last archived one, 0 where nothing is archived. Whatever lies below is in the bucket
// under a committed manifest.
func (p *Partition) EndOffset() int64 { return p.current().end }

// Bytes is the size of all listed objects.
func (p *Partition) Bytes() int64 { return p.current().m.Bytes() }

// Manifest is the number of the newest known manifest, 0 where there is none.
func (p *Partition) Manifest() int64 { return p.current().m.Number }

// BytesBefore is the size of the listed objects whose segments begin below an offset.
func (p *Partition) BytesBefore(ctx context.Context, offset int64) (int64, error) {
	v, err := p.load(ctx)
	if err != nil {
		return 0, fmt.Errorf("tiering: bytes of %s: %w", p, err)
	}
	m, n := *v.m, int64(0)
	for len(m.Pages) > 0 && m.Pages[0].LastOffset < offset {
		n += m.Pages[0].Bytes
		m.Pages = m.Pages[1:]
	}
	err = p.each(ctx, &m, 0, func(s SegmentInfo) error {
		if s.BaseOffset >= offset {
			return errStop
		}
		n += int64(s.Bytes)
		return nil
	})
	if ignoreStop(err) != nil {
		return 0, fmt.Errorf("tiering: bytes of %s: %w", p, err)
	}
	return n, nil
}

// EpochEntries gives the leader epochs of what is archived, oldest first.
func (p *Partition) EpochEntries() []record.EpochEntry {
	var out []record.EpochEntry
	for _, e := range p.current().m.LeaderEpochs {
		out = append(out, record.EpochEntry{Epoch: e.Epoch, StartOffset: e.StartOffset})
	}
	return out
}

// Segments calls f for the archived segments that hold offsets from from on, in order, until f fails.
func (p *Partition) Segments(ctx context.Context, from int64, f func(SegmentInfo) error) error {
	v, err := p.load(ctx)
	if err != nil {
		return fmt.Errorf("tiering: segments of %s: %w", p, err)
	}
	return p.each(ctx, v.m, from, f)
}

func (p *Partition) each(ctx context.Context, m *manifest.Manifest, from int64, f func(SegmentInfo) error) error {
	for i := manifest.FindPage(m.Pages, from); i < len(m.Pages); i++ {
		page, err := p.page(ctx, m.Pages[i])
		if err != nil {
			return err
		}
		for _, s := range page.Segments[manifest.Find(page.Segments, from):] {
			if err := f(s); err != nil {
				return err
			}
		}
	}
	for _, s := range m.Segments[manifest.Find(m.Segments, from):] {
		if err := f(s); err != nil {
			return err
		}
	}
	return nil
}

type pageKey struct {
	id  PartitionID
	key string
}

// page reads a page, by way of the cache.
func (p *Partition) page(ctx context.Context, ref manifest.PageRef) (*manifest.Page, error) {
	return p.store.pages.Get(ctx, pageKey{p.id, ref.Key}, func(ctx context.Context) (*manifest.Page, int64, error) {
		data, err := objstore.ReadAll(ctx, p.store.env.Bucket, p.dir+ref.Key, 0, -1, maxJSON)
		if err != nil {
			return nil, 0, err
		}
		page, err := manifest.DecodePage(data, ref)
		if err != nil {
			return nil, 0, fmt.Errorf("%s%s: %w", p.dir, ref.Key, classify(err))
		}
		page.Segments = slices.Clip(page.Segments)
		return page, int64(len(page.Segments)) * 64, nil
	})
}

// TopicName is the full name as the manifest has it, empty where nothing is archived.
func (p *Partition) TopicName() string { return p.current().m.Topic }
