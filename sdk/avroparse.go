package sdk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseAvro reads a schema that AvroJSON wrote, or any Avro schema whose binary form is a value of ours: no unions but of
// null and one type, no recursion, no enum and no fixed.
func ParseAvro(doc []byte) (*Schema, error) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("sdk: Avro schema: %w", err)
	}
	p := avroParser{names: map[string]*Schema{}}
	s, err := p.schema(v, "", 0)
	if err != nil {
		return nil, fmt.Errorf("sdk: Avro schema: %w", err)
	}
	return s, nil
}

type avroParser struct {
	names map[string]*Schema // nil while it is being defined
	// nodes counts all schemas, since references can blow a short document up.
	nodes int
}

const maxSchemaNodes = 1 << 16

var primitives = map[string]Type{
	"int": Int32, "long": Int64, "float": Float32, "double": Float64, "boolean": Boolean, "string": String, "bytes": Bytes,
}

func (p *avroParser) schema(v any, namespace string, depth int) (*Schema, error) {
	if p.nodes++; p.nodes > maxSchemaNodes || depth > maxSchemaDepth {
		return nil, fmt.Errorf("nested too deep or too large")
	}
	switch v := v.(type) {
	case string:
		return p.named(v, namespace)
	case []any:
		return p.union(v, namespace, depth)
	case map[string]any:
		return p.object(v, namespace, depth)
	}
	return nil, fmt.Errorf("%T where a type is expected", v)
}

func (p *avroParser) named(name, namespace string) (*Schema, error) {
	if t, ok := primitives[name]; ok {
		return &Schema{Type: t}, nil
	}
	for _, n := range []string{fullName(name, namespace), name} {
		if s, ok := p.names[n]; ok {
			if s == nil {
				return nil, fmt.Errorf("%s contains itself", n)
			}
			return s, nil
		}
	}
	return nil, fmt.Errorf("unknown type %s", name)
}

func fullName(name, namespace string) string {
	if namespace == "" || strings.Contains(name, ".") {
		return name
	}
	return namespace + "." + name
}

func (p *avroParser) union(v []any, namespace string, depth int) (*Schema, error) {
	if len(v) != 2 || v[0] != "null" {
		return nil, fmt.Errorf("a union other than of null and one type, in this order")
	}
	s, err := p.schema(v[1], namespace, depth+1)
	if err != nil {
		return nil, err
	}
	if s.Optional {
		return nil, fmt.Errorf("a union in a union")
	}
	o := *s
	o.Optional = true
	if o.Default != nil { // written as a value of the type without null
		o.Default = append([]byte{2}, o.Default...)
	}
	return &o, nil
}

func (p *avroParser) object(m map[string]any, namespace string, depth int) (*Schema, error) {
	name, ok := m["type"].(string)
	if !ok {
		return p.schema(m["type"], namespace, depth+1) // {"type": {…}}
	}
	s := &Schema{}
	var err error
	switch name {
	case "record":
		err = p.record(s, m, namespace, depth)
	case "array", "map":
		s.Type = Array
		of := "items"
		if name == "map" {
			s.Type, of = Map, "values"
		}
		s.Elem, err = p.schema(m[of], namespace, depth+1)
	default:
		if s.Type, ok = primitives[name]; !ok {
			return p.named(name, namespace)
		}
		switch m["connect.type"] {
		case "int8":
			s.Type = Int8
		case "int16":
			s.Type = Int16
		}
	}
	if err != nil {
		return nil, err
	}
	if err := p.properties(s, m, namespace); err != nil {
		return nil, err
	}
	if s.Type == Struct { // only now complete; copies share the fields
		p.names[fullName(text(m, "name"), namespaceOf(m, namespace))] = s
	}
	return s, nil
}

func text(m map[string]any, key string) string { s, _ := m[key].(string); return s }

func namespaceOf(m map[string]any, outer string) string {
	if ns, ok := m["namespace"].(string); ok {
		return ns
	}
	if name := text(m, "name"); strings.Contains(name, ".") {
		return name[:strings.LastIndexByte(name, '.')]
	}
	return outer
}

