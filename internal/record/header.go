package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// Sizes of a batch's fixed part.
const (
	// HeaderSize is the size of the header in front of a batch's records.
	HeaderSize = 61
	// LogOverhead is the part of the header that the batch length does not count.
	LogOverhead = 12
	// Magic is the only supported format version of batches.
	Magic = 2
)

// Absent values of the header's producer fields.
const (
	NoProducerID    int64 = -1
	NoProducerEpoch int16 = -1
	NoSequence      int32 = -1
	NoTimestamp     int64 = -1
	NoEpoch         int32 = -1
)

const (
	attrCodecMask     = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

// Errors of this package. ErrCorrupt is the class: every other one except ErrPartial satisfies errors.Is(err, ErrCorrupt).
var (
	// ErrCorrupt marks bytes that are not what a correct writer wrote.
	ErrCorrupt = errors.New("corrupt record data")
	// ErrPartial marks a batch that goes on past the end of the given bytes.
	ErrPartial = errors.New("partial record batch")
	// ErrMagic marks a batch of another format version than 2.
	ErrMagic = fmt.Errorf("%w: unsupported magic", ErrCorrupt)
	// ErrCRC marks a batch whose checksum does not match.
	ErrCRC = fmt.Errorf("%w: checksum mismatch", ErrCorrupt)
	// ErrCodec marks an unknown compression codec or a block that the codec refuses.
	ErrCodec = fmt.Errorf("%w: compression", ErrCorrupt)
	// ErrLimit marks records that decompress to more than the given limit.
	ErrLimit = fmt.Errorf("%w: decompressed size is over the limit", ErrCorrupt)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is the fixed part of a batch.
type Header struct {
	BaseOffset      int64
	BatchLength     int32
	LeaderEpoch     int32
	Magic           int8
	CRC             uint32
	Attributes      int16
	LastOffsetDelta int32
	BaseTimestamp   int64
	MaxTimestamp    int64
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	NumRecords      int32
}

// ParseHeader reads a header from the start of b and checks magic and the size fields only. It returns ErrPartial where
// b is shorter than a header.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, ErrPartial
	}
	h := Header{
		BaseOffset:      int64(binary.BigEndian.Uint64(b)),
		BatchLength:     int32(binary.BigEndian.Uint32(b[8:])),
		LeaderEpoch:     int32(binary.BigEndian.Uint32(b[12:])),
		Magic:           int8(b[16]),
		CRC:             binary.BigEndian.Uint32(b[17:]),
		Attributes:      int16(binary.BigEndian.Uint16(b[21:])),
		LastOffsetDelta: int32(binary.BigEndian.Uint32(b[23:])),
		BaseTimestamp:   int64(binary.BigEndian.Uint64(b[27:])),
		MaxTimestamp:    int64(binary.BigEndian.Uint64(b[35:])),
		ProducerID:      int64(binary.BigEndian.Uint64(b[43:])),
		ProducerEpoch:   int16(binary.BigEndian.Uint16(b[51:])),
		BaseSequence:    int32(binary.BigEndian.Uint32(b[53:])),
		NumRecords:      int32(binary.BigEndian.Uint32(b[57:])),
	}
	if h.Magic != Magic {
		return h, ErrMagic
	}
	if h.BatchLength < HeaderSize-LogOverhead || h.BatchLength > math.MaxInt32-LogOverhead {
		return h, fmt.Errorf("%w: batch length %d", ErrCorrupt, h.BatchLength)
	}
	return h, nil
}

// Size is the size of the whole batch in bytes.
func (h *Header) Size() int { return LogOverhead + int(h.BatchLength) }

// LastOffset is the offset of the last record (or of the last record that was there before compaction).
func (h *Header) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// NextOffset is the offset after the batch.
func (h *Header) NextOffset() int64 { return h.LastOffset() + 1 }

// Codec is the compression of the records.
func (h *Header) Codec() Codec { return Codec(h.Attributes & attrCodecMask) }

