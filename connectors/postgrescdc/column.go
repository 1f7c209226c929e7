package postgrescdc

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/varvehq/varve/sdk"
)

// OIDs of the built-in types that have a form of their own.
const (
	oidBool, oidBytea, oidChar, oidName, oidInt8, oidInt2, oidInt4, oidText, oidOid = 16, 17, 18, 19, 20, 21, 23, 25, 26
	oidJSON, oidXML, oidPoint, oidCidr, oidFloat4, oidFloat8, oidMoney              = 114, 142, 600, 650, 700, 701, 790
	oidMacaddr8, oidMacaddr, oidInet, oidBpchar, oidVarchar, oidDate, oidTime       = 774, 829, 869, 1042, 1043, 1082, 1083
	oidTimestamp, oidTimestamptz, oidInterval, oidTimetz, oidBit, oidVarbit         = 1114, 1184, 1186, 1266, 1560, 1562
	oidNumeric, oidUUID, oidTsvector, oidJSONB                                      = 1700, 2950, 3614, 3802
)

// pgType is a type as the catalog describes it.
type pgType struct {
	oid      uint32
	name     string
	kind     byte // pg_type.typtype: b base, c composite, d domain, e enum, p pseudo, r range, m multirange
	array    bool
	base     uint32 // of a domain
	baseMod  int32
	elem     uint32 // of an array
	enumVals []string
}

// form is how a value's text becomes its encoded form.
type form uint8

const (
	formInt form = iota + 1
	formBool
	formFloat4
	formFloat8
	formText
	formDecimal      // unscaled bytes at a fixed scale
	formVarDecimal   // scale and unscaled bytes
	formNumericFloat // numeric as double
	formMoney        // unscaled bytes
	formMoneyFloat
	formMoneyString
	formBytea
	formByteaBase64
	formByteaBase64URL
	formByteaHex
	formDate // days
	formTimeMillis
	formTimeMicros
	formTimeNanos
	formTimestampMillis
	formTimestampMicros
	formTimestampNanos
	formISODate
	formISOTime
	formISOTimestamp
	formTimestampTZ
	formTimeTZ
	formInterval
	formISOInterval
	formBit
	formBits
	formPoint
	formArray
)

// column is one column of a captured table: its schema and how its text is encoded.
type column struct {
	name     string
	schema   *sdk.Schema
	form     form
	scale    int32
	optional bool
	elem     *column // of arrays
	// fallback stands for a required value that is not there (the rest of a row of which only the key is sent).
	fallback []byte
	// placeholder is the whole encoded field of a value that the server did not send, nil where the type has none.
	placeholder []byte
}

// typeMapper turns types of the database into columns.
type typeMapper struct {
	cfg   *config
	types map[uint32]*pgType
}

// column describes a column of a type; nil where the type is not captured.
func (m *typeMapper) column(name string, oid uint32, typmod int32, notNull bool) *column {
	c := m.base(oid, typmod)
	if c == nil {
		return nil
	}
	c.name = name
	c.optional = !notNull
	c.schema.Optional = c.optional
	c.fallback = m.fallback(c)
	c.placeholder = m.placeholder(c)
	return c
}

// base describes a type as required and without name.
func (m *typeMapper) base(oid uint32, typmod int32) *column {
	t := m.types[oid]
	for t != nil && t.kind == 'd' {
		if typmod == -1 {
			typmod = t.baseMod
		}
		oid, t = t.base, m.types[t.base]
	}
	if c := m.builtin(oid, typmod); c != nil {
		return c
	}
	switch {
	case t == nil:
	case t.kind == 'e':
		s := named(sdk.String, "io.debezium.data.Enum")
		s.Parameters = map[string]string{"allowed": strings.Join(t.enumVals, ",")}
		return &column{form: formText, schema: s}
	case t.array:
		return m.array(t, typmod)
	case t.kind == 'r' || t.kind == 'm', t.name == "citext":
		return &column{form: formText, schema: sdk.Of(sdk.String)}
	case t.name == "ltree":
		return &column{form: formText, schema: named(sdk.String, "io.debezium.data.Ltree")}
	}
	if m.cfg.Unknown {
		return &column{form: formText, schema: sdk.Of(sdk.Bytes)}
	}
	return nil
}

