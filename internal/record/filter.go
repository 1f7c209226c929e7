package record

import "math"

// Filter rewrites batches as log compaction does: records go, offsets, timestamps, sequence numbers and the extent of the
// batch stay. It is not for concurrent use.
type Filter struct {
	// Limit bounds what a batch may decompress to.
	Limit int
	// Keep tells whether a record stays.
	Keep func(*Record) bool

	b Builder
}

// Apply appends to dst what is left of one whole batch: the batch as it is where every record stays and no horizon is due,
// nothing where no record stays. horizon, unless NoTimestamp, is the delete horizon that a batch gets that has none yet
// and keeps a tombstone (a record without value); with stamp any batch gets it (Kafka's attribute bit 6; the time itself
// takes the place of the base timestamp).
func (f *Filter) Apply(dst, batch []byte, horizon int64, stamp bool) (out []byte, kept int32, changed bool, err error) {
	h, err := ParseHeader(batch)
	if err != nil {
		return dst, 0, false, err
	}
	tombstone, err := f.encode(&h, batch, h.BaseTimestamp)
	if err != nil {
		return dst, 0, false, err
	}
	kept = f.b.n
	stamp = (stamp || tombstone) && !h.DeleteHorizon() && horizon != NoTimestamp && kept > 0
	switch {
	case kept == h.NumRecords && !stamp:
		return append(dst, batch[:h.Size()]...), kept, false, nil
	case kept == 0:
		return dst, 0, true, nil
	case stamp:
		if _, err := f.encode(&h, batch, horizon); err != nil {
			return dst, 0, false, err
		}
		h.Attributes |= attrDeleteHorizon
		h.BaseTimestamp = horizon
	}
	start := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	if dst, err = Compress(h.Codec(), DefaultLevel, dst, f.b.records); err != nil {
		return dst[:start], 0, false, err
	}
	if !h.LogAppendTime() {
		h.MaxTimestamp = f.b.maxTs
	}
	h.NumRecords = kept
	PutHeader(dst[start:], &h)
	return dst, kept, true, nil
}

// encode collects the records that stay, with timestamps relative to base.
func (f *Filter) encode(h *Header, batch []byte, base int64) (tombstone bool, err error) {
	f.b.Reset()
	f.b.fixedBase, f.b.baseTs = true, base
	err = ForEachRecord(batch, f.Limit, func(r *Record) error {
		if !f.Keep(r) {
			return nil
		}
		if delta := r.Offset - h.BaseOffset; delta <= int64(f.b.lastOff) || delta > math.MaxInt32 {
			return ErrCorrupt
		}
		tombstone = tombstone || r.Value == nil
		f.b.AppendAt(int32(r.Offset-h.BaseOffset), r.Timestamp, r.Key, r.Value, r.Headers)
		return nil
	})
	return tombstone, err
}

// AppendEmpty appends h as a batch without records, which compaction keeps for its offsets or for its producer's sequence
// numbers.
func AppendEmpty(dst []byte, h Header) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	h.Attributes &^= attrCodecMask | attrDeleteHorizon
	h.NumRecords, h.BaseTimestamp = 0, NoTimestamp
	PutHeader(dst[start:], &h)
	return dst
}

// AppendGap appends a batch without records and without producer that takes the place of h's offsets.
func AppendGap(dst []byte, h Header) []byte {
	return AppendEmpty(dst, Header{BaseOffset: h.BaseOffset, LeaderEpoch: h.LeaderEpoch, Attributes: h.Attributes & attrLogAppendTime,
		LastOffsetDelta: h.LastOffsetDelta, MaxTimestamp: NoTimestamp, ProducerID: NoProducerID, ProducerEpoch: NoProducerEpoch,
		BaseSequence: NoSequence})
}
