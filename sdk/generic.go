package sdk

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"time"
)

// StructValue is a decoded struct, its values in the order of the schema's fields.
type StructValue struct {
	Schema *Schema
	Values []any
}

// Get returns the value of a field; ok is false where there is no such field.
func (s *StructValue) Get(name string) (v any, ok bool) {
	i := s.Schema.Field(name)
	if i < 0 {
		return nil, false
	}
	return s.Values[i], true
}

// Map returns the fields by name, structs inside as maps too.
func (s *StructValue) Map() map[string]any {
	m := make(map[string]any, len(s.Values))
	for i, v := range s.Values {
		m[s.Schema.Fields[i].Name] = plain(v)
	}
	return m
}

func plain(v any) any {
	switch v := v.(type) {
	case *StructValue:
		return v.Map()
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plain(v[k])
		}
	}
	return v
}

// Decode turns a value into Go values: nil; int8, int16, int32, int64, float32, float64, bool, string, []byte; []any;
// map[string]any for a Map; *StructValue. Text is a string, JSON a json.RawMessage, a value without schema []byte. Logical
// types stay what they are encoded as. It allocates: for tests, transforms and small connectors; others use a Reader.
func Decode(v Value) (any, error) {
	switch {
	case v.Data == nil:
		return nil, nil
	case v.Schema == nil:
		return v.Data, nil
	case v.Schema.Type == Text:
		return string(v.Data), nil
	case v.Schema.Type == JSON:
		return json.RawMessage(v.Data), nil
	}
	r := NewReader(v)
	out := r.any(v.Schema)
	if r.err == nil && len(r.data) > 0 {
		r.fail("bytes after the value")
	}
	if r.err != nil {
		return nil, r.err
	}
	return out, nil
}

func (r *Reader) any(s *Schema) any {
	if s.Optional && r.Null() {
		return nil
	}
	switch s.Type {
	case Int8:
		return int8(r.Int())
	case Int16:
		return int16(r.Int())
	case Int32:
		return int32(r.Int())
	case Int64:
		return r.Int()
	case Float32:
		return r.Float32()
	case Float64:
		return r.Float64()
	case Boolean:
		return r.Bool()
	case String:
		return string(r.Bytes())
	case Bytes:
		return append([]byte{}, r.Bytes()...)
	case Array:
		list := []any{}
		r.elements(s, func() { list = append(list, r.any(s.Elem)) })
		return list
	case Map:
		m := map[string]any{}
		r.elements(s, func() { k := string(r.Bytes()); m[k] = r.any(s.Elem) })
		return m
	case Struct:
		v := &StructValue{Schema: s, Values: make([]any, len(s.Fields))}
		for i := range s.Fields {
			v.Values[i] = r.any(s.Fields[i].Schema)
		}
		return v
	}
	r.fail("type " + s.Type.String() + " inside a value")
	return nil
}

// Encode makes a value of schema s out of Go values, as Decode makes them and a little more freely: integers of any type
// that fit, json.Number, maps for structs (what is missing has its default or is null), a *big.Int or decimal text for a
// Decimal, a time.Time for Connect's Date, Time and Timestamp, nil for null.
func Encode(s *Schema, v any) (Value, error) {
	switch {
	case s == nil:
		b, ok := v.([]byte)
		if v != nil && !ok {
			return Value{}, fmt.Errorf("sdk: %T without schema", v)
		}
		return Value{Data: b}, nil
	case s.Type == Text || s.Type == JSON:
		return encodeText(s, v)
	case v == nil && !s.Optional && s.Default == nil:
		return Value{Schema: s}, nil
	}
	var a Appender
	if err := a.any(s, v, s.Name); err != nil {
		return Value{}, err
	}
	return a.Value(s), nil
}

func encodeText(s *Schema, v any) (Value, error) {
	switch t := v.(type) {
	case nil:
		return Value{Schema: s}, nil
	case string:
		return Value{Schema: s, Data: append([]byte{}, t...)}, nil
	case []byte:
		return Value{Schema: s, Data: append([]byte{}, t...)}, nil
	}
	if s.Type == JSON {
		b, err := json.Marshal(v)
		return Value{Schema: s, Data: b}, err
	}
	return Value{}, fmt.Errorf("sdk: %T is no text", v)
}

func (a *Appender) any(s *Schema, v any, at string) error {
	if v == nil {
		switch {
		case s.Optional:
			a.Null()
			return nil
		case s.Default != nil:
			a.Buf = append(a.Buf, s.Default...)
			return nil
		}
		return fmt.Errorf("sdk: %s: null for a %s that is not optional", at, s.Type)
	}
	if s.Optional {
		a.Present()
	}
	switch s.Type {
	case Int8, Int16, Int32, Int64:
		return a.anyInt(s, v, at)
	case Float32, Float64:
		return a.anyFloat(s, v, at)
	case Boolean:
		b, ok := v.(bool)
		if !ok {
			return mismatch(s, v, at)
		}
		a.Bool(b)
		return nil
	case String:
		return a.anyString(s, v, at)
	case Bytes:
		return a.anyBytes(s, v, at)
	case Array:
		return a.anyArray(s, v, at)
	case Map:
		return a.anyMap(s, v, at)
	case Struct:
		return a.anyStruct(s, v, at)
	}
	return mismatch(s, v, at)
}