// array describes an array. Arrays of money, interval and domains are left out, as Debezium leaves them out.
func (m *typeMapper) array(t *pgType, typmod int32) *column {
	e := m.types[t.elem]
	if t.elem == oidMoney || t.elem == oidInterval || t.elem == oidPoint || e != nil && (e.kind == 'd' || e.kind == 'c' || e.array) {
		return nil
	}
	elem := m.base(t.elem, typmod)
	if elem == nil {
		return nil
	}
	elem.optional, elem.schema.Optional = true, true
	return &column{form: formArray, elem: elem, schema: &sdk.Schema{Type: sdk.Array, Elem: elem.schema}}
}

func named(t sdk.Type, name string) *sdk.Schema { return &sdk.Schema{Type: t, Name: name, Version: 1} }

func (m *typeMapper) builtin(oid uint32, typmod int32) *column {
	plain := func(f form, t sdk.Type) *column { return &column{form: f, schema: sdk.Of(t)} }
	name := func(f form, t sdk.Type, n string) *column { return &column{form: f, schema: named(t, n)} }
	switch oid {
	case oidBool:
		return plain(formBool, sdk.Boolean)
	case oidInt2:
		return plain(formInt, sdk.Int16)
	case oidInt4:
		return plain(formInt, sdk.Int32)
	case oidInt8, oidOid:
		return plain(formInt, sdk.Int64)
	case oidFloat4:
		return plain(formFloat4, sdk.Float32)
	case oidFloat8:
		return plain(formFloat8, sdk.Float64)
	case oidText, oidVarchar, oidBpchar, oidName, oidChar, oidInet, oidCidr, oidMacaddr, oidMacaddr8:
		return plain(formText, sdk.String)
	case oidJSON, oidJSONB:
		return name(formText, sdk.String, "io.debezium.data.Json")
	case oidXML:
		return name(formText, sdk.String, "io.debezium.data.Xml")
	case oidUUID:
		return name(formText, sdk.String, "io.debezium.data.Uuid")
	case oidTsvector:
		return name(formText, sdk.String, "io.debezium.data.Tsvector")
	case oidNumeric:
		return m.numeric(typmod)
	case oidMoney:
		return m.money()
	case oidBytea:
		return m.bytea()
	case oidDate, oidTime, oidTimestamp:
		return m.time(oid, typmod)
	case oidTimestamptz:
		return name(formTimestampTZ, sdk.String, "io.debezium.time.ZonedTimestamp")
	case oidTimetz:
		return name(formTimeTZ, sdk.String, "io.debezium.time.ZonedTime")
	case oidInterval:
		if m.cfg.Intervals == "string" {
			return name(formISOInterval, sdk.String, "io.debezium.time.Interval")
		}
		return name(formInterval, sdk.Int64, "io.debezium.time.MicroDuration")
	case oidBit, oidVarbit:
		return bits(oid, typmod)
	case oidPoint:
		s := sdk.StructOf("io.debezium.data.geometry.Point", sdk.Field{Name: "x", Schema: sdk.Of(sdk.Float64)},
			sdk.Field{Name: "y", Schema: sdk.Of(sdk.Float64)}, sdk.Field{Name: "wkb", Schema: sdk.OptionalOf(sdk.Bytes)},
			sdk.Field{Name: "srid", Schema: sdk.OptionalOf(sdk.Int32)})
		s.Version, s.Doc = 1, "Geometry (POINT)"
		return &column{form: formPoint, schema: s}
	}
	return nil
}

func decimal(scale int32, precision int) *sdk.Schema {
	s := named(sdk.Bytes, sdk.DecimalName)
	s.Parameters = map[string]string{"scale": strconv.Itoa(int(scale))}
	if precision > 0 {
		s.Parameters["connect.decimal.precision"] = strconv.Itoa(precision)
	}
	return s
}

func (m *typeMapper) numeric(typmod int32) *column {
	switch m.cfg.Decimals {
	case "double":
		return &column{form: formNumericFloat, schema: sdk.Of(sdk.Float64)}
	case "string":
		return &column{form: formText, schema: sdk.Of(sdk.String)}
	}
	if typmod < 4 {
		s := sdk.StructOf("io.debezium.data.VariableScaleDecimal", sdk.Field{Name: "scale", Schema: sdk.Of(sdk.Int32)},
			sdk.Field{Name: "value", Schema: sdk.Of(sdk.Bytes)})
		s.Version, s.Doc = 1, "Variable scaled decimal"
		return &column{form: formVarDecimal, schema: s}
	}
	precision := int(typmod-4) >> 16 & 0xffff
	scale := ((typmod-4)&0x7ff ^ 1024) - 1024 // eleven bits with sign
	return &column{form: formDecimal, scale: scale, schema: decimal(scale, precision)}
}

