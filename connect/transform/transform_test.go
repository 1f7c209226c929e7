package transform

import (
	"strings"
	"testing"

	"github.com/varvehq/varve/connect/convert"
	"github.com/varvehq/varve/sdk"
)

func config(kv ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return m
}

// one makes the configuration of a single transform t.
func one(class string, kv ...string) map[string]string {
	m := map[string]string{"transforms": "t", "transforms.t.type": class}
	for i := 0; i < len(kv); i += 2 {
		m["transforms.t."+kv[i]] = kv[i+1]
	}
	return m
}

var rowSchema = &sdk.Schema{Type: sdk.Struct, Name: "Value", Optional: true, Fields: []sdk.Field{{Name: "id", Schema: sdk.Of(sdk.Int64)}, {Name: "name", Schema: sdk.OptionalOf(sdk.String)}}}

func appendRow(a *sdk.Appender, id int64, name string) {
	a.Present()
	a.Int(id)
	a.Present()
	a.String(name)
}

func rowValue() sdk.Value {
	var a sdk.Appender
	appendRow(&a, 1, "x")
	return a.Value(rowSchema)
}

var (
	txSchema  = &sdk.Schema{Type: sdk.Struct, Optional: true, Fields: []sdk.Field{{Name: "id", Schema: sdk.Of(sdk.String)}}}
	envSchema = sdk.StructOf("Envelope", sdk.Field{Name: "before", Schema: rowSchema}, sdk.Field{Name: "after", Schema: rowSchema},
		sdk.Field{Name: "op", Schema: sdk.Of(sdk.String)}, sdk.Field{Name: "transaction", Schema: txSchema})
)

func event(op string, before, after, tx bool) sdk.Value {
	var a sdk.Appender
	for _, has := range []bool{before, after} {
		if has {
			appendRow(&a, 1, "x")
		} else {
			a.Null()
		}
	}
	a.String(op)
	if tx {
		a.Present()
		a.String("t1")
	} else {
		a.Null()
	}
	return a.Value(envSchema)
}

func show(t *testing.T, v sdk.Value) string {
	t.Helper()
	cfg := convert.DefaultJSONConfig()
	cfg.SchemasEnable = false
	out, null, err := convert.NewJSON(cfg).Encode(nil, "t", v)
	if err != nil {
		t.Fatal(err)
	}
	if null {
		return "<null>"
	}
	return string(out)
}

const insert = "org.apache.kafka.connect.transforms.InsertField$Value"

