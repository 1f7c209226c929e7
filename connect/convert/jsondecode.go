package convert

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"

	"github.com/varvehq/varve/sdk"
)

const (
	envelopeMessage = `JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields. ` +
		`If you are trying to deserialize plain JSON data, set schemas.enable=false in your converter configuration.`
	envelopePrefix  = `{"schema":`
	envelopePayload = `,"payload":`
)

// decoder reads documents into Avro binary.
type decoder struct {
	cfg     JSONConfig
	schemas map[string]*sdk.Schema
	lastRaw []byte // the schema part of the last envelope
	last    *sdk.Schema

	scan    scanner
	out     sdk.Appender
	spans   []span
	scratch []byte
}

// span is a part of the document: a field's value. The zero span is a field that is missing.
type span struct{ from, to int }

// Decode implements Converter.
func (j *JSON) Decode(dst []byte, _ string, data []byte) (sdk.Value, []byte, error) {
	if data == nil {
		return sdk.Value{}, dst, nil
	}
	if !utf8.Valid(data) {
		return sdk.Value{}, dst, dataErrorf("Converting byte[] to Kafka Connect data failed due to serialization error: invalid UTF-8")
	}
	d := &j.dec
	d.scan = scanner{data: data}
	if !j.cfg.SchemasEnable {
		v, err := d.schemaless()
		if err == nil {
			err = d.scan.end()
		}
		return v, dst, err
	}
	schema, payload, err := d.envelope()
	if err != nil {
		return sdk.Value{}, dst, err
	}
	if schema == nil {
		if string(payload) == "null" {
			return sdk.Value{}, dst, nil
		}
		return sdk.JSONValue(payload), dst, nil
	}
	start := len(dst)
	d.scan = scanner{data: payload}
	d.out.Buf = dst
	err = d.value(schema, 0)
	if err == nil {
		err = d.scan.end()
	}
	out := d.out.Buf
	d.out.Buf = nil
	if err != nil {
		return sdk.Value{}, out[:start], err
	}
	return sdk.Value{Schema: schema, Data: out[start:len(out):len(out)]}, out, nil
}

// schemaless reads a document that is the value itself.
func (d *decoder) schemaless() (sdk.Value, error) {
	d.scan.ws()
	from := d.scan.pos
	d.scan.skip(0)
	if d.scan.err != nil {
		return sdk.Value{}, d.scan.err
	}
	doc := d.scan.data[from:d.scan.pos:d.scan.pos]
	if string(doc) == "null" {
		return sdk.Value{}, nil
	}
	return sdk.JSONValue(doc), nil
}

// envelope splits {"schema":…,"payload":…}. The schema of the record before is recognized by its bytes without being read.
func (d *decoder) envelope() (*sdk.Schema, []byte, error) {
	data := d.scan.data
	if d.lastRaw != nil && bytes.HasPrefix(data, []byte(envelopePrefix)) && bytes.HasPrefix(data[len(envelopePrefix):], d.lastRaw) {
		rest := data[len(envelopePrefix)+len(d.lastRaw):]
		if bytes.HasPrefix(rest, []byte(envelopePayload)) && rest[len(rest)-1] == '}' {
			return d.last, rest[len(envelopePayload) : len(rest)-1], nil
		}
	}
	rawSchema, payload, err := d.splitEnvelope()
	if err != nil {
		return nil, nil, err
	}
	if string(rawSchema) == "null" {
		return nil, payload, nil
	}
	schema, ok := d.schemas[string(rawSchema)]
	if !ok {
		if schema, err = d.parseSchema(rawSchema); err != nil {
			return nil, nil, err
		}
		if len(d.schemas) >= max(d.cfg.CacheSize, 1) {
			clear(d.schemas)
		}
		d.schemas[string(rawSchema)] = schema
	}
	d.lastRaw, d.last = append(d.lastRaw[:0], rawSchema...), schema
	return schema, payload, nil
}

func (d *decoder) splitEnvelope() (schema, payload []byte, err error) {
	s := &d.scan
	if s.peek() != '{' {
		if s.skip(0); s.end() != nil {
			return nil, nil, s.err
		}
		return nil, nil, dataErrorf("%s", envelopeMessage)
	}
	s.pos++
	wrong := s.peek() == '}'
	for s.err == nil && !wrong {
		name, _ := s.str()
		s.expect(':')
		s.ws()
		from := s.pos
		s.skip(1)
		if s.err != nil {
			break
		}
		switch part := s.data[from:s.pos:s.pos]; string(name) {
		case "schema":
			schema = part
		case "payload":
			payload = part
		default:
			wrong = true
		}
		if s.accept('}') {
			break
		}
		s.expect(',')
	}
	if s.err == nil && !wrong && s.end() == nil && schema != nil && payload != nil {
		return schema, payload, nil
	}
	if s.err != nil {
		return nil, nil, s.err
	}
	return nil, nil, dataErrorf("%s", envelopeMessage)
}

