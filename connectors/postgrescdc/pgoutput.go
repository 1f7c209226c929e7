package postgrescdc

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// errProtocol is a message of the replication protocol or of pgoutput that makes no sense.
var errProtocol = errors.New("malformed replication message")

// reader reads the fields of a message; after the first that is missing it is bad and returns zeros.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad = true
		r.b = nil
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) u8() byte {
	if v := r.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (r *reader) u16() int {
	if v := r.take(2); v != nil {
		return int(binary.BigEndian.Uint16(v))
	}
	return 0
}

func (r *reader) u32() uint32 {
	if v := r.take(4); v != nil {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if v := r.take(8); v != nil {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

func (r *reader) cstring() string {
	i := bytes.IndexByte(r.b, 0)
	if i < 0 {
		r.bad = true
		r.b = nil
		return ""
	}
	return string(r.take(i + 1)[:i])
}

// tuple reads a TupleData into t, whose fields share the message's memory.
func (r *reader) tuple(t *tuple) {
	n := r.u16()
	if n > len(r.b) {
		r.bad = true
		return
	}
	t.fields = t.fields[:0]
	b := r.b
	for range n {
		if len(b) == 0 {
			r.bad = true
			return
		}
		kind := b[0]
		b = b[1:]
		switch kind {
		case 'n', 'u':
			t.fields = append(t.fields, field{kind: kind})
		case 't':
			if len(b) < 4 {
				r.bad = true
				return
			}
			size := binary.BigEndian.Uint32(b)
			if uint64(size) > uint64(len(b)-4) {
				r.bad = true
				return
			}
			t.fields = append(t.fields, field{kind: 't', data: b[4 : 4+size : 4+size]})
			b = b[4+size:]
		default:
			r.bad = true
			return
		}
	}
	r.b = b
}

// relationMessage is a Relation message.
type relationMessage struct {
	id       uint32
	schema   string
	name     string
	identity byte
	columns  []wireColumn
}

func parseRelation(body []byte) (*relationMessage, error) {
	r := reader{b: body}
	m := &relationMessage{id: r.u32(), schema: r.cstring(), name: r.cstring(), identity: r.u8()}
	if m.schema == "" {
		m.schema = "pg_catalog"
	}
	for range r.u16() {
		flags := r.u8()
		c := wireColumn{identity: flags&1 != 0, name: r.cstring(), typ: r.u32(), typmod: int32(r.u32())}
		if r.bad {
			break
		}
		m.columns = append(m.columns, c)
	}
	if r.bad {
		return nil, errProtocol
	}
	return m, nil
}

// dml is an Insert, Update or Delete. Its tuples share the message's memory.
type dml struct {
	relation uint32
	hasOld   bool
	hasNew   bool
	old, row tuple
}

// parse reads a message of the given type, behind the type's byte, into m, reusing its memory.
func (m *dml) parse(typ byte, body []byte) error {
	r := reader{b: body}
	m.relation = r.u32()
	m.hasOld, m.hasNew = false, false
	kind := r.u8()
	if kind == 'K' || kind == 'O' {
		m.hasOld = true
		m.old.partial = kind == 'K'
		r.tuple(&m.old)
		if typ == 'U' {
			kind = r.u8()
		}
	}
	if typ != 'D' {
		if kind != 'N' {
			return errProtocol
		}
		m.hasNew = true
		m.row.partial = false
		r.tuple(&m.row)
	}
	if r.bad || typ == 'D' && !m.hasOld || typ == 'I' && m.hasOld || len(r.b) > 0 {
		return errProtocol
	}
	return nil
}

// logicalMessage is what pg_logical_emit_message writes.
type logicalMessage struct {
	transactional bool
	at            lsn
	prefix        string
	content       []byte
}

func parseMessage(body []byte) (m logicalMessage, err error) {
	r := reader{b: body}
	m.transactional = r.u8()&1 != 0
	m.at = lsn(r.u64())
	m.prefix = r.cstring()
	m.content = r.take(int(r.u32()))
	if r.bad {
		return m, errProtocol
	}
	return m, nil
}

// parseTruncate returns the tables of a Truncate.
func parseTruncate(body []byte) ([]uint32, error) {
	r := reader{b: body}
	n := int(r.u32())
	r.u8()
	var ids []uint32
	for ; n > 0 && !r.bad; n-- {
		ids = append(ids, r.u32())
	}
	if r.bad {
		return nil, errProtocol
	}
	return ids, nil
}

// postgresEpoch is 2000-01-01 in microseconds since 1970-01-01.
const postgresEpoch = 946_684_800_000_000
