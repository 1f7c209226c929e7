package postgrescdc

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReplicaIdentities(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE def (id int PRIMARY KEY, v text)", "CREATE TABLE ful (id int PRIMARY KEY, v text)", "ALTER TABLE ful REPLICA IDENTITY FULL",
		"CREATE TABLE idx (id int PRIMARY KEY, u int NOT NULL, v text)", "CREATE UNIQUE INDEX idx_u ON idx (u)", "ALTER TABLE idx REPLICA IDENTITY USING INDEX idx_u",
		"CREATE TABLE nop (a int, b text)", "ALTER TABLE nop REPLICA IDENTITY FULL", "CREATE TABLE non (id int PRIMARY KEY)", "ALTER TABLE non REPLICA IDENTITY NOTHING",
		"CREATE TABLE uq (a int NOT NULL, b text)", "CREATE UNIQUE INDEX ON uq (a)", "ALTER TABLE uq REPLICA IDENTITY FULL")
	r := startTask(t, d.config("table.exclude.list", "public.zz_none"), nil)
	for _, table := range []string{"def", "ful"} {
		d.exec("INSERT INTO "+table+" VALUES (1, 'a')", "UPDATE "+table+" SET v = 'b'", "UPDATE "+table+" SET id = 2", "DELETE FROM "+table)
	}
	d.exec("INSERT INTO idx VALUES (1, 10, 'a')", "UPDATE idx SET v = 'b'", "UPDATE idx SET u = 11", "DELETE FROM idx")
	d.exec("INSERT INTO nop VALUES (1, 'a')", "UPDATE nop SET b = NULL", "DELETE FROM nop", "INSERT INTO non VALUES (1)",
		"INSERT INTO uq VALUES (1, 'x')", "UPDATE uq SET a = 2", "DELETE FROM uq")
	var got []string
	for _, e := range r.until(d) {
		got = append(got, e.op()+" "+toJSON(e.Key)+" "+toJSON(e.row("before"))+" "+toJSON(e.row("after")))
	}
	want := []string{
		`c {"id":1} null {"id":1,"v":"a"}`,
		`u {"id":1} null {"id":1,"v":"b"}`,
		`d {"id":1} {"id":1,"v":null} null`,
		`tombstone {"id":1} null null`,
		`c {"id":2} null {"id":2,"v":"b"}`,
		`d {"id":2} {"id":2,"v":null} null`,
		`tombstone {"id":2} null null`,
		`c {"id":1} null {"id":1,"v":"a"}`,
		`u {"id":1} {"id":1,"v":"a"} {"id":1,"v":"b"}`,
		`d {"id":1} {"id":1,"v":"b"} null`,
		`tombstone {"id":1} null null`,
		`c {"id":2} null {"id":2,"v":"b"}`,
		`d {"id":2} {"id":2,"v":"b"} null`,
		`tombstone {"id":2} null null`,
		`c {"u":10} null {"id":1,"u":10,"v":"a"}`,
		`u {"u":10} null {"id":1,"u":10,"v":"b"}`,
		`d {"u":10} {"id":0,"u":10,"v":null} null`,
		`tombstone {"u":10} null null`,
		`c {"u":11} null {"id":1,"u":11,"v":"b"}`,
		`d {"u":11} {"id":0,"u":11,"v":null} null`,
		`tombstone {"u":11} null null`,
		`c null null {"a":1,"b":"a"}`,
		`u null {"a":1,"b":"a"} {"a":1,"b":null}`,
		`d null {"a":1,"b":null} null`,
		`c {"id":1} null {"id":1}`,
		`c {"a":1} null {"a":1,"b":"x"}`,
		`d {"a":1} {"a":1,"b":"x"} null`,
		`tombstone {"a":1} null null`,
		`c {"a":2} null {"a":2,"b":"x"}`,
		`d {"a":2} {"a":2,"b":"x"} null`,
		`tombstone {"a":2} null null`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestKeyOutsideOfIdentity: a delete under an identity that lacks the key's columns cannot name the key. The task must not
// invent one.
func TestKeyOutsideOfIdentity(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY, u int)")
	r := startTask(t, d.config("message.key.columns", "public.a:u"), nil)
	d.exec("INSERT INTO a VALUES (1, 10)", "DELETE FROM a")
	r.next()
	var err error
	for err == nil {
		err = r.read()
	}
	if !strings.Contains(err.Error(), "REPLICA IDENTITY FULL") {
		t.Error(err)
	}
}

