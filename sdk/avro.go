package sdk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// AvroJSON writes the schema as Avro JSON. What Avro has no word for goes into properties: connect.name, connect.version,
// connect.doc, connect.parameters, connect.default, connect.type (int8, int16) and, on a field whose name Avro does not
// allow, connect.field. An optional schema is the union of null and the type. A struct that occurs again is referred to
// by name. Equal schemas give equal bytes. Text and JSON, which have no Avro form, are refused.
func (s *Schema) AvroJSON() ([]byte, error) {
	w := avroWriter{names: map[string]*Schema{}}
	if err := w.schema(s, 0); err != nil {
		return nil, err
	}
	return w.buf.Bytes(), nil
}

// unnamed is the Avro name of structs without name.
const unnamed = "ConnectDefault"

// maxSchemaDepth bounds nesting, in both directions.
const maxSchemaDepth = 64

type avroWriter struct {
	buf   bytes.Buffer
	names map[string]*Schema // structs written, by Avro name
}

func (w *avroWriter) string(s string) {
	b, _ := json.Marshal(s) // a string always marshals
	w.buf.Write(b)
}

func (w *avroWriter) property(name, value string) {
	w.buf.WriteByte(',')
	w.string(name)
	w.buf.WriteByte(':')
	w.string(value)
}

var avroTypes = map[Type]string{
	Int8: "int", Int16: "int", Int32: "int", Int64: "long", Float32: "float", Float64: "double", Boolean: "boolean",
	String: "string", Bytes: "bytes", Array: "array", Map: "map", Struct: "record",
}

func (w *avroWriter) schema(s *Schema, depth int) error {
	if s == nil || avroTypes[s.Type] == "" {
		return fmt.Errorf("sdk: a schema without Avro form")
	}
	if depth > maxSchemaDepth {
		return fmt.Errorf("sdk: schema nested deeper than %d", maxSchemaDepth)
	}
	if s.Optional {
		w.buf.WriteString(`["null",`)
		defer w.buf.WriteByte(']')
	}
	var name string
	if s.Type == Struct {
		var written bool
		if name, written = w.name(s); written {
			w.string(name)
			return nil
		}
		w.names[name] = s
	}
	w.buf.WriteString(`{"type":`)
	w.string(avroTypes[s.Type])
	if err := w.shape(s, name, depth); err != nil {
		return err
	}
	if err := w.properties(s); err != nil {
		return err
	}
	w.buf.WriteByte('}')
	return nil
}

// shape writes what depends on the type.
func (w *avroWriter) shape(s *Schema, name string, depth int) error {
	switch s.Type {
	case Int8, Int16:
		w.property("connect.type", s.Type.String())
	case Array, Map:
		w.buf.WriteString(map[Type]string{Array: `,"items":`, Map: `,"values":`}[s.Type])
		return w.schema(s.Elem, depth+1)
	case Struct:
		w.property("name", name)
		w.buf.WriteString(`,"fields":[`)
		names := map[string]bool{}
		for i := range s.Fields {
			if i > 0 {
				w.buf.WriteByte(',')
			}
			if err := w.field(&s.Fields[i], names, depth+1); err != nil {
				return err
			}
		}
		w.buf.WriteByte(']')
	}
	return nil
}

func (w *avroWriter) field(f *Field, names map[string]bool, depth int) error {
	name := unique(avroName(f.Name, "field", false), func(n string) bool { return names[n] })
	names[name] = true
	w.buf.WriteString(`{"name":`)
	w.string(name)
	w.buf.WriteString(`,"type":`)
	if err := w.schema(f.Schema, depth); err != nil {
		return err
	}
	if f.Schema.Optional {
		w.buf.WriteString(`,"default":null`)
	} else if f.Schema.Default != nil {
		w.buf.WriteString(`,"default":`)
		if err := w.value(f.Schema); err != nil {
			return err
		}
	}
	if name != f.Name {
		w.property("connect.field", f.Name)
	}
	w.buf.WriteByte('}')
	return nil
}

