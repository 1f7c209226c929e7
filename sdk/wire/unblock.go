package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/varvehq/varve/sdk"
)

// Decoder reads the blocks of one direction of one stream, in order. Not safe for concurrent use.
type Decoder struct {
	strings map[uint64]string
	sources map[uint64]*sdk.SourcePartition
	schemas map[uint64]*sdk.Schema
	kept    int

	block   []byte
	err     error
	headers []sdk.Header
}

// NewDecoder returns a decoder without announcements.
func NewDecoder() *Decoder {
	d := &Decoder{}
	d.forget()
	return d
}

func (d *Decoder) forget() {
	d.strings, d.sources, d.schemas, d.kept = map[uint64]string{}, map[uint64]*sdk.SourcePartition{}, map[uint64]*sdk.Schema{}, 0
}

func (d *Decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: "+format, append([]any{ErrBlock}, args...)...)
	}
	d.block = nil
}

func (d *Decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.block)
	if n <= 0 {
		d.fail("truncated number")
		return 0
	}
	d.block = d.block[n:]
	return v
}

func (d *Decoder) varint() int64 {
	v, n := binary.Varint(d.block)
	if n <= 0 {
		d.fail("truncated number")
		return 0
	}
	d.block = d.block[n:]
	return v
}

// bytes returns n bytes, not nil and sharing the block's memory.
func (d *Decoder) bytes(n uint64) []byte {
	if d.err != nil || n > uint64(len(d.block)) {
		d.fail("length past the end")
		return []byte{}
	}
	b := d.block[:n:n]
	d.block = d.block[n:]
	return b
}

// Decode appends the block's records to into. They share the block's memory.
func (d *Decoder) Decode(block []byte, into []sdk.Record) ([]sdk.Record, error) {
	d.block, d.err, d.headers = block, nil, nil
	for n := d.uvarint(); n > 0 && d.err == nil; n-- {
		d.announcement()
	}
	n := d.uvarint()
	if n > uint64(len(d.block))/minRecord {
		d.fail("count past the end")
	}
	for ; n > 0 && d.err == nil; n-- {
		into = append(into, sdk.Record{})
		d.record(&into[len(into)-1])
	}
	if d.err == nil && len(d.block) > 0 {
		d.fail("%d bytes after the last record", len(d.block))
	}
	if d.err != nil {
		return nil, d.err
	}
	return into, nil
}

// minRecord is the shortest record: one byte for each part.
const minRecord = 9

func (d *Decoder) announcement() {
	kind, id := d.uvarint(), d.uvarint()
	b := d.bytes(d.uvarint())
	if d.err != nil {
		return
	}
	d.kept += len(b)
	if d.kept > maxAnnouncedBytes || max(len(d.strings), len(d.sources), len(d.schemas)) >= maxAnnounced {
		d.fail("more announcements than a receiver keeps: send a reset")
		return
	}
	switch kind {
	case announceReset:
		d.forget()
	case announceString:
		d.strings[id] = string(b)
	case announceSource:
		d.sources[id] = &sdk.SourcePartition{JSON: append([]byte(nil), b...)}
	case announceSchema:
		s, err := sdk.ParseAvro(b)
		if err != nil {
			d.fail("schema %d: %s", id, err)
			return
		}
		if id < firstSchema {
			d.fail("schema number %d is reserved", id)
			return
		}
		d.schemas[id] = s
	default:
		d.fail("announcement of kind %d", kind)
	}
}

func (d *Decoder) str() string {
	id := d.uvarint()
	s, ok := d.strings[id]
	if !ok {
		d.fail("string %d was not announced", id)
	}
	return s
}

func (d *Decoder) value(v *sdk.Value) {
	id := d.uvarint()
	switch id {
	case schemaNull:
		return
	case schemaBytes:
	case schemaText:
		v.Schema = sdk.TextSchema
	case schemaJSON:
		v.Schema = sdk.JSONSchema
	default:
		s, ok := d.schemas[id]
		if !ok {
			d.fail("schema %d was not announced", id)
			return
		}
		v.Schema = s
	}
	v.Data = d.bytes(d.uvarint())
}

func (d *Decoder) record(r *sdk.Record) {
	r.Topic = d.str()
	r.Partition = int32(d.varint())
	r.Timestamp = d.varint()
	d.value(&r.Key)
	d.value(&r.Value)
	n := d.uvarint()
	if n > uint64(len(d.block))/2 {
		d.fail("header count past the end")
		return
	}
	start := len(d.headers)
	for ; n > 0 && d.err == nil; n-- {
		h := sdk.Header{Key: d.str()}
		d.value(&h.Value)
		d.headers = append(d.headers, h)
	}
	if end := len(d.headers); end > start {
		r.Headers = d.headers[start:end:end]
	}
	if id := d.uvarint(); id != 0 {
		s, ok := d.sources[id]
		if !ok {
			d.fail("source partition %d was not announced", id)
			return
		}
		r.Source = s
	}
	if n := d.uvarint(); n > 0 {
		r.SourceOffset = d.bytes(n - 1)
	}
	r.Offset = d.varint()
}