// TestFallbacks: of a row that is not sent, required columns have their default, or else the zero of their type.
func TestFallbacks(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY, n int NOT NULL, nd int NOT NULL DEFAULT 7, b bool NOT NULL DEFAULT true, p numeric(5,2) NOT NULL DEFAULT 1.25, q numeric(5,2) NOT NULL, " +
		"ts timestamp NOT NULL, tz timestamptz NOT NULL, u uuid NOT NULL, y bytea NOT NULL, ar int[] NOT NULL, j jsonb NOT NULL, o int DEFAULT 3)")
	r := startTask(t, d.config(), nil)
	d.exec("INSERT INTO a VALUES (1, 1, 1, false, 1, 1, now(), now(), gen_random_uuid(), 'x', '{1}', '{}', 1)", "DELETE FROM a")
	want := `{"ar":[],"b":true,"id":1,"j":"","n":0,"nd":7,"o":null,"p":"fQ==","q":"AA==","ts":0,"tz":"1970-01-01T00:00:00Z","u":"","y":""}`
	if got := toJSON(r.take(2)[1].row("before")); got != want {
		t.Errorf(" got %s\nwant %s", got, want)
	}
}

func TestKeyColumnsOfOnesOwn(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY, u text, v text)", "ALTER TABLE a REPLICA IDENTITY FULL")
	r := startTask(t, d.config("message.key.columns", "public.a:u,id;public.b:x", "column.exclude.list", "public.a.(v|id)", "tombstones.on.delete", "false"), nil)
	d.exec("INSERT INTO a VALUES (1, 'x', 'secret')", "UPDATE a SET u = 'y'", "DELETE FROM a")
	want := []string{`c {"id":1,"u":"x"} {"u":"x"}`, `d {"id":1,"u":"x"} {"u":"x"}`, `c {"id":1,"u":"y"} {"u":"y"}`, `d {"id":1,"u":"y"} {"u":"y"}`}
	if diff := cmp.Diff(want, lines(r.until(d))); diff != "" {
		t.Error(diff)
	}
}

func TestUnchangedLargeValues(t *testing.T) {
	d := newDatabase(t)
	const cols = "(id int PRIMARY KEY, a int, t text, nn text NOT NULL, b bytea, j jsonb, ta text[], ia int[], n numeric)"
	for _, table := range []string{"def", "ful"} {
		d.exec("CREATE TABLE "+table+cols, "ALTER TABLE "+table+" ALTER t SET STORAGE external, ALTER nn SET STORAGE external, ALTER b SET STORAGE external, "+
			"ALTER j SET STORAGE external, ALTER ta SET STORAGE external, ALTER ia SET STORAGE external, ALTER n SET STORAGE external")
	}
	d.exec("ALTER TABLE ful REPLICA IDENTITY FULL")
	r := startTask(t, d.config(), nil)
	for _, table := range []string{"def", "ful"} {
		d.exec("INSERT INTO "+table+` VALUES (1, 1, repeat('x', 9000), repeat('y', 9000), decode(repeat('ab', 9000), 'hex'), to_jsonb(repeat('z', 9000)),
			ARRAY[repeat('t', 9000)], (SELECT array_agg(i) FROM generate_series(1, 4000) i), repeat('123456789', 3000)::numeric)`,
			"UPDATE "+table+" SET a = 2", "UPDATE "+table+" SET a = 3, t = 'short'")
	}
	events := r.until(d)
	const mark = "__debezium_unavailable_value"
	after := events[1].row("after")
	for col, want := range map[string]string{"t": `"` + mark + `"`, "nn": `"` + mark + `"`, "j": `"` + mark + `"`, "ta": `["` + mark + `"]`, "a": "2", "n": "null",
		"b":  `"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="`,
		"ia": "[95,95,100,101,98,101,122,105,117,109,95,117,110,97,118,97,105,108,97,98,108,101,95,118,97,108,117,101]"} {
		if got := toJSON(after[col]); got != want {
			t.Errorf("identity default: %s is %.100s, want %s", col, got, want)
		}
	}
	if got := events[2].row("after"); got["t"] != "short" || got["nn"] != mark {
		t.Errorf("after a change of one: %.200v", got)
	}
	inserted, updated := events[3].row("after"), events[4].row("after")
	for col := range inserted {
		if col != "a" && toJSON(inserted[col]) != toJSON(updated[col]) {
			t.Errorf("identity full: %s changed to %.100v", col, updated[col])
		}
	}
}

func TestTombstonesAndSkippedOperations(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)")
	r := startTask(t, d.config("tombstones.on.delete", "false", "skipped.operations", "u,t"), nil)
	d.exec("INSERT INTO a VALUES (1)", "UPDATE a SET id = 1", "TRUNCATE a", "INSERT INTO a VALUES (1)", "DELETE FROM a")
	want := []string{`c {"id":1} {"id":1}`, `c {"id":1} {"id":1}`, `d {"id":1} {"id":1}`}
	if diff := cmp.Diff(want, lines(r.until(d))); diff != "" {
		t.Error(diff)
	}
}

