package sdk

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type sampleConfig struct {
	Host  string        `config:"host" required:"true" importance:"high" group:"Server" doc:"Where it is." width:"long" display:"Host"`
	Port  int16         `config:"port" default:"5432" min:"1" group:"Server"`
	Pass  Secret        `config:"password" default:""`
	Mode  string        `config:"mode" default:"initial" oneof:"initial,never"`
	Every time.Duration `config:"poll.interval.ms" default:"500" min:"1" max:"60000"`
	Wait  time.Duration `config:"wait" default:"1m30s"`
	List  []string      `config:"tables"`
	Ratio float64       `config:"ratio" default:"0.5" max:"1"`
	On    bool          `config:"on" default:"true" dependents:"mode,port"`
	Other int           // without tag: left alone
	embedded
}

type embedded struct {
	Extra int `config:"extra" default:"9"`
}

func TestDefinitions(t *testing.T) {
	defs := Definitions(&sampleConfig{})
	one, max := int64(1), int64(60000)
	want := map[string]ConfigDef{
		"host": {Name: "host", Type: TypeString, Required: true, Importance: "HIGH", Group: "Server", Doc: "Where it is.", OrderInGroup: 1, Width: "LONG", DisplayName: "Host"},
		"port": {Name: "port", Type: TypeInt, Default: "5432", HasDefault: true, Importance: "MEDIUM", Group: "Server", OrderInGroup: 2, Width: "NONE", DisplayName: "port", Min: &one},
		"poll.interval.ms": {Name: "poll.interval.ms", Type: TypeLong, Default: "500", HasDefault: true, Importance: "MEDIUM", OrderInGroup: 3,
			Width: "NONE", DisplayName: "poll.interval.ms", Min: &one, Max: &max},
	}
	types := map[string]ConfigType{}
	for _, d := range defs {
		types[d.Name] = d.Type
		if w, ok := want[d.Name]; ok {
			if diff := cmp.Diff(w, d); diff != "" {
				t.Error(diff)
			}
		}
	}
	if diff := cmp.Diff(map[string]ConfigType{
		"host": TypeString, "port": TypeInt, "password": TypePassword, "mode": TypeString, "poll.interval.ms": TypeLong,
		"wait": TypeString, "tables": TypeList, "ratio": TypeDouble, "on": TypeBoolean, "extra": TypeLong,
	}, types); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeConfig(t *testing.T) {
	var c sampleConfig
	errs := Config{"host": "db", "tables": " a, b ,,c", "poll.interval.ms": " 20 ", "password": " keep spaces ", "other": "x"}.Decode(&c)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	want := sampleConfig{Host: "db", Port: 5432, Pass: " keep spaces ", Mode: "initial", Every: 20 * time.Millisecond,
		Wait: 90 * time.Second, List: []string{"a", "b", "c"}, Ratio: 0.5, On: true, embedded: embedded{Extra: 9}}
	if diff := cmp.Diff(want, c, cmp.AllowUnexported(sampleConfig{}, embedded{})); diff != "" {
		t.Error(diff)
	}
	errs = Config{"port": "70000", "mode": "sometimes", "poll.interval.ms": "0", "wait": "soon", "ratio": "2", "on": "yes"}.Decode(&c)
	got := map[string]string{}
	for _, e := range errs {
		got[e.Key] = e.Message
	}
	if diff := cmp.Diff(map[string]string{
		"host":             `Missing required configuration "host" which has no default value.`,
		"mode":             "Invalid value sometimes for configuration mode: String must be one of: initial, never",
		"on":               "Invalid value yes for configuration on: Expected value to be either true or false",
		"poll.interval.ms": "Invalid value 0 for configuration poll.interval.ms: Value must be at least 1",
		"port":             "Invalid value 70000 for configuration port: out of range of int16",
		"ratio":            "Invalid value 2 for configuration ratio: Value must be no more than 1",
		"wait":             "Invalid value soon for configuration wait: not a duration such as 500ms or 1m30s",
	}, got); diff != "" {
		t.Error(diff)
	}
}

func TestSecretHidesItself(t *testing.T) {
	s := Secret("hunter2")
	b, _ := json.Marshal(map[string]any{"s": s})
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%+v %#v %q", s, s, s), s.LogValue().String(), string(b)} {
		if strings.Contains(text, "hunter2") {
			t.Error(text)
		}
	}
}

