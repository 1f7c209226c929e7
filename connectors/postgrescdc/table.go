package postgrescdc

import (
	"reflect"
	"strings"

	"github.com/varvehq/varve/sdk"
)

// table is a captured table as its events show it: built once and again when its columns change.
type table struct {
	rel   *relation
	topic string
	// columns are in the order of tuples; nil where a column is not captured.
	columns []*column
	// keys are the key's columns, by their place in tuples; empty: events have no key.
	keys                 []keyColumn
	value, key, envelope *sdk.Schema
	source               []byte // the encoded fields schema and table of the source block
	wire                 []wireColumn
}

type keyColumn struct {
	at     int
	column *column
}

// wireColumn is a column as a Relation message describes it.
type wireColumn struct {
	name     string
	typ      uint32
	typmod   int32
	identity bool
}

// newTable describes a table; columns of r that are generated must have been taken out where tuples do not have them.
func newTable(cfg *config, types map[uint32]*pgType, r *relation) *table {
	t := &table{rel: r}
	t.topic = topicFor(cfg, r)
	m := &typeMapper{cfg: cfg, types: types}
	byName := map[string]int{}
	value := sdk.StructOf(cfg.adjust(cfg.TopicPrefix + "." + r.fullName() + ".Value"))
	value.Optional = true
	all := make([]*column, len(r.columns))
	t.columns = make([]*column, len(r.columns))
	for i, a := range r.columns {
		c := m.column(cfg.adjustField(a.name), a.typ, a.typmod, a.notNull)
		if c == nil {
			continue
		}
		if a.def != "" {
			c.setDefault(a.def)
			if !c.optional && c.schema.Default != nil {
				c.fallback = c.schema.Default
			}
		}
		all[i] = c
		byName[a.name] = i
		if !cfg.columns.match(r.fullName() + "." + a.name) {
			continue
		}
		t.columns[i] = c
		value.Fields = append(value.Fields, sdk.Field{Name: c.name, Schema: c.schema})
	}
	t.value = value
	t.envelope = envelopeSchema(cfg, r, value)
	names := cfg.keyOverride(r.fullName())
	if names == nil {
		names = r.key
	}
	key := sdk.StructOf(cfg.adjust(cfg.TopicPrefix + "." + r.fullName() + ".Key"))
	for _, n := range names {
		if i, ok := byName[n]; ok {
			t.keys = append(t.keys, keyColumn{i, all[i]})
			key.Fields = append(key.Fields, sdk.Field{Name: all[i].name, Schema: all[i].schema})
		}
	}
	if len(t.keys) > 0 {
		t.key = key
	}
	t.source = appendString(appendString(nil, r.schema), r.name)
	return t
}

// relaxed is t with one column made optional: a row had no value where the catalog, which may be ahead of the stream,
// promises one.
func (t *table) relaxed(cfg *config, types map[uint32]*pgType, at int) *table {
	r := *t.rel
	r.columns = append([]attribute(nil), r.columns...)
	r.columns[at].notNull = false
	return newTable(cfg, types, &r)
}

// adopt takes over the schemas of an earlier description of the same table where nothing changed.
func (t *table) adopt(old *table) {
	if old == nil {
		return
	}
	if reflect.DeepEqual(t.value, old.value) {
		t.value, t.envelope = old.value, old.envelope
	}
	if reflect.DeepEqual(t.key, old.key) {
		t.key = old.key
	}
}

// topicFor names the table's topic: <prefix>.<schema>.<table>, what topics cannot have in a name replaced.
func topicFor(cfg *config, r *relation) string {
	name := []byte(cfg.TopicPrefix + cfg.TopicDelimiter + r.schema + cfg.TopicDelimiter + r.name)
	return string(sanitize(name))
}

// sanitize replaces each byte's character that is not allowed in a topic name by an underscore, one per character.
func sanitize(name []byte) []byte {
	var out []byte
	for _, ch := range string(name) {
		if ch < 128 && (ch >= 'a' && ch <= 'z' || ch >= 'A' && ch <= 'Z' || ch >= '0' && ch <= '9' || strings.ContainsRune("._-", ch)) {
			out = append(out, byte(ch))
		} else {
			out = append(out, '_')
		}
	}
	return out
}

// adjust makes a schema name fit for Avro where that is asked for.
func (c *config) adjust(name string) string {
	if c.AdjustNames == "none" {
		return name
	}
	parts := strings.Split(name, ".")
	for i, p := range parts {
		parts[i] = avroName(p)
	}
	return strings.Join(parts, ".")
}

func (c *config) adjustField(name string) string {
	if c.AdjustFields == "none" {
		return name
	}
	return avroName(name)
}

