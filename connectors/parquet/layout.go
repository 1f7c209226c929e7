package parquet

import (
	"errors"
	"fmt"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/varvehq/varve/sdk"
)

// shape says how a record becomes a row.
type shape int

const (
	shapeChange shape = iota // a change event, flattened to its row
	shapeStruct              // the fields of a struct
	shapePlain               // key and value, each one column
)

// layout is the schema of a file and the way from a record to its row. Records whose key or value have another schema need
// another layout, and so another file.
type layout struct {
	shape    shape
	key      *sdk.Schema
	value    *sdk.Schema
	metadata bool

	schema  *parquet.Schema
	columns []*column // of the value, then of the key where it has a column
	keyCol  *column
	leaves  int // leaf columns without those of the metadata

	// Positions of the envelope's fields, -1 where there is none.
	before, after, source, op int
	sourceTime, sourceLSN     int
}

// Names of the metadata columns.
const (
	colTopic     = "_topic"
	colPartition = "_partition"
	colOffset    = "_offset"
	colTimestamp = "_timestamp"
	colKey       = "_key"
	colOp        = "_op"
	colSourceTS  = "_source_ts_ms"
	colLSN       = "_lsn"
)

// isEnvelope recognises a change event as Debezium writes it.
func isEnvelope(s *sdk.Schema) bool {
	if s == nil || s.Type != sdk.Struct {
		return false
	}
	after, before, op := s.Field("after"), s.Field("before"), s.Field("op")
	return after >= 0 && before >= 0 && op >= 0 &&
		s.Fields[after].Schema.Type == sdk.Struct && s.Fields[before].Schema.Type == sdk.Struct &&
		s.Fields[op].Schema.Type == sdk.String
}

func newLayout(cfg *config, key, value *sdk.Schema) (*layout, error) {
	l := &layout{key: key, value: value, metadata: cfg.Metadata}
	var g group
	var err error
	switch {
	case isEnvelope(value) && cfg.Changes == "flatten":
		l.shape = shapeChange
		g, err = l.changeColumns()
	case value != nil && value.Type == sdk.Struct:
		l.shape = shapeStruct
		g, err = l.structColumns()
	default:
		l.shape = shapePlain
		g, err = l.plainColumns()
	}
	if err != nil {
		return nil, err
	}
	if l.metadata {
		g = append(g, l.metadataColumns()...)
	}
	if err := distinct(g); err != nil {
		return nil, err
	}
	l.schema = parquet.NewSchema("record", g)
	return l, nil
}

func distinct(g group) error {
	seen := make(map[string]bool, len(g))
	for _, f := range g {
		if seen[f.Name()] {
			return fmt.Errorf("two columns are named %s: a field has the name of a metadata column; set metadata.columns=false or rename the field", f.Name())
		}
		seen[f.Name()] = true
	}
	return nil
}

func (l *layout) add(g group, name string, s *sdk.Schema, optional bool) (group, *column, error) {
	c, node, err := newColumn(name, s, optional, l.leaves, 0, 0)
	if err != nil {
		return nil, nil, err
	}
	l.leaves += c.leaves
	return append(g, &field{node, name}), c, nil
}

// changeColumns are those of the row. All are optional: what a delete does not know of the row is null.
func (l *layout) changeColumns() (group, error) {
	l.before, l.after, l.op = l.value.Field("before"), l.value.Field("after"), l.value.Field("op")
	l.source, l.sourceTime, l.sourceLSN = l.value.Field("source"), -1, -1
	if l.source >= 0 {
		src := l.value.Fields[l.source].Schema
		l.sourceTime, l.sourceLSN = src.Field("ts_ms"), src.Field("lsn")
	}
	row := l.value.Fields[l.after].Schema
	var g group
	for _, f := range row.Fields {
		var c *column
		var err error
		if g, c, err = l.add(g, f.Name, f.Schema, true); err != nil {
			return nil, err
		}
		l.columns = append(l.columns, c)
	}
	return g, nil
}