func mismatch(s *Schema, v any, at string) error {
	return fmt.Errorf("sdk: %s: %T is no %s", at, v, s.Type)
}

// bitsOf are the widths of the integers.
var bitsOf = map[Type]uint{Int8: 8, Int16: 16, Int32: 32, Int64: 64}

func (a *Appender) anyInt(s *Schema, v any, at string) error {
	var n int64
	switch t := v.(type) {
	case time.Time:
		n = logicalTime(s.Name, t)
	case json.Number:
		var err error
		if n, err = t.Int64(); err != nil {
			return mismatch(s, v, at)
		}
	default:
		rv := reflect.ValueOf(v)
		switch {
		case rv.CanInt():
			n = rv.Int()
		case rv.CanUint() && rv.Uint() <= math.MaxInt64:
			n = int64(rv.Uint())
		case rv.CanFloat() && rv.Float() == math.Trunc(rv.Float()) && math.Abs(rv.Float()) < 1<<53:
			n = int64(rv.Float())
		default:
			return mismatch(s, v, at)
		}
	}
	if bits := bitsOf[s.Type]; n>>(bits-1) != 0 && n>>(bits-1) != -1 {
		return fmt.Errorf("sdk: %s: %d is out of range of %s", at, n, s.Type)
	}
	a.Int(n)
	return nil
}

func logicalTime(name string, t time.Time) int64 {
	t = t.UTC()
	switch name {
	case DateName:
		return floorDiv(t.Unix(), 86400)
	case TimeName:
		return t.Sub(t.Truncate(24 * time.Hour)).Milliseconds()
	}
	return t.UnixMilli()
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func (a *Appender) anyFloat(s *Schema, v any, at string) error {
	var f float64
	if n, ok := v.(json.Number); ok {
		var err error
		if f, err = n.Float64(); err != nil {
			return mismatch(s, v, at)
		}
	} else {
		rv := reflect.ValueOf(v)
		switch {
		case rv.CanFloat():
			f = rv.Float()
		case rv.CanInt():
			f = float64(rv.Int())
		default:
			return mismatch(s, v, at)
		}
	}
	if s.Type == Float32 {
		a.Float32(float32(f))
	} else {
		a.Float64(f)
	}
	return nil
}

func (a *Appender) anyString(s *Schema, v any, at string) error {
	switch t := v.(type) {
	case string:
		a.String(t)
	case []byte:
		a.Bytes(t)
	case json.Number:
		a.String(t.String())
	default:
		return mismatch(s, v, at)
	}
	return nil
}

func (a *Appender) anyBytes(s *Schema, v any, at string) error {
	scale, decimal := DecimalScale(s)
	switch t := v.(type) {
	case []byte:
		a.Bytes(t)
		return nil
	case *big.Int:
		a.Bytes(AppendUnscaled(nil, t))
		return nil
	case json.Number:
		v = t.String()
	}
	text, ok := v.(string)
	switch {
	case !ok:
		return mismatch(s, v, at)
	case !decimal:
		a.String(text)
		return nil
	}
	n, err := ParseDecimal(text, scale)
	if err != nil {
		return fmt.Errorf("sdk: %s: %w", at, err)
	}
	a.Bytes(AppendUnscaled(nil, n))
	return nil
}

func (a *Appender) anyArray(s *Schema, v any, at string) error {
	rv := reflect.ValueOf(v)
	if rv.Kind() != reflect.Slice && rv.Kind() != reflect.Array {
		return mismatch(s, v, at)
	}
	a.Count(rv.Len())
	for i := range rv.Len() {
		before := len(a.Buf)
		if err := a.any(s.Elem, rv.Index(i).Interface(), fmt.Sprintf("%s[%d]", at, i)); err != nil {
			return err
		}
		if len(a.Buf) == before && rv.Len() > 1 {
			return fmt.Errorf("sdk: %s: elements without bytes, which no reader takes", at)
		}
	}
	a.End()
	return nil
}

func (a *Appender) anyMap(s *Schema, v any, at string) error {
	rv := reflect.ValueOf(v)
	if rv.Kind() != reflect.Map || rv.Type().Key().Kind() != reflect.String {
		return mismatch(s, v, at)
	}
	a.Count(rv.Len())
	for it := rv.MapRange(); it.Next(); {
		k := it.Key().String()
		a.String(k)
		if err := a.any(s.Elem, it.Value().Interface(), at+"["+k+"]"); err != nil {
			return err
		}
	}
	a.End()
	return nil
}

func (a *Appender) anyStruct(s *Schema, v any, at string) error {
	var get func(name string) (any, bool)
	var size int
	switch t := v.(type) {
	case *StructValue:
		get, size = t.Get, len(t.Values)
	case map[string]any:
		get, size = func(n string) (any, bool) { v, ok := t[n]; return v, ok }, len(t)
	default:
		return mismatch(s, v, at)
	}
	known := 0
	for i := range s.Fields {
		f := &s.Fields[i]
		fv, ok := get(f.Name)
		if ok {
			known++
		} else if f.Schema.Default != nil {
			a.Buf = append(a.Buf, f.Schema.Default...)
			continue
		}
		if err := a.any(f.Schema, fv, at+"."+f.Name); err != nil {
			return err
		}
	}
	if known < size {
		return fmt.Errorf("sdk: %s: %d fields that the schema does not have", at, size-known)
	}
	return nil
}
