package datagen

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/varvehq/varve/sdk"
)

// field makes the values of one column.
type field struct {
	name     string
	schema   *sdk.Schema
	nullable bool
	// binary appends the value of record n in Avro binary, text in JSON. Both draw the same numbers from rng.
	binary func(a *sdk.Appender, n int64, rng *rand.Rand)
	text   func(b []byte, n int64, rng *rand.Rand) []byte
}

var fieldForm = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)\s*:\s*([a-z]+)\s*(?:\((.*)\))?\s*(\??)$`)

// parseFields reads "name:kind(arguments), …".
func parseFields(text string) ([]field, error) {
	var fields []field
	for _, part := range splitTop(text) {
		m := fieldForm.FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("%q is not of the form name:kind(arguments)", part)
		}
		if indexOf(fields, m[1]) >= 0 {
			return nil, fmt.Errorf("two fields are called %s", m[1])
		}
		f := field{name: m[1], nullable: m[4] != ""}
		if err := makers.make(&f, m[2], m[3]); err != nil {
			return nil, fmt.Errorf("field %s: %w", f.name, err)
		}
		if f.nullable {
			s := *f.schema
			s.Optional = true
			f.schema = &s
		}
		fields = append(fields, f)
	}
	if len(fields) == 0 {
		return nil, fmt.Errorf("no fields")
	}
	return fields, nil
}

// splitTop splits at the commas outside parentheses.
func splitTop(text string) []string {
	var parts []string
	depth, start := 0, 0
	for i, c := range text + "," {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			if p := strings.TrimSpace(text[start:i]); p != "" {
				parts = append(parts, p)
			}
			start = i + 1
		}
	}
	if p := strings.TrimSpace(text[min(start, len(text)):]); depth != 0 && p != "" {
		parts = append(parts, p) // an open parenthesis: fieldForm refuses it
	}
	return parts
}

func indexOf(fields []field, name string) int {
	for i := range fields {
		if fields[i].name == name {
			return i
		}
	}
	return -1
}

// null decides for a nullable field.
func (f *field) null(rng *rand.Rand) bool { return f.nullable && rng.IntN(10) == 0 }

func (f *field) appendBinary(a *sdk.Appender, n int64, rng *rand.Rand) {
	if f.nullable {
		if f.null(rng) {
			a.Null()
			return
		}
		a.Present()
	}
	f.binary(a, n, rng)
}

func (f *field) appendText(b []byte, n int64, rng *rand.Rand) []byte {
	if f.null(rng) {
		return append(b, "null"...)
	}
	return f.text(b, n, rng)
}

type maker func(f *field, args []string) error

type makerMap map[string]maker

var makers = makerMap{
	"sequence": makeSequence, "int": makeInt(sdk.Int32), "long": makeInt(sdk.Int64), "double": makeDouble, "decimal": makeDecimal,
	"bool": makeBool, "string": makeString, "choice": makeChoice, "timestamp": makeTimestamp, "uuid": makeUUID,
}

func (m makerMap) make(f *field, kind, args string) error {
	mk, ok := m[kind]
	if !ok {
		return fmt.Errorf("unknown kind %s", kind)
	}
	var list []string
	if kind == "choice" {
		list = strings.Split(args, "|")
	} else if strings.TrimSpace(args) != "" {
		for a := range strings.SplitSeq(args, ",") {
			list = append(list, strings.TrimSpace(a))
		}
	}
	return mk(f, list)
}

// numbers reads integers, with defaults for those left out.
func numbers(args []string, defaults ...int64) ([]int64, error) {
	if len(args) > len(defaults) {
		return nil, fmt.Errorf("%d arguments, at most %d are understood", len(args), len(defaults))
	}
	for i, a := range args {
		n, err := strconv.ParseInt(a, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no integer", a)
		}
		defaults[i] = n
	}
	return defaults, nil
}

func interval(lo, hi int64) error {
	if lo > hi || uint64(hi-lo) >= 1<<63-1 {
		return fmt.Errorf("%d to %d is no interval", lo, hi)
	}
	return nil
}

func (f *field) integers(t sdk.Type, at func(n int64, rng *rand.Rand) int64) {
	f.schema = sdk.Of(t)
	f.binary = func(a *sdk.Appender, n int64, rng *rand.Rand) { a.Int(at(n, rng)) }
	f.text = func(b []byte, n int64, rng *rand.Rand) []byte { return strconv.AppendInt(b, at(n, rng), 10) }
}

func makeSequence(f *field, args []string) error {
	v, err := numbers(args, 0, 1)
	if err != nil {
		return err
	}
	f.integers(sdk.Int64, func(n int64, _ *rand.Rand) int64 { return v[0] + n*v[1] })
	return nil
}

func makeInt(t sdk.Type) maker {
	return func(f *field, args []string) error {
		v, err := numbers(args, 0, 1000)
		if err == nil {
			err = interval(v[0], v[1])
		}
		if err == nil && t == sdk.Int32 && (v[0] < -1<<31 || v[1] >= 1<<31) {
			err = fmt.Errorf("beyond 32 bits: use long")
		}
		if err != nil {
			return err
		}
		f.integers(t, func(_ int64, rng *rand.Rand) int64 { return v[0] + rng.Int64N(v[1]-v[0]+1) })
		return nil
	}
}

func makeDouble(f *field, args []string) error {
	v := []float64{0, 1}
	if len(args) > 2 {
		return fmt.Errorf("%d arguments, at most 2 are understood", len(args))
	}
	for i, a := range args {
		n, err := strconv.ParseFloat(a, 64)
		if err != nil || n-n != 0 {
			return fmt.Errorf("%q is no number", a)
		}
		v[i] = n
	}
	at := func(rng *rand.Rand) float64 { return v[0] + rng.Float64()*(v[1]-v[0]) }
	f.schema = sdk.Of(sdk.Float64)
	f.binary = func(a *sdk.Appender, _ int64, rng *rand.Rand) { a.Float64(at(rng)) }
	f.text = func(b []byte, _ int64, rng *rand.Rand) []byte { return strconv.AppendFloat(b, at(rng), 'g', -1, 64) }
	return nil
}

func makeDecimal(f *field, args []string) error {
	v, err := numbers(args, 2, 0, 1000)
	if err == nil {
		err = interval(v[1], v[2])
	}
	if err == nil && (v[0] < 0 || v[0] > 12) {
		err = fmt.Errorf("a scale of %d", v[0])
	}
	if err != nil {
		return err
	}
	unit := int64(1)
	for range v[0] {
		unit *= 10
	}
	if lim := int64(1<<62) / unit; v[1] < -lim || v[2] > lim {
		return fmt.Errorf("beyond 62 bits")
	}
	at := func(rng *rand.Rand) *big.Int { return big.NewInt(v[1]*unit + rng.Int64N((v[2]-v[1])*unit+1)) }
	f.schema = sdk.DecimalSchema(int(v[0]))
	f.binary = func(a *sdk.Appender, _ int64, rng *rand.Rand) { a.Bytes(sdk.AppendUnscaled(nil, at(rng))) }
	f.text = func(b []byte, _ int64, rng *rand.Rand) []byte {
		return append(b, sdk.FormatDecimal(at(rng), int(v[0]))...)
	}
	return nil
}

func makeBool(f *field, args []string) error {
	v, err := numbers(args, 50)
	if err != nil {
		return err
	}
	at := func(rng *rand.Rand) bool { return rng.Int64N(100) < v[0] }
	f.schema = sdk.Of(sdk.Boolean)
	f.binary = func(a *sdk.Appender, _ int64, rng *rand.Rand) { a.Bool(at(rng)) }
	f.text = func(b []byte, _ int64, rng *rand.Rand) []byte { return strconv.AppendBool(b, at(rng)) }
	return nil
}

// strings makes a text field; the text needs no escaping unless quote says so.
func (f *field) strings(at func(b []byte, n int64, rng *rand.Rand) []byte) {
	f.schema = sdk.Of(sdk.String)
	var buf []byte
	f.binary = func(a *sdk.Appender, n int64, rng *rand.Rand) {
		buf = at(buf[:0], n, rng)
		a.Bytes(buf)
	}
	f.text = func(b []byte, n int64, rng *rand.Rand) []byte { return append(at(append(b, '"'), n, rng), '"') }
}

const letters = "abcdefghijklmnopqrstuvwxyz"

func makeString(f *field, args []string) error {
	v, err := numbers(args, 10, 0)
	if err != nil {
		return err
	}
	if len(args) < 2 {
		v[1] = v[0]
	}
	if err := interval(v[0], v[1]); err != nil || v[0] < 0 || v[1] > 1<<20 {
		return fmt.Errorf("a length of %d to %d", v[0], v[1])
	}
	f.strings(func(b []byte, _ int64, rng *rand.Rand) []byte {
		for range v[0] + rng.Int64N(v[1]-v[0]+1) {
			b = append(b, letters[rng.IntN(len(letters))])
		}
		return b
	})
	return nil
}

func makeChoice(f *field, args []string) error {
	if len(args) == 1 && args[0] == "" {
		return fmt.Errorf("nothing to choose from")
	}
	quoted := make([][]byte, len(args))
	for i := range args {
		args[i] = strings.TrimSpace(args[i])
		q, err := json.Marshal(args[i])
		if err != nil {
			return err
		}
		quoted[i] = q
	}
	f.schema = sdk.Of(sdk.String)
	f.binary = func(a *sdk.Appender, _ int64, rng *rand.Rand) { a.String(args[rng.IntN(len(args))]) }
	f.text = func(b []byte, _ int64, rng *rand.Rand) []byte { return append(b, quoted[rng.IntN(len(args))]...) }
	return nil
}

func makeTimestamp(f *field, args []string) error {
	start, step := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), int64(1000)
	if len(args) > 2 {
		return fmt.Errorf("%d arguments, at most 2 are understood", len(args))
	}
	if len(args) > 0 {
		t, err := time.Parse(time.RFC3339, args[0])
		if err != nil {
			return fmt.Errorf("%q is no time such as 2026-01-01T00:00:00Z", args[0])
		}
		start = t.UnixMilli()
	}
	if len(args) > 1 {
		n, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil {
			return fmt.Errorf("%q is no number of milliseconds", args[1])
		}
		step = n
	}
	f.integers(sdk.Int64, func(n int64, _ *rand.Rand) int64 { return start + n*step })
	f.schema = &sdk.Schema{Type: sdk.Int64, Name: sdk.TimestampName, Version: 1}
	return nil
}

func makeUUID(f *field, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("uuid has no arguments")
	}
	f.strings(func(b []byte, _ int64, rng *rand.Rand) []byte {
		var u [16]byte
		for i, hi, lo := 0, rng.Uint64(), rng.Uint64(); i < 8; i++ {
			u[i], u[8+i] = byte(hi>>(8*i)), byte(lo>>(8*i))
		}
		u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
		for i, part := range [][]byte{u[:4], u[4:6], u[6:8], u[8:10], u[10:]} {
			if i > 0 {
				b = append(b, '-')
			}
			b = hex.AppendEncode(b, part)
		}
		return b
	})
	f.schema = &sdk.Schema{Type: sdk.String, Name: "io.debezium.data.Uuid", Version: 1}
	return nil
}