func (l *layout) structColumns() (group, error) {
	var g group
	for _, f := range l.value.Fields {
		// A record without value has null in every column.
		var c *column
		var err error
		if g, c, err = l.add(g, f.Name, f.Schema, true); err != nil {
			return nil, err
		}
		l.columns = append(l.columns, c)
	}
	if !l.metadata {
		return g, nil
	}
	g, err := l.keyColumn(g, colKey)
	return g, err
}

func (l *layout) plainColumns() (group, error) {
	g, err := l.keyColumn(nil, "key")
	if err != nil {
		return nil, err
	}
	g, c, err := l.add(g, "value", orBytes(l.value), true)
	l.columns = []*column{c}
	return g, err
}

func (l *layout) keyColumn(g group, name string) (group, error) {
	g, c, err := l.add(g, name, orBytes(l.key), true)
	l.keyCol = c
	return g, err
}

var rawBytes = &sdk.Schema{Type: sdk.Bytes}

func orBytes(s *sdk.Schema) *sdk.Schema {
	if s == nil {
		return rawBytes
	}
	return s
}

func (l *layout) metadataColumns() group {
	var g group
	if l.shape == shapeChange {
		g = append(g,
			&field{parquet.Encoded(parquet.String(), &parquet.RLEDictionary), colOp},
			&field{parquet.Optional(parquet.Int(64)), colSourceTS},
			&field{parquet.Optional(parquet.Int(64)), colLSN})
	}
	return append(g,
		&field{parquet.Encoded(parquet.String(), &parquet.RLEDictionary), colTopic},
		&field{parquet.Int(32), colPartition},
		&field{parquet.Int(64), colOffset},
		&field{parquet.Timestamp(parquet.Millisecond), colTimestamp})
}

// width is the number of leaf columns.
func (l *layout) width() int {
	n := l.leaves
	if l.metadata {
		n += 4
		if l.shape == shapeChange {
			n += 3
		}
	}
	return n
}

// fits reports whether rec can go into a file of this layout. Records without key or value fit where the other does.
func (l *layout) fits(rec *sdk.Record) bool {
	return (rec.Value.Data == nil || same(l.value, rec.Value.Schema)) &&
		(l.keyCol == nil || rec.Key.Data == nil || same(l.key, rec.Key.Schema))
}

// same compares schemas by what a file's columns depend on.
func same(a, b *sdk.Schema) bool {
	if a == b {
		return true
	}
	if a == nil || b == nil || a.Type != b.Type || a.Optional != b.Optional || a.Name != b.Name || len(a.Fields) != len(b.Fields) ||
		a.Parameters["scale"] != b.Parameters["scale"] ||
		a.Parameters["connect.decimal.precision"] != b.Parameters["connect.decimal.precision"] {
		return false
	}
	if (a.Elem == nil) != (b.Elem == nil) || a.Elem != nil && !same(a.Elem, b.Elem) {
		return false
	}
	return slices.EqualFunc(a.Fields, b.Fields, func(x, y sdk.Field) bool {
		return x.Name == y.Name && same(x.Schema, y.Schema)
	})
}

// write puts rec into w.
func (l *layout) write(w *rowWriter, rec *sdk.Record) error {
	w.reset()
	var err error
	switch l.shape {
	case shapeChange:
		err = l.writeChange(w, rec)
	case shapeStruct:
		err = l.writeStruct(w, rec)
	default:
		err = l.writeScalar(w, l.columns[0], rec.Value)
	}
	if err == nil && l.keyCol != nil {
		err = l.writeScalar(w, l.keyCol, rec.Key)
	}
	if err != nil || !l.metadata {
		return err
	}
	n := l.leaves
	if l.shape == shapeChange {
		n += 3
	}
	w.put(n, 0, 0, parquet.ByteArrayValue([]byte(rec.Topic)))
	w.put(n+1, 0, 0, parquet.Int32Value(rec.Partition))
	w.put(n+2, 0, 0, parquet.Int64Value(rec.Offset))
	w.put(n+3, 0, 0, parquet.Int64Value(rec.Timestamp))
	return nil
}

