package convert

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"time"

	"github.com/varvehq/varve/sdk"
)

// stringConverter writes a value's text and reads UTF-8 text. Structs, lists and maps have the form of Java's toString;
// bytes are written as base64, and dates and times in ISO form, where Java's toString says nothing of use.
type stringConverter struct{}

func (stringConverter) Encode(dst []byte, _ string, v sdk.Value) ([]byte, bool, error) {
	if v.IsNull() {
		return dst, true, nil
	}
	if v.Schema == nil || v.Schema.Type == sdk.Text || v.Schema.Type == sdk.JSON {
		return append(dst, v.Data...), false, nil
	}
	r := sdk.NewReader(v)
	start := len(dst)
	dst, _ = appendText(dst, &r, v.Schema, 0)
	if err := r.Err(); err != nil {
		return dst[:start], false, fmt.Errorf("%w: %w", ErrData, err)
	}
	return dst, false, nil
}

func (stringConverter) Decode(dst []byte, _ string, data []byte) (sdk.Value, []byte, error) {
	if data == nil {
		return sdk.Value{}, dst, nil
	}
	return sdk.Value{Schema: sdk.TextSchema, Data: data}, dst, nil
}

// appendText writes one value as text; null reports that it was null (and "null" was written).
func appendText(dst []byte, r *sdk.Reader, s *sdk.Schema, depth int) (out []byte, null bool) {
	if depth > maxDepth {
		return append(dst, "…"...), false
	}
	if s.Optional && r.Null() {
		return append(dst, "null"...), true
	}
	switch s.Type {
	case sdk.Int8, sdk.Int16, sdk.Int32, sdk.Int64:
		return appendNumberText(dst, r.Int(), s), false
	case sdk.Float32:
		return appendFloatPlain(dst, float64(r.Float32()), 32), false
	case sdk.Float64:
		return appendFloatPlain(dst, r.Float64(), 64), false
	case sdk.Boolean:
		return strconv.AppendBool(dst, r.Bool()), false
	case sdk.String:
		return append(dst, r.Bytes()...), false
	case sdk.Bytes:
		if s.Name == sdk.DecimalName {
			scale, _ := strconv.Atoi(s.Parameters["scale"])
			return appendDecimal(dst, r.Bytes(), scale), false
		}
		return base64.StdEncoding.AppendEncode(dst, r.Bytes()), false
	case sdk.Struct:
		dst = append(dst, "Struct{"...)
		first := true
		for _, f := range s.Fields {
			mark := len(dst)
			if !first {
				dst = append(dst, ',')
			}
			dst = append(append(dst, f.Name...), '=')
			if dst, null = appendText(dst, r, f.Schema, depth+1); null {
				dst = dst[:mark]
				continue
			}
			first = false
		}
		return append(dst, '}'), false
	case sdk.Array, sdk.Map:
		return appendListText(dst, r, s, depth), false
	}
	r.Skip(s) // sets the reader's error
	return dst, false
}

func appendListText(dst []byte, r *sdk.Reader, s *sdk.Schema, depth int) []byte {
	open, end := byte('['), byte(']')
	if s.Type == sdk.Map {
		open, end = '{', '}'
	}
	dst = append(dst, open)
	first := true
	for c := r.Count(); c > 0; c = r.Count() {
		for ; c > 0 && r.Err() == nil; c-- {
			if !first {
				dst = append(dst, ", "...)
			}
			first = false
			if s.Type == sdk.Map {
				dst = append(append(dst, r.Bytes()...), '=')
			}
			dst, _ = appendText(dst, r, s.Elem, depth+1)
		}
	}
	return append(dst, end)
}

func appendFloatPlain(dst []byte, f float64, bits int) []byte {
	start := len(dst)
	dst = appendFloat(dst, f, bits)
	if dst[start] == '"' { // NaN and the infinities have no quotes in text
		copy(dst[start:], dst[start+1:])
		dst = dst[:len(dst)-2]
	}
	return dst
}

func appendNumberText(dst []byte, v int64, s *sdk.Schema) []byte {
	switch s.Name {
	case sdk.DateName:
		return time.Unix(v*86400, 0).UTC().AppendFormat(dst, "2006-01-02")
	case sdk.TimeName:
		return time.UnixMilli(v).UTC().AppendFormat(dst, "15:04:05.000Z")
	case sdk.TimestampName:
		return time.UnixMilli(v).UTC().AppendFormat(dst, "2006-01-02T15:04:05.000Z")
	}
	return strconv.AppendInt(dst, v, 10)
}

// bytesConverter passes bytes through; other types are an error, as in Connect.
type bytesConverter struct{}

func (bytesConverter) Encode(dst []byte, _ string, v sdk.Value) ([]byte, bool, error) {
	switch {
	case v.IsNull():
		return dst, true, nil
	case v.Schema == nil, v.Schema.Type == sdk.Text, v.Schema.Type == sdk.JSON:
		return append(dst, v.Data...), false, nil
	case v.Schema.Type == sdk.Bytes:
		r := sdk.NewReader(v)
		if v.Schema.Optional {
			r.Null()
		}
		b := r.Bytes()
		if err := r.Err(); err != nil {
			return dst, false, fmt.Errorf("%w: %w", ErrData, err)
		}
		return append(dst, b...), false, nil
	}
	return dst, false, dataErrorf("Invalid schema type for ByteArrayConverter: %s", typeName(v.Schema.Type))
}

func (bytesConverter) Decode(dst []byte, _ string, data []byte) (sdk.Value, []byte, error) {
	return sdk.RawBytes(data), dst, nil
}

// simpleHeader is Connect's SimpleHeaderConverter: text as it is, other primitives as their text, lists, maps and structs as JSON.
// Reading, it gives text and leaves guessing a type to the sink.
type simpleHeader struct{}

func (simpleHeader) Encode(dst []byte, topic string, v sdk.Value) ([]byte, bool, error) {
	if v.Schema != nil && (v.Schema.Type == sdk.Struct || v.Schema.Type == sdk.Array || v.Schema.Type == sdk.Map) && !v.IsNull() {
		cfg := DefaultJSONConfig()
		cfg.SchemasEnable = false
		cfg.DecimalNumeric = true
		return NewJSON(cfg).Encode(dst, topic, v)
	}
	return stringConverter{}.Encode(dst, topic, v)
}

func (simpleHeader) Decode(dst []byte, topic string, data []byte) (sdk.Value, []byte, error) {
	return stringConverter{}.Decode(dst, topic, data)
}
