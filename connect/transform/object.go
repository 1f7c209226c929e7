package transform

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/varvehq/varve/sdk"
)

// object is a struct, or a JSON object without schema, taken apart: raw is the encoded form of each field.
type object struct {
	schema *sdk.Schema // nil: JSON
	names  []string
	raw    [][]byte
}

// split takes v apart, which is not null. purpose is for the error.
func split(v sdk.Value, o *object, purpose string) error {
	o.schema, o.names, o.raw = nil, o.names[:0], o.raw[:0]
	switch {
	case v.Schema != nil && v.Schema.Type == sdk.Struct:
		o.schema = v.Schema
		r := sdk.NewReader(v)
		if v.Schema.Optional {
			r.Null()
		}
		for i := range v.Schema.Fields {
			o.names = append(o.names, v.Schema.Fields[i].Name)
			o.raw = append(o.raw, r.Raw(v.Schema.Fields[i].Schema))
		}
		return r.Err()
	case v.Schema != nil && v.Schema.Type == sdk.JSON:
		return o.splitJSON(v.Data, purpose)
	}
	kind := "bytes"
	if v.Schema != nil {
		kind = v.Schema.Type.String()
	}
	return fmt.Errorf("Only Struct and JSON objects supported for [%s], found: %s", purpose, kind) //nolint:staticcheck // Kafka's wording
}

func (o *object) splitJSON(doc []byte, purpose string) error {
	dec := json.NewDecoder(bytes.NewReader(doc))
	t, err := dec.Token()
	if err != nil || t != json.Delim('{') {
		return fmt.Errorf("Only Struct and JSON objects supported for [%s], found another document", purpose) //nolint:staticcheck // Kafka's wording
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		o.names, o.raw = append(o.names, key.(string)), append(o.raw, raw)
	}
	return nil
}

func (o *object) find(name string) int {
	for i, n := range o.names {
		if n == name {
			return i
		}
	}
	return -1
}

// join builds the value of a struct schema, or of JSON where it is nil, of its fields.
func join(schema *sdk.Schema, names []string, raw [][]byte) sdk.Value {
	n := 1
	for i := range raw {
		n += len(raw[i])
	}
	if schema != nil {
		a := sdk.Appender{Buf: make([]byte, 0, n)}
		if schema.Optional {
			a.Present()
		}
		for i := range raw {
			a.Buf = append(a.Buf, raw[i]...)
		}
		return a.Value(schema)
	}
	buf := append(make([]byte, 0, n+16*len(names)), '{')
	for i := range raw {
		if i > 0 {
			buf = append(buf, ',')
		}
		buf = append(append(append(buf, quote(names[i])...), ':'), raw[i]...)
	}
	return sdk.JSONValue(append(buf, '}'))
}

func quote(s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // strings always encode
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// value is one field as a value of its own.
func (o *object) value(i int) sdk.Value {
	if o.schema == nil {
		if string(o.raw[i]) == "null" {
			return sdk.Value{}
		}
		return sdk.JSONValue(o.raw[i])
	}
	return sdk.Value{Schema: o.schema.Fields[i].Schema, Data: o.raw[i]}
}

// derived remembers what schemas became.
type derived map[*sdk.Schema]*sdk.Schema

const maxDerived = 1000

func (d derived) of(s *sdk.Schema, make func(*sdk.Schema) *sdk.Schema) *sdk.Schema {
	if s == nil {
		return nil
	}
	out, ok := d[s]
	if !ok {
		if len(d) >= maxDerived {
			clear(d)
		}
		out = make(s)
		d[s] = out
	}
	return out
}

// withFields is s with other fields.
func withFields(s *sdk.Schema, fields []sdk.Field) *sdk.Schema {
	c := *s
	c.Fields, c.Default = fields, nil
	return &c
}
