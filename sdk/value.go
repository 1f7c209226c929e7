package sdk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Value is an encoded value. It is read through its schema with a Reader, without allocation, and built with an Appender.
//
//   - Data nil: null, whatever the schema.
//   - Schema nil: raw bytes.
//   - Schema of type Text or JSON: the text itself.
//   - else: Avro binary of the schema. An optional schema is the union [null, T]. Integers of all widths are Avro longs,
//     arrays and maps are written as one block with its count.
type Value struct {
	Schema *Schema
	Data   []byte
}

// IsNull reports whether v is null.
func (v Value) IsNull() bool {
	return v.Data == nil || v.Schema != nil && v.Schema.Optional && len(v.Data) == 1 && v.Data[0] == 0
}

// RawBytes is a value without schema.
func RawBytes(b []byte) Value { return Value{Data: b} }

// TextValue is a value of plain text.
func TextValue(s string) Value { return Value{Schema: TextSchema, Data: []byte(s)} }

// JSONValue is a JSON document without schema.
func JSONValue(doc []byte) Value { return Value{Schema: JSONSchema, Data: doc} }

// Appender builds Avro binary, field after field in the order of the schema. The caller keeps to the schema: for an
// optional schema Null or Present comes before the value. The zero Appender is ready; Buf may be taken and reused.
type Appender struct{ Buf []byte }

// Reset empties the appender and keeps its memory.
func (a *Appender) Reset() { a.Buf = a.Buf[:0] }

// Null writes null for an optional schema.
func (a *Appender) Null() { a.Buf = append(a.Buf, 0) }

// Present says that the value of an optional schema follows.
func (a *Appender) Present() { a.Buf = append(a.Buf, 2) }

// Int writes an Int8, Int16, Int32 or Int64.
func (a *Appender) Int(v int64) { a.Buf = binary.AppendVarint(a.Buf, v) }

// Float32 writes a Float32.
func (a *Appender) Float32(v float32) {
	a.Buf = binary.LittleEndian.AppendUint32(a.Buf, math.Float32bits(v))
}

// Float64 writes a Float64.
func (a *Appender) Float64(v float64) {
	a.Buf = binary.LittleEndian.AppendUint64(a.Buf, math.Float64bits(v))
}

// Bool writes a Boolean.
func (a *Appender) Bool(v bool) {
	b := byte(0)
	if v {
		b = 1
	}
	a.Buf = append(a.Buf, b)
}

// String writes a String.
func (a *Appender) String(s string) {
	a.Buf = append(binary.AppendVarint(a.Buf, int64(len(s))), s...)
}

// Bytes writes Bytes, or a String given as bytes.
func (a *Appender) Bytes(b []byte) {
	a.Buf = append(binary.AppendVarint(a.Buf, int64(len(b))), b...)
}

// Count begins an Array or a Map of n elements; the elements follow (for a Map: String, then value), then End, also for n = 0.
func (a *Appender) Count(n int) {
	if n > 0 {
		a.Int(int64(n))
	}
}

// End closes an Array or a Map.
func (a *Appender) End() { a.Buf = append(a.Buf, 0) }

// Value returns what was built as a value of s. It shares the appender's memory.
func (a *Appender) Value(s *Schema) Value { return Value{Schema: s, Data: a.Buf} }

// ErrEncoding marks bytes that are not a value of their schema.
var ErrEncoding = errors.New("sdk: malformed value")

// Reader reads Avro binary in the order of the schema. After the first error every method returns zero values; look at
// Err once at the end. It does not copy: what Bytes returns shares the value's memory.
type Reader struct {
	data []byte
	err  error
}

// NewReader reads v, which must have a schema other than Text and JSON.
func NewReader(v Value) Reader { return Reader{data: v.Data} }

// Err is the first error, nil for none; it wraps ErrEncoding.
func (r *Reader) Err() error { return r.err }

// Len is how many bytes are left.
func (r *Reader) Len() int { return len(r.data) }

func (r *Reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrEncoding, what)
	}
	r.data = nil
}

// Null reads the branch of an optional schema and reports whether it is null.
func (r *Reader) Null() bool {
	switch r.Int() {
	case 0:
		return true
	case 1:
		return false
	}
	r.fail("union branch other than 0 and 1")
	return true
}

// Int reads an Int8, Int16, Int32 or Int64.
func (r *Reader) Int() int64 {
	v, n := binary.Varint(r.data)
	if n <= 0 {
		r.fail("truncated integer")
		return 0
	}
	r.data = r.data[n:]
	return v
}

// Float32 reads a Float32.
func (r *Reader) Float32() float32 {
	b := r.take(4)
	if b == nil {
		return 0
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(b))
}

// Float64 reads a Float64.
func (r *Reader) Float64() float64 {
	b := r.take(8)
	if b == nil {
		return 0
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}

// Bool reads a Boolean.
func (r *Reader) Bool() bool {
	b := r.take(1)
	return b != nil && b[0] != 0
}

// Bytes reads a String or Bytes.
func (r *Reader) Bytes() []byte {
	n := r.Int()
	if n < 0 || n > int64(len(r.data)) {
		r.fail("length past the end")
		return nil
	}
	return r.take(int(n))
}

// Count reads the size of the next block of an Array or a Map: 0 ends it.
func (r *Reader) Count() int {
	n := r.Int()
	if n < 0 { // a block with its size in bytes, as other writers make
		r.Int()
		n = -n
	}
	if n < 0 || n > int64(len(r.data)) {
		// Only a struct without fields takes no bytes, so a count past the bytes left is garbage.
		r.fail("count past the end")
		return 0
	}
	return int(n)
}

// Skip passes over one value of s.
func (r *Reader) Skip(s *Schema) {
	if s.Optional && r.Null() {
		return
	}
	switch s.Type {
	case Int8, Int16, Int32, Int64:
		r.Int()
	case Float32:
		r.take(4)
	case Float64:
		r.take(8)
	case Boolean:
		r.take(1)
	case String, Bytes:
		r.Bytes()
	case Array, Map:
		r.elements(s, func() {
			if s.Type == Map {
				r.Bytes()
			}
			r.Skip(s.Elem)
		})
	case Struct:
		for i := range s.Fields {
			r.Skip(s.Fields[i].Schema)
		}
	default:
		r.fail("type " + s.Type.String() + " inside a value")
	}
}

// elements calls one for each element of an Array or Map. Elements that take no bytes are refused where there is more than one,
// in whatever blocks they come: a few bytes could ask for millions.
func (r *Reader) elements(s *Schema, one func()) {
	seen := 0
	for n := r.Count(); n > 0 && r.err == nil; n = r.Count() {
		for ; n > 0 && r.err == nil; n-- {
			before := len(r.data)
			one()
			if len(r.data) == before && (n > 1 || seen > 0) {
				r.fail("elements without bytes")
			}
			seen++
		}
	}
}

// Raw passes over one value of s and returns its bytes, shared with the value's memory.
func (r *Reader) Raw(s *Schema) []byte {
	start := r.data
	r.Skip(s)
	if r.err != nil {
		return nil
	}
	return start[:len(start)-len(r.data)]
}

func (r *Reader) take(n int) []byte {
	if n > len(r.data) {
		r.fail("truncated value")
		return nil
	}
	b := r.data[:n:n]
	r.data = r.data[n:]
	return b
}
