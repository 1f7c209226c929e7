package record

import (
	"encoding/binary"
	"fmt"
	"sort"
)

// Sizes of index entries in bytes.
const (
	OffsetIndexEntrySize = 8
	TimeIndexEntrySize   = 12
	TxnIndexEntrySize    = 34
)

// OffsetIndexEntry says that the batch whose last offset is the segment's base plus RelOffset starts at Position.
type OffsetIndexEntry struct {
	RelOffset int32
	Position  int32
}

// AppendTo appends the 8 bytes of the entry.
func (e OffsetIndexEntry) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(e.RelOffset))
	return binary.BigEndian.AppendUint32(b, uint32(e.Position))
}

// OffsetIndex is the content of an .index file. The accessors read it in place; bytes after the last whole entry are
// not looked at, except by Check.
type OffsetIndex []byte

// Len is the number of whole entries.
func (x OffsetIndex) Len() int { return len(x) / OffsetIndexEntrySize }

// At returns entry i, 0 ≤ i < Len.
func (x OffsetIndex) At(i int) OffsetIndexEntry {
	b := x[i*OffsetIndexEntrySize:]
	return OffsetIndexEntry{int32(binary.BigEndian.Uint32(b)), int32(binary.BigEndian.Uint32(b[4:]))}
}

// Floor returns the last entry with RelOffset ≤ rel.
func (x OffsetIndex) Floor(rel int64) (OffsetIndexEntry, bool) {
	i := sort.Search(x.Len(), func(i int) bool { return int64(x.At(i).RelOffset) > rel })
	if i == 0 {
		return OffsetIndexEntry{}, false
	}
	return x.At(i - 1), true
}

// FloorPosition returns the last entry with Position ≤ pos.
func (x OffsetIndex) FloorPosition(pos int64) (OffsetIndexEntry, bool) {
	i := sort.Search(x.Len(), func(i int) bool { return int64(x.At(i).Position) > pos })
	if i == 0 {
		return OffsetIndexEntry{}, false
	}
	return x.At(i - 1), true
}

// Check tells whether the index is whole entries, strictly ascending in offset and position, with every position below
// logSize.
func (x OffsetIndex) Check(logSize int64) error {
	if len(x)%OffsetIndexEntrySize != 0 {
		return fmt.Errorf("%w: offset index of %d bytes", ErrCorrupt, len(x))
	}
	prev := OffsetIndexEntry{-1, -1}
	for i := range x.Len() {
		e := x.At(i)
		if e.RelOffset <= prev.RelOffset || e.Position <= prev.Position || int64(e.Position) >= logSize {
			return fmt.Errorf("%w: offset index entry %d (offset +%d, position %d)", ErrCorrupt, i, e.RelOffset, e.Position)
		}
		prev = e
	}
	return nil
}

// TimeIndexEntry says that up to the batch whose last offset is the segment's base plus RelOffset, the largest timestamp
// is Timestamp, and that it is in that batch.
type TimeIndexEntry struct {
	Timestamp int64
	RelOffset int32
}

// AppendTo appends the 12 bytes of the entry.
func (e TimeIndexEntry) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(e.Timestamp))
	return binary.BigEndian.AppendUint32(b, uint32(e.RelOffset))
}

// TimeIndex is the content of a .timeindex file.
type TimeIndex []byte

// Len is the number of whole entries.
func (x TimeIndex) Len() int { return len(x) / TimeIndexEntrySize }

// At returns entry i, 0 ≤ i < Len.
func (x TimeIndex) At(i int) TimeIndexEntry {
	b := x[i*TimeIndexEntrySize:]
	return TimeIndexEntry{int64(binary.BigEndian.Uint64(b)), int32(binary.BigEndian.Uint32(b[8:]))}
}

// Floor returns the last entry with Timestamp ≤ ts.
func (x TimeIndex) Floor(ts int64) (TimeIndexEntry, bool) {
	i := sort.Search(x.Len(), func(i int) bool { return x.At(i).Timestamp > ts })
	if i == 0 {
		return TimeIndexEntry{}, false
	}
	return x.At(i - 1), true
}

// Before returns the last entry with Timestamp < ts: a search for the first record at or after ts starts behind it.
func (x TimeIndex) Before(ts int64) (TimeIndexEntry, bool) {
	i := sort.Search(x.Len(), func(i int) bool { return x.At(i).Timestamp >= ts })
	if i == 0 {
		return TimeIndexEntry{}, false
	}
	return x.At(i - 1), true
}

// Last returns the last entry, which holds the largest timestamp.
func (x TimeIndex) Last() (TimeIndexEntry, bool) {
	if x.Len() == 0 {
		return TimeIndexEntry{}, false
	}
	return x.At(x.Len() - 1), true
}

// Check tells whether the index is whole entries, strictly ascending in timestamp and offset.
func (x TimeIndex) Check() error {
	if len(x)%TimeIndexEntrySize != 0 {
		return fmt.Errorf("%w: time index of %d bytes", ErrCorrupt, len(x))
	}
	for i := range x.Len() {
		e := x.At(i)
		if e.RelOffset < 0 || i > 0 && (e.Timestamp <= x.At(i-1).Timestamp || e.RelOffset <= x.At(i-1).RelOffset) {
			return fmt.Errorf("%w: time index entry %d (timestamp %d, offset +%d)", ErrCorrupt, i, e.Timestamp, e.RelOffset)
		}
	}
	return nil
}

// TxnIndexEntry is an aborted transaction: its producer, its first offset, the offset of its abort marker, and the last
// stable offset after that marker.
type TxnIndexEntry struct {
	ProducerID       int64
	FirstOffset      int64
	LastOffset       int64
	LastStableOffset int64
}

// AppendTo appends the 34 bytes of the entry (version 0).
func (e TxnIndexEntry) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(e.ProducerID))
	b = binary.BigEndian.AppendUint64(b, uint64(e.FirstOffset))
	b = binary.BigEndian.AppendUint64(b, uint64(e.LastOffset))
	return binary.BigEndian.AppendUint64(b, uint64(e.LastStableOffset))
}

// ParseTxnIndex reads the content of a .txnindex file. With an error, of the class ErrCorrupt, come the entries before the
// damage.
func ParseTxnIndex(b []byte) ([]TxnIndexEntry, error) {
	out := make([]TxnIndexEntry, 0, len(b)/TxnIndexEntrySize)
	last := int64(-1)
	for ; len(b) > 0; b = b[TxnIndexEntrySize:] {
		if len(b) < TxnIndexEntrySize {
			return out, fmt.Errorf("%w: transaction index ends in %d bytes", ErrCorrupt, len(b))
		}
		if v := binary.BigEndian.Uint16(b); v != 0 {
			return out, fmt.Errorf("%w: transaction index version %d", ErrCorrupt, v)
		}
		e := TxnIndexEntry{
			ProducerID:       int64(binary.BigEndian.Uint64(b[2:])),
			FirstOffset:      int64(binary.BigEndian.Uint64(b[10:])),
			LastOffset:       int64(binary.BigEndian.Uint64(b[18:])),
			LastStableOffset: int64(binary.BigEndian.Uint64(b[26:])),
		}
		if e.FirstOffset < 0 || e.LastOffset < e.FirstOffset || e.LastOffset <= last {
			return out, fmt.Errorf("%w: aborted transaction of producer %d at offsets %d to %d", ErrCorrupt, e.ProducerID, e.FirstOffset, e.LastOffset)
		}
		last = e.LastOffset
		out = append(out, e)
	}
	return out, nil
}
