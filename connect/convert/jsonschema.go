package convert

import (
	"encoding/json"
	"sort"
	"strconv"
	"strings"

	"github.com/varvehq/varve/sdk"
)

// schemaDoc is Connect's JSON form of a schema.
type schemaDoc struct {
	Type       *string         `json:"type"`
	Optional   bool            `json:"optional"`
	Name       string          `json:"name"`
	Version    json.Number     `json:"version"`
	Doc        string          `json:"doc"`
	Parameters map[string]any  `json:"parameters"`
	Default    json.RawMessage `json:"default"`
	Fields     []schemaDoc     `json:"fields"`
	Field      *string         `json:"field"`
	Items      *schemaDoc      `json:"items"`
	Keys       *schemaDoc      `json:"keys"`
	Values     *schemaDoc      `json:"values"`
}

var typesByName = map[string]sdk.Type{
	"int8": sdk.Int8, "int16": sdk.Int16, "int32": sdk.Int32, "int64": sdk.Int64, "float": sdk.Float32, "double": sdk.Float64,
	"boolean": sdk.Boolean, "string": sdk.String, "bytes": sdk.Bytes, "array": sdk.Array, "map": sdk.Map, "struct": sdk.Struct,
}

// ParseSchema reads Connect's JSON form of a schema.
func ParseSchema(raw []byte) (*sdk.Schema, error) {
	d := decoder{cfg: DefaultJSONConfig()}
	return d.parseSchema(raw)
}

func (d *decoder) parseSchema(raw []byte) (*sdk.Schema, error) {
	var doc schemaDoc
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, dataErrorf("Schema is not a schema: %v", err)
	}
	return d.schemaOf(&doc, 0)
}

func (d *decoder) schemaOf(doc *schemaDoc, depth int) (*sdk.Schema, error) {
	if depth > maxDepth {
		return nil, dataErrorf("schema nests deeper than %d levels", maxDepth)
	}
	if doc.Type == nil {
		return nil, dataErrorf("Schema must contain 'type' field")
	}
	typ, ok := typesByName[strings.ToLower(*doc.Type)]
	if !ok {
		return nil, dataErrorf("Unknown schema type: %s", *doc.Type)
	}
	s := &sdk.Schema{Type: typ, Optional: doc.Optional, Name: doc.Name, Doc: doc.Doc}
	if doc.Version != "" {
		v, err := strconv.ParseInt(doc.Version.String(), 10, 32)
		if err != nil {
			return nil, dataErrorf("Invalid Schema version, expected integer, got %s", doc.Version)
		}
		s.Version = int32(v)
	}
	if len(doc.Parameters) > 0 {
		s.Parameters = make(map[string]string, len(doc.Parameters))
		for k, v := range doc.Parameters {
			text, ok := v.(string)
			if !ok {
				return nil, dataErrorf("Schema parameters must have string values.")
			}
			s.Parameters[k] = text
		}
	}
	if err := d.parts(doc, s, depth); err != nil {
		return nil, err
	}
	if len(doc.Default) > 0 && string(doc.Default) != "null" {
		def, err := d.defaultOf(s, doc.Default)
		if err != nil {
			return nil, err
		}
		s.Default = def
	}
	return s, nil
}

func (d *decoder) parts(doc *schemaDoc, s *sdk.Schema, depth int) (err error) {
	switch s.Type {
	case sdk.Array:
		if doc.Items == nil {
			return dataErrorf("Array schema did not specify the element type")
		}
		s.Elem, err = d.schemaOf(doc.Items, depth+1)
	case sdk.Map:
		if doc.Keys == nil {
			return dataErrorf("Map schema did not specify the key type")
		}
		if doc.Values == nil {
			return dataErrorf("Map schema did not specify the value type")
		}
		if doc.Keys.Type == nil || *doc.Keys.Type != "string" {
			return dataErrorf("Maps are supported with keys of type string only")
		}
		s.Elem, err = d.schemaOf(doc.Values, depth+1)
	case sdk.Struct:
		if doc.Fields == nil {
			return dataErrorf("Struct schema's \"fields\" argument is not an array.")
		}
		s.Fields = make([]sdk.Field, len(doc.Fields))
		for i := range doc.Fields {
			f := &doc.Fields[i]
			if f.Field == nil {
				return dataErrorf("Struct schema's field name not specified properly")
			}
			s.Fields[i].Name = *f.Field
			if s.Fields[i].Schema, err = d.schemaOf(f, depth+1); err != nil {
				return err
			}
		}
	}
	return err
}

// defaultOf encodes a default as a value of s, whose Default is not set yet.
func (d *decoder) defaultOf(s *sdk.Schema, raw []byte) ([]byte, error) {
	sub := decoder{cfg: d.cfg, scan: scanner{data: raw}}
	if err := sub.value(s, 0); err != nil {
		return nil, err
	}
	return sub.out.Buf, nil
}

// typeName is the type as Connect's messages spell it.
func typeName(t sdk.Type) string {
	switch t {
	case sdk.Float32:
		return "FLOAT32"
	case sdk.Float64:
		return "FLOAT64"
	}
	return strings.ToUpper(t.String())
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
