package postgrescdc

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvehq/varve/sdk"
)

// typeCases are types, values in SQL, and what they become with the default settings: value as Connect's JSON converter
// shows it, the schema's type, and its semantic name where it has one. What Debezium 3.6 makes of the same input was looked
// at; docs/connectors/postgres-cdc.md lists where we differ.
var typeCases = []struct{ sqlType, value, want, typ, name string }{
	{"smallint", "-3", `-3`, "int16", ""},
	{"int", "2147483647", `2147483647`, "int32", ""},
	{"bigint", "9007199254740993", `9007199254740993`, "int64", ""},
	{"bigint", "-9223372036854775808", `-9223372036854775808`, "int64", ""},
	{"oid", "4000000000", `4000000000`, "int64", ""},
	{"numeric", "'123456789012345678901234567890.123456789'", `{"scale":9,"value":"XODppWAV/sWq36MorjmBFQ=="}`, "struct", "io.debezium.data.VariableScaleDecimal"},
	{"numeric", "1.50", `{"scale":1,"value":"Dw=="}`, "struct", "io.debezium.data.VariableScaleDecimal"},
	{"numeric", "-5", `{"scale":0,"value":"+w=="}`, "struct", "io.debezium.data.VariableScaleDecimal"},
	{"numeric", "0.00", `{"scale":0,"value":"AA=="}`, "struct", "io.debezium.data.VariableScaleDecimal"},
	{"numeric(9,2)", "-1234567.89", `"+KQy6w=="`, "bytes", sdk.DecimalName},
	{"numeric(9,2)", "1.28", `"AIA="`, "bytes", sdk.DecimalName},
	{"numeric(5,0)", "12345", `"MDk="`, "bytes", sdk.DecimalName},
	{"numeric(40,2)", "-12345678901234567890123.45", `"/vqR8MlZu8IdIIc="`, "bytes", sdk.DecimalName},
	{"real", "1.1", `1.100000023841858`, "float", ""},
	{"double precision", "1e300", `1e+300`, "double", ""},
	{"double precision", "'NaN'", `"NaN"`, "double", ""},
	{"double precision", "'-Infinity'", `"-Inf"`, "double", ""},
	{"bool", "true", `true`, "boolean", ""},
	{"bytea", `'\x00ff10'`, `"AP8Q"`, "bytes", ""},
	{"bytea", `''`, `""`, "bytes", ""},
	{"text", `E'tab\tnew\nline back\\slash "q" äöü €'`, `"tab\tnew\nline back\\slash \"q\" äöü €"`, "string", ""},
	{"text", `''`, `""`, "string", ""},
	{"varchar(20)", `'häé'`, `"häé"`, "string", ""},
	{"char(5)", `'ab'`, `"ab   "`, "string", ""},
	{`"char"`, `'z'`, `"z"`, "string", ""},
	{"name", `'nam'`, `"nam"`, "string", ""},
	{"date", "'2024-02-29'", `19782`, "int32", "io.debezium.time.Date"},
	{"date", "'1850-03-15'", `-43756`, "int32", "io.debezium.time.Date"},
	{"date", "'12024-03-15'", `3672222`, "int32", "io.debezium.time.Date"},
	{"date", "'0044-03-15 BC'", `-735160`, "int32", "io.debezium.time.Date"},
	{"date", "'infinity'", `2147483647`, "int32", "io.debezium.time.Date"},
	{"date", "'-infinity'", `-2147483648`, "int32", "io.debezium.time.Date"},
	{"time", "'23:59:59.999999'", `86399999999`, "int64", "io.debezium.time.MicroTime"},
	{"time", "'24:00:00'", `86400000000`, "int64", "io.debezium.time.MicroTime"},
	{"time(3)", "'23:59:59.999'", `86399999`, "int32", "io.debezium.time.Time"},
	{"timestamp", "'2024-02-29 12:34:56.789012'", `1709210096789012`, "int64", "io.debezium.time.MicroTimestamp"},
	{"timestamp", "'0044-03-15 12:00:00 BC'", `-63517780800000000`, "int64", "io.debezium.time.MicroTimestamp"},
	{"timestamp", "'12024-03-15 12:00:00'", `317280024000000000`, "int64", "io.debezium.time.MicroTimestamp"},
	{"timestamp", "'1500-01-01 00:00:00.5'", `-14831769599500000`, "int64", "io.debezium.time.MicroTimestamp"},
	{"timestamp", "'infinity'", `9223372036825200000`, "int64", "io.debezium.time.MicroTimestamp"},
	{"timestamp", "'-infinity'", `-9223372036832400000`, "int64", "io.debezium.time.MicroTimestamp"},
	{"timestamp(3)", "'2024-02-29 12:34:56.789'", `1709210096789`, "int64", "io.debezium.time.Timestamp"},
	{"timestamp(0)", "'2024-02-29 12:34:56'", `1709210096000`, "int64", "io.debezium.time.Timestamp"},
	{"timestamptz", "'2024-02-29 12:34:56.789012+02'", `"2024-02-29T10:34:56.789012Z"`, "string", "io.debezium.time.ZonedTimestamp"},
	{"timestamptz", "'2020-01-01 00:00+00'", `"2020-01-01T00:00:00.000000Z"`, "string", "io.debezium.time.ZonedTimestamp"},
	{"timestamptz", "'2020-01-01 00:00:00.5+00'", `"2020-01-01T00:00:00.500000Z"`, "string", "io.debezium.time.ZonedTimestamp"},
	{"timestamptz", "'0044-03-15 12:00:00+00 BC'", `"-0043-03-15T12:00:00.000000Z"`, "string", "io.debezium.time.ZonedTimestamp"},
	{"timestamptz", "'12024-03-15 12:00:00+00'", `"+12024-03-15T12:00:00.000000Z"`, "string", "io.debezium.time.ZonedTimestamp"},
	{"timestamptz", "'infinity'", `"infinity"`, "string", "io.debezium.time.ZonedTimestamp"},
	{"timetz", "'12:34:56.789012+05:30'", `"07:04:56.789012Z"`, "string", "io.debezium.time.ZonedTime"},
	{"timetz", "'00:00:00+00'", `"00:00:00Z"`, "string", "io.debezium.time.ZonedTime"},
	{"timetz", "'01:00:00.5+02'", `"23:00:00.5Z"`, "string", "io.debezium.time.ZonedTime"},
	{"interval", "'1 year 2 mons 3 days 04:05:06.789012'", `37091106789012`, "int64", "io.debezium.time.MicroDuration"},
	{"interval", "'-1 mons +2 days -00:00:00.5'", `-2457000500000`, "int64", "io.debezium.time.MicroDuration"},
	{"interval", "'0'", `0`, "int64", "io.debezium.time.MicroDuration"},
	{"interval", "'300 hours'", `1080000000000`, "int64", "io.debezium.time.MicroDuration"},
	{"uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", `"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"`, "string", "io.debezium.data.Uuid"},
	{"json", `'{"a": 1}'`, `"{\"a\": 1}"`, "string", "io.debezium.data.Json"},
	{"jsonb", `'{"b":[1,2,null]}'`, `"{\"b\": [1, 2, null]}"`, "string", "io.debezium.data.Json"},
	{"xml", `'<a>1</a>'`, `"\u003ca\u003e1\u003c/a\u003e"`, "string", "io.debezium.data.Xml"},
	{"mood", "'ok'", `"ok"`, "string", "io.debezium.data.Enum"},
	{"posint", "7", `7`, "int32", ""},
	{"price", "12.5", `"BOI="`, "bytes", sdk.DecimalName},
	{"money", "1234.56", `"AeJA"`, "bytes", sdk.DecimalName},
	{"money", "'-0.01'", `"/w=="`, "bytes", sdk.DecimalName},
	{"money", "'-92233720368547758.08'", `"gAAAAAAAAAA="`, "bytes", sdk.DecimalName},
	{"bit(1)", "B'1'", `true`, "boolean", ""},
	{"bit(8)", "B'10100001'", `"oQ=="`, "bytes", "io.debezium.data.Bits"},
	{"bit(12)", "B'101000010011'", `"Ewo="`, "bytes", "io.debezium.data.Bits"},
	{"varbit", "B'1010000100111'", `"JxQ="`, "bytes", "io.debezium.data.Bits"},
	{"inet", "'10.1.2.3/24'", `"10.1.2.3/24"`, "string", ""},
	{"cidr", "'10.1.0.0/16'", `"10.1.0.0/16"`, "string", ""},
	{"macaddr", "'08:00:2b:01:02:03'", `"08:00:2b:01:02:03"`, "string", ""},
	{"macaddr8", "'08:00:2b:01:02:03:04:05'", `"08:00:2b:01:02:03:04:05"`, "string", ""},
	{"tsvector", "'fat & cat'", `"'\u0026' 'cat' 'fat'"`, "string", "io.debezium.data.Tsvector"},
	{"int4range", "'[1,5)'", `"[1,5)"`, "string", ""},
	{"daterange", "'[2020-01-01,2020-02-01]'", `"[2020-01-01,2020-02-02)"`, "string", ""},
	{"tstzrange", "'[2020-01-01 00:00+00,2020-02-01 00:00+00)'", `"[\"2020-01-01 00:00:00+00\",\"2020-02-01 00:00:00+00\")"`, "string", ""},
	{"point", "'(1.5,2)'", `{"srid":null,"wkb":"AQEAAAAAAAAAAAD4PwAAAAAAAABA","x":1.5,"y":2}`, "struct", "io.debezium.data.geometry.Point"},
	{"int[]", "'{1,NULL,3}'", `[1,null,3]`, "array", ""},
	{"int[]", "'{}'", `[]`, "array", ""},
	{"int[]", "'[0:1]={1,2}'", `[1,2]`, "array", ""},
	{"text[]", `'{a,"b c",NULL,"q\"x","NULL","","back\\slash"}'`, `["a","b c",null,"q\"x","NULL","","back\\slash"]`, "array", ""},
	{"text[]", `'{{a,b},{c,d}}'`, `["a","b","c","d"]`, "array", ""},
	{"bool[]", "'{t,f}'", `[true,false]`, "array", ""},
	{"numeric(9,2)[]", "'{1.25,3}'", `["fQ==","ASw="]`, "array", ""},
	{"numeric[]", "'{1.25,3}'", `[{"scale":2,"value":"fQ=="},{"scale":0,"value":"Aw=="}]`, "array", ""},
	{"date[]", "'{2020-01-01}'", `[18262]`, "array", ""},
	{"timestamp[]", `'{"2020-01-01 00:00:00.123"}'`, `[1577836800123000]`, "array", ""},
	{"timestamptz[]", `'{"2020-01-01 00:00:00.123+00"}'`, `["2020-01-01T00:00:00.123000Z"]`, "array", ""},
	{"uuid[]", `'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'`, `["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]`, "array", ""},
	{"float8[]", `'{1.5,NaN}'`, `[1.5,"NaN"]`, "array", ""},
	{"jsonb[]", `'{"{\"a\": 1}"}'`, `["{\"a\": 1}"]`, "array", ""},
	{"bytea[]", `'{"\\x01ff"}'`, `["Af8="]`, "array", ""},
	{"time[]", `'{10:00}'`, `[36000000000]`, "array", ""},
	{"varchar(5)[]", `'{abc}'`, `["abc"]`, "array", ""},
	{"inet[]", `'{10.0.0.1}'`, `["10.0.0.1"]`, "array", ""},
	{"mood[]", `'{ok,sad}'`, `["ok","sad"]`, "array", ""},
}

