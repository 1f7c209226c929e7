package postgrescdc

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/varvehq/varve/sdk"
)

// options are the keys of the connector, with Debezium's names and defaults.
type options struct {
	Hostname string     `config:"database.hostname" required:"true" importance:"high" group:"Connection" doc:"Host name or address of the PostgreSQL server."`
	Port     int32      `config:"database.port" default:"5432" min:"1" max:"65535" importance:"high" group:"Connection" doc:"Port of the PostgreSQL server."`
	User     string     `config:"database.user" required:"true" importance:"high" group:"Connection" doc:"User to connect as. It needs the REPLICATION attribute and SELECT on the captured tables."`
	Password sdk.Secret `config:"database.password" default:"" importance:"high" group:"Connection" doc:"Password of the user."`
	Database string     `config:"database.dbname" required:"true" importance:"high" group:"Connection" doc:"Name of the database whose changes are captured."`
	SSLMode  string     `config:"database.sslmode" default:"prefer" oneof:"disable,allow,prefer,require,verify-ca,verify-full" group:"Connection" doc:"Whether and how the connection is encrypted and the server checked, as libpq's sslmode."`
	SSLRoot  string     `config:"database.sslrootcert" default:"" group:"Connection" doc:"File with the root certificates that the server is checked against."`
	SSLCert  string     `config:"database.sslcert" default:"" group:"Connection" doc:"File with the client's certificate."`
	SSLKey   string     `config:"database.sslkey" default:"" group:"Connection" doc:"File with the client's key."`

	TopicPrefix    string `config:"topic.prefix" required:"true" importance:"high" group:"Topics" doc:"Name of the source: the first part of topic and schema names, and the key of its offsets. Do not change it later."`
	TopicDelimiter string `config:"topic.delimiter" default:"." importance:"low" group:"Topics" doc:"What stands between the parts of a topic name."`

	Plugin       string        `config:"plugin.name" default:"pgoutput" oneof:"pgoutput,decoderbufs" importance:"low" group:"Replication" doc:"Logical decoding plugin. Only pgoutput, which is part of PostgreSQL, is supported; Debezium's default, decoderbufs, is refused with a message."`
	Slot         string        `config:"slot.name" default:"debezium" importance:"high" group:"Replication" doc:"Name of the replication slot; made where it is missing. Each connector needs its own."`
	SlotDrop     bool          `config:"slot.drop.on.stop" default:"false" group:"Replication" doc:"Drop the slot when the task stops. For tests: changes made while the task is stopped are lost."`
	SlotFailover bool          `config:"slot.failover" default:"false" group:"Replication" doc:"Make the slot a failover slot (PostgreSQL 17 and later)."`
	SlotRetries  int32         `config:"slot.max.retries" default:"6" min:"0" importance:"low" group:"Replication" doc:"How often to try again when the slot is in use by somebody else."`
	SlotDelay    time.Duration `config:"slot.retry.delay.ms" default:"10000" min:"0" importance:"low" group:"Replication" doc:"How long to wait before each of these tries."`
	Publication  string        `config:"publication.name" default:"dbz_publication" group:"Replication" doc:"Name of the publication that is streamed."`
	PubMode      string        `config:"publication.autocreate.mode" default:"all_tables" oneof:"all_tables,disabled,filtered,no_tables" group:"Replication" doc:"What to do about the publication: all_tables makes one for all tables where it is missing (this needs a superuser), filtered makes one for the captured tables or adds what is missing to it, disabled demands that it is there, no_tables makes an empty one."`
	PubViaRoot   bool          `config:"publish.via.partition.root" default:"false" importance:"low" group:"Replication" doc:"When the publication is made: publish changes of partitions as changes of the partitioned table."`
	StatusEvery  time.Duration `config:"status.update.interval.ms" default:"10000" min:"100" importance:"low" group:"Replication" doc:"How often the server is told how far the connector is, at least."`

	SchemaInclude []string `config:"schema.include.list" importance:"high" group:"Filters" doc:"Regular expressions of the schemas to capture; all but the system's without it. Each must match the whole name."`
	SchemaExclude []string `config:"schema.exclude.list" group:"Filters" doc:"Regular expressions of the schemas to leave out; not together with schema.include.list."`
	TableInclude  []string `config:"table.include.list" importance:"high" group:"Filters" doc:"Regular expressions of the tables to capture, as schema.table; all without it."`
	TableExclude  []string `config:"table.exclude.list" group:"Filters" doc:"Regular expressions of the tables to leave out; not together with table.include.list."`
	ColumnInclude []string `config:"column.include.list" group:"Filters" doc:"Regular expressions of the columns to put into values, as schema.table.column. Keys keep their columns."`
	ColumnExclude []string `config:"column.exclude.list" group:"Filters" doc:"Regular expressions of the columns to leave out of values; not together with column.include.list."`
	SkippedOps    []string `config:"skipped.operations" default:"t" oneof:"c,u,d,t,none" group:"Filters" doc:"Operations that make no event: c, u, d, t (truncate), or none."`
	KeyColumns    string   `config:"message.key.columns" default:"" group:"Filters" doc:"Own key columns for tables, as schema.table:column,column;schema.table:… with a regular expression for the table."`

	SnapshotMode    string   `config:"snapshot.mode" default:"initial" oneof:"initial,always,initial_only,no_data,never,when_needed" importance:"high" group:"Snapshot" doc:"When the tables' rows are read: initial (where no offset is stored), always (at every start), initial_only (and then no stream), no_data or never, when_needed (initial, and again when the stored offset or the slot is no longer usable)."`
	SnapshotThreads int32    `config:"snapshot.max.threads" default:"1" min:"1" max:"64" group:"Snapshot" doc:"How many connections read the snapshot. With more than one, tables are read in chunks."`
	SnapshotFetch   int32    `config:"snapshot.fetch.size" default:"10240" min:"1" importance:"low" group:"Snapshot" doc:"Accepted for compatibility; the snapshot is streamed and needs no fetch size."`
	SnapshotTables  []string `config:"snapshot.include.collection.list" group:"Snapshot" doc:"Regular expressions of those captured tables whose rows are read in the snapshot; all without it."`

	Decimals    string `config:"decimal.handling.mode" default:"precise" oneof:"precise,double,string" group:"Types" doc:"How numeric and money become values: precise (Decimal bytes), double, or string."`
	Times       string `config:"time.precision.mode" default:"adaptive" oneof:"adaptive,adaptive_time_microseconds,connect,isostring,microseconds,nanoseconds" group:"Types" doc:"How date, time and timestamp become values."`
	Intervals   string `config:"interval.handling.mode" default:"numeric" oneof:"numeric,string" group:"Types" doc:"How interval becomes a value: numeric (microseconds, a month being 365.25/12 days) or string (ISO 8601)."`
	Binary      string `config:"binary.handling.mode" default:"bytes" oneof:"bytes,base64,base64-url-safe,hex" importance:"low" group:"Types" doc:"How bytea becomes a value."`
	MoneyScale  int32  `config:"money.fraction.digits" default:"2" min:"0" max:"18" importance:"low" group:"Types" doc:"Digits after the point of money."`
	Unknown     bool   `config:"include.unknown.datatypes" default:"false" importance:"low" group:"Types" doc:"Emit columns of types that the connector does not know as bytes of their text form; they are left out otherwise."`
	Placeholder string `config:"unavailable.value.placeholder" default:"__debezium_unavailable_value" group:"Types" doc:"What stands for a value that the server did not send: a large value (TOAST) that an update left as it was. A value that starts with hex: gives bytes."`

	Tombstones      bool          `config:"tombstones.on.delete" default:"true" group:"Events" doc:"Whether a delete event is followed by a record with the same key and no value, for compacted topics."`
	Heartbeat       time.Duration `config:"heartbeat.interval.ms" default:"0" min:"0" group:"Events" doc:"How often a record goes to the heartbeat topic; 0 is never."`
	HeartbeatPrefix string        `config:"topic.heartbeat.prefix" default:"__debezium-heartbeat" importance:"low" group:"Events" doc:"Prefix of the heartbeat topic: <prefix>.<topic.prefix>."`
	HeartbeatSQL    string        `config:"heartbeat.action.query" default:"" importance:"low" group:"Events" doc:"SQL that is run at every heartbeat, in the captured database, e.g. an update of a small table."`
	AdjustNames     string        `config:"schema.name.adjustment.mode" default:"none" oneof:"none,avro,avro_unicode" importance:"low" group:"Events" doc:"How schema names are changed so that serialization formats take them: none, or avro (replaces what Avro does not allow by an underscore)."`
	AdjustFields    string        `config:"field.name.adjustment.mode" default:"none" oneof:"none,avro,avro_unicode" importance:"low" group:"Events" doc:"How field names are changed, likewise."`

	BatchSize  int32         `config:"max.batch.size" default:"2048" min:"1" max:"1000000" importance:"low" group:"Tuning" doc:"Most records that are handed over at once."`
	QueueSize  int32         `config:"max.queue.size" default:"8192" min:"1" importance:"low" group:"Tuning" doc:"Accepted for compatibility: at most three batches are held in memory."`
	Poll       time.Duration `config:"poll.interval.ms" default:"500" min:"1" importance:"low" group:"Tuning" doc:"Accepted for compatibility; records are handed over as they come."`
	MaxRetries int32         `config:"errors.max.retries" default:"-1" min:"-1" importance:"low" group:"Tuning" doc:"How often to connect again in a row after the server was lost; -1 is without end."`
	RetryWait  time.Duration `config:"retriable.restart.connector.wait.ms" default:"10000" min:"0" importance:"low" group:"Tuning" doc:"Longest wait between these tries; it starts at half a second and doubles."`
}

