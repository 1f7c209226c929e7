package sdk

// Type is the shape of a value, as in Kafka Connect's data model.
type Type uint8

// The types. Text and JSON are for values without a schema of their own: their bytes are the value itself.
const (
	Int8 Type = iota + 1
	Int16
	Int32
	Int64
	Float32
	Float64
	Boolean
	String
	Bytes
	Array
	Map
	Struct
	// Text is UTF-8 text as it is, without length prefix and schema (a key or value of the string converter).
	Text
	// JSON is a JSON document without schema, as it is.
	JSON
)

// Schema describes values. It is immutable once it is used by a record; share pointers: the wire announces each *Schema once.
// Semantic types are named as Kafka Connect and Debezium name them (org.apache.kafka.connect.data.Decimal,
// io.debezium.time.MicroTimestamp, …) in Name, with their Parameters.
type Schema struct {
	Type     Type
	Optional bool
	Name     string
	Version  int32 // 0: none
	Doc      string
	// Parameters of the semantic type, e.g. "scale" of a decimal.
	Parameters map[string]string
	// Default is the encoded default (Avro binary, as a value of this schema would be), nil for none.
	Default []byte
	Fields  []Field // of a Struct, in order
	Elem    *Schema // of an Array, and the values of a Map; keys of maps are strings
}

// Field is a named part of a struct.
type Field struct {
	Name   string
	Schema *Schema
}

// Schemas of values without schema. A Value with a nil Schema is raw bytes.
var (
	TextSchema = &Schema{Type: Text}
	JSONSchema = &Schema{Type: JSON}
)

// Names of Connect's logical types.
const (
	DecimalName   = "org.apache.kafka.connect.data.Decimal"   // Bytes: unscaled two's complement big-endian; parameter scale
	DateName      = "org.apache.kafka.connect.data.Date"      // Int32: days since 1970-01-01
	TimeName      = "org.apache.kafka.connect.data.Time"      // Int32: milliseconds since midnight
	TimestampName = "org.apache.kafka.connect.data.Timestamp" // Int64: milliseconds since 1970-01-01 UTC
)

// Field returns the index of the field with that name, or -1.
func (s *Schema) Field(name string) int {
	for i := range s.Fields {
		if s.Fields[i].Name == name {
			return i
		}
	}
	return -1
}

// Of returns a schema of a primitive type.
func Of(t Type) *Schema { return &Schema{Type: t} }

// OptionalOf returns an optional schema of a primitive type.
func OptionalOf(t Type) *Schema { return &Schema{Type: t, Optional: true} }

// StructOf returns a struct schema.
func StructOf(name string, fields ...Field) *Schema {
	return &Schema{Type: Struct, Name: name, Fields: fields}
}

// String is Connect's name of the type, in lower case as its JSON converter writes it.
func (t Type) String() string {
	switch t {
	case Int8:
		return "int8"
	case Int16:
		return "int16"
	case Int32:
		return "int32"
	case Int64:
		return "int64"
	case Float32:
		return "float"
	case Float64:
		return "double"
	case Boolean:
		return "boolean"
	case String, Text:
		return "string"
	case Bytes:
		return "bytes"
	case Array:
		return "array"
	case Map:
		return "map"
	case Struct:
		return "struct"
	case JSON:
		return "json"
	}
	return "unknown"
}
