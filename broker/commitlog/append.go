package commitlog

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/varvehq/varve/internal/record"
)

// batchSet is what validation learned of an append without the log's lock.
type batchSet struct {
	first   record.Header // of the first batch
	batches int
	records int64 // offsets taken
	maxTs   int64
	marker  record.Marker // where first is a control batch that ends a transaction
}

// Append validates batches (whole, concatenated), assigns offsets and the leader epoch in place, and writes them; it does
// not wait for the disk: see Flush. With LogAppendTime it also sets the timestamps. A batch of an idempotent or
// transactional producer must come alone. Nothing is written when an error is returned.
func (l *Log) Append(batches []byte, epoch int32) (AppendInfo, error) {
	cfg := l.cfg.Load()
	now := l.env.Clock()
	set, err := validate(batches, cfg, now)
	if err != nil {
		return AppendInfo{}, err
	}
	info := AppendInfo{LogAppendTime: record.NoTimestamp, MaxTimestamp: set.maxTs}
	if cfg.TimestampType == LogAppendTime {
		info.LogAppendTime, info.MaxTimestamp = now.UnixMilli(), now.UnixMilli()
		it := record.NewBatchIterator(batches)
		for _, b, ok := it.Next(); ok; _, b, ok = it.Next() {
			record.SetLogAppendTime(b, info.LogAppendTime)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return AppendInfo{}, err
	}
	if epoch < l.mu.epochs.latest() {
		return AppendInfo{}, fmt.Errorf("%w: %d, the log has %d", ErrStaleEpoch, epoch, l.mu.epochs.latest())
	}
	info.LogStartOffset = l.start.Load()
	dup, err := l.checkProducer(&set)
	if err != nil {
		return AppendInfo{}, err
	}
	if dup != nil {
		info.FirstOffset, info.LastOffset, info.Duplicate = dup.firstOffset(), dup.lastOffset, true
		return info, nil
	}
	info.FirstOffset = l.end.Load()
	if info.FirstOffset > math.MaxInt64-set.records {
		return AppendInfo{}, fmt.Errorf("%w: offsets are used up", ErrInvalidRecord)
	}
	info.LastOffset = info.FirstOffset + set.records - 1
	next := info.FirstOffset
	it := record.NewBatchIterator(batches)
	for h, b, ok := it.Next(); ok; h, b, ok = it.Next() {
		record.SetBaseOffset(b, next)
		record.SetLeaderEpoch(b, epoch)
		next += int64(h.LastOffsetDelta) + 1
	}
	return info, l.write(batches, info.LastOffset, info.MaxTimestamp, now)
}

// AppendReplica writes batches that already have offsets and leader epochs, as a leader or an archive gives them. The
// first must not be below EndOffset; offsets may have gaps, as compaction leaves them.
func (l *Log) AppendReplica(batches []byte) (AppendInfo, error) {
	info := AppendInfo{LogAppendTime: record.NoTimestamp, MaxTimestamp: record.NoTimestamp, FirstOffset: -1}
	now := l.env.Clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return info, err
	}
	next, epoch := l.end.Load(), int32(0)
	it := record.NewBatchIterator(batches)
	for h, b, ok := it.Next(); ok; h, b, ok = it.Next() {
		if err := record.VerifyBatch(b); err != nil {
			return info, err
		}
		if h.BaseOffset < next || h.LeaderEpoch < epoch {
			return info, fmt.Errorf("%w: offset %d, epoch %d, expected at least %d, %d", ErrInvalidRecord, h.BaseOffset, h.LeaderEpoch, next, epoch)
		}
		if info.FirstOffset < 0 {
			info.FirstOffset = h.BaseOffset
		}
		next, epoch = h.NextOffset(), h.LeaderEpoch
		info.MaxTimestamp = max(info.MaxTimestamp, h.MaxTimestamp)
	}
	if err := it.Err(); err != nil {
		return info, err
	}
	if info.FirstOffset < 0 {
		return info, fmt.Errorf("%w: no batch", ErrInvalidRecord)
	}
	info.LastOffset, info.LogStartOffset = next-1, l.start.Load()
	return info, l.write(batches, info.LastOffset, info.MaxTimestamp, now)
}