// everything is a schema with all that a schema can have.
func everything() *Schema {
	inner := &Schema{Type: Struct, Name: "shop.inventory.customers.Value", Version: 2, Doc: "A row.", Fields: []Field{
		{"id", &Schema{Type: Int32, Default: []byte{4}, Doc: "The key."}},
		{"größe-1", OptionalOf(Int16)},
		{"price", &Schema{Type: Bytes, Optional: true, Name: DecimalName, Version: 1, Parameters: map[string]string{"scale": "2", "connect.decimal.precision": "10"}}},
		{"at", &Schema{Type: Int64, Name: TimestampName, Version: 1}},
		{"day", &Schema{Type: Int32, Name: DateName, Version: 1, Optional: true}},
		{"micros", &Schema{Type: Int64, Name: "io.debezium.time.MicroTimestamp", Version: 1}},
		{"tags", &Schema{Type: Array, Elem: OptionalOf(String)}},
		{"attrs", &Schema{Type: Map, Elem: Of(Float64), Optional: true}},
		{"raw", &Schema{Type: Bytes, Default: []byte{4, 0xff, 0x00}}},
		{"opt", &Schema{Type: String, Optional: true, Default: []byte{2, 4, 'h', 'i'}}},
	}}
	before := *inner
	before.Optional = true
	return StructOf("shop.inventory.customers.Envelope",
		Field{"before", &before}, Field{"after", &before}, Field{"op", Of(String)}, Field{"f", Of(Float32)},
		Field{"i8", &Schema{Type: Int8, Parameters: map[string]string{"a": "b", "c": "d"}}},
		Field{"anon", StructOf("", Field{"x", Of(Boolean)})}, Field{"anon2", StructOf("", Field{"y", Of(Boolean)})})
}

