package postgrescdc

import (
	"encoding/binary"
	"testing"

	"github.com/varvehq/varve/sdk"
)

// tupleBytes builds a TupleData; nil is null, and "\x00" an unchanged value.
func tupleBytes(values ...any) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(values)))
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			b = append(b, 'n')
		case bool:
			b = append(b, 'u')
		case string:
			b = append(b, 't')
			b = binary.BigEndian.AppendUint32(b, uint32(len(v)))
			b = append(b, v...)
		}
	}
	return b
}

func FuzzRowChange(f *testing.F) {
	id := []byte{0, 0, 0, 1}
	cat := func(parts ...[]byte) (b []byte) {
		for _, p := range parts {
			b = append(b, p...)
		}
		return b
	}
	f.Add(byte('I'), cat(id, []byte("N"), tupleBytes("1", nil, "x")))
	f.Add(byte('U'), cat(id, []byte("K"), tupleBytes("1", nil, nil), []byte("N"), tupleBytes("2", true, "y")))
	f.Add(byte('U'), cat(id, []byte("N"), tupleBytes("2", true, "y")))
	f.Add(byte('D'), cat(id, []byte("O"), tupleBytes("1", "2024-02-29 12:34:56+00", "{1,NULL}")))
	cfg, errs := parseConfig(sdk.Config{"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"})
	if len(errs) > 0 {
		f.Fatal(errs)
	}
	r := &relation{schema: "public", name: "t", identity: 'd', key: []string{"id"}, columns: []attribute{
		{name: "id", typ: oidInt4, typmod: -1, notNull: true}, {name: "at", typ: oidTimestamptz, typmod: -1}, {name: "a", typ: 1007, typmod: -1}}}
	types := map[uint32]*pgType{1007: {oid: 1007, name: "_int4", kind: 'b', array: true, elem: oidInt4}}
	t := newTable(cfg, types, r)
	f.Fuzz(func(tt *testing.T, typ byte, body []byte) {
		var m dml
		if err := m.parse(typ, body); err != nil {
			return
		}
		s := &stream{cfg: cfg, w: newWriter(cfg), dml: m}
		s.w.begin(&transaction{xid: 1, micros: 1}, "null", "false")
		if typ != 'I' && typ != 'U' && typ != 'D' {
			return
		}
		if m.hasNew && len(m.row.fields) != len(t.columns) || m.hasOld && len(m.old.fields) != len(t.columns) {
			return
		}
		changes, n := s.changes(t, typ, 1)
		b := &batch{}
		for i := range n {
			rec, err := s.w.append(b, t, &changes[i])
			if err != nil {
				continue
			}
			for _, v := range []sdk.Value{rec.Key, rec.Value} {
				if v.Data == nil {
					continue
				}
				rd := sdk.NewReader(v)
				rd.Skip(v.Schema)
				if rd.Err() != nil || rd.Len() != 0 {
					tt.Fatalf("%c: malformed value: %v, %d bytes left", typ, rd.Err(), rd.Len())
				}
			}
		}
	})
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01public\x00t\x00d\x00\x01\x01id\x00\x00\x00\x00\x17\xff\xff\xff\xff"))
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x07p\x00\x00\x00\x00\x01x"))
	f.Add([]byte("\x00\x00\x00\x01\x00\x00\x00\x00\x09"))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = parseRelation(body)
		_, _ = parseMessage(body)
		_, _ = parseTruncate(body)
		var row tuple
		_ = row.dataRow(body)
		_ = serverError(body).Error()
		_, _ = parseOffset(body)
	})
}

// FuzzText puts any text through every form: it must fail or give a value that fits to the schema.
func FuzzText(f *testing.F) {
	for _, c := range typeCases {
		f.Add([]byte(c.value))
	}
	for _, s := range []string{`{1,NULL,"a\"b",{x}}`, "[0:1]={1,2}", "{", `{"`, "infinity", "-1 days +02:03:04.5", "NaN", `\x0`, "12:00:00+05:30:01", "2024-02-29 12:34:56.1+00 BC", "(1,2)"} {
		f.Add([]byte(s))
	}
	cfg, errs := parseConfig(sdk.Config{"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"})
	if len(errs) > 0 {
		f.Fatal(errs)
	}
	var cols []*column
	for times := range timeForms {
		c := *cfg
		c.Times = times
		m := &typeMapper{cfg: &c, types: map[uint32]*pgType{1: {oid: 1, kind: 'b', array: true, elem: oidText}, 2: {oid: 2, kind: 'b', array: true, elem: oidNumeric}}}
		for _, oid := range []uint32{1, 2, oidBool, oidBytea, oidInt8, oidFloat4, oidFloat8, oidNumeric, oidMoney, oidDate, oidTime, oidTimestamp, oidTimestamptz,
			oidTimetz, oidInterval, oidBit, oidVarbit, oidPoint, oidText} {
			cols = append(cols, m.column("c", oid, -1, true))
		}
		cols = append(cols, m.column("c", oidNumeric, 4+9<<16+2, true))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, c := range cols {
			b, err := c.appendValue(nil, text)
			if err != nil {
				continue
			}
			r := sdk.NewReader(sdk.Value{Schema: c.schema, Data: b})
			r.Skip(c.schema)
			if r.Err() != nil || r.Len() != 0 {
				t.Fatalf("form %d of %q: malformed value: %v, %d bytes left", c.form, text, r.Err(), r.Len())
			}
		}
	})
}
