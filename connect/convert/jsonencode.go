package convert

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/varvehq/varve/sdk"
)

// maxDepth bounds how deep schemas and documents may nest; a recursive schema ends here with a clean error.
const maxDepth = 200

// JSON is the JSON converter. Differences from the JVM's: a value of the wrong JSON type or out of its type's range is an
// error where the JVM reads 0 or truncates; schema parameters are written in the order of their names; maps whose keys
// are not strings are not read, nor structs with a field twice; raw bytes pass through.
type JSON struct {
	cfg JSONConfig

	enc     map[*sdk.Schema]*encoder
	last    *sdk.Schema
	lastEnc *encoder

	dec decoder
}

// NewJSON makes a JSON converter.
func NewJSON(cfg JSONConfig) *JSON {
	return &JSON{cfg: cfg, enc: map[*sdk.Schema]*encoder{}, dec: decoder{cfg: cfg, schemas: map[string]*sdk.Schema{}}}
}

// encoder is what Encode needs of one schema: its layout, and its envelope up to the payload.
type encoder struct {
	root     *node
	envelope []byte // {"schema":…,"payload":
}

// node is one part of a schema, made ready for writing.
type node struct {
	typ      sdk.Type
	optional bool
	decimal  bool
	scale    int
	def      []byte   // the default as JSON, where a null is replaced by it
	keys     [][]byte // of a struct: `,"name":`, the first without comma
	fields   []*node
	elem     *node
}

// Encode implements Converter.
func (j *JSON) Encode(dst []byte, _ string, v sdk.Value) ([]byte, bool, error) {
	if v.Data == nil {
		return dst, true, nil
	}
	if v.Schema == nil {
		return append(dst, v.Data...), false, nil
	}
	if j.cfg.SchemasEnable && v.Schema.Type == sdk.JSON {
		dst = append(dst, `{"schema":null,"payload":`...)
		dst = append(dst, v.Data...)
		return append(dst, '}'), false, nil
	}
	if v.Schema.Type == sdk.JSON {
		return append(dst, v.Data...), false, nil
	}
	e, err := j.encoder(v.Schema)
	if err != nil {
		return dst, false, err
	}
	start := len(dst)
	if j.cfg.SchemasEnable {
		dst = append(dst, e.envelope...)
	}
	if v.Schema.Type == sdk.Text {
		dst = appendString(dst, v.Data)
	} else {
		r := sdk.NewReader(v)
		dst = j.append(dst, &r, e.root)
		if err := r.Err(); err != nil {
			return dst[:start], false, fmt.Errorf("%w: %w", ErrData, err)
		}
		if r.Len() != 0 {
			return dst[:start], false, dataErrorf("value has %d bytes more than its schema", r.Len())
		}
	}
	if j.cfg.SchemasEnable {
		dst = append(dst, '}')
	}
	return dst, false, nil
}

func (j *JSON) encoder(s *sdk.Schema) (*encoder, error) {
	if s == j.last {
		return j.lastEnc, nil
	}
	e, ok := j.enc[s]
	if !ok {
		root, err := j.compile(s, 0)
		if err != nil {
			return nil, err
		}
		e = &encoder{root: root}
		e.envelope = append(e.envelope, `{"schema":`...)
		e.envelope = j.appendSchema(e.envelope, s, root, nil)
		e.envelope = append(e.envelope, `,"payload":`...)
		if len(j.enc) >= max(j.cfg.CacheSize, 1) {
			clear(j.enc)
		}
		j.enc[s] = e
	}
	j.last, j.lastEnc = s, e
	return e, nil
}

func (j *JSON) compile(s *sdk.Schema, depth int) (*node, error) {
	if s == nil {
		return nil, dataErrorf("schema has a part without type")
	}
	if depth > maxDepth {
		return nil, dataErrorf("schema nests deeper than %d levels", maxDepth)
	}
	n := &node{typ: s.Type, optional: s.Optional}
	var err error
	switch s.Type {
	case sdk.Struct:
		n.fields = make([]*node, len(s.Fields))
		n.keys = make([][]byte, len(s.Fields))
		for i, f := range s.Fields {
			if n.fields[i], err = j.compile(f.Schema, depth+1); err != nil {
				return nil, err
			}
			var key []byte
			if i > 0 {
				key = append(key, ',')
			}
			n.keys[i] = append(appendString(key, f.Name), ':')
		}
	case sdk.Array, sdk.Map:
		if n.elem, err = j.compile(s.Elem, depth+1); err != nil {
			return nil, err
		}
	case sdk.Text, sdk.JSON:
		if depth > 0 {
			return nil, dataErrorf("type %s inside a value", s.Type)
		}
	case sdk.Bytes:
		if s.Name == sdk.DecimalName {
			if n.scale, err = strconv.Atoi(s.Parameters["scale"]); err != nil {
				return nil, dataErrorf("Invalid scale parameter found in Decimal schema: %q", s.Parameters["scale"])
			}
			n.decimal = true
		}
	case sdk.Int8, sdk.Int16, sdk.Int32, sdk.Int64, sdk.Float32, sdk.Float64, sdk.Boolean, sdk.String:
	default:
		return nil, dataErrorf("Couldn't translate unsupported schema type %s", s.Type)
	}
	if s.Default != nil {
		def, err := j.renderDefault(s, n)
		if err != nil {
			return nil, err
		}
		n.def = def
	}
	return n, nil
}