// validate checks what does not depend on the log's state.
func validate(b []byte, cfg *Config, now time.Time) (batchSet, error) {
	set := batchSet{maxTs: record.NoTimestamp}
	it := record.NewBatchIterator(b)
	for h, batch, ok := it.Next(); ok; h, batch, ok = it.Next() {
		if err := validateBatch(&h, batch, cfg, now); err != nil {
			return set, err
		}
		if set.batches == 0 {
			set.first = h
			if h.Control() {
				m, err := parseMarker(batch, cfg.DecompressLimit)
				if err != nil {
					return set, err
				}
				set.marker = m
			}
		}
		if set.batches > 0 && (h.HasProducer() || set.first.HasProducer()) {
			return set, fmt.Errorf("%w: several batches with a producer id in one append", ErrInvalidRecord)
		}
		set.batches++
		set.records += int64(h.LastOffsetDelta) + 1
		set.maxTs = max(set.maxTs, h.MaxTimestamp)
	}
	if err := it.Err(); err != nil {
		return set, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if set.batches == 0 {
		return set, fmt.Errorf("%w: no batch", ErrInvalidRecord)
	}
	if int64(len(b)) > cfg.SegmentBytes {
		return set, fmt.Errorf("%w: %d bytes, a segment takes %d", ErrTooLarge, len(b), cfg.SegmentBytes)
	}
	return set, nil
}

func validateBatch(h *record.Header, b []byte, cfg *Config, now time.Time) error {
	if int64(len(b)) > cfg.MaxMessageBytes && !h.Control() {
		return fmt.Errorf("%w: %d bytes, max.message.bytes is %d", ErrTooLarge, len(b), cfg.MaxMessageBytes)
	}
	if err := record.VerifyBatch(b); err != nil {
		return err
	}
	switch {
	case h.NumRecords <= 0 || h.LastOffsetDelta != h.NumRecords-1:
		return fmt.Errorf("%w: %d records, last offset delta %d", ErrInvalidRecord, h.NumRecords, h.LastOffsetDelta)
	case h.Codec() > record.Zstd:
		return fmt.Errorf("%w: unknown compression %d", ErrInvalidRecord, h.Codec())
	case h.HasProducer() && !h.Control() && h.BaseSequence < 0 && !fromCoordinator(h):
		return fmt.Errorf("%w: producer %d without a sequence number", ErrInvalidRecord, h.ProducerID)
	case h.HasProducer() && h.ProducerEpoch < 0, h.Transactional() && !h.HasProducer():
		return fmt.Errorf("%w: producer %d, epoch %d", ErrInvalidRecord, h.ProducerID, h.ProducerEpoch)
	}
	if cfg.TimestampType == LogAppendTime {
		return nil
	}
	if after := cfg.TimestampAfterMax; after >= 0 && h.MaxTimestamp > now.Add(after).UnixMilli() {
		return fmt.Errorf("%w: %d is more than %v after the broker's clock", ErrInvalidTimestamp, h.MaxTimestamp, after)
	}
	if before := cfg.TimestampBeforeMax; before >= 0 && h.BaseTimestamp < now.Add(-before).UnixMilli() {
		return fmt.Errorf("%w: %d is more than %v before the broker's clock", ErrInvalidTimestamp, h.BaseTimestamp, before)
	}
	return nil
}

// noMarker is the type of a control batch that compaction has emptied.
const noMarker record.MarkerType = -1

// fromCoordinator reports whether a data batch is a coordinator's on behalf of a producer (transactional offsets): it has
// no sequence number, since it does not count among the producer's own batches of the partition.
func fromCoordinator(h *record.Header) bool {
	return h.Transactional() && h.BaseSequence == record.NoSequence
}

// parseMarker reads the control record of a batch.
func parseMarker(batch []byte, limit int) (m record.Marker, err error) {
	if h, err := record.ParseHeader(batch); err == nil && h.NumRecords == 0 {
		return record.Marker{Type: noMarker}, nil
	}
	n := 0
	err = record.ForEachRecord(batch, limit, func(r *record.Record) error {
		n++
		var err error
		m, err = record.ParseMarker(r)
		return err
	})
	if err == nil && n != 1 {
		err = fmt.Errorf("%w: control batch of %d records", ErrInvalidRecord, n)
	}
	return m, err
}

// isMarker reports whether a batch ends a transaction.
func isMarker(h *record.Header, m record.Marker) bool {
	return h.Control() && h.HasProducer() && (m.Type == record.AbortMarker || m.Type == record.CommitMarker)
}

func (l *Log) checkProducer(set *batchSet) (dup *batchMeta, err error) {
	switch {
	case !set.first.HasProducer():
		return nil, nil
	case set.first.Control():
		return nil, l.mu.producers.checkMarker(&set.first, set.marker)
	}
	return l.mu.producers.check(&set.first)
}

// write puts finished batches at the end of the log and takes them into all state. The caller holds mu.
func (l *Log) write(b []byte, lastOffset, maxTs int64, now time.Time) error {
	cfg := l.cfg.Load()
	s, err := l.segmentFor(b, lastOffset, maxTs, now, cfg)
	if err != nil {
		return err
	}
	if tail := s.tail.Load(); len(tail.off) >= tailBytes {
		if err := s.flushTail(); err != nil { // before the data, so that an error leaves nothing behind
			return err
		}
	}
	pos := s.size.Load()
	if err := l.writeTxnIndex(s, b); err != nil {
		return err
	}
	if err := l.writeData(s, b, pos); err != nil {
		return err
	}
	it := record.NewBatchIterator(b)
	for h, batch, ok := it.Next(); ok; h, batch, ok = it.Next() {
		l.mu.epochs.assign(h.LeaderEpoch, h.BaseOffset)
		s.note(&h, pos, cfg.IndexIntervalBytes)
		l.applyBatch(&h, batch, now.UnixMilli())
		pos += int64(h.Size())
	}
	s.modTime.Store(now.UnixMilli())
	l.end.Store(s.next.Load())
	if cfg.FlushPolicy == FlushOS {
		l.flushed.Store(s.next.Load())
	}
	return nil
}

// applyBatch takes a batch into the producer state.
func (l *Log) applyBatch(h *record.Header, batch []byte, now int64) {
	if !h.HasProducer() {
		return
	}
	if !h.Control() {
		l.mu.producers.applyData(h, now)
		return
	}
	if m, err := parseMarker(batch, l.cfg.Load().DecompressLimit); err == nil && isMarker(h, m) {
		l.mu.producers.applyMarker(h, m, now)
	}
}

// writeTxnIndex adds aborted transactions to the index before the marker itself is written: a reader must never see the
// marker without it. What a failed append leaves there is cut by it.
func (l *Log) writeTxnIndex(s *segment, b []byte) error {
	it := record.NewBatchIterator(b)
	for h, batch, ok := it.Next(); ok; h, batch, ok = it.Next() {
		if !h.Control() || !h.HasProducer() {
			continue
		}
		m, err := parseMarker(batch, l.cfg.Load().DecompressLimit)
		if err != nil {
			return err
		}
		if e, ok := l.mu.producers.abortEntry(&h, m); ok {
			if err := s.appendTxn(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeData writes b at pos. After an error the file is what it was before, or the log is latched.
func (l *Log) writeData(s *segment, b []byte, pos int64) error {
	f, err := s.openForWrite()
	if err != nil {
		return err
	}
	l.reserve(s, f, pos+int64(len(b)))
	if s.pin == nil {
		s.pin = f // the reference stays until the bytes are synced
		f.refs.Add(1)
	}
	_, err = f.WriteAt(b, pos)
	if err == nil {
		return f.release()
	}
	undo := f.Truncate(pos)
	if undo == nil {
		undo = f.Sync() // or a crash could mix the failed bytes into what is written here next
	}
	if undo == nil {
		undo = s.cutTxn(l.end.Load())
	}
	if undo != nil {
		l.latch(fmt.Errorf("%w; and taking it back: %w", err, undo))
	}
	return errors.Join(err, undo, f.release())
}

// Preallocation makes syncs of a growing file cheaper. It grows with the segment, so that small ones take no space.
const (
	reserveFrom = 256 << 10
	reserveMax  = 16 << 20
)

func (l *Log) reserve(s *segment, f *openFile, end int64) {
	if end < reserveFrom || end <= s.reserved {
		return
	}
	n := min(end, reserveMax, max(l.cfg.Load().SegmentBytes-end, 0))
	if n > 0 && f.Preallocate(end, n) == nil { // a hint: where there is no room the write will say so
		s.reserved = end + n
	} else {
		s.reserved = end + reserveMax
	}
}
