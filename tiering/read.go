package tiering

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tiering/manifest"
)

// Read gives whole batches, beginning with the one that holds offset: at least one, and no more than maxBytes but for the
// first. The bytes were checked against their checksums and for contiguous offsets; they are shared, and must not be
// changed nor used after release. Errors: ErrOffsetOutOfRange, ErrGap, ErrCorrupt, ErrUnsupported, or the store's.
func (p *Partition) Read(ctx context.Context, offset int64, maxBytes int) (batches []byte, release func(), err error) {
	err = p.resolve(ctx, offset, func(seg manifest.Segment, next func() (manifest.Segment, bool)) error {
		batches, release, err = p.readSegment(ctx, seg, next, offset, maxBytes)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("tiering: read %s at offset %d: %w", p, offset, err)
	}
	p.store.metrics.readBytes.Add(float64(len(batches)))
	return batches, release, nil
}

// resolve finds the segment that holds an offset and calls f with it. Where the offset or the object is not there, the
// list may be old: the tail is read and f is called again, once. next tells the segment behind it, as far as known
// without a download.
func (p *Partition) resolve(ctx context.Context, offset int64, f func(seg manifest.Segment, next func() (manifest.Segment, bool)) error) error {
	v, err := p.load(ctx)
	if err != nil {
		return err
	}
	err = p.tryResolve(ctx, v, offset, f)
	again := errors.Is(err, objstore.ErrNotFound) || errors.Is(err, ErrOffsetOutOfRange) && offset >= v.end
	if !again || ctx.Err() != nil {
		return err
	}
	if rerr := p.refreshFrom(ctx, v); rerr != nil {
		return errors.Join(err, rerr)
	}
	if now := p.current(); now != v {
		err = p.tryResolve(ctx, now, offset, f)
	}
	if errors.Is(err, objstore.ErrNotFound) {
		return fmt.Errorf("%w: the manifest names an object that is missing: %w", ErrCorrupt, err)
	}
	return err
}

// withView calls f with the newest known manifest, and again with a newer one where an object of it was gone.
func (p *Partition) withView(ctx context.Context, f func(*view) error) error {
	v, err := p.load(ctx)
	if err != nil {
		return err
	}
	err = f(v)
	if !errors.Is(err, objstore.ErrNotFound) {
		return err
	}
	if rerr := p.refreshFrom(ctx, v); rerr != nil {
		return errors.Join(err, rerr)
	}
	if now := p.current(); now != v {
		return f(now)
	}
	return err
}

// refreshFrom reads the tail unless somebody has meanwhile, or this broker is about to write it.
func (p *Partition) refreshFrom(ctx context.Context, old *view) error {
	if p.uploading.Load() {
		return nil
	}
	if err := p.acquire(ctx); err != nil {
		return err
	}
	defer p.release()
	if p.view.Load() != old {
		return nil
	}
	return p.readTailAsReader(ctx)
}

func (p *Partition) tryResolve(ctx context.Context, v *view, offset int64, f func(manifest.Segment, func() (manifest.Segment, bool)) error) error {
	if offset < v.m.LogStartOffset || offset >= v.end {
		return fmt.Errorf("%w: the bucket holds %d to %d", ErrOffsetOutOfRange, v.m.LogStartOffset, v.end-1)
	}
	list := v.m.Segments
	if i := manifest.FindPage(v.m.Pages, offset); i < len(v.m.Pages) {
		page, err := p.page(ctx, v.m.Pages[i])
		if err != nil {
			return err
		}
		list = page.Segments
	}
	i := manifest.Find(list, offset)
	if i == len(list) || list[i].BaseOffset > offset {
		found := v.end
		if i < len(list) {
			found = list[i].BaseOffset
		}
		return fmt.Errorf("%w: manifest %d lists no segment for offsets %d to %d", ErrGap, v.m.Number, offset, found-1)
	}
	return f(list[i], func() (manifest.Segment, bool) {
		if i+1 < len(list) {
			return list[i+1], true
		}
		return manifest.Segment{}, false
	})
}

// openObject opens a segment's object, by way of the cache.
func (p *Partition) openObject(ctx context.Context, seg manifest.Segment) (*Object, error) {
	return p.store.objects.Get(ctx, p.blockKey(seg, -1), p.loadObject(seg))
}

func (p *Partition) loadObject(seg manifest.Segment) func(context.Context) (*Object, int64, error) {
	return func(ctx context.Context) (*Object, int64, error) {
		o, err := OpenObject(ctx, p.store.env.Bucket, p.dir+seg.Key(), seg)
		if err != nil {
			return nil, 0, err
		}
		return o, o.memory(), nil
	}
}

func (p *Partition) readSegment(ctx context.Context, seg manifest.Segment, next func() (manifest.Segment, bool), offset int64, maxBytes int) ([]byte, func(), error) {
	r, err := p.openReader(ctx, seg)
	if err != nil {
		return nil, nil, err
	}
	pos, err := r.position(offset)
	if err != nil {
		return nil, nil, err
	}
	first, err := r.seek(pos, offset)
	if err != nil {
		return nil, nil, err
	}
	end, err := r.extent(first, int64(maxBytes))
	if err != nil {
		return nil, nil, err
	}
	batches, release, err := r.slice(first, end)
	if err != nil {
		return nil, nil, err
	}
	p.readAhead(r, first, end, next)
	return batches, release, nil
}

// readAhead has the next blocks downloaded where a reader goes through the segment in order: its last block was read
// before, or it is at the segment's start.
func (p *Partition) readAhead(r *segmentReader, first, end int64, next func() (manifest.Segment, bool)) {
	size := p.store.cfg.BlockBytes
	block := int32(first / size)
	if block > 0 && !p.store.blocks.Has(p.blockKey(r.seg, block-1)) {
		return
	}
	last := int32((int64(r.seg.LogBytes) - 1) / size)
	want := int32(end/size) + int32(p.store.cfg.ReadAhead)
	for b := int32(end / size); b <= min(want, last); b++ {
		p.store.blocks.Prefetch(p.blockKey(r.seg, b), r.load(b))
	}
	if want <= last {
		return
	}
	seg, ok := next()
	if !ok || p.store.blocks.Has(p.blockKey(seg, 0)) {
		return
	}
	p.store.blocks.Prefetch(p.blockKey(seg, 0), func(ctx context.Context) ([]byte, int64, error) {
		o, err := p.openObject(ctx, seg)
		if err != nil {
			return nil, 0, err
		}
		return loadBlock(ctx, o, 0, size)
	})
}

func loadBlock(ctx context.Context, o *Object, block int32, size int64) ([]byte, int64, error) {
	at := int64(block) * size
	n := min(size, int64(o.seg.LogBytes)-at)
	b, err := o.Log(ctx, at, n)
	return b, n, err
}

// segmentReader walks the batches of one segment in blocks.
type segmentReader struct {
	ctx    context.Context // of one read
	p      *Partition
	seg    manifest.Segment
	object *Object
	held   []byte // the block read last
	heldAt int32
	head   [record.HeaderSize]byte
}

func (p *Partition) openReader(ctx context.Context, seg manifest.Segment) (*segmentReader, error) {
	o, err := p.openObject(ctx, seg)
	if err != nil {
		return nil, err
	}
	return &segmentReader{ctx: ctx, p: p, seg: seg, object: o, heldAt: -1}, nil
}

func (r *segmentReader) load(block int32) func(context.Context) ([]byte, int64, error) {
	o, size := r.object, r.p.store.cfg.BlockBytes
	return func(ctx context.Context) ([]byte, int64, error) { return loadBlock(ctx, o, block, size) }
}

func (r *segmentReader) block(i int32) ([]byte, error) {
	if r.heldAt == i {
		return r.held, nil
	}
	b, err := r.p.store.blocks.Get(r.ctx, r.p.blockKey(r.seg, i), r.load(i))
	if err != nil {
		return nil, err
	}
	r.held, r.heldAt = b, i
	return b, nil
}

// position gives where to start looking for an offset.
func (r *segmentReader) position(offset int64) (int64, error) {
	e, ok := r.object.offsets.Floor(offset - r.seg.BaseOffset)
	if !ok {
		return 0, nil
	}
	if e.Position < 0 || int64(e.Position) >= int64(r.seg.LogBytes) {
		return 0, r.corrupt(0, "its offset index points to %d", e.Position)
	}
	return int64(e.Position), nil
}

func (r *segmentReader) corrupt(pos int64, format string, args ...any) error {
	return fmt.Errorf("%w: %s at position %d: %s", ErrCorrupt, r.object.key, pos, fmt.Sprintf(format, args...))
}

// header reads a batch's header and makes sure that the batch lies within the log and the segment's offsets.
func (r *segmentReader) header(pos int64) (record.Header, error) {
	left := int64(r.seg.LogBytes) - pos
	if left < record.HeaderSize {
		return record.Header{}, r.corrupt(pos, "%d bytes are left for a batch", left)
	}
	b, err := r.bytes(pos, record.HeaderSize)
	if err != nil {
		return record.Header{}, err
	}
	h, err := record.ParseHeader(b)
	if err != nil {
		return h, r.corrupt(pos, "%v", err)
	}
	if int64(h.Size()) > left || h.BaseOffset < r.seg.BaseOffset || h.LastOffsetDelta < 0 || h.LastOffset() > r.seg.LastOffset {
		return h, r.corrupt(pos, "batch of %d bytes with offsets %d to %d does not fit the segment (%d to %d, %d bytes left)", h.Size(),
			h.BaseOffset, h.LastOffset(), r.seg.BaseOffset, r.seg.LastOffset, left)
	}
	return h, nil
}

// bytes gives n ≤ HeaderSize bytes, valid until the next call.
func (r *segmentReader) bytes(pos int64, n int) ([]byte, error) {
	size := r.p.store.cfg.BlockBytes
	i, in := int32(pos/size), pos%size
	b, err := r.block(i)
	if err != nil {
		return nil, err
	}
	if in+int64(n) <= int64(len(b)) {
		return b[in : in+int64(n)], nil
	}
	k := copy(r.head[:n], b[in:])
	if b, err = r.block(i + 1); err != nil {
		return nil, err
	}
	copy(r.head[k:n], b)
	return r.head[:n], nil
}

// seek walks from a batch's position to the batch that holds offset.
func (r *segmentReader) seek(pos, offset int64) (int64, error) {
	expected := int64(-1)
	for {
		h, err := r.header(pos)
		if err != nil {
			return 0, err
		}
		if expected >= 0 && h.BaseOffset != expected || h.BaseOffset > offset {
			return 0, r.gap(pos, max(expected, 0), h.BaseOffset)
		}
		if h.LastOffset() >= offset {
			return pos, nil
		}
		expected = h.NextOffset()
		pos += int64(h.Size())
	}
}

func (r *segmentReader) gap(pos, expected, found int64) error {
	return fmt.Errorf("%w: %s at position %d: offset %d follows, %d should", ErrGap, r.object.key, pos, found, expected)
}

// extent walks on from a batch and tells where the batches that fit into maxBytes end.
func (r *segmentReader) extent(first, maxBytes int64) (int64, error) {
	pos, expected := first, int64(-1)
	for pos < int64(r.seg.LogBytes) {
		h, err := r.header(pos)
		if err != nil {
			return 0, err
		}
		if expected >= 0 && h.BaseOffset != expected {
			return 0, r.gap(pos, expected, h.BaseOffset)
		}
		if pos > first && pos+int64(h.Size())-first > maxBytes {
			return pos, nil
		}
		expected = h.NextOffset()
		pos += int64(h.Size())
		if pos-first >= maxBytes {
			return pos, nil
		}
	}
	if expected != r.seg.NextOffset() {
		return 0, r.gap(pos, r.seg.NextOffset(), expected)
	}
	return pos, nil
}

// buffers are for reads that span blocks; those of usual size are used again.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 1<<20); return &b }}

const maxPooled = 4 << 20

// slice gives [from, to) of the log: a part of a block where it lies in one, a copy where not.
func (r *segmentReader) slice(from, to int64) ([]byte, func(), error) {
	size := r.p.store.cfg.BlockBytes
	if from/size == (to-1)/size {
		b, err := r.block(int32(from / size))
		if err != nil {
			return nil, nil, err
		}
		in := from % size
		return b[in : in+to-from : in+to-from], func() {}, nil
	}
	buf := buffers.Get().(*[]byte)
	release := sync.OnceFunc(func() {
		if cap(*buf) <= maxPooled {
			*buf = (*buf)[:0]
			buffers.Put(buf)
		}
	})
	for at := from; at < to; {
		b, err := r.block(int32(at / size))
		if err != nil {
			release()
			return nil, nil, err
		}
		in := at % size
		n := min(to-at, int64(len(b))-in)
		*buf = append(*buf, b[in:in+n]...)
		at += n
	}
	return *buf, release, nil
}
