package controller

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/varvehq/varve/internal/kafka"
)

// A row of records is records one after another, each
//
//	uvarint length of what follows | uvarint kind | uvarint version | fields of the kind, in order
//
// Fields: integers are zigzag varints, strings and lists a uvarint length or count and then their bytes or items, ids 16
// bytes, booleans one byte (0 or 1).

// ErrUnsupported marks a record of a kind or version that this build does not know: the metadata was written by a newer one.
var ErrUnsupported = errors.New("unsupported metadata record")

type encoder struct{ b []byte }

func (e *encoder) uint(v uint64) { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) i32(v int32)   { e.b = binary.AppendVarint(e.b, int64(v)) }
func (e *encoder) i64(v int64)   { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) str(s string)  { e.uint(uint64(len(s))); e.b = append(e.b, s...) }

func (e *encoder) uuid(id kafka.UUID) { e.b = append(e.b, id[:]...) }

func (e *encoder) boolean(v bool) {
	if v {
		e.b = append(e.b, 1)
		return
	}
	e.b = append(e.b, 0)
}

func (e *encoder) ids(v []int32) {
	e.uint(uint64(len(v)))
	for _, id := range v {
		e.i32(id)
	}
}

// AppendRecords appends the encoding of records to b.
func AppendRecords(b []byte, records ...Record) []byte {
	var body encoder
	for _, r := range records {
		body.b = body.b[:0]
		body.uint(uint64(r.kind()))
		body.uint(recordVersion)
		r.encode(&body)
		b = binary.AppendUvarint(b, uint64(len(body.b)))
		b = append(b, body.b...)
	}
	return b
}

// DecodeRecords decodes what AppendRecords made. It keeps no reference to b. Damaged bytes give ErrCorrupt, unknown kinds and
// versions ErrUnsupported.
func DecodeRecords(b []byte) ([]Record, error) {
	var records []Record
	for off := 0; off < len(b); {
		n, size := binary.Uvarint(b[off:])
		if size <= 0 || n > uint64(len(b)-off-size) {
			return nil, fmt.Errorf("%w: record at byte %d has a bad length", ErrCorrupt, off)
		}
		body := b[off+size : off+size+int(n)]
		r, err := decodeRecord(body)
		if err != nil {
			return nil, fmt.Errorf("record at byte %d: %w", off, err)
		}
		records = append(records, r)
		off += size + int(n)
	}
	return records, nil
}

func decodeRecord(body []byte) (Record, error) {
	d := decoder{b: body}
	kind, version := d.uint(), d.uint()
	if d.bad {
		return nil, fmt.Errorf("%w: no kind or version", ErrCorrupt)
	}
	r := newRecord(recordKind(kind))
	if r == nil || version > recordVersion {
		return nil, fmt.Errorf("%w: kind %d, version %d", ErrUnsupported, kind, version)
	}
	r.decode(&d)
	if d.bad || len(d.b) > 0 {
		return nil, fmt.Errorf("%w: fields of kind %d", ErrCorrupt, kind)
	}
	return r, nil
}

// decoder reads fields; after the first damage it gives zero values and bad is set.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) fail() { d.bad, d.b = true, nil }

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) i64() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) bounded(lo, hi int64) int64 {
	v := d.i64()
	if v < lo || v > hi {
		d.fail()
		return 0
	}
	return v
}

func (d *decoder) i32() int32  { return int32(d.bounded(math.MinInt32, math.MaxInt32)) }
func (d *decoder) i16() int16  { return int16(d.bounded(math.MinInt16, math.MaxInt16)) }
func (d *decoder) small() int8 { return int8(d.bounded(math.MinInt8, math.MaxInt8)) }

// count reads the number of items that take at least each bytes.
func (d *decoder) count(each int) int {
	n := d.uint()
	if n > uint64(len(d.b)/each) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) str() string {
	n := d.count(1)
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) uuid() kafka.UUID {
	var id kafka.UUID
	if len(d.b) < len(id) {
		d.fail()
		return id
	}
	copy(id[:], d.b)
	d.b = d.b[len(id):]
	return id
}

func (d *decoder) boolean() bool {
	if len(d.b) == 0 || d.b[0] > 1 {
		d.fail()
		return false
	}
	v := d.b[0] == 1
	d.b = d.b[1:]
	return v
}

func (d *decoder) ids() []int32 {
	n := d.count(1)
	if n == 0 {
		return nil
	}
	v := make([]int32, n)
	for i := range v {
		v[i] = d.i32()
	}
	return v
}