func createTypes(d *database) {
	d.exec("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')", "CREATE DOMAIN posint AS int CHECK (value > 0)",
		"CREATE DOMAIN price AS numeric(10,2)")
}

// TestTypes reads every type once by the snapshot and once by the stream: both must give what is listed, and null for null.
func TestTypes(t *testing.T) {
	d := newDatabase(t)
	createTypes(d)
	var cols, values []string
	for i, c := range typeCases {
		cols = append(cols, fmt.Sprintf("c%d %s", i, c.sqlType))
		values = append(values, c.value)
	}
	insert := func(id int) string {
		return fmt.Sprintf("INSERT INTO a VALUES (%d, %s)", id, strings.Join(values, ", "))
	}
	d.exec("CREATE TABLE a (id int PRIMARY KEY, "+strings.Join(cols, ", ")+")", insert(1), "INSERT INTO a (id) VALUES (2)")
	r := startTask(t, d.config(), nil)
	events := r.take(2)
	d.exec(insert(3), "INSERT INTO a (id) VALUES (4)")
	events = append(events, r.take(2)...)
	value := events[0].rec.Value.Schema.Fields[1].Schema
	for i, c := range typeCases {
		name := fmt.Sprintf("c%d", i)
		for _, full := range []event{events[0], events[2]} {
			if got := toJSON(full.row("after")[name]); got != c.want {
				t.Errorf("%s of %s (%s): got %s, want %s", c.sqlType, c.value, full.op(), got, c.want)
			}
		}
		for _, empty := range []event{events[1], events[3]} {
			if v, ok := empty.row("after")[name]; v != nil || !ok {
				t.Errorf("%s null (%s): got %v", c.sqlType, empty.op(), v)
			}
		}
		f := value.Fields[i+1].Schema
		if f.Type.String() != c.typ || f.Name != c.name || !f.Optional {
			t.Errorf("%s: schema %s %s optional=%t", c.sqlType, f.Type, f.Name, f.Optional)
		}
	}
	if events[0].rec.Value.Schema != events[2].rec.Value.Schema {
		t.Error("snapshot and stream do not share the schema")
	}
}