func (m *typeMapper) money() *column {
	switch m.cfg.Decimals {
	case "double":
		return &column{form: formMoneyFloat, scale: m.cfg.MoneyScale, schema: sdk.Of(sdk.Float64)}
	case "string":
		return &column{form: formMoneyString, scale: m.cfg.MoneyScale, schema: sdk.Of(sdk.String)}
	}
	return &column{form: formMoney, scale: m.cfg.MoneyScale, schema: decimal(m.cfg.MoneyScale, 0)}
}

func (m *typeMapper) bytea() *column {
	switch m.cfg.Binary {
	case "base64":
		return &column{form: formByteaBase64, schema: sdk.Of(sdk.String)}
	case "base64-url-safe":
		return &column{form: formByteaBase64URL, schema: sdk.Of(sdk.String)}
	case "hex":
		return &column{form: formByteaHex, schema: sdk.Of(sdk.String)}
	}
	return &column{form: formBytea, schema: sdk.Of(sdk.Bytes)}
}

func bits(oid uint32, typmod int32) *column {
	if oid == oidBit && (typmod == 1 || typmod == -1) {
		return &column{form: formBit, schema: sdk.Of(sdk.Boolean)}
	}
	length := typmod
	if length < 0 {
		length = 1<<31 - 1
	}
	s := named(sdk.Bytes, "io.debezium.data.Bits")
	s.Parameters = map[string]string{"length": strconv.Itoa(int(length))}
	return &column{form: formBits, schema: s}
}

type timeForm struct {
	form form
	typ  sdk.Type
	name string
}

// timeForms are, per time.precision.mode, the forms of date, time and timestamp; the adaptive ones are refined by precision.
var timeForms = map[string][3]timeForm{
	"adaptive": {{formDate, sdk.Int32, "io.debezium.time.Date"}, {formTimeMicros, sdk.Int64, "io.debezium.time.MicroTime"},
		{formTimestampMicros, sdk.Int64, "io.debezium.time.MicroTimestamp"}},
	"adaptive_time_microseconds": {{formDate, sdk.Int32, "io.debezium.time.Date"}, {formTimeMicros, sdk.Int64, "io.debezium.time.MicroTime"},
		{formTimestampMicros, sdk.Int64, "io.debezium.time.MicroTimestamp"}},
	"microseconds": {{formDate, sdk.Int32, "io.debezium.time.Date"}, {formTimeMicros, sdk.Int64, "io.debezium.time.MicroTime"},
		{formTimestampMicros, sdk.Int64, "io.debezium.time.MicroTimestamp"}},
	"nanoseconds": {{formDate, sdk.Int32, "io.debezium.time.Date"}, {formTimeNanos, sdk.Int64, "io.debezium.time.NanoTime"},
		{formTimestampNanos, sdk.Int64, "io.debezium.time.NanoTimestamp"}},
	"connect": {{formDate, sdk.Int32, sdk.DateName}, {formTimeMillis, sdk.Int32, sdk.TimeName},
		{formTimestampMillis, sdk.Int64, sdk.TimestampName}},
	"isostring": {{formISODate, sdk.String, "io.debezium.time.IsoDate"}, {formISOTime, sdk.String, "io.debezium.time.IsoTime"},
		{formISOTimestamp, sdk.String, "io.debezium.time.IsoTimestamp"}},
}

func (m *typeMapper) time(oid uint32, typmod int32) *column {
	forms := timeForms[m.cfg.Times]
	millis := typmod >= 0 && typmod <= 3
	var f timeForm
	switch oid {
	case oidDate:
		f = forms[0]
	case oidTime:
		f = forms[1]
		if m.cfg.Times == "adaptive" && millis {
			f = timeForm{formTimeMillis, sdk.Int32, "io.debezium.time.Time"}
		}
	default:
		f = forms[2]
		if strings.HasPrefix(m.cfg.Times, "adaptive") && millis {
			f = timeForm{formTimestampMillis, sdk.Int64, "io.debezium.time.Timestamp"}
		}
	}
	return &column{form: f.form, schema: named(f.typ, f.name)}
}

// fallback is the zero value of a column's type, as Debezium gives it for required columns that are not sent.
func (m *typeMapper) fallback(c *column) []byte {
	a := sdk.Appender{}
	switch c.schema.Type {
	case sdk.Int8, sdk.Int16, sdk.Int32, sdk.Int64:
		a.Int(0)
	case sdk.Float32:
		a.Float32(0)
	case sdk.Float64:
		a.Float64(0)
	case sdk.Boolean:
		a.Bool(false)
	case sdk.String:
		a.String(zeroText[c.form])
	case sdk.Bytes:
		if c.form == formDecimal || c.form == formMoney {
			a.Bytes([]byte{0})
		} else {
			a.Bytes(nil)
		}
	case sdk.Array:
		a.Count(0)
		a.End()
	case sdk.Struct:
		if c.form == formPoint {
			a.Float64(0)
			a.Float64(0)
			a.Null()
			a.Null()
		} else {
			a.Int(0)
			a.Bytes([]byte{0})
		}
	}
	return a.Buf
}

