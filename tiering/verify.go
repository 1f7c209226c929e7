package tiering

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tiering/manifest"
)

// Verified tells what VerifySegment has read.
type Verified struct {
	Bytes   int64
	Records int64
	Batches int64
}

// VerifySegment reads every byte of a segment object and checks it against itself and against its manifest entry: tail,
// table, sections, checksums of chunks and whole, every batch's CRC, contiguous offsets, indexes that are true to the log,
// counts and timestamps. A fault is ErrCorrupt, ErrGap or ErrUnsupported; other errors are the store's.
func VerifySegment(ctx context.Context, b objstore.Bucket, key string, seg manifest.Segment) (Verified, error) {
	v := &segmentVerifier{ctx: ctx, b: b, key: key, seg: seg}
	if err := v.run(); err != nil {
		return v.done, fmt.Errorf("%s: %w", key, classify(err))
	}
	return v.done, nil
}

type segmentVerifier struct {
	ctx  context.Context // of one verification
	b    objstore.Bucket
	key  string
	seg  manifest.Segment
	o    *Object
	done Verified
}

func (v *segmentVerifier) run() error {
	var err error
	if v.o, err = OpenObject(v.ctx, v.b, v.key, v.seg); err != nil {
		return err
	}
	// The end is read once more, whole: the first request may have had only a part of it.
	trailer, err := v.o.get(v.ctx, int64(v.seg.LogBytes), int64(v.seg.Bytes-v.seg.LogBytes))
	if err != nil {
		return err
	}
	sections, err := v.sections(trailer)
	if err != nil {
		return err
	}
	pl, err := scan(v.ctx, &Segment{
		BaseOffset: v.seg.BaseOffset, LastOffset: v.seg.LastOffset,
		Log: &window{ctx: v.ctx, o: v.o}, LogBytes: int64(v.seg.LogBytes),
		OffsetIndex: sections[manifest.SectionOffsetIndex], TimeIndex: sections[manifest.SectionTimeIndex],
	}, v.seg.BaseOffset)
	if err != nil {
		return err
	}
	v.done = Verified{Bytes: int64(v.seg.Bytes), Records: int64(pl.seg.Records), Batches: pl.batches}
	return v.compare(pl, manifest.UpdateCRC32C(pl.crc, trailer))
}

// sections checks the checksum and the form of every section of a type that is known.
func (v *segmentVerifier) sections(trailer []byte) (map[manifest.SectionType][]byte, error) {
	out := map[manifest.SectionType][]byte{}
	for _, e := range v.o.Table {
		at := e.Offset - uint64(v.seg.LogBytes)
		data := trailer[at : at+e.Length]
		if err := e.Check(data); err != nil {
			return nil, err
		}
		out[e.Type] = data
	}
	txns, err := record.ParseTxnIndex(out[manifest.SectionTxnIndex])
	if err != nil {
		return nil, err
	}
	if has := v.seg.Flags&manifest.FlagTxn != 0; has != (len(txns) > 0) {
		return nil, fmt.Errorf("%w: %d aborted transactions, the manifest's flags are %#x", ErrCorrupt, len(txns), v.seg.Flags)
	}
	if _, err := record.ParseEpochCheckpoint(out[manifest.SectionLeaderEpochs]); err != nil {
		return nil, err
	}
	return out, nil
}

// compare holds what was found against what the object and the manifest say.
func (v *segmentVerifier) compare(pl *plan, crc uint32) error {
	if !slices.Equal(pl.chunks, v.o.Chunks) {
		return fmt.Errorf("%w: the chunk checksums do not match the log", ErrCorrupt)
	}
	if crc != v.seg.CRC32C {
		return fmt.Errorf("%w: the object has crc32c %d, the manifest says %d", ErrCorrupt, crc, v.seg.CRC32C)
	}
	if _, _, rebuilt := pl.indexes(); rebuilt {
		return fmt.Errorf("%w: an index is not true to the log", ErrCorrupt)
	}
	got, want := pl.seg, v.seg
	if got.Records != want.Records || got.FirstTimestamp != want.FirstTimestamp || got.MaxTimestamp != want.MaxTimestamp {
		return fmt.Errorf("%w: the log has %d records and timestamps %d to %d, the manifest says %d and %d to %d", ErrCorrupt,
			got.Records, got.FirstTimestamp, got.MaxTimestamp, want.Records, want.FirstTimestamp, want.MaxTimestamp)
	}
	return nil
}

// windowBytes is how much of a log is downloaded at a time.
const windowBytes = 8 << 20

// window reads a log in order, in large pieces.
type window struct {
	ctx  context.Context // of one verification
	o    *Object
	data []byte
	at   int64
}

func (w *window) ReadAt(b []byte, at int64) (int, error) {
	n := 0
	for n < len(b) {
		pos := at + int64(n)
		if pos < w.at || pos >= w.at+int64(len(w.data)) {
			size := min(windowBytes, int64(w.o.seg.LogBytes)-pos)
			if size <= 0 {
				return n, io.EOF
			}
			data, err := w.o.get(w.ctx, pos, size)
			if err != nil {
				return n, err
			}
			w.data, w.at = data, pos
		}
		n += copy(b[n:], w.data[pos-w.at:])
	}
	return n, nil
}

// IsFault tells a fault of what is in the bucket from a failure to read it.
func IsFault(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrGap) || errors.Is(err, ErrUnsupported)
}
