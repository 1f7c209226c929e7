// Package convert translates between sdk values and the bytes of Kafka records, as Kafka Connect's converters do: JSON
// (with and without the schema envelope), String and ByteArray, and the Simple converter of headers. What it writes is
// equal, byte for byte, to what the converter of the same name writes on the JVM; where its reading is stricter, the
// converter's comment says so. Values stream straight between Avro binary and the record's bytes: no tree, no map per
// record. The package never speaks to a broker and never changes a value that is raw bytes.
package convert

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/varvehq/varve/sdk"
)

// Converter translates the keys, the values or the headers of one task. It caches schemas and is not safe for concurrent
// use: a task has its own.
type Converter interface {
	// Encode appends v's bytes to dst and returns the extended slice. null reports that the record's key or value is to
	// be null (a tombstone); then nothing was appended. After an error the returned slice is dst as it was.
	Encode(dst []byte, topic string, v sdk.Value) (out []byte, null bool, err error)
	// Decode returns the value in data; nil data is null. What it has to build it appends to dst and returns the
	// extended slice; the value shares memory with data or with that slice.
	Decode(dst []byte, topic string, data []byte) (v sdk.Value, out []byte, err error)
}

// Role says what a converter is for.
type Role string

// The roles, as the prefix of the configuration keys names them.
const (
	Key    Role = "key"
	Value  Role = "value"
	Header Role = "header"
)

// ErrData marks bytes or values that a converter cannot translate (Connect's DataException).
var ErrData = errors.New("conversion failed")

type dataError struct{ msg string }

func (e *dataError) Error() string        { return e.msg }
func (e *dataError) Is(target error) bool { return target == ErrData }

func dataErrorf(format string, args ...any) error {
	return &dataError{msg: fmt.Sprintf(format, args...)}
}

// Class describes a converter for lists and forms.
type Class struct {
	Name   string // the Java class name
	Alias  string // the short name
	Config []sdk.ConfigDef
	// Header reports that only header.converter may name it.
	Header bool
}

// The class names.
const (
	JSONClass         = "org.apache.kafka.connect.json.JsonConverter"
	StringClass       = "org.apache.kafka.connect.storage.StringConverter"
	BytesClass        = "org.apache.kafka.connect.converters.ByteArrayConverter"
	SimpleHeaderClass = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
)

// Classes lists the converters.
func Classes() []Class {
	return []Class{
		{Name: JSONClass, Alias: "json", Config: jsonDefs()},
		{Name: StringClass, Alias: "string", Config: stringDefs()},
		{Name: BytesClass, Alias: "bytes"},
		{Name: SimpleHeaderClass, Alias: "simple", Header: true},
	}
}

// Find returns the class with that Java name, simple Java name or alias, for that role.
func Find(name string, role Role) (Class, bool) {
	for _, c := range Classes() {
		simple := c.Name[strings.LastIndexByte(c.Name, '.')+1:]
		if (name == c.Name || name == c.Alias || name == simple) && (!c.Header || role == Header) {
			return c, true
		}
	}
	return Class{}, false
}

// New makes the converter that name means, configured by cfg, whose keys have no prefix (schemas.enable, not
// value.converter.schemas.enable).
func New(name string, role Role, cfg map[string]string) (Converter, error) {
	c, ok := Find(name, role)
	if !ok {
		return nil, fmt.Errorf("Class %s could not be found.", name) //nolint:staticcheck // Kafka's wording
	}
	switch c.Name {
	case JSONClass:
		jc, err := ParseJSONConfig(cfg)
		if err != nil {
			return nil, err
		}
		return NewJSON(jc), nil
	case StringClass:
		return stringConverter{}, nil
	case SimpleHeaderClass:
		return simpleHeader{}, nil
	}
	return bytesConverter{}, nil
}

