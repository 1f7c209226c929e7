package tiering

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tiering/manifest"
)

// classify maps the errors of package manifest and of the store to this package's classes.
func classify(err error) error {
	switch {
	case errors.Is(err, manifest.ErrVersion):
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	case errors.Is(err, manifest.ErrMalformed), errors.Is(err, manifest.ErrChecksum), errors.Is(err, record.ErrCorrupt):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

// Object reads one segment object, without a cache.
type Object struct {
	bucket objstore.Bucket
	key    string
	seg    manifest.Segment
	Tail   manifest.Tail
	Table  []manifest.TableEntry
	Chunks []uint32 // checksums of the log part, per manifest.ChunkSize

	offsets record.OffsetIndex
	end     []byte // the last bytes of the object
	endAt   int64
}

// OpenObject reads the end of a segment object: tail, table and chunk checksums, and usually the offset index with them.
func OpenObject(ctx context.Context, b objstore.Bucket, key string, seg manifest.Segment) (*Object, error) {
	o := &Object{bucket: b, key: key, seg: seg}
	if err := o.open(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", key, classify(err))
	}
	return o, nil
}

func (o *Object) open(ctx context.Context) error {
	if err := o.seg.CheckReadable(); err != nil {
		return err
	}
	size, logBytes := int64(o.seg.Bytes), int64(o.seg.LogBytes)
	// An offset index has 8 bytes for each 4 KiB of log or less; the small sections behind it take some KiB.
	o.endAt = max(logBytes, size-(logBytes/512+64<<10))
	var err error
	if o.end, err = o.get(ctx, o.endAt, size-o.endAt); err != nil {
		return err
	}
	if o.Tail, err = manifest.ParseTail(o.end[len(o.end)-manifest.TailSize:], size); err != nil {
		return err
	}
	if o.Tail.LogBytes != logBytes {
		return fmt.Errorf("%w: the tail says %d log bytes, the manifest %d", manifest.ErrMalformed, o.Tail.LogBytes, logBytes)
	}
	table, err := o.read(ctx, o.Tail.TableOffset, int64(o.Tail.TableLength))
	if err != nil {
		return err
	}
	if o.Table, err = o.Tail.ParseTable(table); err != nil {
		return err
	}
	chunks, err := o.section(ctx, manifest.SectionChunkChecksums)
	if err != nil {
		return err
	}
	if o.Chunks, err = manifest.ParseChunkChecksums(chunks, logBytes); err != nil {
		return err
	}
	o.offsets, err = o.section(ctx, manifest.SectionOffsetIndex)
	return err
}

// get downloads exactly the given range.
func (o *Object) get(ctx context.Context, at, n int64) ([]byte, error) {
	b, err := objstore.ReadAll(ctx, o.bucket, o.key, at, n, n)
	if err == nil && int64(len(b)) != n {
		err = fmt.Errorf("%w: %d bytes at %d are asked, %d are there: the object is shorter than the manifest says", manifest.ErrMalformed, n, at, len(b))
	}
	if errors.Is(err, objstore.ErrRange) {
		err = fmt.Errorf("%w: the object is shorter than the manifest says: %w", manifest.ErrMalformed, err)
	}
	return b, err
}

// read gives a range, from what is here where possible.
func (o *Object) read(ctx context.Context, at, n int64) ([]byte, error) {
	if at >= o.endAt {
		return o.end[at-o.endAt : at-o.endAt+n], nil
	}
	return o.get(ctx, at, n)
}

// Section reads and checks a section; nil where the object has none of that type.
func (o *Object) Section(ctx context.Context, t manifest.SectionType) ([]byte, error) {
	b, err := o.section(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.key, classify(err))
	}
	return b, nil
}

func (o *Object) section(ctx context.Context, t manifest.SectionType) ([]byte, error) {
	for _, e := range o.Table {
		if e.Type != t {
			continue
		}
		if e.Length > maxSections {
			return nil, fmt.Errorf("%w: %s of %d bytes", manifest.ErrMalformed, t, e.Length)
		}
		b, err := o.read(ctx, int64(e.Offset), int64(e.Length))
		if err != nil {
			return nil, err
		}
		return b, e.Check(b)
	}
	return nil, nil
}

// Log reads and checks a part of the log that starts at a multiple of manifest.ChunkSize, and ends at one or with the
// log. Bytes that do not match their checksum are downloaded once more before they are called corrupt.
func (o *Object) Log(ctx context.Context, at, n int64) ([]byte, error) {
	var err error
	for range 2 {
		var b []byte
		if b, err = o.get(ctx, at, n); err == nil {
			err = o.checkChunks(b, at)
		}
		if err == nil {
			return b, nil
		}
		if objstore.Permanent(err) {
			break
		}
	}
	return nil, fmt.Errorf("%s: %w", o.key, classify(err))
}

func (o *Object) checkChunks(b []byte, at int64) error {
	for i := at / manifest.ChunkSize; len(b) > 0; i++ {
		chunk := b[:min(len(b), manifest.ChunkSize)]
		if got := manifest.CRC32C(chunk); got != o.Chunks[i] {
			return fmt.Errorf("%w: log bytes %d to %d have %08x, stored is %08x", manifest.ErrChecksum,
				i*manifest.ChunkSize, i*manifest.ChunkSize+int64(len(chunk)), got, o.Chunks[i])
		}
		b = b[len(chunk):]
	}
	return nil
}

// memory is what the object takes.
func (o *Object) memory() int64 {
	return int64(cap(o.end) + cap(o.offsets) + 4*len(o.Chunks) + 40*len(o.Table) + len(o.key) + 200)
}

// blockKey names a part of a segment's log.
type blockKey struct {
	topicID   kafka.UUID
	partition int32
	block     int32
	base      int64
	nonce     uint64
}

func (p *Partition) blockKey(s manifest.Segment, block int32) blockKey {
	return blockKey{p.id.TopicID, p.id.Partition, block, s.BaseOffset, s.Nonce}
}
