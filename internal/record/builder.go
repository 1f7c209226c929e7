package record

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Producer is the identity of an idempotent producer and the sequence number of a batch's first record.
type Producer struct {
	ID           int64
	Epoch        int16
	BaseSequence int32
}

// BuilderOptions say what kind of batch a Builder makes. The zero value is a plain uncompressed batch.
type BuilderOptions struct {
	Codec         Codec
	Level         int // see Compress
	Producer      *Producer
	Transactional bool
	Control       bool
	LeaderEpoch   int32
}

// Builder encodes records into one batch. It is not for concurrent use.
type Builder struct {
	opts    BuilderOptions
	records []byte
	n       int32
	lastOff int32
	baseTs  int64
	maxTs   int64
	// fixedBase: baseTs is given and not the first record's.
	fixedBase bool
}

// NewBuilder returns an empty builder.
func NewBuilder(opts BuilderOptions) *Builder {
	return &Builder{opts: opts, lastOff: -1, maxTs: NoTimestamp}
}

// Reset empties the builder for the next batch of the same kind; a producer's base sequence goes on after the records
// that were in it.
func (b *Builder) Reset() {
	if p := b.opts.Producer; p != nil && p.BaseSequence >= 0 {
		next := *p
		next.BaseSequence = AddSequence(p.BaseSequence, b.lastOff+1)
		b.opts.Producer = &next
	}
	b.records, b.n, b.lastOff, b.baseTs, b.maxTs = b.records[:0], 0, -1, 0, NoTimestamp
}

// Len is the number of records.
func (b *Builder) Len() int { return int(b.n) }

// Size is the size of the batch before compression.
func (b *Builder) Size() int { return HeaderSize + len(b.records) }

// Append adds a record at the next offset. nil keys and values are null. Nothing of the arguments is kept.
func (b *Builder) Append(timestamp int64, key, value []byte, headers []RecordHeader) {
	b.AppendAt(b.lastOff+1, timestamp, key, value, headers)
}

// AppendAt adds a record at base offset plus delta, which must be larger than those before (gaps are what compaction
// leaves).
func (b *Builder) AppendAt(delta int32, timestamp int64, key, value []byte, headers []RecordHeader) {
	if delta <= b.lastOff {
		panic(fmt.Sprintf("record: offset delta %d after %d", delta, b.lastOff))
	}
	if b.n == 0 {
		b.maxTs = timestamp
		if !b.fixedBase {
			b.baseTs = timestamp
		}
	}
	b.maxTs = max(b.maxTs, timestamp)
	tsDelta := timestamp - b.baseTs
	size := 1 + varlongSize(tsDelta) + varlongSize(int64(delta)) + bytesSize(key) + bytesSize(value) + varlongSize(int64(len(headers)))
	for _, h := range headers {
		size += varlongSize(int64(len(h.Key))) + len(h.Key) + bytesSize(h.Value)
	}
	r := appendVarlong(b.records, int64(size))
	r = append(r, 0)
	r = appendVarlong(r, tsDelta)
	r = appendVarlong(r, int64(delta))
	r = appendBytes(r, key)
	r = appendBytes(r, value)
	r = appendVarlong(r, int64(len(headers)))
	for _, h := range headers {
		r = append(appendVarlong(r, int64(len(h.Key))), h.Key...)
		r = appendBytes(r, h.Value)
	}
	b.records, b.lastOff = r, delta
	b.n++
}

// Batch returns the batch as a new slice. It may be called again, with other base offsets, until Reset.
func (b *Builder) Batch(baseOffset int64) []byte { return b.AppendBatch(nil, baseOffset) }

// AppendBatch appends the batch to dst.
func (b *Builder) AppendBatch(dst []byte, baseOffset int64) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	dst, err := Compress(b.opts.Codec, b.opts.Level, dst, b.records)
	if err != nil {
		panic("record: compression into memory failed: " + err.Error()) // only an unknown codec can
	}
	h := Header{
		BaseOffset:      baseOffset,
		LeaderEpoch:     b.opts.LeaderEpoch,
		Attributes:      int16(b.opts.Codec),
		LastOffsetDelta: max(b.lastOff, 0),
		BaseTimestamp:   b.baseTs,
		MaxTimestamp:    b.maxTs,
		ProducerID:      NoProducerID,
		ProducerEpoch:   NoProducerEpoch,
		BaseSequence:    NoSequence,
		NumRecords:      b.n,
	}
	if p := b.opts.Producer; p != nil {
		h.ProducerID, h.ProducerEpoch, h.BaseSequence = p.ID, p.Epoch, p.BaseSequence
	}
	if b.opts.Transactional {
		h.Attributes |= attrTransactional
	}
	if b.opts.Control {
		h.Attributes |= attrControl
	}
	PutHeader(dst[start:], &h)
	return dst
}

// PutHeader writes h in front of the records that follow in the rest of b (exactly one batch), with the batch length,
// magic and CRC that fit b.
func PutHeader(b []byte, h *Header) {
	if len(b)-LogOverhead > math.MaxInt32 {
		panic("record: batch over 2 GiB")
	}
	binary.BigEndian.PutUint64(b, uint64(h.BaseOffset))
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-LogOverhead))
	binary.BigEndian.PutUint32(b[12:], uint32(h.LeaderEpoch))
	b[16] = Magic
	binary.BigEndian.PutUint16(b[21:], uint16(h.Attributes))
	binary.BigEndian.PutUint32(b[23:], uint32(h.LastOffsetDelta))
	binary.BigEndian.PutUint64(b[27:], uint64(h.BaseTimestamp))
	binary.BigEndian.PutUint64(b[35:], uint64(h.MaxTimestamp))
	binary.BigEndian.PutUint64(b[43:], uint64(h.ProducerID))
	binary.BigEndian.PutUint16(b[51:], uint16(h.ProducerEpoch))
	binary.BigEndian.PutUint32(b[53:], uint32(h.BaseSequence))
	binary.BigEndian.PutUint32(b[57:], uint32(h.NumRecords))
	binary.BigEndian.PutUint32(b[17:], Checksum(b))
}

func bytesSize(v []byte) int {
	if v == nil {
		return 1
	}
	return varlongSize(int64(len(v))) + len(v)
}

func appendBytes(b, v []byte) []byte {
	if v == nil {
		return append(b, 1) // -1
	}
	return append(appendVarlong(b, int64(len(v))), v...)
}

func varlongSize(v int64) int {
	n := 1
	for u := uint64(v<<1) ^ uint64(v>>63); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}

func appendVarlong(b []byte, v int64) []byte {
	u := uint64(v<<1) ^ uint64(v>>63)
	for ; u >= 0x80; u >>= 7 {
		b = append(b, byte(u)|0x80)
	}
	return append(b, byte(u))
}