// config is what the options mean.
type config struct {
	options
	schemas, tables, columns, snapshotTables filter
	keys                                     []keyRule
	skip                                     [256]bool // by operation
	placeholder                              []byte
	part                                     *sdk.SourcePartition // the one source partition
}

// filter is a pair of include and exclude lists of anchored regular expressions; the empty filter lets all pass.
type filter struct {
	include, exclude []*regexp.Regexp
}

func (f filter) match(name string) bool {
	if len(f.include) > 0 {
		return matchAny(f.include, name)
	}
	return !matchAny(f.exclude, name)
}

func matchAny(res []*regexp.Regexp, name string) bool {
	for _, re := range res {
		if re.MatchString(name) {
			return true
		}
	}
	return false
}

type keyRule struct {
	table   *regexp.Regexp
	columns []string
}

// captures reports whether changes of a table are wanted.
func (c *config) captures(schema, table string) bool {
	return !systemSchema(schema) && c.schemas.match(schema) && c.tables.match(schema+"."+table)
}

func systemSchema(s string) bool {
	return s == "information_schema" || s == "pg_catalog" || strings.HasPrefix(s, "pg_toast") || strings.HasPrefix(s, "pg_temp")
}

// keyOverride returns the key columns that message.key.columns gives a table.
func (c *config) keyOverride(table string) []string {
	for _, r := range c.keys {
		if r.table.MatchString(table) {
			return r.columns
		}
	}
	return nil
}