func TestSchemaChanges(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY, v text, g int GENERATED ALWAYS AS (id * 2) STORED)", "INSERT INTO a VALUES (1, 'one')")
	r := startTask(t, d.config(), nil)
	events := r.take(1)
	d.exec("INSERT INTO a VALUES (2, 'two')", "ALTER TABLE a REPLICA IDENTITY NOTHING", "INSERT INTO a VALUES (3, 'three')",
		"ALTER TABLE a REPLICA IDENTITY DEFAULT", "ALTER TABLE a ADD w int NOT NULL DEFAULT 5", "INSERT INTO a (id, v) VALUES (4, 'four')",
		"ALTER TABLE a DROP COLUMN v", "UPDATE a SET w = 6 WHERE id = 1",
		"ALTER TABLE a RENAME w TO \"größe\"", "INSERT INTO a (id, \"größe\") VALUES (5, 7)",
		"ALTER TABLE a ALTER \"größe\" TYPE text", "INSERT INTO a (id, \"größe\") VALUES (6, 'x')")
	events = append(events, r.until(d)...)
	want := []string{
		`r {"id":1} {"id":1,"v":"one"}`, `c {"id":2} {"id":2,"v":"two"}`, `c {"id":3} {"id":3,"v":"three"}`,
		`c {"id":4} {"id":4,"v":"four","w":5}`, `u {"id":1} {"id":1,"w":6}`, `c {"id":5} {"größe":7,"id":5}`, `c {"id":6} {"größe":"x","id":6}`,
	}
	if diff := cmp.Diff(want, lines(events)); diff != "" {
		t.Error(diff)
	}
	for i, same := range []bool{true, true, false, false, false, false} {
		if (events[i].rec.Value.Schema == events[i+1].rec.Value.Schema) != same {
			t.Errorf("the schemas of events %d and %d: the same must be %t", i, i+1, same)
		}
	}
	if events[0].rec.Key.Schema != events[6].rec.Key.Schema {
		t.Error("the key's schema changed although its columns did not")
	}
}

// TestCatalogAheadOfStream stops the task while a column is made NOT NULL after rows with null in it, and while a table
// is dropped: the rows of before must come as they were.
func TestCatalogAheadOfStream(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY, v text)", "CREATE TABLE gone (id int PRIMARY KEY, v text)")
	cfg := d.config()
	start := d.start(cfg)
	d.exec("INSERT INTO a VALUES (1, NULL)", "INSERT INTO gone VALUES (1, 'was here')", "DELETE FROM a", "ALTER TABLE a ALTER v SET NOT NULL", "DROP TABLE gone",
		"INSERT INTO a VALUES (2, 'two')")
	r := startTask(t, cfg, start)
	want := []string{`c {"id":1} {"id":1,"v":null}`, `c {"id":1} {"id":1,"v":"was here"}`, `d {"id":1} {"id":1,"v":null}`, `tombstone {"id":1} null`,
		`c {"id":2} {"id":2,"v":"two"}`}
	if diff := cmp.Diff(want, lines(r.take(5))); diff != "" {
		t.Error(diff)
	}
}

func TestNames(t *testing.T) {
	d := newDatabase(t)
	d.exec(`CREATE SCHEMA "Ünï"`, `CREATE TABLE "Ünï"."Weird.na me"("Id" int PRIMARY KEY, "a" int, "A" int, "quo""te" text)`,
		`INSERT INTO "Ünï"."Weird.na me" VALUES (1, 2, 3, 'x')`, `CREATE SCHEMA other`, `CREATE TABLE other.t (id int PRIMARY KEY)`)
	r := startTask(t, d.config("schema.include.list", "Ünï"), nil)
	d.exec(`INSERT INTO other.t VALUES (1)`, `UPDATE "Ünï"."Weird.na me" SET a = 4`)
	events := r.take(2)
	want := []string{`r {"Id":1} {"A":3,"Id":1,"a":2,"quo\"te":"x"}`, `u {"Id":1} {"A":3,"Id":1,"a":4,"quo\"te":"x"}`}
	if diff := cmp.Diff(want, lines(events)); diff != "" {
		t.Error(diff)
	}
	if events[0].Topic != "shop._n_.Weird.na_me" {
		t.Error("topic", events[0].Topic)
	}
}

func TestPartitionedTables(t *testing.T) {
	for _, viaRoot := range []string{"false", "true"} {
		t.Run("publish.via.partition.root="+viaRoot, func(t *testing.T) {
			d := newDatabase(t)
			d.exec("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)", "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
				"CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)", "INSERT INTO p VALUES (1), (11)")
			r := startTask(t, d.config("publish.via.partition.root", viaRoot), nil)
			events := r.take(2)
			d.exec("INSERT INTO p VALUES (2), (12)")
			events = append(events, r.until(d)...)
			var got []string
			for _, e := range events {
				got = append(got, e.Topic+" "+toJSON(e.Key))
			}
			want := []string{`shop.public.p1 {"id":1}`, `shop.public.p2 {"id":11}`, `shop.public.p1 {"id":2}`, `shop.public.p2 {"id":12}`}
			if viaRoot == "true" {
				want = []string{`shop.public.p {"id":1}`, `shop.public.p {"id":11}`, `shop.public.p {"id":2}`, `shop.public.p {"id":12}`}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