// renderDefault is the default as JSON, nil where the default is null.
func (j *JSON) renderDefault(s *sdk.Schema, n *node) ([]byte, error) {
	v := sdk.Value{Schema: s, Data: s.Default}
	if v.IsNull() {
		return nil, nil
	}
	r := sdk.NewReader(v)
	def := j.append(nil, &r, n)
	if err := r.Err(); err != nil || r.Len() != 0 {
		return nil, dataErrorf("the default of schema %q is not a value of it", s.Name)
	}
	return def, nil
}

// append writes one value of n. Errors stay in r.
func (j *JSON) append(dst []byte, r *sdk.Reader, n *node) []byte {
	if n.optional && r.Null() {
		if n.def != nil && j.cfg.ReplaceNullWithDefault {
			return append(dst, n.def...)
		}
		return append(dst, "null"...)
	}
	switch n.typ {
	case sdk.Int8, sdk.Int16, sdk.Int32, sdk.Int64:
		return strconv.AppendInt(dst, r.Int(), 10)
	case sdk.String:
		return appendString(dst, r.Bytes())
	case sdk.Boolean:
		return strconv.AppendBool(dst, r.Bool())
	case sdk.Float32:
		return appendFloat(dst, float64(r.Float32()), 32)
	case sdk.Float64:
		return appendFloat(dst, r.Float64(), 64)
	case sdk.Bytes:
		if n.decimal && j.cfg.DecimalNumeric {
			return appendDecimal(dst, r.Bytes(), n.scale)
		}
		return appendBase64(dst, r.Bytes())
	case sdk.Struct:
		dst = append(dst, '{')
		for i, f := range n.fields {
			dst = append(dst, n.keys[i]...)
			dst = j.append(dst, r, f)
		}
		return append(dst, '}')
	case sdk.Array:
		dst = append(dst, '[')
		for first, c := true, r.Count(); c > 0; c = r.Count() {
			for ; c > 0 && r.Err() == nil; c-- {
				if !first {
					dst = append(dst, ',')
				}
				first = false
				dst = j.append(dst, r, n.elem)
			}
		}
		return append(dst, ']')
	case sdk.Map:
		dst = append(dst, '{')
		for first, c := true, r.Count(); c > 0; c = r.Count() {
			for ; c > 0 && r.Err() == nil; c-- {
				if !first {
					dst = append(dst, ',')
				}
				first = false
				dst = append(appendString(dst, r.Bytes()), ':')
				dst = j.append(dst, r, n.elem)
			}
		}
		return append(dst, '}')
	}
	return dst
}

// appendSchema writes Connect's JSON form of s; field, where not nil, is the name of the struct field that it belongs to.
func (j *JSON) appendSchema(dst []byte, s *sdk.Schema, n *node, field *string) []byte {
	dst = append(dst, `{"type":`...)
	dst = appendString(dst, s.Type.String())
	switch s.Type {
	case sdk.Array:
		dst = append(dst, `,"items":`...)
		dst = j.appendSchema(dst, s.Elem, n.elem, nil)
	case sdk.Map:
		dst = append(dst, `,"keys":{"type":"string","optional":false},"values":`...)
		dst = j.appendSchema(dst, s.Elem, n.elem, nil)
	case sdk.Struct:
		dst = append(dst, `,"fields":[`...)
		for i := range s.Fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = j.appendSchema(dst, s.Fields[i].Schema, n.fields[i], &s.Fields[i].Name)
		}
		dst = append(dst, ']')
	}
	dst = strconv.AppendBool(append(dst, `,"optional":`...), s.Optional)
	if s.Name != "" {
		dst = appendString(append(dst, `,"name":`...), s.Name)
	}
	if s.Version != 0 {
		dst = strconv.AppendInt(append(dst, `,"version":`...), int64(s.Version), 10)
	}
	if s.Doc != "" {
		dst = appendString(append(dst, `,"doc":`...), s.Doc)
	}
	if len(s.Parameters) > 0 {
		dst = append(dst, `,"parameters":{`...)
		for i, k := range sortedKeys(s.Parameters) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendString(dst, k), ':')
			dst = appendString(dst, s.Parameters[k])
		}
		dst = append(dst, '}')
	}
	if n.def != nil {
		dst = append(append(dst, `,"default":`...), n.def...)
	}
	if field != nil {
		dst = appendString(append(dst, `,"field":`...), *field)
	}
	return append(dst, '}')
}

// SchemaJSON is Connect's JSON form of a schema.
func SchemaJSON(s *sdk.Schema) (json.RawMessage, error) {
	j := NewJSON(DefaultJSONConfig())
	n, err := j.compile(s, 0)
	if err != nil {
		return nil, err
	}
	return j.appendSchema(nil, s, n, nil), nil
}