// JSONConfig configures the JSON converter.
type JSONConfig struct {
	// SchemasEnable wraps the document as {"schema":…,"payload":…}.
	SchemasEnable bool
	// DecimalNumeric writes decimals as JSON numbers instead of base64 of their unscaled bytes.
	DecimalNumeric bool
	// ReplaceNullWithDefault writes, and reads, a field's default where it is null.
	ReplaceNullWithDefault bool
	// CacheSize bounds how many schemas are remembered in each direction.
	CacheSize int
}

// DefaultJSONConfig is Kafka Connect's.
func DefaultJSONConfig() JSONConfig {
	return JSONConfig{SchemasEnable: true, ReplaceNullWithDefault: true, CacheSize: 1000}
}

// ParseJSONConfig reads the converter's own keys; unknown ones are ignored, as Connect does.
func ParseJSONConfig(cfg map[string]string) (JSONConfig, error) {
	c := DefaultJSONConfig()
	for _, b := range []struct {
		key string
		to  *bool
	}{{"schemas.enable", &c.SchemasEnable}, {"replace.null.with.default", &c.ReplaceNullWithDefault}} {
		if v, ok := cfg[b.key]; ok {
			switch strings.ToLower(strings.TrimSpace(v)) {
			case "true":
				*b.to = true
			case "false":
				*b.to = false
			default:
				return c, fmt.Errorf("Invalid value %s for configuration %s: Expected value to be either true or false", v, b.key) //nolint:staticcheck // Kafka's wording
			}
		}
	}
	if v, ok := cfg["schemas.cache.size"]; ok {
		n, err := strconv.Atoi(strings.TrimSpace(v))
		if err != nil || n < 0 {
			return c, fmt.Errorf("Invalid value %s for configuration schemas.cache.size: Not a number of type INT", v) //nolint:staticcheck // Kafka's wording
		}
		c.CacheSize = n
	}
	switch v := strings.ToUpper(cfg["decimal.format"]); v {
	case "", "BASE64":
	case "NUMERIC":
		c.DecimalNumeric = true
	default:
		return c, fmt.Errorf("Invalid value %s for configuration decimal.format: String must be one of (case insensitive): NUMERIC, BASE64", v) //nolint:staticcheck // Kafka's wording
	}
	return c, nil
}

func jsonDefs() []sdk.ConfigDef {
	return []sdk.ConfigDef{
		{Name: "schemas.enable", Type: sdk.TypeBoolean, HasDefault: true, Default: "true", Importance: "HIGH", Group: "Schemas", Width: "MEDIUM",
			DisplayName: "Enable Schemas", Doc: "Include schemas within each of the serialized values and keys."},
		{Name: "schemas.cache.size", Type: sdk.TypeInt, HasDefault: true, Default: "1000", Importance: "HIGH", Group: "Schemas", OrderInGroup: 1, Width: "MEDIUM",
			DisplayName: "Schema Cache Size", Doc: "The maximum number of schemas that can be cached in this converter instance."},
		{Name: "decimal.format", Type: sdk.TypeString, HasDefault: true, Default: "BASE64", Importance: "LOW", Group: "Serialization", Width: "MEDIUM",
			DisplayName: "Decimal Format", OneOf: []string{"BASE64", "NUMERIC"},
			Doc: "Which format decimals are written in: BASE64 (unscaled bytes) or NUMERIC (a JSON number). Both are read."},
		{Name: "replace.null.with.default", Type: sdk.TypeBoolean, HasDefault: true, Default: "true", Importance: "LOW", Group: "Serialization", OrderInGroup: 1, Width: "MEDIUM",
			DisplayName: "Replace null with default", Doc: "Whether a null is replaced by the field's default where it has one."},
	}
}

func stringDefs() []sdk.ConfigDef {
	return []sdk.ConfigDef{{Name: "converter.encoding", Type: sdk.TypeString, HasDefault: true, Default: "UTF-8", Importance: "HIGH",
		OneOf: []string{"UTF-8", "UTF8"}, Doc: "The encoding of strings; only UTF-8 is supported."}}
}
