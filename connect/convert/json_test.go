package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/varvehq/varve/sdk"
)

// The wanted texts are what Apache Kafka Connect 4.4's JsonConverter answers for the same schema and value.

func decimalSchema(scale int, optional bool) *sdk.Schema {
	return &sdk.Schema{Type: sdk.Bytes, Name: sdk.DecimalName, Version: 1, Optional: optional, Parameters: map[string]string{"scale": fmt.Sprint(scale)}}
}

func named(t sdk.Type, name string, optional bool) *sdk.Schema {
	return &sdk.Schema{Type: t, Name: name, Version: 1, Optional: optional}
}

func everyType() (*sdk.Schema, []byte) {
	def := &sdk.Schema{Type: sdk.Int32, Optional: true, Default: []byte{2, 14}}
	defd := decimalSchema(2, true)
	defd.Default = []byte{2, 4, 0x00, 0x96}
	enum := named(sdk.String, "io.debezium.data.Enum", false)
	enum.Parameters = map[string]string{"allowed": "a,b"}
	s := &sdk.Schema{Type: sdk.Struct, Name: "a.b.Value", Version: 3, Doc: `a "doc"`, Fields: []sdk.Field{
		{Name: "i8", Schema: sdk.Of(sdk.Int8)}, {Name: "i16", Schema: sdk.Of(sdk.Int16)}, {Name: "i32", Schema: sdk.Of(sdk.Int32)},
		{Name: "i64", Schema: sdk.Of(sdk.Int64)}, {Name: "f", Schema: sdk.Of(sdk.Float32)}, {Name: "d", Schema: sdk.Of(sdk.Float64)},
		{Name: "b", Schema: sdk.Of(sdk.Boolean)}, {Name: "s", Schema: sdk.Of(sdk.String)}, {Name: "by", Schema: sdk.Of(sdk.Bytes)},
		{Name: "arr", Schema: &sdk.Schema{Type: sdk.Array, Optional: true, Elem: sdk.OptionalOf(sdk.Int32)}},
		{Name: "map", Schema: &sdk.Schema{Type: sdk.Map, Elem: sdk.Of(sdk.Int64)}},
		{Name: "dec", Schema: decimalSchema(2, false)}, {Name: "date", Schema: named(sdk.Int32, sdk.DateName, false)},
		{Name: "time", Schema: named(sdk.Int32, sdk.TimeName, false)}, {Name: "ts", Schema: named(sdk.Int64, sdk.TimestampName, false)},
		{Name: "def", Schema: def}, {Name: "mt", Schema: named(sdk.Int64, "io.debezium.time.MicroTimestamp", true)},
		{Name: "en", Schema: enum}, {Name: "nul", Schema: sdk.OptionalOf(sdk.String)}, {Name: "defd", Schema: defd},
	}}
	var a sdk.Appender
	a.Int(-128)
	a.Int(32767)
	a.Int(-5)
	a.Int(math.MaxInt64)
	a.Float32(1.5)
	a.Float64(1e21)
	a.Bool(true)
	a.String("q\"\\/\b\f\n\r\t\u0001\u001f\u007fé€\u2028😀")
	a.Bytes([]byte{0, 1, 255, 254})
	a.Present()
	a.Count(3)
	a.Present()
	a.Int(1)
	a.Null()
	a.Present()
	a.Int(3)
	a.End()
	a.Count(1)
	a.String("k")
	a.Int(2)
	a.End()
	a.Bytes([]byte{0xCF, 0xC7})
	a.Int(19000)
	a.Int(3723004)
	a.Int(1700000000123)
	a.Null()
	a.Present()
	a.Int(1700000000123456)
	a.String("a")
	a.Null()
	a.Null()
	return s, a.Buf
}

