package postgrescdc

import (
	"strings"
	"testing"

	"github.com/varvehq/varve/sdk"
)

func minimal(kv ...string) sdk.Config {
	c := sdk.Config{"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
	for i := 0; i < len(kv); i += 2 {
		c[kv[i]] = kv[i+1]
	}
	return c
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"plugin.name", "decoderbufs", "plugin.name=pgoutput"},
		{"plugin.name", "wal2json", "must be one of"},
		{"slot.name", "Upper-Case", "slot"},
		{"topic.prefix", "a b", "topic name"},
		{"topic.prefix", "", "non-empty"},
		{"table.include.list", "public.(a", "regular expression"},
		{"snapshot.mode", "custom", "must be one of"},
		{"message.key.columns", "public.a", "schema.table:column"},
		{"database.port", "x", "Not a number"},
		{"provide.transaction.metadata", "true", "not supported"},
		{"column.mask.hash.SHA-256.with.salt.x", "public.a.b", "not supported"},
		{"heartbeat.interval.ms", "-1", "at least 0"},
		{"skipped.operations", "c,x", "must be one of"},
	} {
		_, errs := parseConfig(minimal(c.key, c.value))
		if len(errs) == 0 || errs[0].Key != c.key || !strings.Contains(errs[0].Message, c.want) {
			t.Errorf("%s=%s: %v", c.key, c.value, errs)
		}
	}
	_, errs := parseConfig(minimal("table.include.list", "a", "table.exclude.list", "b"))
	if len(errs) != 1 || errs[0].Key != "table.exclude.list" {
		t.Error(errs)
	}
	if _, errs := parseConfig(sdk.Config{}); len(errs) != 4 {
		t.Error("missing keys:", errs)
	}
}

func TestConfigAcceptsDebezium(t *testing.T) {
	c := minimal("plugin.name", "pgoutput", "snapshot.locking.mode", "none", "slot.stream.params", "", "max.queue.size.in.bytes", "0",
		"schema.refresh.mode", "columns_diff", "lsn.flush.mode", "connector", "provide.transaction.metadata", "false", "database.tcpKeepAlive", "true")
	cfg, errs := parseConfig(c)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if cfg.Slot != "debezium" || cfg.Publication != "dbz_publication" || cfg.PubMode != "all_tables" || !cfg.skip['t'] || cfg.skip['c'] {
		t.Errorf("defaults: %+v", cfg.options)
	}
	spec := New().Spec()
	if spec.Name != "postgres-cdc" || spec.Aliases[0] != "io.debezium.connector.postgresql.PostgresConnector" {
		t.Error(spec.Name, spec.Aliases)
	}
	tasks, err := New().Tasks(t.Context(), c, 8)
	if err != nil || len(tasks) != 1 {
		t.Error(len(tasks), err)
	}
}

func TestFilters(t *testing.T) {
	cfg, errs := parseConfig(minimal("schema.exclude.list", "audit", "table.include.list", `public\.a.*, other.B`))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for name, want := range map[string]bool{"public.a": true, "public.abc": true, "public.ba": false, "other.b": true, "audit.a": false,
		"pg_catalog.a": false, "xpublic.a": false} {
		schema, table, _ := strings.Cut(name, ".")
		if cfg.captures(schema, table) != want {
			t.Errorf("%s: captured must be %t", name, want)
		}
	}
}

func TestAlterOffsets(t *testing.T) {
	alterer := New().(sdk.OffsetAlterer)
	part := sdk.NewSourcePartition(`{ "server": "p" }`)
	for offset, ok := range map[string]bool{`{"lsn_commit":5}`: true, `{"lsn":5}`: true, `{}`: false, `{"lsn":"x"}`: false, "": true} {
		o := sdk.PartitionOffset{Source: part}
		if offset != "" {
			o.Offset = sdk.SourceOffset(offset)
		}
		if err := alterer.AlterOffsets(t.Context(), minimal(), []sdk.PartitionOffset{o}); (err == nil) != ok {
			t.Errorf("%s: %v", offset, err)
		}
	}
	if alterer.AlterOffsets(t.Context(), minimal(), []sdk.PartitionOffset{{Source: sdk.NewSourcePartition(`{"server":"q"}`)}}) == nil {
		t.Error("another partition was taken")
	}
}