// writeScalar writes a key or value that is one column.
func (l *layout) writeScalar(w *rowWriter, c *column, v sdk.Value) error {
	if v.Data == nil {
		w.null(c, 0, 0)
		return nil
	}
	if v.Schema == nil || v.Schema.Type == sdk.Text || v.Schema.Type == sdk.JSON {
		w.put(c.leaf, 0, 1, parquet.ByteArrayValue(v.Data))
		return nil
	}
	r := sdk.NewReader(v)
	if err := w.value(c, &r, 0, 0); err != nil {
		return err
	}
	return complete(&r)
}

func (l *layout) writeStruct(w *rowWriter, rec *sdk.Record) error {
	if rec.Value.IsNull() {
		for _, c := range l.columns {
			w.null(c, 0, 0)
		}
		return nil
	}
	r := sdk.NewReader(rec.Value)
	if l.value.Optional {
		r.Null()
	}
	for _, c := range l.columns {
		if err := w.value(c, &r, 0, 0); err != nil {
			return err
		}
	}
	return complete(&r)
}

// complete is the reader's error, or one where bytes are left over.
func complete(r *sdk.Reader) error {
	if r.Err() == nil && r.Len() > 0 {
		return fmt.Errorf("%w: %d bytes after the end", sdk.ErrEncoding, r.Len())
	}
	return r.Err()
}

var errNoRow = errors.New("change event without a row: neither before nor after is there")

// change are the parts of an encoded change event.
type change struct {
	before, after, source, op []byte
}

func (l *layout) split(v sdk.Value) (change, error) {
	var parts change
	r := sdk.NewReader(v)
	if l.value.Optional {
		r.Null()
	}
	for i := range l.value.Fields {
		s := l.value.Fields[i].Schema
		switch i {
		case l.before:
			parts.before = present(s, r.Raw(s))
		case l.after:
			parts.after = present(s, r.Raw(s))
		case l.source:
			parts.source = present(s, r.Raw(s))
		case l.op:
			if s.Optional && r.Null() {
				continue
			}
			parts.op = r.Bytes()
		default:
			r.Skip(s)
		}
	}
	return parts, complete(&r)
}

// present strips the union branch of an optional value; nil for null.
func present(s *sdk.Schema, b []byte) []byte {
	if !s.Optional || len(b) == 0 {
		return b
	}
	if b[0] == 0 {
		return nil
	}
	return b[1:]
}

func (l *layout) writeChange(w *rowWriter, rec *sdk.Record) error {
	parts, err := l.split(rec.Value)
	if err != nil {
		return err
	}
	row := parts.after
	if row == nil {
		row = parts.before
	}
	if row == nil {
		// A truncate, or a delete of a table without identity: the operation stands alone.
		if string(parts.op) != "t" && string(parts.op) != "d" {
			return errNoRow
		}
		for _, c := range l.columns {
			w.null(c, 0, 0)
		}
	} else {
		r := sdk.NewReader(sdk.Value{Data: row})
		for _, c := range l.columns {
			if err := w.value(c, &r, 0, 0); err != nil {
				return err
			}
		}
		if err := complete(&r); err != nil {
			return err
		}
	}
	if !l.metadata {
		return nil
	}
	w.put(l.leaves, 0, 0, parquet.ByteArrayValue(parts.op))
	return l.writeSource(w, parts.source)
}

func (l *layout) writeSource(w *rowWriter, source []byte) error {
	ts, lsn := parquet.NullValue(), parquet.NullValue()
	tsDef, lsnDef := 0, 0
	if source != nil {
		r := sdk.NewReader(sdk.Value{Data: source})
		for i, f := range l.value.Fields[l.source].Schema.Fields {
			if i != l.sourceTime && i != l.sourceLSN || f.Schema.Type != sdk.Int64 {
				r.Skip(f.Schema)
				continue
			}
			if f.Schema.Optional && r.Null() {
				continue
			}
			v := parquet.Int64Value(r.Int())
			if i == l.sourceTime {
				ts, tsDef = v, 1
			} else {
				lsn, lsnDef = v, 1
			}
		}
		if err := complete(&r); err != nil {
			return err
		}
	}
	w.put(l.leaves+1, 0, tsDef, ts)
	w.put(l.leaves+2, 0, lsnDef, lsn)
	return nil
}