// Transactional reports whether the batch is part of a transaction; markers are.
func (h *Header) Transactional() bool { return h.Attributes&attrTransactional != 0 }

// Control reports whether the batch holds control records, which consumers do not see.
func (h *Header) Control() bool { return h.Attributes&attrControl != 0 }

// LogAppendTime reports whether MaxTimestamp, set by the broker, is the timestamp of every record.
func (h *Header) LogAppendTime() bool { return h.Attributes&attrLogAppendTime != 0 }

// DeleteHorizon reports whether BaseTimestamp is the time after which compaction may drop tombstones.
func (h *Header) DeleteHorizon() bool { return h.Attributes&attrDeleteHorizon != 0 }

// HasProducer reports whether the batch carries an idempotent producer's id.
func (h *Header) HasProducer() bool { return h.ProducerID >= 0 }

// LastSequence is the sequence number of the last record, wrapping from 2^31-1 to 0; NoSequence where there is none.
func (h *Header) LastSequence() int32 {
	if h.BaseSequence < 0 {
		return NoSequence
	}
	return AddSequence(h.BaseSequence, h.LastOffsetDelta)
}

// AddSequence advances a sequence number by n records, wrapping from 2^31-1 to 0.
func AddSequence(seq, n int32) int32 { return int32((int64(seq) + int64(n)) & math.MaxInt32) }

// check tells whether the header's fields fit each other.
func (h *Header) check() error {
	switch {
	case h.BaseOffset < 0:
		return fmt.Errorf("%w: base offset %d", ErrCorrupt, h.BaseOffset)
	case h.LastOffsetDelta < 0:
		return fmt.Errorf("%w: last offset delta %d", ErrCorrupt, h.LastOffsetDelta)
	case h.BaseOffset > math.MaxInt64-int64(h.LastOffsetDelta)-1:
		return fmt.Errorf("%w: offsets from %d overflow", ErrCorrupt, h.BaseOffset)
	case h.NumRecords < 0 || int64(h.NumRecords) > int64(h.LastOffsetDelta)+1:
		return fmt.Errorf("%w: %d records in %d offsets", ErrCorrupt, h.NumRecords, int64(h.LastOffsetDelta)+1)
	}
	return nil
}

// VerifyBatch checks one whole batch: length, magic, header fields and CRC-32C. Errors are of the class ErrCorrupt, or
// ErrPartial where b ends before the batch does. Bytes after the batch are not looked at.
func VerifyBatch(b []byte) error {
	h, err := ParseHeader(b)
	if err != nil {
		return err
	}
	if len(b) < h.Size() {
		return ErrPartial
	}
	if err := h.check(); err != nil {
		return err
	}
	if sum := Checksum(b[:h.Size()]); sum != h.CRC {
		return fmt.Errorf("%w: stored %08x, computed %08x", ErrCRC, h.CRC, sum)
	}
	return nil
}

// Checksum computes the CRC-32C of one whole batch.
func Checksum(batch []byte) uint32 { return crc32.Checksum(batch[21:], castagnoli) }

// SetBaseOffset writes the base offset in place. The CRC does not cover it.
func SetBaseOffset(b []byte, off int64) { binary.BigEndian.PutUint64(b, uint64(off)) }

// SetLeaderEpoch writes the partition leader epoch in place. The CRC does not cover it.
func SetLeaderEpoch(b []byte, epoch int32) { binary.BigEndian.PutUint32(b[12:], uint32(epoch)) }

// SetLogAppendTime makes ts the timestamp of every record of the batch b (exactly one) and recomputes the CRC.
func SetLogAppendTime(b []byte, ts int64) {
	binary.BigEndian.PutUint16(b[21:], binary.BigEndian.Uint16(b[21:])|attrLogAppendTime)
	binary.BigEndian.PutUint64(b[35:], uint64(ts))
	binary.BigEndian.PutUint32(b[17:], Checksum(b))
}