// value reads one value of schema s and appends it.
func (d *decoder) value(s *sdk.Schema, depth int) error {
	if d.scan.literal("null") {
		return d.null(s)
	}
	if s.Optional {
		d.out.Present()
	}
	switch s.Type {
	case sdk.Int8:
		return d.integer(math.MinInt8, math.MaxInt8, s)
	case sdk.Int16:
		return d.integer(math.MinInt16, math.MaxInt16, s)
	case sdk.Int32:
		return d.integer(math.MinInt32, math.MaxInt32, s)
	case sdk.Int64:
		return d.integer(math.MinInt64, math.MaxInt64, s)
	case sdk.Float32, sdk.Float64:
		return d.float(s)
	case sdk.Boolean:
		switch {
		case d.scan.literal("true"):
			d.out.Bool(true)
		case d.scan.literal("false"):
			d.out.Bool(false)
		default:
			return d.mismatch(s)
		}
		return nil
	case sdk.String:
		if d.scan.peek() != '"' {
			return d.mismatch(s)
		}
		d.out.Bytes(d.text())
		return d.scan.err
	case sdk.Bytes:
		return d.bytes(s)
	case sdk.Array:
		return d.array(s, depth)
	case sdk.Map:
		return d.mapping(s, depth)
	case sdk.Struct:
		return d.object(s, depth)
	}
	return dataErrorf("Unknown schema type: %s", s.Type)
}

// null appends what a null, or a missing field, of schema s stands for.
func (d *decoder) null(s *sdk.Schema) error {
	switch {
	case s.Default != nil && d.cfg.ReplaceNullWithDefault:
		d.out.Buf = append(d.out.Buf, s.Default...)
	case s.Optional:
		d.out.Null()
	default:
		return dataErrorf("Invalid null value for required %s field", typeName(s.Type))
	}
	return nil
}

func (d *decoder) mismatch(s *sdk.Schema) error {
	if d.scan.err != nil {
		return d.scan.err
	}
	from := d.scan.pos
	d.scan.skip(0)
	if d.scan.err != nil {
		return d.scan.err
	}
	got := d.scan.data[from:d.scan.pos]
	if len(got) > 64 {
		got = got[:64]
	}
	return dataErrorf("%s is no value of type %s", got, typeName(s.Type))
}

func (d *decoder) integer(lo, hi int64, s *sdk.Schema) error {
	if c := d.scan.peek(); c != '-' && (c < '0' || c > '9') {
		return d.mismatch(s)
	}
	from := d.scan.pos
	text, whole := d.scan.number()
	if d.scan.err != nil {
		return d.scan.err
	}
	v, ok := parseInt(text, whole)
	if !ok || v < lo || v > hi {
		d.scan.pos = from
		return d.mismatch(s)
	}
	d.out.Int(v)
	return nil
}

func (d *decoder) float(s *sdk.Schema) error {
	var f float64
	switch c := d.scan.peek(); {
	case c == '"':
		from := d.scan.pos
		raw, _ := d.scan.str()
		switch string(raw) {
		case "NaN":
			f = math.NaN()
		case "Infinity":
			f = math.Inf(1)
		case "-Infinity":
			f = math.Inf(-1)
		default:
			d.scan.pos = from
			return d.mismatch(s)
		}
	case c == '-' || c >= '0' && c <= '9':
		text, _ := d.scan.number()
		if d.scan.err != nil {
			return d.scan.err
		}
		bits := 64
		if s.Type == sdk.Float32 {
			bits = 32
		}
		// Past the range ParseFloat answers an infinity, as the JVM does.
		f, _ = strconv.ParseFloat(string(text), bits)
	default:
		return d.mismatch(s)
	}
	if s.Type == sdk.Float32 {
		d.out.Float32(float32(f))
	} else {
		d.out.Float64(f)
	}
	return d.scan.err
}

// text reads a string; the result is valid until the next call.
func (d *decoder) text() []byte {
	raw, escaped := d.scan.str()
	if !escaped {
		return raw
	}
	d.scratch = unescape(d.scratch[:0], raw)
	return d.scratch
}

