package tiering

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tiering/manifest"
)

// Copy archives a sealed segment: it reads and checks every batch, puts the object, and commits the manifest that names
// it. When it returns nil, EndOffset covers the segment. What is archived already is left out; a segment that starts
// above EndOffset is ErrGap, unless AdvanceStart has moved the log start there. Offsets inside a segment must be
// contiguous. After any error, EndOffset tells what counts, and Copy may be called again.
func (p *Partition) Copy(ctx context.Context, s Segment) error {
	if err := p.acquire(ctx); err != nil {
		return fmt.Errorf("tiering: copy %s: %w", p, err)
	}
	defer p.release()
	if err := p.copySegment(ctx, &s); err != nil {
		p.store.metrics.copyErrors.Inc()
		return fmt.Errorf("tiering: copy %s, segment %d to %d: %w", p, s.BaseOffset, s.LastOffset, err)
	}
	return nil
}

func (p *Partition) copySegment(ctx context.Context, s *Segment) error {
	if err := checkSegment(s); err != nil {
		return err
	}
	p.mergeLineage(fromRecord(s.Epochs))
	for range maxRaces {
		if err := p.writable(ctx); err != nil {
			return err
		}
		first, done, err := p.where(s)
		if err != nil || done {
			return err
		}
		copied, err := p.copyFrom(ctx, s, first)
		if err != nil || copied {
			return err
		}
	}
	return fmt.Errorf("another writer was faster %d times", maxRaces)
}

func checkSegment(s *Segment) error {
	switch {
	case s.BaseOffset < 0 || s.LastOffset < s.BaseOffset || s.LastOffset-s.BaseOffset > math.MaxInt32:
		return fmt.Errorf("offsets %d to %d are no segment", s.BaseOffset, s.LastOffset)
	case s.LogBytes <= 0 || s.LogBytes > math.MaxInt32:
		return fmt.Errorf("a log of %d bytes is no segment", s.LogBytes)
	case len(s.Epochs) == 0:
		return fmt.Errorf("the segment comes without leader epochs")
	}
	return nil
}

// mergeLineage takes in what a segment knows of the local log's leader epochs.
func (p *Partition) mergeLineage(epochs []manifest.Epoch) {
	known := p.w.lineage
	if n := len(known); n > 0 && len(epochs) > 0 && known[n-1].Epoch >= epochs[len(epochs)-1].Epoch && known[0].StartOffset <= epochs[0].StartOffset {
		return
	}
	p.w.lineage = epochs
}

// where tells at which offset the copy has to start, or that nothing is to do.
func (p *Partition) where(s *Segment) (first int64, done bool, err error) {
	cur := p.draft() // as the next manifest starts out
	switch {
	case cur.Number == 1:
		return s.BaseOffset, false, nil
	case s.LastOffset < cur.EndOffset:
		return 0, true, nil
	case s.BaseOffset > cur.EndOffset:
		return 0, false, fmt.Errorf("%w: the bucket ends before offset %d", ErrGap, cur.EndOffset)
	case len(cur.Segments) == 0 && len(cur.Pages) == 0:
		return s.BaseOffset, false, nil // whatever lies below the log start does no harm
	}
	from := max(cur.LogStartOffset, s.Epochs[0].StartOffset)
	if len(cur.LeaderEpochs) > 0 { // either side may have forgotten epochs below a log start that the other does not know yet
		from = max(from, cur.LeaderEpochs[0].StartOffset)
	}
	if local := fromRecord(s.Epochs); from < cur.EndOffset && !manifest.SameLineage(local, cur.LeaderEpochs, from, cur.EndOffset-1) {
		return 0, false, fmt.Errorf("%w: offsets %d to %d were archived with leader epochs %v, the local log has %v", ErrCorrupt,
			from, cur.EndOffset-1, cur.LeaderEpochs, local)
	}
	return cur.EndOffset, false, nil
}

// copyFrom puts the object and commits it. False without an error means that another writer changed the end meanwhile.
func (p *Partition) copyFrom(ctx context.Context, s *Segment, first int64) (bool, error) {
	started := p.store.now()
	pl, err := scan(ctx, s, first)
	if err != nil {
		return false, err
	}
	seg, trailer, err := p.object(s, pl)
	if err != nil {
		return false, err
	}
	body := io.NewSectionReader(&joined{s.Log, pl.skip, int64(seg.LogBytes), trailer}, 0, int64(seg.Bytes))
	key := p.dir + seg.Key()
	p.uploading.Store(true)
	err = p.store.putBody(ctx, key, body, int64(seg.Bytes), seg.CRC32C)
	p.uploading.Store(false)
	if err != nil && !errors.Is(err, objstore.ErrExists) {
		return false, err // ErrExists: the name is ours alone, so it was an attempt whose reply was lost
	}
	if age := p.store.now().Sub(started); age > p.store.cfg.OrphanAge/2 {
		return false, fmt.Errorf("%w: %s", ErrUploadTooOld, age)
	}
	moved := false
	err = p.commit(ctx, func(d *manifest.Manifest) error {
		if moved = !fits(d, seg); moved {
			return errUnchanged
		}
		if d.Number == 1 {
			d.LogStartOffset = seg.BaseOffset
		}
		d.Segments = append(d.Segments, seg)
		d.EndOffset = seg.NextOffset()
		d.LeaderEpochs = mergeEpochs(d.LeaderEpochs, fromRecord(s.Epochs), d.EndOffset)
		return nil
	})
	if err == nil && !moved {
		p.store.metrics.copied(seg)
		return true, nil
	}
	if moved || errors.Is(err, ErrFenced) {
		// Every manifest that would have named the object lost its number to another one.
		err = errors.Join(err, p.store.env.Bucket.Delete(ctx, key))
	}
	return false, err
}