const (
	everySchema = `{"type":"struct","fields":[{"type":"int8","optional":false,"field":"i8"},{"type":"int16","optional":false,"field":"i16"},{"type":"int32","optional":false,"field":"i32"},{"type":"int64","optional":false,"field":"i64"},{"type":"float","optional":false,"field":"f"},{"type":"double","optional":false,"field":"d"},{"type":"boolean","optional":false,"field":"b"},{"type":"string","optional":false,"field":"s"},{"type":"bytes","optional":false,"field":"by"},{"type":"array","items":{"type":"int32","optional":true},"optional":true,"field":"arr"},{"type":"map","keys":{"type":"string","optional":false},"values":{"type":"int64","optional":false},"optional":false,"field":"map"},{"type":"bytes","optional":false,"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2"},"field":"dec"},{"type":"int32","optional":false,"name":"org.apache.kafka.connect.data.Date","version":1,"field":"date"},{"type":"int32","optional":false,"name":"org.apache.kafka.connect.data.Time","version":1,"field":"time"},{"type":"int64","optional":false,"name":"org.apache.kafka.connect.data.Timestamp","version":1,"field":"ts"},{"type":"int32","optional":true,"default":7,"field":"def"},{"type":"int64","optional":true,"name":"io.debezium.time.MicroTimestamp","version":1,"field":"mt"},{"type":"string","optional":false,"name":"io.debezium.data.Enum","version":1,"parameters":{"allowed":"a,b"},"field":"en"},{"type":"string","optional":true,"field":"nul"},{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2"},"default":"AJY=","field":"defd"}],"optional":false,"name":"a.b.Value","version":3,"doc":"a \"doc\""}`
	everyHead   = `{"i8":-128,"i16":32767,"i32":-5,"i64":9223372036854775807,"f":1.5,"d":1.0E21,"b":true,"s":"q\"\\/\b\f\n\r\t\u0001\u001F` + "\u007fé€\u2028" + `\uD83D\uDE00","by":"AAH//g==","arr":[1,null,3],"map":{"k":2},"dec":`
	everyMiddle = `,"date":19000,"time":3723004,"ts":1700000000123,"def":`
	everyTail   = `,"mt":1700000000123456,"en":"a","nul":null,"defd":`
)

func plainJSON(mod func(*JSONConfig)) *JSON {
	cfg := DefaultJSONConfig()
	cfg.SchemasEnable = false
	if mod != nil {
		mod(&cfg)
	}
	return NewJSON(cfg)
}

func mustEncode(t *testing.T, c Converter, v sdk.Value) string {
	t.Helper()
	out, null, err := c.Encode(nil, "t", v)
	if err != nil {
		t.Fatal(err)
	}
	if null {
		return "<null>"
	}
	return string(out)
}

