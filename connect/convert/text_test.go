package convert

import (
	"errors"
	"testing"

	"github.com/varvehq/varve/sdk"
)

func structValue() sdk.Value {
	var a sdk.Appender
	a.Int(1)
	a.Null()
	a.Count(2)
	a.String("a")
	a.String("b")
	a.End()
	return a.Value(sdk.StructOf("s", sdk.Field{Name: "a", Schema: sdk.Of(sdk.Int32)}, sdk.Field{Name: "n", Schema: sdk.OptionalOf(sdk.Int32)},
		sdk.Field{Name: "l", Schema: &sdk.Schema{Type: sdk.Array, Elem: sdk.Of(sdk.String)}}))
}

func encoded(s *sdk.Schema, f func(a *sdk.Appender)) sdk.Value {
	var a sdk.Appender
	f(&a)
	return a.Value(s)
}

func TestStringAndHeaderConverters(t *testing.T) {
	intMap := &sdk.Schema{Type: sdk.Map, Elem: sdk.Of(sdk.Int32)}
	mapValue := encoded(intMap, func(a *sdk.Appender) {
		a.Count(2)
		a.String("a")
		a.Int(1)
		a.String("b")
		a.Int(2)
		a.End()
	})
	dec := encoded(decimalSchema(2, false), func(a *sdk.Appender) { a.Bytes([]byte{0, 150}) })
	for _, c := range []struct {
		name           string
		v              sdk.Value
		asText, header string
	}{
		{"text", sdk.TextValue(`a"b`), `a"b`, `a"b`},
		{"int", encoded(sdk.Of(sdk.Int32), func(a *sdk.Appender) { a.Int(5) }), "5", "5"},
		{"double", encoded(sdk.Of(sdk.Float64), func(a *sdk.Appender) { a.Float64(5e20) }), "5.0E20", "5.0E20"},
		{"bool", encoded(sdk.Of(sdk.Boolean), func(a *sdk.Appender) { a.Bool(true) }), "true", "true"},
		{"null", sdk.Value{}, "<null>", "<null>"},
		{"struct", structValue(), "Struct{a=1,l=[a, b]}", `{"a":1,"n":null,"l":["a","b"]}`},
		{"map", mapValue, "{a=1, b=2}", `{"a":1,"b":2}`},
		{"decimal", dec, "1.50", "1.50"},
		{"bytes", encoded(sdk.Of(sdk.Bytes), func(a *sdk.Appender) { a.Bytes([]byte{1, 2, 3}) }), "AQID", "AQID"},
		{"timestamp", encoded(named(sdk.Int64, sdk.TimestampName, false), func(a *sdk.Appender) { a.Int(1700000000123) }), "2023-11-14T22:13:20.123Z", "2023-11-14T22:13:20.123Z"},
		{"date", encoded(named(sdk.Int32, sdk.DateName, false), func(a *sdk.Appender) { a.Int(19000) }), "2022-01-08", "2022-01-08"},
		{"time", encoded(named(sdk.Int32, sdk.TimeName, false), func(a *sdk.Appender) { a.Int(3723004) }), "01:02:03.004Z", "01:02:03.004Z"},
	} {
		if got := mustEncode(t, stringConverter{}, c.v); got != c.asText {
			t.Errorf("%s: string converter writes %s, want %s", c.name, got, c.asText)
		}
		if got := mustEncode(t, simpleHeader{}, c.v); got != c.header {
			t.Errorf("%s: header converter writes %s, want %s", c.name, got, c.header)
		}
	}
}

func TestBytesConverter(t *testing.T) {
	c := bytesConverter{}
	if got := mustEncode(t, c, sdk.RawBytes([]byte("x"))); got != "x" {
		t.Error(got)
	}
	if got := mustEncode(t, c, encoded(sdk.OptionalOf(sdk.Bytes), func(a *sdk.Appender) { a.Present(); a.Bytes([]byte("y")) })); got != "y" {
		t.Error(got)
	}
	if got := mustEncode(t, c, encoded(sdk.OptionalOf(sdk.Bytes), func(a *sdk.Appender) { a.Null() })); got != "<null>" {
		t.Error(got)
	}
	if _, _, err := c.Encode(nil, "t", encoded(sdk.Of(sdk.Int32), func(a *sdk.Appender) { a.Int(1) })); !errors.Is(err, ErrData) {
		t.Error(err)
	}
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		name string
		role Role
		want string
	}{
		{"json", Value, JSONClass}, {"JsonConverter", Key, JSONClass}, {JSONClass, Header, JSONClass}, {"string", Key, StringClass},
		{"bytes", Value, BytesClass}, {"simple", Header, SimpleHeaderClass}, {"simple", Value, ""}, {"nope", Key, ""},
	} {
		if got, _ := Find(c.name, c.role); got.Name != c.want {
			t.Errorf("%s as %s: got %q, want %q", c.name, c.role, got.Name, c.want)
		}
	}
	if _, err := New("nope", Key, nil); err == nil {
		t.Error("no error")
	}
	if _, err := New("json", Key, map[string]string{"schemas.enable": "maybe"}); err == nil {
		t.Error("no error")
	}
}