func TestTransforms(t *testing.T) {
	doc := sdk.JSONValue([]byte(`{"id":1,"name":"x"}`))
	for _, c := range []struct {
		name string
		cfg  map[string]string
		in   sdk.Value
		want string // topic key value, or dropped
	}{
		{"insert", one(insert, "topic.field", "tp", "partition.field", "p!", "offset.field", "o", "timestamp.field", "ts", "static.field", "s", "static.value", "v"),
			rowValue(), `a.b <null> {"id":1,"name":"x","tp":"a.b","p":3,"o":7,"ts":5,"s":"v"}`},
		{"insert into JSON", one(insert, "topic.field", "tp", "offset.field", "o"), doc, `a.b <null> {"id":1,"name":"x","tp":"a.b","o":7}`},
		{"insert into tombstone", one(insert, "topic.field", "tp"), sdk.Value{}, `a.b <null> <null>`},
		{"replace", one("ReplaceField$Value", "exclude", "id", "renames", "name:n"), rowValue(), `a.b <null> {"n":"x"}`},
		{"replace include", one("ReplaceField$Value", "include", "id"), doc, `a.b <null> {"id":1}`},
		{"extract", one("ExtractField$Value", "field", "name"), rowValue(), `a.b <null> "x"`},
		{"extract from JSON", one("ExtractField$Value", "field", "id"), doc, `a.b <null> 1`},
		{"extract unknown", one("ExtractField$Value", "field", "no"), rowValue(), `error: transform t: Unknown field: no`},
		{"route", one("RegexRouter", "regex", `(\w+)\.(\w+)`, "replacement", "$2_$1x"), rowValue(), `b_ax <null> {"id":1,"name":"x"}`},
		{"route of another topic", one("RegexRouter", "regex", "z.*", "replacement", "y"), rowValue(), `a.b <null> {"id":1,"name":"x"}`},
		{"value to key", one("ValueToKey", "fields", "name,id"), rowValue(), `a.b {"name":"x","id":1} {"id":1,"name":"x"}`},
		{"value to key of JSON", one("ValueToKey", "fields", "id"), doc, `a.b {"id":1} {"id":1,"name":"x"}`},
		{"value to key of bytes", one("ValueToKey", "fields", "id"), sdk.RawBytes([]byte("x")), `error: transform t: Only Struct and JSON objects supported for [copying fields from value to key], found: bytes`},
		{"filter", one("Filter"), rowValue(), `dropped`},
		{"filter by predicate", mergeConfig(one("Filter", "predicate", "p"), config("predicates", "p", "predicates.p.type", "org.apache.kafka.connect.transforms.predicates.TopicNameMatches", "predicates.p.pattern", "z.*")),
			rowValue(), `a.b <null> {"id":1,"name":"x"}`},
		{"filter tombstones", mergeConfig(one("Filter", "predicate", "p"), config("predicates", "p", "predicates.p.type", "RecordIsTombstone")), sdk.Value{}, `dropped`},
		{"filter all but tombstones", mergeConfig(one("Filter", "predicate", "p", "negate", "true"), config("predicates", "p", "predicates.p.type", "RecordIsTombstone")), sdk.Value{}, `a.b <null> <null>`},
		{"unwrap insert", one(unwrapClass), event("c", false, true, false), `a.b <null> {"id":1,"name":"x"}`},
		{"unwrap delete", one(unwrapClass), event("d", true, false, false), `dropped`},
		{"unwrap tombstone", one(unwrapClass), sdk.Value{}, `a.b <null> <null>`},
		{"unwrap drop tombstone", one(unwrapClass, "delete.tombstone.handling.mode", "drop"), sdk.Value{}, `dropped`},
		{"unwrap delete to tombstone", one(unwrapClass, "delete.tombstone.handling.mode", "delete-to-tombstone"), event("d", true, false, false), `a.b <null> <null>`},
		{"unwrap rewrite", one(unwrapClass, "delete.tombstone.handling.mode", "rewrite", "add.fields", "op,transaction.id:tx"), event("d", true, false, true),
			`a.b <null> {"id":1,"name":"x","__deleted":"true","__op":"d","__tx":"t1"}`},
		{"unwrap truncate", one(unwrapClass, "delete.handling.mode", "rewrite"), event("t", false, false, false), `dropped`},
		{"unwrap JSON", one(unwrapClass, "add.fields", "source.ts_ms"), sdk.JSONValue([]byte(`{"before":null,"after":{"id":1},"op":"c","source":{"ts_ms":9}}`)), `a.b <null> {"id":1,"__source_ts_ms":9}`},
		{"unwrap what is no event", one(unwrapClass), rowValue(), `a.b <null> {"id":1,"name":"x"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			chain, err := New(c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				rec := sdk.Record{Topic: "a.b", Partition: 3, Offset: 7, Timestamp: 5, Value: c.in}
				keep, err := chain.Apply(&rec)
				got := "dropped"
				switch {
				case err != nil:
					got = "error: " + err.Error()
				case keep:
					got = rec.Topic + " " + show(t, rec.Key) + " " + show(t, rec.Value)
				}
				if got != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
			}
		})
	}
}

func mergeConfig(a, b map[string]string) map[string]string {
	for k, v := range b {
		a[k] = v
	}
	return a
}

// A part of the envelope that is null in one event and set in the next has one schema.
func TestAddedFieldsKeepTheirSchema(t *testing.T) {
	chain, err := New(one(unwrapClass, "add.fields", "transaction.id"))
	if err != nil {
		t.Fatal(err)
	}
	var schemas []*sdk.Schema
	for i, want := range []string{`{"id":1,"name":"x","__transaction_id":null}`, `{"id":1,"name":"x","__transaction_id":"t1"}`} {
		rec := sdk.Record{Value: event("c", false, true, i == 1)}
		if _, err := chain.Apply(&rec); err != nil {
			t.Fatal(err)
		}
		if got := show(t, rec.Value); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		schemas = append(schemas, rec.Value.Schema)
	}
	if schemas[0] != schemas[1] {
		t.Error("each event made its own schema")
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	for want, cfg := range map[string]map[string]string{
		"transforms.t.type: Invalid value Nope":                          one("Nope"),
		"transforms.t.type: Invalid value InsertField":                   one("InsertField", "topic.field", "x"),
		"transforms.t.field: Missing required configuration":             one("ExtractField$Key"),
		"transforms.t.odd: Invalid value 1":                              one("RegexRouter", "regex", "a", "replacement", "b", "odd", "1"),
		"transforms.t.regex: Invalid value (":                            one("RegexRouter", "regex", "(", "replacement", "b"),
		"transforms.t.predicate: Unknown predicate p":                    one("Filter", "predicate", "p"),
		"predicates.p.type: Invalid value X":                             mergeConfig(one("Filter"), config("predicates", "p", "predicates.p.type", "X")),
		"transforms: Duplicate alias 't' provided":                       mergeConfig(one("Filter"), config("transforms", "t,t")),
		"transforms.t.delete.tombstone.handling.mode: Value must be one": one(unwrapClass, "delete.tombstone.handling.mode", "x"),
	} {
		if _, err := New(cfg); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if c, err := New(nil); c != nil || err != nil {
		t.Errorf("%v %v", c, err)
	}
}
