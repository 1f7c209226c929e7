package tiering

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tiering/manifest"
)

// OffsetForTimestamp finds the first record, by offset, with a timestamp of at least ts. Control batches are passed over.
// found is false where the archived part of the log has none; then no object was read.
func (p *Partition) OffsetForTimestamp(ctx context.Context, ts int64) (found bool, at TimestampOffset, err error) {
	err = p.withView(ctx, func(v *view) (err error) {
		found, at, err = p.lookup(ctx, v, ts)
		return err
	})
	if err != nil {
		return false, at, fmt.Errorf("tiering: look up timestamp %d in %s: %w", ts, p, err)
	}
	return found, at, nil
}

// MaxTimestamp finds the first record with the largest timestamp.
func (p *Partition) MaxTimestamp(ctx context.Context) (found bool, at TimestampOffset, err error) {
	v, err := p.load(ctx)
	if err != nil {
		return false, at, fmt.Errorf("tiering: look up largest timestamp in %s: %w", p, err)
	}
	newest := int64(math.MinInt64)
	for _, ref := range v.m.Pages {
		newest = max(newest, ref.MaxTimestamp)
	}
	for _, s := range v.m.Segments {
		newest = max(newest, s.MaxTimestamp)
	}
	if newest < 0 {
		return false, at, nil
	}
	return p.OffsetForTimestamp(ctx, newest)
}

func (p *Partition) lookup(ctx context.Context, v *view, ts int64) (found bool, at TimestampOffset, err error) {
	visit := func(s manifest.Segment) error {
		if s.MaxTimestamp < ts || s.LastOffset < v.m.LogStartOffset || s.NextOffset() > v.end {
			return nil
		}
		if found, at, err = p.lookupSegment(ctx, s, ts, v.m.LogStartOffset); found {
			return errStop
		}
		return err
	}
	for _, ref := range v.m.Pages {
		if ref.MaxTimestamp < ts {
			continue
		}
		page, err := p.page(ctx, ref)
		if err != nil {
			return false, at, err
		}
		for _, s := range page.Segments {
			if err := visit(s); err != nil {
				return found, at, ignoreStop(err)
			}
		}
	}
	for _, s := range v.m.Segments {
		if err := visit(s); err != nil {
			return found, at, ignoreStop(err)
		}
	}
	return false, at, nil
}

func ignoreStop(err error) error {
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

func (p *Partition) lookupSegment(ctx context.Context, s manifest.Segment, ts, logStart int64) (bool, TimestampOffset, error) {
	r, err := p.openReader(ctx, s)
	if err != nil {
		return false, TimestampOffset{}, err
	}
	times, err := r.object.Section(ctx, manifest.SectionTimeIndex)
	if err != nil {
		return false, TimestampOffset{}, err
	}
	from := max(s.BaseOffset, logStart)
	if e, ok := record.TimeIndex(times).Before(ts); ok {
		from = max(from, s.BaseOffset+int64(e.RelOffset)+1)
	}
	if from > s.LastOffset {
		return false, TimestampOffset{}, nil
	}
	pos, err := r.position(from)
	if err != nil {
		return false, TimestampOffset{}, err
	}
	if pos, err = r.seek(pos, from); err != nil {
		return false, TimestampOffset{}, err
	}
	return r.scanFor(pos, ts, logStart)
}

// scanFor goes through batches until one holds a record of at least ts.
func (r *segmentReader) scanFor(pos, ts, logStart int64) (bool, TimestampOffset, error) {
	for pos < int64(r.seg.LogBytes) {
		h, err := r.header(pos)
		if err != nil {
			return false, TimestampOffset{}, err
		}
		end := pos + int64(h.Size())
		if h.MaxTimestamp >= ts && !h.Control() {
			batch, release, err := r.slice(pos, end)
			if err != nil {
				return false, TimestampOffset{}, err
			}
			found, at, err := firstRecord(batch, ts, logStart, r.p.store.cfg.MaxDecompressed)
			release()
			if err != nil {
				return false, at, r.corrupt(pos, "%v", err)
			}
			if found {
				at.LeaderEpoch = h.LeaderEpoch
				return true, at, nil
			}
		}
		pos = end
	}
	return false, TimestampOffset{}, nil
}

func firstRecord(batch []byte, ts, logStart int64, limit int) (found bool, at TimestampOffset, err error) {
	err = record.ForEachRecord(batch, limit, func(rec *record.Record) error {
		if rec.Timestamp < ts || rec.Offset < logStart {
			return nil
		}
		found, at.Offset, at.Timestamp = true, rec.Offset, rec.Timestamp
		return errStop
	})
	return found, at, ignoreStop(err)
}

// AbortedTxns gives the aborted transactions that touch [from, to), from the transaction indexes of the segment that holds
// from and of those behind it, until one entry tells that all before to is decided. complete is false where the archived
// segments end before that: then the rest is in the local log's index.
func (p *Partition) AbortedTxns(ctx context.Context, from, to int64) (txns []record.TxnIndexEntry, complete bool, err error) {
	err = p.withView(ctx, func(v *view) error {
		txns, complete = nil, false
		return p.each(ctx, withTxns(v.m, from), from, func(s SegmentInfo) error {
			if s.Flags&manifest.FlagTxn == 0 {
				return nil
			}
			entries, err := p.txnIndex(ctx, s)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if e.LastOffset >= from && e.FirstOffset < to {
					txns = append(txns, e)
				}
				if complete = e.LastStableOffset >= to; complete {
					return errStop
				}
			}
			return nil
		})
	})
	if ignoreStop(err) != nil {
		return nil, false, fmt.Errorf("tiering: aborted transactions of %s from %d to %d: %w", p, from, to, err)
	}
	return txns, complete, nil
}

// withTxns is m without the pages that need not be read.
func withTxns(m *manifest.Manifest, from int64) *manifest.Manifest {
	out := *m
	out.Pages = nil
	for _, ref := range m.Pages[manifest.FindPage(m.Pages, from):] {
		if ref.Flags&manifest.FlagTxn != 0 {
			out.Pages = append(out.Pages, ref)
		}
	}
	return &out
}

func (p *Partition) txnIndex(ctx context.Context, s manifest.Segment) ([]record.TxnIndexEntry, error) {
	o, err := p.openObject(ctx, s)
	if err != nil {
		return nil, err
	}
	b, err := o.Section(ctx, manifest.SectionTxnIndex)
	if err != nil {
		return nil, err
	}
	entries, err := record.ParseTxnIndex(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.key, classify(err))
	}
	return entries, nil
}

// ProducerSnapshot gives the producer state at the end of the segment that holds offset, and that end, for a replica that
// starts from the archive. It is nil where the segment was copied without one.
func (p *Partition) ProducerSnapshot(ctx context.Context, offset int64) (snapshot []byte, end int64, err error) {
	err = p.resolve(ctx, offset, func(s manifest.Segment, _ func() (manifest.Segment, bool)) error {
		o, err := p.openObject(ctx, s)
		if err != nil {
			return err
		}
		end = s.NextOffset()
		snapshot, err = o.Section(ctx, manifest.SectionProducerSnapshot)
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("tiering: producer snapshot of %s at offset %d: %w", p, offset, err)
	}
	return snapshot, end, nil
}