func (p *avroParser) record(s *Schema, m map[string]any, namespace string, depth int) error {
	s.Type = Struct
	namespace = namespaceOf(m, namespace)
	name := fullName(text(m, "name"), namespace)
	if name == "" {
		return fmt.Errorf("a record without name")
	}
	if _, ok := p.names[name]; ok {
		return fmt.Errorf("%s is defined twice", name)
	}
	p.names[name] = nil
	fields, ok := m["fields"].([]any)
	if !ok {
		return fmt.Errorf("%s has no fields", name)
	}
	seen := map[string]bool{}
	for _, f := range fields {
		fm, ok := f.(map[string]any)
		if !ok || text(fm, "name") == "" {
			return fmt.Errorf("%s has a field without name", name)
		}
		fs, err := p.schema(fm["type"], namespace, depth+1)
		if err != nil {
			return fmt.Errorf("%s.%s: %w", name, text(fm, "name"), err)
		}
		fieldName := text(fm, "name")
		if original, ok := fm["connect.field"].(string); ok {
			fieldName = original
		}
		if seen[fieldName] {
			return fmt.Errorf("%s has two fields %s", name, fieldName)
		}
		seen[fieldName] = true
		s.Fields = append(s.Fields, Field{Name: fieldName, Schema: fs})
	}
	return nil
}

func (p *avroParser) properties(s *Schema, m map[string]any, outer string) error {
	namespace := namespaceOf(m, outer)
	s.Name, s.Doc = text(m, "connect.name"), text(m, "connect.doc")
	if n, ok := m["connect.version"].(json.Number); ok {
		v, err := strconv.ParseInt(n.String(), 10, 32)
		if err != nil {
			return fmt.Errorf("connect.version: %w", err)
		}
		s.Version = int32(v)
	}
	if params, ok := m["connect.parameters"].(map[string]any); ok && len(params) > 0 {
		s.Parameters = make(map[string]string, len(params))
		for k, v := range params {
			s.Parameters[k] = fmt.Sprint(v)
		}
	}
	switch {
	case s.Name != "":
	case s.Type != Struct:
		logical(s, m)
	case !strings.HasPrefix(text(m, "name"), unnamed):
		s.Name = fullName(text(m, "name"), namespace)
	}
	d, ok := m["connect.default"]
	if !ok || d == nil {
		return nil
	}
	native, err := fromAvroValue(s, d)
	if err != nil {
		return fmt.Errorf("connect.default: %w", err)
	}
	v, err := Encode(s, native)
	if err != nil {
		return fmt.Errorf("connect.default: %w", err)
	}
	s.Default = v.Data
	return nil
}

// logical names the logical type of a schema that Connect did not write.
func logical(s *Schema, m map[string]any) {
	switch l := text(m, "logicalType"); {
	case l == "decimal" && s.Type == Bytes:
		scale := "0"
		if n, ok := m["scale"].(json.Number); ok {
			scale = n.String()
		}
		s.Name, s.Version, s.Parameters = DecimalName, 1, map[string]string{"scale": scale}
	case l == "date" && s.Type == Int32:
		s.Name, s.Version = DateName, 1
	case l == "time-millis" && s.Type == Int32:
		s.Name, s.Version = TimeName, 1
	case l == "timestamp-millis" && s.Type == Int64:
		s.Name, s.Version = TimestampName, 1
	}
}

// fromAvroValue turns Avro's JSON encoding of a default into what Encode takes.
func fromAvroValue(s *Schema, v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	switch s.Type {
	case Bytes:
		t, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("%T for bytes", v)
		}
		b := make([]byte, 0, len(t))
		for _, r := range t {
			if r > math.MaxUint8 {
				return nil, fmt.Errorf("a character beyond one byte")
			}
			b = append(b, byte(r))
		}
		return b, nil
	case Array:
		list, ok := v.([]any)
		if !ok {
			return nil, fmt.Errorf("%T for an array", v)
		}
		for i := range list {
			e, err := fromAvroValue(s.Elem, list[i])
			if err != nil {
				return nil, err
			}
			list[i] = e
		}
	case Map, Struct:
		m, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%T for a %s", v, s.Type)
		}
		for k, e := range m {
			of := s.Elem
			if s.Type == Struct {
				i := s.Field(k)
				if i < 0 {
					return nil, fmt.Errorf("no field %s", k)
				}
				of = s.Fields[i].Schema
			}
			e, err := fromAvroValue(of, e)
			if err != nil {
				return nil, err
			}
			m[k] = e
		}
	}
	return v, nil
}
