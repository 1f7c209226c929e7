package file

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/varvehq/varve/sdk"
)

// line appends a record's line. A raw value that spans lines is refused, since it could not be read back.
func (s *sink) line(b []byte, r *sdk.Record) ([]byte, error) {
	if s.cfg.Format == "json" {
		doc, err := json.Marshal(document{
			Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp,
			Key: value{r.Key}, Value: value{r.Value}, Headers: headers(r.Headers),
		})
		if err != nil {
			return nil, err
		}
		return append(append(b, doc...), '\n'), nil
	}
	v := r.Value
	switch {
	case v.IsNull():
	case v.Schema != nil && v.Schema != sdk.TextSchema && v.Schema.Type != sdk.Text && v.Schema.Type != sdk.JSON:
		doc, err := json.Marshal(value{v})
		if err != nil {
			return nil, err
		}
		b = append(b, doc...)
	case bytes.IndexByte(v.Data, '\n') < 0:
		b = append(b, v.Data...)
	case v.Schema != nil && v.Schema.Type == sdk.JSON:
		var doc bytes.Buffer
		if err := json.Compact(&doc, v.Data); err != nil {
			return nil, fmt.Errorf("a JSON value that is none: %w", err)
		}
		b = append(b, doc.Bytes()...)
	default:
		return nil, fmt.Errorf("a value of more than one line: use format=json")
	}
	return append(b, '\n'), nil
}

// document is a line of format json.
type document struct {
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"`
	Key       value    `json:"key"`
	Value     value    `json:"value"`
	Headers   []header `json:"headers,omitempty"`
}

type header struct {
	Key   string `json:"key"`
	Value value  `json:"value"`
}

func headers(in []sdk.Header) []header {
	out := make([]header, len(in))
	for i, h := range in {
		out[i] = header{h.Key, value{h.Value}}
	}
	return out
}

// value writes itself as JSON: null, text and JSON as they are, structs as objects in the order of their fields, decimals
// as numbers, bytes as base64. Raw bytes that are UTF-8 are text.
type value struct{ v sdk.Value }

func (v value) MarshalJSON() ([]byte, error) {
	switch {
	case v.v.IsNull():
		return []byte("null"), nil
	case v.v.Schema == nil:
		if utf8.Valid(v.v.Data) {
			return json.Marshal(string(v.v.Data))
		}
		return json.Marshal(v.v.Data)
	}
	out, err := sdk.Decode(v.v)
	if err != nil {
		return nil, err
	}
	return appendJSON(nil, v.v.Schema, out)
}

func appendJSON(b []byte, s *sdk.Schema, v any) ([]byte, error) {
	var err error
	switch t := v.(type) {
	case *sdk.StructValue:
		b = append(b, '{')
		for i, f := range t.Schema.Fields {
			if i > 0 {
				b = append(b, ',')
			}
			name, err := json.Marshal(f.Name)
			if err != nil {
				return nil, err
			}
			b = append(append(b, name...), ':')
			if b, err = appendJSON(b, f.Schema, t.Values[i]); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	case []any:
		b = append(b, '[')
		for i, e := range t {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendJSON(b, s.Elem, e); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case []byte:
		if scale, ok := sdk.DecimalScale(s); ok {
			return append(b, sdk.FormatDecimal(sdk.Unscaled(t), scale)...), nil
		}
	}
	doc, err := json.Marshal(v)
	return append(b, doc...), err
}