func TestEncodeEqualsConnect(t *testing.T) {
	s, data := everyType()
	v := sdk.Value{Schema: s, Data: data}
	base64Doc := everyHead + `"z8c="` + everyMiddle + `7` + everyTail + `"AJY="}`
	for _, c := range []struct {
		name string
		conv *JSON
		v    sdk.Value
		want string
	}{
		{"envelope", NewJSON(DefaultJSONConfig()), v, `{"schema":` + everySchema + `,"payload":` + base64Doc + `}`},
		{"plain", plainJSON(nil), v, base64Doc},
		{"numeric", plainJSON(func(c *JSONConfig) { c.DecimalNumeric = true }), v, everyHead + `-123.45` + everyMiddle + `7` + everyTail + `1.50}`},
		{"no defaults", plainJSON(func(c *JSONConfig) { c.ReplaceNullWithDefault = false }), v, everyHead + `"z8c="` + everyMiddle + `null` + everyTail + `null}`},
		{"tombstone", NewJSON(DefaultJSONConfig()), sdk.Value{}, "<null>"},
		{"optional null in envelope", NewJSON(DefaultJSONConfig()), sdk.Value{Schema: sdk.OptionalOf(sdk.Int32), Data: []byte{0}}, `{"schema":{"type":"int32","optional":true},"payload":null}`},
		{"optional null", plainJSON(nil), sdk.Value{Schema: sdk.OptionalOf(sdk.Int32), Data: []byte{0}}, `null`},
		{"text in envelope", NewJSON(DefaultJSONConfig()), sdk.TextValue("x"), `{"schema":{"type":"string","optional":false},"payload":"x"}`},
		{"text", plainJSON(nil), sdk.TextValue("x"), `"x"`},
		{"schemaless in envelope", NewJSON(DefaultJSONConfig()), sdk.JSONValue([]byte(`{"a":1}`)), `{"schema":null,"payload":{"a":1}}`},
		{"schemaless", plainJSON(nil), sdk.JSONValue([]byte(`{"a":1}`)), `{"a":1}`},
		{"raw bytes", NewJSON(DefaultJSONConfig()), sdk.RawBytes([]byte{1, 2}), "\x01\x02"},
		{"empty struct", NewJSON(DefaultJSONConfig()), sdk.Value{Schema: sdk.StructOf(""), Data: []byte{}}, `{"schema":{"type":"struct","fields":[],"optional":false},"payload":{}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 2 { // the second time from the cache
				if got := mustEncode(t, c.conv, c.v); got != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
			}
		})
	}
}

func TestFloatsAsJava(t *testing.T) {
	for _, c := range []struct {
		f    float64
		want string
	}{
		{0, "0.0"}, {math.Copysign(0, -1), "-0.0"}, {1, "1.0"}, {-1, "-1.0"}, {0.001, "0.001"}, {0.00099, "9.9E-4"}, {9999999, "9999999.0"},
		{1e7, "1.0E7"}, {12345678.9, "1.23456789E7"}, {1.1e-5, "1.1E-5"}, {math.MaxFloat64, "1.7976931348623157E308"},
		{math.SmallestNonzeroFloat64, "4.9E-324"}, {math.NaN(), `"NaN"`}, {math.Inf(1), `"Infinity"`}, {math.Inf(-1), `"-Infinity"`},
		{0.1, "0.1"}, {100, "100.0"}, {123456.789, "123456.789"}, {1e6, "1000000.0"}, {2e-3, "0.002"}, {3e10, "3.0E10"},
	} {
		if got := string(appendFloat(nil, c.f, 64)); got != c.want {
			t.Errorf("double %g: got %s, want %s", c.f, got, c.want)
		}
	}
	for _, c := range []struct {
		f    float32
		want string
	}{
		{0, "0.0"}, {math.MaxFloat32, "3.4028235E38"}, {math.SmallestNonzeroFloat32, "1.4E-45"}, {0.1, "0.1"}, {1e7, "1.0E7"},
		{16777216, "1.6777216E7"}, {0.001, "0.001"}, {9.99e-4, "9.99E-4"}, {33554432, "3.3554432E7"},
	} {
		if got := string(appendFloat(nil, float64(c.f), 32)); got != c.want {
			t.Errorf("float %g: got %s, want %s", c.f, got, c.want)
		}
	}
}

func TestDecimals(t *testing.T) {
	for _, c := range []struct {
		unscaled string
		scale    int
		base64   string
		numeric  string
	}{
		{"0", 0, "AA==", "0"}, {"0", 2, "AA==", "0.00"}, {"-1", 2, "/w==", "-0.01"}, {"12345", 2, "MDk=", "123.45"}, {"1", -3, "AQ==", "1E+3"},
		{"1", 7, "AQ==", "1E-7"}, {"1", 6, "AQ==", "0.000001"}, {"12345678901234567890123456789", 9, "J+QbMka+ybFuOYEV", "12345678901234567890.123456789"},
		{"-12", 11, "9A==", "-1.2E-10"}, {"100", 0, "ZA==", "100"}, {"-128", 0, "gA==", "-128"}, {"128", 0, "AIA=", "128"}, {"-129", 0, "/38=", "-129"},
	} {
		n, _ := new(big.Int).SetString(c.unscaled, 10)
		var a sdk.Appender
		a.Bytes(appendUnscaled(nil, n))
		v := a.Value(decimalSchema(c.scale, false))
		if got := mustEncode(t, plainJSON(nil), v); got != `"`+c.base64+`"` {
			t.Errorf("%s scale %d: base64 %s, want %s", c.unscaled, c.scale, got, c.base64)
		}
		numeric := func(c *JSONConfig) { c.DecimalNumeric = true }
		if got := mustEncode(t, plainJSON(numeric), v); got != c.numeric {
			t.Errorf("%s scale %d: numeric %s, want %s", c.unscaled, c.scale, got, c.numeric)
		}
		cfg := DefaultJSONConfig()
		cfg.DecimalNumeric = true
		doc := mustEncode(t, NewJSON(cfg), v)
		back, _, err := NewJSON(DefaultJSONConfig()).Decode(nil, "t", []byte(doc))
		if err != nil || !bytes.Equal(back.Data, v.Data) {
			t.Errorf("%s: decoded %x, %v; want %x", doc, back.Data, err, v.Data)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	s, data := everyType()
	cfg := DefaultJSONConfig()
	cfg.ReplaceNullWithDefault = false
	doc := mustEncode(t, NewJSON(cfg), sdk.Value{Schema: s, Data: data})
	c := NewJSON(cfg)
	for _, text := range []string{doc, doc, reorder(t, doc), " " + strings.Replace(doc, `,"payload":`, ` , "payload" : `, 1) + "\n"} {
		v, _, err := c.Decode([]byte("kept"), "t", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(v.Data, data) {
			t.Errorf("%s\ndecoded %x\nwant    %x", text, v.Data, data)
		}
		if again := mustEncode(t, NewJSON(cfg), v); again != doc {
			t.Errorf("encoded again %s\nwant %s", again, doc)
		}
	}
}

// reorder moves the first field of the payload to its end.
func reorder(t *testing.T, doc string) string {
	t.Helper()
	const first = `"payload":{"i8":-128,`
	if !strings.Contains(doc, first) {
		t.Fatal("no such field")
	}
	doc = strings.Replace(doc, first, `"payload":{"unknown":[{"x":1}],`, 1)
	return doc[:len(doc)-2] + `,"i8":-128}}`
}

func TestDecodeAnswers(t *testing.T) {
	for _, c := range []struct{ doc, want string }{
		{`{"a":1}`, envelopeMessage},
		{`nope`, "invalid JSON"},
		{`{"schema":null,"payload":null}`, "null"},
		{`{"schema":null,"payload":{"a":1}}`, `{"a":1}`},
		{`{"payload":[1],"schema":null}`, `[1]`},
		{`{"schema":{"type":"int8"},"payload":300}`, "300 is no value of type INT8"},
		{`{"schema":{"type":"foo"},"payload":300}`, "Unknown schema type: foo"},
		{`{"schema":{"type":"int32"},"payload":null}`, "Invalid null value for required INT32 field"},
		{`{"schema":{"type":"int32"},"payload":"x"}`, `"x" is no value of type INT32`},
		{`{"schema":{"type":"int32","optional":true,"default":5},"payload":null}`, "020a"},
		{`{"schema":{"type":"struct","fields":[{"type":"int32"}]},"payload":{}}`, "Struct schema's field name not specified properly"},
		{`{"payload":1}`, envelopeMessage},
		{`{"schema":{},"payload":1}`, "Schema must contain 'type' field"},
		{`{"schema":null,"payload":1,"x":2}`, envelopeMessage},
		{`{"schema":{"type":"int64"},"payload":9223372036854775807}`, "feffffffffffffffff01"},
		{`{"schema":{"type":"int64"},"payload":9223372036854775808}`, "no value of type INT64"},
		{`{"schema":{"type":"int64"},"payload":1e3}`, "d00f"},
		{`{"schema":{"type":"double"},"payload":"NaN"}`, "010000000000f87f"},
		{`{"schema":{"type":"string"},"payload":"\uD83D\uDE00\ud800"}`, "0ef09f9880efbfbd"},
		{`{"schema":{"type":"bytes"},"payload":"AAH//g=="}`, "080001fffe"},
		{`{"schema":{"type":"bytes"},"payload":"*"}`, "no value of type BYTES"},
		{`{"schema":{"type":"array","items":{"type":"int32"}},"payload":[]}`, "00"},
		{`{"schema":{"type":"array","items":{"type":"int32"}},"payload":[1,2]}`, "04020400"},
		{`{"schema":{"type":"struct","fields":[{"field":"a","type":"int32"}]},"payload":{"a":1,"a":2}}`, `field "a" comes twice`},
		{`{"schema":{"type":"struct","fields":[{"field":"a","type":"int32"}]},"payload":{"b":1}}`, `Invalid null value for required INT32 field, field: "a"`},
		{`{"schema":{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"1"}},"payload":1.25}`, "1.25 is no value of type BYTES"},
		{`{"schema":{"type":"int32"},"payload":1}}`, "follows the document"},
		{`{"schema":{"type":"int32"},"payload":01}`, "invalid JSON"},
	} {
		conv := NewJSON(DefaultJSONConfig())
		for range 2 {
			v, _, err := conv.Decode(nil, "t", []byte(c.doc))
			got := fmt.Sprintf("%x", v.Data)
			switch {
			case err != nil:
				got = err.Error()
				if !errors.Is(err, ErrData) {
					t.Errorf("%s: %v is not ErrData", c.doc, err)
				}
			case v.Schema == nil:
				got = "null"
			case v.Schema.Type == sdk.JSON:
				got = string(v.Data)
			}
			if err == nil && got != c.want || !strings.Contains(got, c.want) {
				t.Errorf("%s: got %s, want %s", c.doc, got, c.want)
			}
		}
	}
}

func TestSchemaless(t *testing.T) {
	c := plainJSON(nil)
	for _, doc := range []string{`{"a":[1,2,{}]}`, `1`, `"x"`, `[]`, `true`} {
		v, _, err := c.Decode(nil, "t", []byte(" "+doc+" "))
		if err != nil || v.Schema != sdk.JSONSchema || string(v.Data) != doc {
			t.Errorf("%s: %v %s %v", doc, v.Schema, v.Data, err)
		}
	}
	for _, doc := range []string{"", "{", `{"a":}`, "\xff", `{"a":1}x`, "'a'"} {
		if _, _, err := c.Decode(nil, "t", []byte(doc)); !errors.Is(err, ErrData) {
			t.Errorf("%q: %v", doc, err)
		}
	}
	if v, _, err := c.Decode(nil, "t", nil); err != nil || !v.IsNull() {
		t.Errorf("tombstone: %v %v", v, err)
	}
}

func TestRecursiveSchemaIsAnError(t *testing.T) {
	s := sdk.StructOf("loop")
	s.Fields = []sdk.Field{{Name: "next", Schema: &sdk.Schema{Type: sdk.Array, Elem: s}}}
	if _, _, err := NewJSON(DefaultJSONConfig()).Encode(nil, "t", sdk.Value{Schema: s, Data: []byte{0}}); !errors.Is(err, ErrData) {
		t.Errorf("got %v", err)
	}
}

func TestMalformedValueIsAnError(t *testing.T) {
	s, data := everyType()
	c := NewJSON(DefaultJSONConfig())
	for n := range data {
		if out, _, err := c.Encode([]byte("x"), "t", sdk.Value{Schema: s, Data: data[:n:n]}); err == nil || string(out) != "x" {
			t.Fatalf("%d of %d bytes: %v, %q", n, len(data), err, out)
		}
	}
	if _, _, err := c.Encode(nil, "t", sdk.Value{Schema: s, Data: append(data[:len(data):len(data)], 0)}); err == nil {
		t.Error("surplus bytes were taken")
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	s, data := everyType()
	c := NewJSON(DefaultJSONConfig())
	v := sdk.Value{Schema: s, Data: data}
	doc := []byte(mustEncode(t, c, v))
	buf := make([]byte, 0, 16<<10)
	if n := testing.AllocsPerRun(100, func() { _, _, _ = c.Encode(buf, "t", v) }); n != 0 {
		t.Errorf("Encode allocates %.0f times", n)
	}
	if _, _, err := c.Decode(buf, "t", doc); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _, _ = c.Decode(buf, "t", doc) }); n != 0 {
		t.Errorf("Decode allocates %.0f times", n)
	}
}

func TestScannerAgreesWithStandardLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := rapid.StringOfN(rapid.SampledFrom([]rune(`{}[]",:\u00e1 -+.eE0123tfnrualsx`)), 0, 24, -1).Draw(t, "doc")
		if got, want := validDoc([]byte(doc)), json.Valid([]byte(doc)); got != want {
			t.Fatalf("%q: valid %v, encoding/json says %v", doc, got, want)
		}
	})
}

