package record

import (
	"fmt"
	"iter"
	"math"
)

// RecordHeader is one header of a record. A nil Value is null.
type RecordHeader struct {
	Key   []byte
	Value []byte
}

// Record is one record of a batch. Key and Value are nil where null. All slices are parts of a buffer that is valid only
// until the callback or loop body that received the Record returns; clone what is kept.
type Record struct {
	Attributes int8
	Offset     int64
	Timestamp  int64
	Key        []byte
	Value      []byte
	Headers    []RecordHeader
}

// ForEachRecord calls f with every record of one whole batch, in order, with one reused Record. Compressed records may
// take at most limit bytes when decompressed; more is ErrLimit. Errors of f end the walk and are returned as they are;
// everything else is of the class ErrCorrupt. The checksum is not verified; see VerifyBatch.
func ForEachRecord(batch []byte, limit int, f func(*Record) error) error {
	h, err := ParseHeader(batch)
	if err != nil {
		return err
	}
	if h.Size() > len(batch) {
		return ErrPartial
	}
	if err := h.check(); err != nil {
		return err
	}
	body := batch[HeaderSize:h.Size()]
	if c := h.Codec(); c != None {
		buf := getBuffer()
		defer putBuffer(buf)
		if buf.b, err = Decompress(c, buf.b[:0], body, limit); err != nil {
			return err
		}
		body = buf.b
	}
	return forEach(&h, body, f)
}

// Records is ForEachRecord as a sequence; the last pair carries the error, if any, and a nil Record.
func Records(batch []byte, limit int) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		stopped := false
		err := ForEachRecord(batch, limit, func(r *Record) error {
			if !yield(r, nil) {
				stopped = true
				return errStop
			}
			return nil
		})
		if err != nil && !stopped {
			yield(nil, err)
		}
	}
}

var errStop = fmt.Errorf("stop")

func forEach(h *Header, body []byte, f func(*Record) error) error {
	var r Record
	var headers []RecordHeader
	d := decoder{b: body}
	for i := range h.NumRecords {
		r.Headers = headers[:0]
		d.record(h, &r)
		if d.bad {
			return fmt.Errorf("%w: record %d of %d of the batch at offset %d", ErrCorrupt, i, h.NumRecords, h.BaseOffset)
		}
		headers = r.Headers
		if len(r.Headers) == 0 {
			r.Headers = nil
		}
		if err := f(&r); err != nil {
			return err
		}
	}
	if d.pos != len(body) {
		return fmt.Errorf("%w: %d bytes after the last record of the batch at offset %d", ErrCorrupt, len(body)-d.pos, h.BaseOffset)
	}
	return nil
}

// decoder reads varints and byte fields; bad latches the first fault, after which everything reads as zero.
type decoder struct {
	b   []byte
	pos int
	bad bool
}

func (d *decoder) record(h *Header, r *Record) {
	length := d.varint()
	if d.bad || length < 0 || int(length) > len(d.b)-d.pos {
		d.bad = true
		return
	}
	end := d.pos + int(length)
	outer := d.b
	d.b = d.b[:end]
	if r.Attributes = 0; d.pos < end {
		r.Attributes = int8(d.b[d.pos])
		d.pos++
	} else {
		d.bad = true
	}
	tsDelta, offDelta := d.varlong(), d.varint()
	if offDelta < 0 || offDelta > h.LastOffsetDelta {
		d.bad = true
	}
	r.Offset = h.BaseOffset + int64(offDelta)
	r.Timestamp = h.BaseTimestamp + tsDelta
	if h.LogAppendTime() {
		r.Timestamp = h.MaxTimestamp
	}
	r.Key = d.bytes()
	r.Value = d.bytes()
	d.headers(r)
	if d.pos != end {
		d.bad = true
	}
	d.b = outer
}

func (d *decoder) headers(r *Record) {
	n := d.varint()
	if n < 0 || int(n) > len(d.b)-d.pos { // a header takes two bytes at least
		d.bad = true
	}
	for range n {
		key := d.bytes()
		if key == nil {
			d.bad = true
		}
		value := d.bytes()
		if d.bad {
			return
		}
		r.Headers = append(r.Headers, RecordHeader{Key: key, Value: value})
	}
}

func (d *decoder) bytes() []byte {
	n := d.varint()
	if n == -1 {
		return nil
	}
	if n < 0 || int(n) > len(d.b)-d.pos || d.bad {
		d.bad = true
		return nil
	}
	v := d.b[d.pos : d.pos+int(n) : d.pos+int(n)]
	d.pos += int(n)
	return v
}

func (d *decoder) varint() int32 {
	v := d.varlong()
	if v < math.MinInt32 || v > math.MaxInt32 {
		d.bad = true
		return 0
	}
	return int32(v)
}

func (d *decoder) varlong() int64 {
	var v uint64
	for shift := uint(0); shift < 64; shift += 7 {
		if d.pos >= len(d.b) {
			d.bad = true
			return 0
		}
		c := d.b[d.pos]
		d.pos++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return int64(v>>1) ^ -int64(v&1)
		}
	}
	d.bad = true
	return 0
}