func TestTypeModes(t *testing.T) {
	cases := []struct {
		kv                    []string
		sqlType, value, want  string
		wantType, wantLogical string
	}{
		{[]string{"decimal.handling.mode", "double"}, "numeric(9,2)", "1.25", `1.25`, "double", ""},
		{[]string{"decimal.handling.mode", "double"}, "numeric", "'NaN'", `"NaN"`, "double", ""},
		{[]string{"decimal.handling.mode", "double"}, "money", "'-1234.5'", `-1234.5`, "double", ""},
		{[]string{"decimal.handling.mode", "string"}, "numeric(9,2)", "1.50", `"1.50"`, "string", ""},
		{[]string{"decimal.handling.mode", "string"}, "numeric", "'Infinity'", `"Infinity"`, "string", ""},
		{[]string{"decimal.handling.mode", "string"}, "money", "'-0.05'", `"-0.05"`, "string", ""},
		{[]string{"time.precision.mode", "connect"}, "timestamp", "'2024-02-29 12:34:56.789012'", `1709210096789`, "int64", sdk.TimestampName},
		{[]string{"time.precision.mode", "connect"}, "time", "'00:00:01.5'", `1500`, "int32", sdk.TimeName},
		{[]string{"time.precision.mode", "connect"}, "date", "'2024-02-29'", `19782`, "int32", sdk.DateName},
		{[]string{"time.precision.mode", "adaptive_time_microseconds"}, "time(0)", "'00:00:01'", `1000000`, "int64", "io.debezium.time.MicroTime"},
		{[]string{"time.precision.mode", "adaptive_time_microseconds"}, "timestamp(3)", "'1970-01-01 00:00:01'", `1000`, "int64", "io.debezium.time.Timestamp"},
		{[]string{"time.precision.mode", "microseconds"}, "timestamp(0)", "'1970-01-01 00:00:01'", `1000000`, "int64", "io.debezium.time.MicroTimestamp"},
		{[]string{"time.precision.mode", "nanoseconds"}, "timestamp", "'1970-01-01 00:00:01'", `1000000000`, "int64", "io.debezium.time.NanoTimestamp"},
		{[]string{"time.precision.mode", "nanoseconds"}, "timestamp", "'infinity'", `9223372036854775807`, "int64", "io.debezium.time.NanoTimestamp"},
		{[]string{"time.precision.mode", "isostring"}, "timestamp", "'2024-02-29 12:34:56.5'", `"2024-02-29T12:34:56.5Z"`, "string", "io.debezium.time.IsoTimestamp"},
		{[]string{"interval.handling.mode", "string"}, "interval", "'1 year 2 mons 3 days 04:05:06.789'", `"P1Y2M3DT4H5M6.789S"`, "string", "io.debezium.time.Interval"},
		{[]string{"interval.handling.mode", "string"}, "interval", "'-1.5 s'", `"P0Y0M0DT0H0M-1.5S"`, "string", "io.debezium.time.Interval"},
		{[]string{"binary.handling.mode", "base64"}, "bytea", `'\xfbff'`, `"+/8="`, "string", ""},
		{[]string{"binary.handling.mode", "base64-url-safe"}, "bytea", `'\xfbff'`, `"-_8="`, "string", ""},
		{[]string{"binary.handling.mode", "hex"}, "bytea", `'\xFBff'`, `"fbff"`, "string", ""},
		{[]string{"include.unknown.datatypes", "true"}, "line", `'{1,2,3}'`, `"ezEsMiwzfQ=="`, "bytes", ""},
	}
	d := newDatabase(t)
	for i, c := range cases {
		table := fmt.Sprintf("m%d", i)
		d.exec(fmt.Sprintf("CREATE TABLE %s (id int PRIMARY KEY, v %s)", table, c.sqlType), fmt.Sprintf("INSERT INTO %s VALUES (1, %s)", table, c.value))
		cfg := d.config(append(c.kv, "table.include.list", "public."+table, "snapshot.mode", "initial_only", "slot.name", "modes"+table,
			"slot.drop.on.stop", "true")...)
		r := startTask(t, cfg, nil)
		e := r.next()
		if got := toJSON(e.row("after")["v"]); got != c.want {
			t.Errorf("%v: %s of %s: got %s, want %s", c.kv, c.sqlType, c.value, got, c.want)
		}
		f := e.rec.Value.Schema.Fields[1].Schema.Fields[1].Schema
		if f.Type.String() != c.wantType || f.Name != c.wantLogical {
			t.Errorf("%v: %s: schema %s %s", c.kv, c.sqlType, f.Type, f.Name)
		}
		r.stop()
	}
}