func validDoc(doc []byte) bool {
	s := scanner{data: doc}
	s.skip(0)
	return s.end() == nil
}

func FuzzDecode(f *testing.F) {
	s, data := everyType()
	out, _, _ := NewJSON(DefaultJSONConfig()).Encode(nil, "t", sdk.Value{Schema: s, Data: data})
	f.Add(out)
	f.Add([]byte(`{"schema":{"type":"struct","fields":[{"field":"a","type":"int32","optional":true,"default":3}]},"payload":{"b":1}}`))
	f.Add([]byte(`{"schema":{"type":"map","keys":{"type":"string"},"values":{"type":"bytes"}},"payload":{"b":"AA=="}}`))
	f.Add([]byte(`{"schema":null,"payload":[1,{"a":"\u0000"}]}`))
	cfg := DefaultJSONConfig()
	cfg.ReplaceNullWithDefault = false
	f.Fuzz(func(t *testing.T, doc []byte) {
		c := NewJSON(cfg)
		v, _, err := c.Decode(nil, "t", doc)
		if err != nil {
			if !errors.Is(err, ErrData) {
				t.Fatalf("unclassified error %v", err)
			}
			return
		}
		if !json.Valid(doc) {
			t.Fatalf("took what is no JSON")
		}
		if v.Data == nil || v.Schema.Type == sdk.JSON {
			return
		}
		text, _, err := c.Encode(nil, "t", v)
		if err != nil {
			t.Fatalf("cannot encode what was decoded: %v", err)
		}
		if !utf8.Valid(text) || !json.Valid(text) {
			t.Fatalf("wrote what is no JSON: %q", text)
		}
		again, _, err := NewJSON(cfg).Decode(nil, "t", text)
		if err != nil || !bytes.Equal(again.Data, v.Data) {
			t.Fatalf("round trip: %x, %v; want %x", again.Data, err, v.Data)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	s, data := everyType()
	for _, c := range []struct {
		name string
		conv *JSON
	}{{"envelope", NewJSON(DefaultJSONConfig())}, {"plain", plainJSON(nil)}} {
		b.Run(c.name, func(b *testing.B) {
			buf := make([]byte, 0, 16<<10)
			b.ReportAllocs()
			for b.Loop() {
				_, _, _ = c.conv.Encode(buf, "t", sdk.Value{Schema: s, Data: data})
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	s, data := everyType()
	c := NewJSON(DefaultJSONConfig())
	doc, _, _ := c.Encode(nil, "t", sdk.Value{Schema: s, Data: data})
	buf := make([]byte, 0, 16<<10)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		_, _, _ = c.Decode(buf, "t", doc)
	}
}