func (d *decoder) bytes(s *sdk.Schema) error {
	c := d.scan.peek()
	if s.Name == sdk.DecimalName && (c == '-' || c >= '0' && c <= '9') {
		return d.decimal(s)
	}
	if c != '"' {
		return d.mismatch(s)
	}
	from := d.scan.pos
	text := d.text()
	if d.scan.err != nil {
		return d.scan.err
	}
	d.out.Int(int64(decodedLen(text)))
	start := len(d.out.Buf)
	var err error
	if d.out.Buf, err = base64.StdEncoding.AppendDecode(d.out.Buf, text); err != nil || len(d.out.Buf)-start != decodedLen(text) {
		d.scan.pos = from
		return d.mismatch(s)
	}
	return nil
}

// decodedLen is the exact length of what padded base64 text holds.
func decodedLen(text []byte) int {
	n := base64.StdEncoding.DecodedLen(len(text))
	for i := len(text) - 1; i >= 0 && i >= len(text)-2 && text[i] == '='; i-- {
		n--
	}
	return max(n, 0)
}

// decimal reads a number into the unscaled bytes of a decimal of the schema's scale; digits that do not fit are an error.
func (d *decoder) decimal(s *sdk.Schema) error {
	scale, err := strconv.Atoi(s.Parameters["scale"])
	if err != nil {
		return dataErrorf("Invalid scale parameter found in Decimal schema: %q", s.Parameters["scale"])
	}
	from := d.scan.pos
	text, _ := d.scan.number()
	if d.scan.err != nil {
		return d.scan.err
	}
	unscaled, ok := parseDecimal(text, scale)
	if !ok {
		d.scan.pos = from
		return d.mismatch(s)
	}
	var tmp [32]byte
	d.out.Bytes(appendUnscaled(tmp[:0], unscaled))
	return nil
}

// maxDecimalDigits bounds what an exponent may blow a number up to.
const maxDecimalDigits = 10_000

// parseDecimal is text × 10^scale, if that is whole.
func parseDecimal(text []byte, scale int) (*big.Int, bool) {
	exp := scale
	mant := text
	if i := bytes.IndexAny(text, "eE"); i >= 0 {
		e, err := strconv.Atoi(string(text[i+1:]))
		if err != nil || e > maxDecimalDigits || e < -maxDecimalDigits {
			return nil, false
		}
		exp += e
		mant = text[:i]
	}
	if i := bytes.IndexByte(mant, '.'); i >= 0 {
		exp -= len(mant) - i - 1
		mant = append(append([]byte(nil), mant[:i]...), mant[i+1:]...)
	}
	if len(mant) > maxDecimalDigits || exp > maxDecimalDigits || exp < -2*maxDecimalDigits {
		return nil, false
	}
	v, ok := new(big.Int).SetString(string(mant), 10)
	if !ok || exp == 0 || v.Sign() == 0 {
		return v, ok
	}
	pow := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exp, -exp))), nil)
	if exp > 0 {
		return v.Mul(v, pow), true
	}
	rest := new(big.Int)
	v.QuoRem(v, pow, rest)
	return v, rest.Sign() == 0
}

// insertCount puts the count of an array or map in front of its elements, which begin at start, and ends the block.
func (d *decoder) insertCount(start, n int) {
	if n > 0 {
		var tmp [binary.MaxVarintLen64]byte
		c := binary.PutVarint(tmp[:], int64(n))
		d.out.Buf = append(d.out.Buf, tmp[:c]...)
		copy(d.out.Buf[start+c:], d.out.Buf[start:len(d.out.Buf)-c])
		copy(d.out.Buf[start:], tmp[:c])
	}
	d.out.End()
}

func (d *decoder) array(s *sdk.Schema, depth int) error {
	if d.scan.peek() != '[' {
		return d.mismatch(s)
	}
	d.scan.pos++
	start, n := len(d.out.Buf), 0
	if !d.scan.accept(']') {
		for {
			if err := d.value(s.Elem, depth+1); err != nil {
				return err
			}
			n++
			if d.scan.accept(']') {
				break
			}
			if d.scan.expect(','); d.scan.err != nil {
				return d.scan.err
			}
		}
	}
	d.insertCount(start, n)
	return nil
}

func (d *decoder) mapping(s *sdk.Schema, depth int) error {
	if d.scan.peek() != '{' {
		return d.mismatch(s)
	}
	d.scan.pos++
	start, n := len(d.out.Buf), 0
	if !d.scan.accept('}') {
		for {
			d.out.Bytes(d.text())
			if d.scan.expect(':'); d.scan.err != nil {
				return d.scan.err
			}
			if err := d.value(s.Elem, depth+1); err != nil {
				return err
			}
			n++
			if d.scan.accept('}') {
				break
			}
			if d.scan.expect(','); d.scan.err != nil {
				return d.scan.err
			}
		}
	}
	d.insertCount(start, n)
	return nil
}