func avroName(s string) string {
	out := []byte{}
	for i, ch := range s {
		digit := ch >= '0' && ch <= '9'
		if ch == '_' || ch >= 'a' && ch <= 'z' || ch >= 'A' && ch <= 'Z' || digit && i > 0 {
			out = append(out, byte(ch))
			continue
		}
		out = append(out, '_')
		if digit {
			out = append(out, byte(ch))
		}
	}
	return string(out)
}

// snapshotEnum is the schema of the field snapshot, as Debezium has it.
func snapshotEnum() *sdk.Schema {
	return &sdk.Schema{
		Type: sdk.String, Optional: true, Name: "io.debezium.data.Enum", Version: 1, Default: appendString([]byte{2}, "false"),
		Parameters: map[string]string{"allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"},
	}
}

var (
	sourceSchema = func() *sdk.Schema {
		f := func(name string, s *sdk.Schema) sdk.Field { return sdk.Field{Name: name, Schema: s} }
		s := sdk.StructOf("io.debezium.connector.postgresql.Source",
			f("version", sdk.Of(sdk.String)), f("connector", sdk.Of(sdk.String)), f("name", sdk.Of(sdk.String)),
			f("ts_ms", sdk.Of(sdk.Int64)), f("snapshot", snapshotEnum()), f("db", sdk.Of(sdk.String)),
			f("sequence", sdk.OptionalOf(sdk.String)), f("ts_us", sdk.OptionalOf(sdk.Int64)), f("ts_ns", sdk.OptionalOf(sdk.Int64)),
			f("schema", sdk.Of(sdk.String)), f("table", sdk.Of(sdk.String)), f("txId", sdk.OptionalOf(sdk.Int64)),
			f("lsn", sdk.OptionalOf(sdk.Int64)), f("xmin", sdk.OptionalOf(sdk.Int64)), f("origin", sdk.OptionalOf(sdk.String)),
			f("origin_lsn", sdk.OptionalOf(sdk.Int64)))
		s.Version = 1
		return s
	}()
	transactionSchema = func() *sdk.Schema {
		s := sdk.StructOf("event.block", sdk.Field{Name: "id", Schema: sdk.Of(sdk.String)},
			sdk.Field{Name: "total_order", Schema: sdk.Of(sdk.Int64)}, sdk.Field{Name: "data_collection_order", Schema: sdk.Of(sdk.Int64)})
		s.Version, s.Optional = 1, true
		return s
	}()
	heartbeatKey   = sdk.StructOf("io.debezium.connector.common.ServerNameKey", sdk.Field{Name: "serverName", Schema: sdk.Of(sdk.String)})
	heartbeatValue = sdk.StructOf("io.debezium.connector.common.Heartbeat", sdk.Field{Name: "ts_ms", Schema: sdk.Of(sdk.Int64)})
	messageKey     = func() *sdk.Schema {
		s := sdk.StructOf("io.debezium.connector.postgresql.MessageKey", sdk.Field{Name: "prefix", Schema: sdk.OptionalOf(sdk.String)})
		s.Version = 1
		return s
	}()
	messageValue = func() *sdk.Schema {
		block := sdk.StructOf("io.debezium.connector.postgresql.Message", sdk.Field{Name: "prefix", Schema: sdk.OptionalOf(sdk.String)},
			sdk.Field{Name: "content", Schema: sdk.OptionalOf(sdk.Bytes)})
		block.Version = 1
		s := sdk.StructOf("io.debezium.connector.postgresql.MessageValue", sdk.Field{Name: "op", Schema: sdk.Of(sdk.String)},
			sdk.Field{Name: "ts_ms", Schema: sdk.OptionalOf(sdk.Int64)}, sdk.Field{Name: "source", Schema: sourceSchema},
			sdk.Field{Name: "transaction", Schema: transactionSchema}, sdk.Field{Name: "message", Schema: block})
		s.Version = 1
		return s
	}()
)

func envelopeSchema(cfg *config, r *relation, value *sdk.Schema) *sdk.Schema {
	s := sdk.StructOf(cfg.adjust(cfg.TopicPrefix+"."+r.fullName()+".Envelope"),
		sdk.Field{Name: "before", Schema: value}, sdk.Field{Name: "after", Schema: value}, sdk.Field{Name: "source", Schema: sourceSchema},
		sdk.Field{Name: "transaction", Schema: transactionSchema}, sdk.Field{Name: "op", Schema: sdk.Of(sdk.String)},
		sdk.Field{Name: "ts_ms", Schema: sdk.OptionalOf(sdk.Int64)}, sdk.Field{Name: "ts_us", Schema: sdk.OptionalOf(sdk.Int64)},
		sdk.Field{Name: "ts_ns", Schema: sdk.OptionalOf(sdk.Int64)})
	s.Version = 2
	return s
}
