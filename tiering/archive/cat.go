package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tiering"
)

// CatOptions choose records.
type CatOptions struct {
	From    int64 // first offset; below the log start: from there
	To      int64 // exclusive; negative: to the end
	Aborted bool  // records of aborted transactions too
	// MaxDecompressed bounds the records of one batch; zero means 128 MiB.
	MaxDecompressed int
}

// readBytes is how much is read at a time.
const readBytes = 1 << 20

// Cat calls f with the records of a partition, in order. Control records are left out. The record is valid only during
// the call.
func (a *Archive) Cat(ctx context.Context, p Partition, opts CatOptions, f func(*record.Record) error) error {
	c := &cat{tp: a.store.Partition(p.id(), p.Manifest), opts: opts, f: f}
	if c.opts.MaxDecompressed == 0 {
		c.opts.MaxDecompressed = 128 << 20
	}
	if err := c.tp.Load(ctx); err != nil {
		return err
	}
	end := c.tp.EndOffset()
	if opts.To >= 0 {
		end = min(end, opts.To)
	}
	c.opts.To = end
	for next := max(opts.From, c.tp.StartOffset()); next < end; {
		batches, release, err := c.tp.Read(ctx, next, readBytes)
		if err != nil {
			return err
		}
		next, err = c.batches(ctx, batches, next)
		release()
		if err != nil {
			return err
		}
	}
	return nil
}

type cat struct {
	tp   *tiering.Partition
	opts CatOptions
	f    func(*record.Record) error
}

// batches gives the records of one read and tells the offset after it.
func (c *cat) batches(ctx context.Context, b []byte, from int64) (int64, error) {
	next := from
	it := record.NewBatchIterator(b)
	for h, batch, ok := it.Next(); ok; h, batch, ok = it.Next() {
		next = h.NextOffset()
		if h.Control() || h.BaseOffset >= c.opts.To {
			continue
		}
		skip, err := c.aborted(ctx, &h)
		if err != nil {
			return next, err
		}
		if skip {
			continue
		}
		var stop error // what f returned
		err = record.ForEachRecord(batch, c.opts.MaxDecompressed, func(r *record.Record) error {
			if r.Offset < from || r.Offset >= c.opts.To {
				return nil
			}
			stop = c.f(r)
			return stop
		})
		if stop != nil {
			return next, stop
		}
		if err != nil {
			return next, fmt.Errorf("%w: %s, batch at offset %d: %w", tiering.ErrCorrupt, c.tp, h.BaseOffset, err)
		}
	}
	if err := it.Err(); err != nil && !errors.Is(err, record.ErrPartial) {
		return next, fmt.Errorf("%w: %s after offset %d: %w", tiering.ErrCorrupt, c.tp, next, err)
	}
	return next, nil
}

// aborted tells whether a batch belongs to a transaction that was aborted, as far as its end is archived.
func (c *cat) aborted(ctx context.Context, h *record.Header) (bool, error) {
	if c.opts.Aborted || !h.Transactional() {
		return false, nil
	}
	txns, _, err := c.tp.AbortedTxns(ctx, h.BaseOffset, h.NextOffset())
	if err != nil {
		return false, err
	}
	for _, t := range txns {
		if t.ProducerID == h.ProducerID && t.FirstOffset <= h.BaseOffset && h.BaseOffset <= t.LastOffset {
			return true, nil
		}
	}
	return false, nil
}