// name gives a struct its Avro name, and says whether an equal one was written under it.
func (w *avroWriter) name(s *Schema) (string, bool) {
	base := avroName(s.Name, unnamed, true)
	name := unique(base, func(n string) bool { return w.names[n] != nil && !equalButOptional(w.names[n], s) })
	return name, w.names[name] != nil
}

func equalButOptional(a, b *Schema) bool {
	if a.Optional == b.Optional {
		return a.Equal(b)
	}
	c := *a
	c.Optional = b.Optional
	return c.Equal(b)
}

func unique(name string, taken func(string) bool) string {
	for n, i := name, 2; ; i++ {
		if !taken(n) {
			return n
		}
		n = name + "_" + strconv.Itoa(i)
	}
}

// avroName makes a legal Avro name of a legal or illegal one.
func avroName(name, empty string, dots bool) string {
	if name == "" {
		return empty
	}
	var b strings.Builder
	start := true // of the name, or of a part of it
	for _, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		digit := r >= '0' && r <= '9'
		switch {
		case dots && r == '.' && !start:
			b.WriteByte('.')
			start = true
			continue
		case digit && start:
			b.WriteByte('_')
			b.WriteRune(r)
		case letter || digit:
			b.WriteRune(r)
		default:
			b.WriteByte('_')
		}
		start = false
	}
	if start { // ends in a dot
		b.WriteByte('_')
	}
	return b.String()
}

func (w *avroWriter) properties(s *Schema) error {
	if s.Name != "" {
		w.property("connect.name", s.Name)
	}
	if s.Version != 0 {
		w.buf.WriteString(`,"connect.version":` + strconv.Itoa(int(s.Version)))
	}
	if s.Doc != "" {
		w.property("connect.doc", s.Doc)
	}
	if len(s.Parameters) > 0 {
		b, err := json.Marshal(s.Parameters) // sorted by key
		if err != nil {
			return err
		}
		w.buf.WriteString(`,"connect.parameters":`)
		w.buf.Write(b)
	}
	w.logicalType(s)
	if s.Default == nil {
		return nil
	}
	w.buf.WriteString(`,"connect.default":`)
	return w.value(s)
}

// logicalTypes are Avro's names of Connect's logical types.
var logicalTypes = map[string]string{DateName: "date", TimeName: "time-millis", TimestampName: "timestamp-millis"}

func (w *avroWriter) logicalType(s *Schema) {
	if l := logicalTypes[s.Name]; l != "" && (s.Type == Int64) == (s.Name == TimestampName) && (s.Type == Int32 || s.Type == Int64) {
		w.property("logicalType", l)
		return
	}
	scale, ok := DecimalScale(s)
	if !ok || s.Type != Bytes || scale < 0 {
		return
	}
	precision, err := strconv.Atoi(s.Parameters["connect.decimal.precision"])
	if err != nil || precision < scale {
		precision = max(64, scale)
	}
	w.property("logicalType", "decimal")
	fmt.Fprintf(&w.buf, `,"precision":%d,"scale":%d`, precision, scale)
}

// value writes the default of s as Avro's JSON encoding of it.
func (w *avroWriter) value(s *Schema) error {
	v, err := Decode(Value{Schema: s, Data: s.Default})
	if err != nil {
		return fmt.Errorf("sdk: default of %s: %w", s.Name, err)
	}
	b, err := json.Marshal(avroValue(v))
	if err != nil {
		return fmt.Errorf("sdk: default of %s: %w", s.Name, err)
	}
	w.buf.Write(b)
	return nil
}

// avroValue turns byte strings into text of one character a byte, and structs into maps.
func avroValue(v any) any {
	switch v := v.(type) {
	case []byte:
		r := make([]rune, len(v))
		for i, c := range v {
			r[i] = rune(c)
		}
		return string(r)
	case []any:
		for i := range v {
			v[i] = avroValue(v[i])
		}
		return v
	case map[string]any:
		for k := range v {
			v[k] = avroValue(v[k])
		}
		return v
	case *StructValue:
		m := make(map[string]any, len(v.Values))
		for i := range v.Values {
			m[v.Schema.Fields[i].Name] = avroValue(v.Values[i])
		}
		return m
	}
	return v
}