func compile(pattern string) (*regexp.Regexp, error) {
	return regexp.Compile("(?i)^(?:" + strings.TrimSpace(pattern) + ")$")
}

var (
	slotName  = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)
	topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)
)

// refusedKeys are keys of Debezium that would change the events, so that accepting them would do harm. The values listed
// are those that mean what happens here anyway.
var refusedKeys = map[string][]string{
	"signal.data.collection":              {""},
	"snapshot.select.statement.overrides": {""},
	"provide.transaction.metadata":        {"false"},
	"skip.messages.without.change":        {"false"},
	"hstore.handling.mode":                {"json"},
	"topic.naming.strategy":               {"io.debezium.schema.SchemaTopicNamingStrategy", "io.debezium.schema.DefaultTopicNamingStrategy"},
	"replica.identity.autoset.values":     {""},
	"converters":                          {""},
	"post.processors":                     {""},
	"datatype.propagate.source.type":      {""},
	"column.propagate.source.type":        {""},
	"message.prefix.include.list":         {""},
	"message.prefix.exclude.list":         {""},
	"read.only":                           {"false"},
	"lsn.flush.mode":                      {"connector", "connector_and_driver"},
}

func parseConfig(c sdk.Config) (*config, []sdk.ConfigError) {
	cfg := &config{}
	errs := c.Decode(&cfg.options)
	fail := func(key, format string, args ...any) {
		errs = append(errs, sdk.ConfigError{Key: key, Message: fmt.Sprintf(format, args...)})
	}
	list := func(key string, patterns []string) (res []*regexp.Regexp) {
		for _, p := range patterns {
			re, err := compile(p)
			if err != nil {
				fail(key, "%q is no regular expression (RE2 syntax): %v", p, err)
				continue
			}
			res = append(res, re)
		}
		return res
	}
	pair := func(in, ex string, include, exclude []string) filter {
		if len(include) > 0 && len(exclude) > 0 {
			fail(ex, "not together with %s: give one of the two", in)
		}
		return filter{include: list(in, include), exclude: list(ex, exclude)}
	}
	cfg.schemas = pair("schema.include.list", "schema.exclude.list", cfg.SchemaInclude, cfg.SchemaExclude)
	cfg.tables = pair("table.include.list", "table.exclude.list", cfg.TableInclude, cfg.TableExclude)
	cfg.columns = pair("column.include.list", "column.exclude.list", cfg.ColumnInclude, cfg.ColumnExclude)
	cfg.snapshotTables = filter{include: list("snapshot.include.collection.list", cfg.SnapshotTables)}
	for _, op := range cfg.SkippedOps {
		if op != "none" {
			cfg.skip[op[0]] = true
		}
	}
	if cfg.Plugin == "decoderbufs" {
		fail("plugin.name", "decoderbufs is not supported: set plugin.name=pgoutput, which needs nothing installed on the server")
	}
	if cfg.Slot != "" && !slotName.MatchString(cfg.Slot) {
		fail("slot.name", "%q is no name of a replication slot: 1 to 63 of a-z, 0-9 and _", cfg.Slot)
	}
	if cfg.TopicPrefix != "" && !topicName.MatchString(cfg.TopicPrefix) {
		fail("topic.prefix", "%q is no part of a topic name: only letters, digits, dot, underscore and hyphen", cfg.TopicPrefix)
	}
	cfg.placeholder = []byte(cfg.Placeholder)
	cfg.part = sdk.NewSourcePartition(`{"server":"` + cfg.TopicPrefix + `"}`) // its characters need no escape
	cfg.parseKeyColumns(fail)
	for key, allowed := range refusedKeys {
		if v, ok := c[key]; ok && !containsFold(allowed, strings.TrimSpace(v)) {
			fail(key, "%q is not supported: leave the key out", v)
		}
	}
	for key := range c {
		if strings.HasPrefix(key, "column.mask.") || strings.HasPrefix(key, "column.truncate.") {
			fail(key, "masking and truncating columns is not supported: use a transform, or column.exclude.list")
		}
	}
	return cfg, errs
}

func (c *config) parseKeyColumns(fail func(key, format string, args ...any)) {
	for rule := range strings.SplitSeq(c.KeyColumns, ";") {
		if rule = strings.TrimSpace(rule); rule == "" {
			continue
		}
		i := strings.LastIndexByte(rule, ':')
		if i <= 0 || i == len(rule)-1 {
			fail("message.key.columns", "%q is not of the form schema.table:column,column", rule)
			continue
		}
		re, err := compile(rule[:i])
		if err != nil {
			fail("message.key.columns", "%q is no regular expression (RE2 syntax): %v", rule[:i], err)
			continue
		}
		var cols []string
		for col := range strings.SplitSeq(rule[i+1:], ",") {
			cols = append(cols, strings.TrimSpace(col))
		}
		c.keys = append(c.keys, keyRule{re, cols})
	}
}

func containsFold(list []string, s string) bool {
	for _, l := range list {
		if strings.EqualFold(l, s) {
			return true
		}
	}
	return false
}