func TestAvroJSON(t *testing.T) {
	s := everything()
	text, err := s.AvroJSON()
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseAvro(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if diff := cmp.Diff(s, back); diff != "" {
		t.Errorf("%s of\n%s", diff, text)
	}
	if !s.Equal(back) || s.Fingerprint() != back.Fingerprint() {
		t.Error("equal schemas are unequal")
	}
	again, err := back.AvroJSON()
	if err != nil || string(again) != string(text) {
		t.Errorf("%v\n%s\n%s", err, text, again)
	}
	for _, want := range []string{
		`{"name":"after","type":["null","shop.inventory.customers.Value"],"default":null}`,
		`"logicalType":"decimal","precision":10,"scale":2`, `"connect.field":"größe-1"`, `"default":"ÿ\u0000"`,
		`"name":"ConnectDefault_2"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	changed := everything()
	changed.Fields[4].Schema.Parameters["a"] = "x"
	if s.Equal(changed) || s.Fingerprint() == changed.Fingerprint() {
		t.Error("unequal schemas are equal")
	}
}

func TestParseForeignAvro(t *testing.T) {
	s, err := ParseAvro([]byte(`{"type":"record","name":"User","namespace":"com.example","fields":[
		{"name":"born","type":{"type":"int","logicalType":"date"}},
		{"name":"addr","type":["null",{"type":"record","name":"Addr","fields":[{"name":"zip","type":"string"}]}]},
		{"name":"other","type":["null","com.example.Addr"]},
		{"name":"money","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":3}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	addr := &Schema{Type: Struct, Name: "com.example.Addr", Optional: true, Fields: []Field{{"zip", Of(String)}}}
	want := StructOf("com.example.User", Field{"born", &Schema{Type: Int32, Name: DateName, Version: 1}},
		Field{"addr", addr}, Field{"other", addr}, Field{"money", DecimalSchema(3)})
	if diff := cmp.Diff(want, s); diff != "" {
		t.Error(diff)
	}
	for want, doc := range map[string]string{
		"contains itself":   `{"type":"record","name":"N","fields":[{"name":"next","type":["null","N"]}]}`,
		"a union other":     `["int","string"]`,
		"unknown type enum": `{"type":"enum","name":"E","symbols":["A"]}`,
		"nested too deep":   strings.Repeat(`{"type":"array","items":`, 100) + `"int"` + strings.Repeat("}", 100),
		"two fields a":      `{"type":"record","name":"N","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}`,
		"without name":      `{"type":"record","fields":[]}`,
		"connect.default":   `{"type":"int","connect.default":"x"}`,
	} {
		if _, err := ParseAvro([]byte(doc)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

func TestEncodeDecode(t *testing.T) {
	s := everything()
	row := map[string]any{
		"größe-1": 12, "price": "12.30", "at": time.UnixMilli(1700000000123), "day": time.Date(1969, 12, 31, 23, 0, 0, 0, time.UTC),
		"micros": json.Number("99"), "tags": []any{"a", nil}, "attrs": map[string]any{"w": 1.5}, "raw": []byte{1}, "opt": nil,
	}
	v, err := Encode(s, map[string]any{"before": nil, "after": row, "op": "c", "f": float32(0.5), "i8": -8,
		"anon": map[string]any{"x": true}, "anon2": &StructValue{Schema: s.Fields[6].Schema, Values: []any{false}}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(v)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"before": nil, "op": "c", "f": float32(0.5), "i8": int8(-8), "anon": map[string]any{"x": true}, "anon2": map[string]any{"y": false},
		"after": map[string]any{
			"id": int32(2), "größe-1": int16(12), "price": []byte{0x04, 0xce}, "at": int64(1700000000123), "day": int32(-1),
			"micros": int64(99), "tags": []any{"a", nil}, "attrs": map[string]any{"w": 1.5}, "raw": []byte{1}, "opt": nil,
		},
	}
	if diff := cmp.Diff(want, got.(*StructValue).Map()); diff != "" {
		t.Error(diff)
	}
	again, err := Encode(s, mustDecode(t, v))
	if err != nil || string(again.Data) != string(v.Data) {
		t.Errorf("encoding what was decoded: %v", err)
	}
	for want, try := range map[string]func() (Value, error){
		"128 is out of range":    func() (Value, error) { return Encode(Of(Int8), 128) },
		"null for a int32":       func() (Value, error) { return Encode(StructOf("s", Field{"a", Of(Int32)}), map[string]any{}) },
		"string is no int64":     func() (Value, error) { return Encode(Of(Int64), "x") },
		"does not have":          func() (Value, error) { return Encode(StructOf("s"), map[string]any{"a": 1}) },
		"more than 2 digits":     func() (Value, error) { return Encode(DecimalSchema(2), "1.234") },
		"float64 is no int32":    func() (Value, error) { return Encode(Of(Int32), 1.5) },
		"uint64 is no int64":     func() (Value, error) { return Encode(Of(Int64), uint64(math.MaxUint64)) },
		"int without schema":     func() (Value, error) { return Encode(nil, 1) },
		"x[1]: null for a int32": func() (Value, error) { return Encode(&Schema{Type: Array, Name: "x", Elem: Of(Int32)}, []any{1, nil}) },
		"elements without bytes": func() (Value, error) {
			return Encode(&Schema{Type: Array, Name: "x", Elem: StructOf("")}, []any{map[string]any{}, map[string]any{}})
		},
	} {
		if _, err := try(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func mustDecode(t *testing.T, v Value) any {
	t.Helper()
	out, err := Decode(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestNulls(t *testing.T) {
	for _, v := range []Value{{}, {Schema: TextSchema}, {Schema: Of(Int32)}, {Schema: OptionalOf(Int32), Data: []byte{0}}} {
		if got := mustDecode(t, v); got != nil || !v.IsNull() {
			t.Errorf("%v is %v", v, got)
		}
	}
	if v := mustDecode(t, TextValue("")); v != "" {
		t.Errorf("empty text is %v", v)
	}
}

func TestDecimals(t *testing.T) {
	for _, c := range []struct {
		text  string
		scale int
		bytes string
		back  string
	}{
		{"0", 0, "\x00", "0"}, {"127", 0, "\x7f", "127"}, {"128", 0, "\x00\x80", "128"}, {"-128", 0, "\x80", "-128"}, {"-129", 0, "\xff\x7f", "-129"},
		{"-1", 0, "\xff", "-1"}, {"1.5", 2, "\x00\x96", "1.50"}, {"-0.05", 2, "\xfb", "-0.05"}, {"1e3", 0, "\x03\xe8", "1000"}, {"1200", -2, "\x0c", "1200"},
		{"1.2300", 2, "\x7b", "1.23"}, {"+7", 1, "\x46", "7.0"}, {"0.000", 1, "\x00", "0.0"}, {"1e-2", 2, "\x01", "0.01"}, {"-32768", 0, "\x80\x00", "-32768"},
	} {
		n, err := ParseDecimal(c.text, c.scale)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if b := AppendUnscaled(nil, n); string(b) != c.bytes || Unscaled(b).Cmp(n) != 0 {
			t.Errorf("%s is % x", c.text, b)
		}
		if back := FormatDecimal(n, c.scale); back != c.back {
			t.Errorf("%s came back as %s", c.text, back)
		}
	}
	for _, bad := range []string{"", "-", ".", "1.2.3", "--1", "1-2", "1e", "0x1", "NaN", "1e999999999", "1.239", "1.-5"} {
		if n, err := ParseDecimal(bad, 2); err == nil {
			t.Errorf("%q is %s", bad, n)
		}
	}
	if Unscaled(nil).Sign() != 0 {
		t.Error("no bytes are not zero")
	}
}

func FuzzDecimal(f *testing.F) {
	f.Add("1.5", 2)
	f.Add("-1e-3", 5)
	f.Fuzz(func(t *testing.T, text string, scale int) {
		if scale > 1000 || scale < -1000 {
			return
		}
		n, err := ParseDecimal(text, scale)
		if err != nil {
			return
		}
		back, err := ParseDecimal(FormatDecimal(n, scale), scale)
		if err != nil || back.Cmp(n) != 0 || Unscaled(AppendUnscaled(nil, n)).Cmp(n) != 0 {
			t.Fatalf("%q, scale %d: %v, back %v %v", text, scale, n, back, err)
		}
		if r, ok := new(big.Rat).SetString(text); ok && scale >= 0 {
			want := r.Mul(r, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)))
			if !want.IsInt() || want.Num().Cmp(n) != 0 {
				t.Fatalf("%q, scale %d: %s, not %s", text, scale, n, want)
			}
		}
	})
}

// FuzzReader: whatever the bytes, Skip, Raw and Decode neither panic nor run away, and agree.
func FuzzReader(f *testing.F) {
	s := everything()
	for _, seed := range []string{"", "\x00", "\x02\x04", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x00\x00\x02c\x00\x00\x00\x00\x00\x00"} {
		f.Add([]byte(seed))
	}
	v, err := Encode(s, map[string]any{"op": "c", "f": 0, "i8": 1, "anon": map[string]any{"x": true}, "anon2": map[string]any{"y": true},
		"after": map[string]any{"at": 1, "micros": 1, "tags": []string{"a", "b"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(v.Data)
	empties := &Schema{Type: Array, Elem: &Schema{Type: Array, Elem: StructOf("")}}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, s := range []*Schema{s, empties, {Type: Map, Elem: &Schema{Type: Array, Elem: Of(Bytes)}}} {
			r := NewReader(Value{Schema: s, Data: b})
			raw := r.Raw(s)
			out, err := Decode(Value{Schema: s, Data: b})
			if (err == nil) != (r.Err() == nil && r.Len() == 0) && b != nil {
				t.Fatalf("Skip says %v with %d bytes left, Decode %v", r.Err(), r.Len(), err)
			}
			if len(raw) > len(b) {
				t.Fatal("more than there was")
			}
			if err != nil || b == nil {
				continue
			}
			again, err := Encode(s, out)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Decode(again); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzParseAvro(f *testing.F) {
	text, err := everything().AvroJSON()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`["null","int"]`))
	f.Add([]byte(`{"type":{"type":"array","items":["null",{"type":"bytes","connect.default":"a"}]}}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		s, err := ParseAvro(doc)
		if err != nil {
			return
		}
		text, err := s.AvroJSON()
		if err != nil {
			return // a default or nesting that we would not write
		}
		back, err := ParseAvro(text)
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		again, err := back.AvroJSON()
		if err != nil || string(again) != string(text) {
			t.Fatalf("%v\n%s\n%s", err, text, again)
		}
	})
}