// schemaText writes a schema as Connect's JSON converter does.
func schemaText(s *sdk.Schema, field string) map[string]any {
	m := map[string]any{"type": s.Type.String(), "optional": s.Optional}
	if s.Name != "" {
		m["name"] = s.Name
	}
	if s.Version != 0 {
		m["version"] = s.Version
	}
	if field != "" {
		m["field"] = field
	}
	if s.Parameters != nil {
		m["parameters"] = s.Parameters
	}
	if s.Default != nil {
		r := sdk.NewReader(sdk.Value{Schema: s, Data: s.Default})
		m["default"] = decode(&r, s, false)
	}
	return m
}

// TestDefaultsAndOptionality compares the schemas of columns with those that Debezium makes.
func TestDefaultsAndOptionality(t *testing.T) {
	d := newDatabase(t)
	createTypes(d)
	cases := []struct{ column, want string }{
		{"text NOT NULL", `{"field":"v","optional":false,"type":"string"}`},
		{"numeric(5,2) NOT NULL DEFAULT 1.25", `{"default":"fQ==","field":"v","name":"org.apache.kafka.connect.data.Decimal","optional":false,"parameters":{"connect.decimal.precision":"5","scale":"2"},"type":"bytes","version":1}`},
		{"text DEFAULT 'abc'", `{"default":"abc","field":"v","optional":true,"type":"string"}`},
		{"varchar(10) NOT NULL DEFAULT 'x''y'", `{"default":"x'y","field":"v","optional":false,"type":"string"}`},
		{"int DEFAULT 7", `{"default":7,"field":"v","optional":true,"type":"int32"}`},
		{"int DEFAULT -5", `{"default":-5,"field":"v","optional":true,"type":"int32"}`},
		{"timestamptz DEFAULT now()", `{"default":"1970-01-01T00:00:00.000000Z","field":"v","name":"io.debezium.time.ZonedTimestamp","optional":true,"type":"string","version":1}`},
		{"bool NOT NULL DEFAULT true", `{"default":true,"field":"v","optional":false,"type":"boolean"}`},
		{"serial", `{"default":0,"field":"v","optional":false,"type":"int32"}`},
		{"date DEFAULT '2020-01-01'", `{"default":18262,"field":"v","name":"io.debezium.time.Date","optional":true,"type":"int32","version":1}`},
		{"timestamp DEFAULT '2020-01-01 00:00:00'", `{"default":1577836800000000,"field":"v","name":"io.debezium.time.MicroTimestamp","optional":true,"type":"int64","version":1}`},
		{"uuid DEFAULT gen_random_uuid()", `{"default":"00000000-0000-0000-0000-000000000000","field":"v","name":"io.debezium.data.Uuid","optional":true,"type":"string","version":1}`},
		{"jsonb DEFAULT '{}'", `{"default":"{}","field":"v","name":"io.debezium.data.Json","optional":true,"type":"string","version":1}`},
		{"float8 DEFAULT 1.5", `{"default":1.5,"field":"v","optional":true,"type":"double"}`},
		{"time DEFAULT '10:00'", `{"default":36000000000,"field":"v","name":"io.debezium.time.MicroTime","optional":true,"type":"int64","version":1}`},
		{"interval DEFAULT '1 day'", `{"default":86400000000,"field":"v","name":"io.debezium.time.MicroDuration","optional":true,"type":"int64","version":1}`},
		{"int[] DEFAULT '{}'", `{"field":"v","optional":true,"type":"array"}`},
		{`bytea DEFAULT '\x01'`, `{"field":"v","optional":true,"type":"bytes"}`},
		{"mood DEFAULT 'ok'", `{"default":"ok","field":"v","name":"io.debezium.data.Enum","optional":true,"parameters":{"allowed":"sad,ok,happy"},"type":"string","version":1}`},
		{"text DEFAULT upper('a')", `{"field":"v","optional":true,"type":"string"}`},
		{"text DEFAULT NULL", `{"field":"v","optional":true,"type":"string"}`},
		{"int DEFAULT 1 + 2", `{"field":"v","optional":true,"type":"int32"}`},
	}
	for i, c := range cases {
		d.exec(fmt.Sprintf("CREATE TABLE d%02d (id int PRIMARY KEY, v %s)", i, c.column), fmt.Sprintf("INSERT INTO d%02d (id, v) SELECT 1, %s", i, sample(c.column)))
	}
	r := startTask(t, d.config("snapshot.mode", "initial_only"), nil)
	for i, e := range r.take(len(cases)) {
		f := e.rec.Value.Schema.Fields[1].Schema.Fields[1]
		if got := toJSON(schemaText(f.Schema, f.Name)); got != cases[i].want {
			t.Errorf("%s\n got %s\nwant %s", cases[i].column, got, cases[i].want)
		}
	}
}