// fits tells whether a segment still is what must come next.
func fits(d *manifest.Manifest, seg manifest.Segment) bool {
	if len(d.Segments) == 0 && len(d.Pages) == 0 {
		return d.Number == 1 || seg.BaseOffset <= d.EndOffset && d.EndOffset <= seg.LastOffset
	}
	return seg.BaseOffset == d.EndOffset
}

// mergeEpochs lets the local log's epochs follow those that are older than all of them, and ends before end.
func mergeEpochs(archived, local []manifest.Epoch, end int64) []manifest.Epoch {
	var out []manifest.Epoch
	for _, e := range archived {
		if e.StartOffset < local[0].StartOffset && e.Epoch < local[0].Epoch {
			out = append(out, e)
		}
	}
	for _, e := range local {
		if e.StartOffset < end {
			out = append(out, e)
		}
	}
	return out
}

// object lays out the segment object: its entry for the manifest, and all that follows the log part.
func (p *Partition) object(s *Segment, pl *plan) (manifest.Segment, []byte, error) {
	offsets, times, rebuilt := pl.indexes()
	if rebuilt {
		p.store.env.Log.Error("local index is not true to its log; the archive gets one built anew", "partition", p.String(), "segment", s.BaseOffset)
	}
	txns, err := record.ParseTxnIndex(s.TxnIndex)
	if err != nil {
		return manifest.Segment{}, nil, fmt.Errorf("%w: transaction index: %w", ErrCorrupt, err)
	}
	var txnIndex []byte
	for _, t := range txns {
		if t.LastOffset >= pl.seg.BaseOffset {
			txnIndex = t.AppendTo(txnIndex)
		}
	}
	epochs := slices.DeleteFunc(slices.Clone(s.Epochs), func(e record.EpochEntry) bool { return e.StartOffset > s.LastOffset })
	// The checksums and small sections come last, where a reader's first request finds them.
	trailer := manifest.AppendTrailer(nil, int64(pl.seg.LogBytes), []manifest.Section{
		{Type: manifest.SectionTimeIndex, Data: times},
		{Type: manifest.SectionProducerSnapshot, Data: s.ProducerSnapshot},
		{Type: manifest.SectionOffsetIndex, Data: offsets},
		{Type: manifest.SectionTxnIndex, Data: txnIndex},
		{Type: manifest.SectionLeaderEpochs, Data: record.AppendEpochCheckpoint(nil, epochs)},
		{Type: manifest.SectionChunkChecksums, Data: manifest.ChunkChecksums(pl.chunks)},
	})
	if len(trailer) > maxSections || int64(pl.seg.LogBytes)+int64(len(trailer)) > math.MaxUint32 {
		return manifest.Segment{}, nil, fmt.Errorf("sections of %d bytes are too large", len(trailer))
	}
	seg := pl.seg
	seg.Nonce, seg.LeaderEpoch = newNonce(), p.w.rank.LeaderEpoch
	seg.Bytes = seg.LogBytes + uint32(len(trailer))
	seg.CRC32C = manifest.UpdateCRC32C(pl.crc, trailer)
	if len(txnIndex) > 0 {
		seg.Flags |= manifest.FlagTxn
	}
	return seg, trailer, nil
}

// joined reads a part of a log and what follows it as one.
type joined struct {
	log      io.ReaderAt
	skip     int64
	logBytes int64
	trailer  []byte
}

func (j *joined) ReadAt(b []byte, at int64) (n int, err error) {
	if at < j.logBytes {
		n, err = j.log.ReadAt(b[:min(int64(len(b)), j.logBytes-at)], j.skip+at)
		if at += int64(n); err != nil && (!errors.Is(err, io.EOF) || at < j.logBytes) {
			return n, err
		}
	}
	if n == len(b) || at < j.logBytes {
		return n, nil
	}
	m := copy(b[n:], j.trailer[min(at-j.logBytes, int64(len(j.trailer))):])
	if n += m; n < len(b) {
		return n, io.EOF
	}
	return n, nil
}