var zeroText = map[form]string{
	formTimestampTZ: "1970-01-01T00:00:00Z", formTimeTZ: "00:00:00Z", formISOInterval: "P0Y0M0DT0H0M0S",
	formISODate: "1970-01-01Z", formISOTime: "00:00:00Z", formISOTimestamp: "1970-01-01T00:00:00Z",
}

// placeholder is what stands for a value that the server did not send. Types that can be stored out of line but have no
// room for a mark (numeric) have none.
func (m *typeMapper) placeholder(c *column) []byte {
	raw := m.cfg.placeholder
	if h, ok := strings.CutPrefix(m.cfg.Placeholder, "hex:"); ok {
		if b, err := hex.DecodeString(h); err == nil {
			raw = b
		}
	}
	a := sdk.Appender{}
	if c.optional {
		a.Present()
	}
	switch {
	case c.form == formByteaBase64:
		a.String(base64.StdEncoding.EncodeToString(raw))
	case c.form == formByteaBase64URL:
		a.String(base64.URLEncoding.EncodeToString(raw))
	case c.form == formByteaHex:
		a.String(hex.EncodeToString(raw))
	case c.form == formBytea, c.form == formText:
		a.Bytes(raw)
	case c.form == formArray && c.elem.form == formText, c.form == formArray && c.elem.form == formBytea:
		a.Count(1)
		a.Present()
		a.Bytes(raw)
		a.End()
	case c.form == formArray && c.elem.form == formInt:
		a.Count(len(raw))
		for _, v := range raw {
			a.Present()
			a.Int(int64(v))
		}
		a.End()
	default:
		return nil
	}
	return a.Buf
}

// setDefault puts the column's default into its schema where it is a literal, or a function whose zero value stands for it.
func (c *column) setDefault(expr string) {
	text, ok := literal(expr)
	a := sdk.Appender{}
	if c.optional {
		a.Present()
	}
	switch {
	case c.form == formArray, c.form == formBytea, c.form == formPoint, c.form == formVarDecimal:
		return
	case ok:
		b, err := c.appendValue(a.Buf, []byte(text))
		if err != nil {
			return
		}
		c.schema.Default = b
		return
	}
	fn := strings.ToLower(expr)
	switch {
	case c.schema.Name == "io.debezium.data.Uuid":
		a.String("00000000-0000-0000-0000-000000000000")
	case c.form == formTimestampTZ:
		a.String("1970-01-01T00:00:00.000000Z")
	case c.form == formText:
		return
	case strings.HasPrefix(fn, "nextval("), c.form >= formDate && c.form <= formTimeTZ:
		a.Buf = append(a.Buf, c.fallback...)
	default:
		return
	}
	c.schema.Default = a.Buf
}

// literal returns the text of a default expression that is a constant: 'it”s'::text, 5, (-5), '1.5'::numeric, true.
func literal(expr string) (string, bool) {
	expr = strings.TrimSpace(expr)
	if strings.HasPrefix(expr, "B'") {
		expr = expr[1:]
	}
	if strings.HasPrefix(expr, "'") {
		var b strings.Builder
		for i := 1; i < len(expr); i++ {
			if expr[i] != '\'' {
				b.WriteByte(expr[i])
				continue
			}
			if i+1 < len(expr) && expr[i+1] == '\'' {
				b.WriteByte('\'')
				i++
				continue
			}
			rest := expr[i+1:]
			return b.String(), rest == "" || strings.HasPrefix(rest, "::") && !strings.ContainsAny(rest, "+*/|-")
		}
		return "", false
	}
	if head, cast, ok := strings.Cut(expr, "::"); ok && !strings.ContainsAny(cast, "+*/|-") {
		expr = head
	}
	expr = strings.Trim(expr, "()")
	switch expr {
	case "true":
		return "t", true
	case "false":
		return "f", true
	}
	if _, err := strconv.ParseFloat(expr, 64); err == nil {
		return expr, true
	}
	return "", false
}

func (c *column) errorf(format string, args ...any) error {
	return fmt.Errorf("column %s: %s", c.name, fmt.Sprintf(format, args...))
}