func sample(column string) string {
	typ, _, _ := strings.Cut(column, " ")
	switch typ {
	case "serial", "int", "float8", "numeric(5,2)":
		return "1"
	case "bool":
		return "true"
	}
	if strings.Contains(column, "NOT NULL") {
		return "'x'"
	}
	return "NULL::" + typ
}

// TestEnvelope compares an event's schema and source block with Debezium's.
func TestEnvelope(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE comp (b int, a text, c int, PRIMARY KEY (a, b))", "INSERT INTO comp VALUES (1, 'k', 3)")
	r := startTask(t, d.config(), nil)
	e := r.next()
	d.exec("INSERT INTO comp VALUES (2, 'l', 4)")
	streamed := r.next()
	var fields []string
	for _, f := range e.rec.Value.Schema.Fields {
		fields = append(fields, f.Name)
	}
	if got := strings.Join(fields, " "); got != "before after source transaction op ts_ms ts_us ts_ns" {
		t.Error("envelope has", got)
	}
	fields = nil
	for _, f := range sourceSchema.Fields {
		b, err := json.Marshal(schemaText(f.Schema, f.Name))
		if err != nil {
			t.Fatal(err)
		}
		fields = append(fields, string(b))
	}
	want := []string{
		`{"field":"version","optional":false,"type":"string"}`, `{"field":"connector","optional":false,"type":"string"}`,
		`{"field":"name","optional":false,"type":"string"}`, `{"field":"ts_ms","optional":false,"type":"int64"}`,
		`{"default":"false","field":"snapshot","name":"io.debezium.data.Enum","optional":true,"parameters":{"allowed":"true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"},"type":"string","version":1}`,
		`{"field":"db","optional":false,"type":"string"}`, `{"field":"sequence","optional":true,"type":"string"}`,
		`{"field":"ts_us","optional":true,"type":"int64"}`, `{"field":"ts_ns","optional":true,"type":"int64"}`,
		`{"field":"schema","optional":false,"type":"string"}`, `{"field":"table","optional":false,"type":"string"}`,
		`{"field":"txId","optional":true,"type":"int64"}`, `{"field":"lsn","optional":true,"type":"int64"}`,
		`{"field":"xmin","optional":true,"type":"int64"}`, `{"field":"origin","optional":true,"type":"string"}`,
		`{"field":"origin_lsn","optional":true,"type":"int64"}`,
	}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Error(diff)
	}
	for _, n := range []string{e.rec.Value.Schema.Name, e.rec.Key.Schema.Name, e.rec.Value.Schema.Fields[1].Schema.Name} {
		if !strings.HasPrefix(n, "shop.public.comp.") {
			t.Error("schema name", n)
		}
	}
	if e.rec.Value.Schema.Version != 2 || toJSON(e.Key) != `{"a":"k","b":1}` || e.rec.Key.Schema.Fields[0].Name != "a" {
		t.Error("version", e.rec.Value.Schema.Version, "key", toJSON(e.Key))
	}
	for _, c := range []struct {
		e    event
		want map[string]any
	}{
		{e, map[string]any{"connector": "postgresql", "name": "shop", "snapshot": "last", "db": d.name, "schema": "public", "table": "comp", "xmin": nil, "origin": nil}},
		{streamed, map[string]any{"connector": "postgresql", "name": "shop", "snapshot": "false", "db": d.name, "schema": "public", "table": "comp", "xmin": nil, "origin": nil}},
	} {
		src := c.e.row("source")
		for k, v := range c.want {
			if src[k] != v {
				t.Errorf("%s: source.%s is %v, want %v", c.e.op(), k, src[k], v)
			}
		}
		seq := fmt.Sprint(src["sequence"])
		if !strings.HasSuffix(seq, fmt.Sprintf(`,"%v"]`, src["lsn"])) || src["txId"] == nil || src["ts_ns"].(int64) != src["ts_us"].(int64)*1000 {
			t.Errorf("source %v", src)
		}
		if c.e.Value["transaction"] != nil || c.e.Value["ts_ms"] == nil || c.e.row("before") != nil {
			t.Errorf("envelope %v", c.e.Value)
		}
	}
}
