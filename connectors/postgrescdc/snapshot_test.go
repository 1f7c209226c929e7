package postgrescdc

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/varvehq/varve/sdk"
)

func TestSnapshotMarks(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 3)", "CREATE TABLE b (id int PRIMARY KEY)",
		"CREATE TABLE c (id int PRIMARY KEY)", "INSERT INTO c VALUES (1), (2)", "CREATE TABLE d (id int PRIMARY KEY)", "INSERT INTO d VALUES (1)",
		"CREATE TABLE e (id int PRIMARY KEY)", "INSERT INTO e VALUES (1)", "CREATE TABLE f (id int PRIMARY KEY)")
	r := startTask(t, d.config(), nil)
	var got []string
	for _, e := range r.take(7) {
		got = append(got, fmt.Sprint(e.source("table"), " ", e.source("snapshot")))
	}
	want := []string{"a first", "a true", "a last_in_data_collection", "c first_in_data_collection", "c last_in_data_collection", "d last_in_data_collection", "e last"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if o, err := parseOffset(r.last); err != nil || o.inSnapshot() || o.position().commit == 0 {
		t.Errorf("offset of the last row: %s", r.last)
	}
}

// TestParallelSnapshot reads a table in chunks while it changes: every row must come once, as it was at the start, and
// the changes after.
func TestParallelSnapshot(t *testing.T) {
	d := newDatabase(t)
	const rows = 60_000
	d.exec("CREATE TABLE a (id int PRIMARY KEY, v text)", fmt.Sprintf("INSERT INTO a SELECT i, repeat('x', 500) FROM generate_series(1, %d) i", rows), "CREATE TABLE b (id int PRIMARY KEY)",
		"INSERT INTO b SELECT generate_series(1, 5)")
	r := startTask(t, d.config("snapshot.max.threads", "3"), nil)
	d.exec("UPDATE a SET v = 'new' WHERE id % 1000 = 0", "DELETE FROM a WHERE id = 7")
	seen := map[string]int{}
	marks := map[any]int{}
	var last event
	for range rows + 5 {
		e := r.next()
		if e.op() != "r" || e.source("table") == "a" && len(e.row("after")["v"].(string)) != 500 {
			t.Fatalf("%.200s", e)
		}
		seen[fmt.Sprint(e.source("table"), e.row("after")["id"])]++
		marks[e.source("snapshot")]++
		last = e
	}
	if len(seen) != rows+5 {
		t.Errorf("%d different rows of %d", len(seen), rows+5)
	}
	if marks["first"] != 1 || marks["last"] != 1 || marks["first_in_data_collection"] != 1 || marks["last_in_data_collection"] != 1 || last.source("snapshot") != "last" {
		t.Error("marks", marks, "last", last.source("snapshot"))
	}
	events := r.take(rows/1000 + 2)
	if got := events[0].String(); got != `u {"id":1000} {"id":1000,"v":"new"}` {
		t.Error("first change", got)
	}
	if got := events[rows/1000].String(); got != `d {"id":7} {"id":7,"v":null}` {
		t.Error("last change", got)
	}
}

func TestEmptySnapshotIsRemembered(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)")
	cfg := d.config()
	r := startTask(t, cfg, nil)
	if err := r.read(); err != nil || r.marks != 1 {
		t.Fatal("no record marks the end of the snapshot", err, r.marks)
	}
	r.stop()
	d.exec("INSERT INTO a VALUES (1)")
	r = startTask(t, cfg, r.last)
	if got := r.next().String(); got != `c {"id":1} {"id":1}` {
		t.Error(got)
	}
}

// TestInterruptedSnapshotStartsOver stops within the snapshot, more than once: each run reads first what has changed since
// the slot was made, since a row that was emitted and is gone would be in no later snapshot, then the rows from a new
// moment, and the stream follows without a gap.
func TestInterruptedSnapshotStartsOver(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 10)")
	cfg := d.config("max.batch.size", "3")
	r := startTask(t, cfg, nil)
	r.take(2)
	wantInSnapshot(t, r.last)
	r.ack()
	r.stop()
	d.exec("INSERT INTO a VALUES (11)", "DELETE FROM a WHERE id = 1")
	for range 2 {
		r = startTask(t, cfg, r.last)
		if diff := cmp.Diff([]string{`c{"id":11}`, `d{"id":1}`, `{"id":1}`, `r{"id":2}`}, keys(r.take(4))); diff != "" {
			t.Fatal(diff)
		}
		wantInSnapshot(t, r.last)
		r.ack()
		r.stop()
	}
	r = startTask(t, cfg, r.last)
	d.exec("INSERT INTO a VALUES (12)")
	want := []string{`c{"id":11}`, `d{"id":1}`, `{"id":1}`}
	for i := 2; i <= 11; i++ {
		want = append(want, fmt.Sprintf(`r{"id":%d}`, i))
	}
	if diff := cmp.Diff(append(want, `c{"id":12}`), keys(r.take(14))); diff != "" {
		t.Error(diff)
	}
}

// TestConnectionLostInSnapshot: within one run nothing is emitted twice from before the snapshot.
func TestConnectionLostInSnapshot(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 20)")
	cfg := d.config("max.batch.size", "3")
	r := startTask(t, cfg, nil)
	r.take(2)
	r.stop()
	d.exec("DELETE FROM a WHERE id = 1")
	r = startTask(t, cfg, nil)
	got := keys(r.take(3))
	d.exec("DELETE FROM a WHERE id = 2",
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	for len(got) == 0 || got[len(got)-1] != `r{"id":20}` {
		got = append(got, keys(r.take(1))...)
	}
	deletes := map[string]int{}
	for _, k := range got {
		if k[0] == 'd' {
			deletes[k]++
		}
	}
	if diff := cmp.Diff(map[string]int{`d{"id":1}`: 1, `d{"id":2}`: 1}, deletes); diff != "" {
		t.Error(diff, got)
	}
}

// TestSlotOlderThanPublication: what the slot holds from before the publication is not published; the snapshot is read
// nevertheless, and what follows it. Servers before 18 refuse to decode it: then the slot is moved on.
func TestSlotOlderThanPublication(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)")
	cfg := d.config()
	d.value("SELECT lsn::text FROM pg_create_logical_replication_slot($1, 'pgoutput')", cfg["slot.name"])
	d.exec("INSERT INTO a VALUES (1)")
	r := startTask(t, cfg, nil)
	if diff := cmp.Diff([]string{`r{"id":1}`}, keys(r.take(1))); diff != "" {
		t.Error(diff)
	}
	d.exec("INSERT INTO a VALUES (2)")
	if diff := cmp.Diff([]string{`c{"id":2}`}, keys(r.take(1))); diff != "" {
		t.Error(diff)
	}
}

func TestSlotMovesUpToItsPublication(t *testing.T) {
	d := newDatabase(t)
	cfg, errs := parseConfig(d.config())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	srv := newServer(cfg, "test")
	refusal := srv.explain(&pgconn.PgError{Code: "42704", Message: `publication "p" does not exist`})
	if !beforePublication(refusal) || beforePublication(srv.explain(&pgconn.PgError{Code: "42704", Message: `type "t" does not exist`})) {
		t.Error("the refusal of a server before 18 is not known")
	}
	d.value("SELECT lsn::text FROM pg_create_logical_replication_slot($1, 'pgoutput')", cfg.Slot)
	d.exec("CREATE TABLE a (id int)", "INSERT INTO a VALUES (1)")
	end, err := parseLSN(d.value("SELECT pg_current_wal_lsn()::text"))
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.advanceSlot(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	const confirmed = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1"
	if got := d.value(confirmed, cfg.Slot); got != end.String() {
		t.Errorf("the slot stands at %s, not at %s", got, end)
	}
}

func wantInSnapshot(t *testing.T, at sdk.SourceOffset) {
	t.Helper()
	if o, err := parseOffset(at); err != nil || !o.inSnapshot() {
		t.Fatalf("offset %s", at)
	}
	if commit, ok := commitOf(at); ok {
		t.Fatalf("offset %s confirms the slot up to %s", at, commit)
	}
}

// keys are operation and key of each event.
func keys(events []event) []string {
	var out []string
	for _, e := range events {
		op := ""
		if e.Value != nil {
			op = e.op()
		}
		out = append(out, op+toJSON(e.Key))
	}
	return out
}

func TestSnapshotModes(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
	for _, mode := range []string{"no_data", "never"} {
		cfg := d.config("snapshot.mode", mode, "slot.name", mode)
		r := startTask(t, cfg, nil)
		d.exec("UPDATE a SET id = id")
		if got := r.next().op(); got != "u" {
			t.Error(mode, "began with", got)
		}
		r.stop()
	}
	cfg := d.config("snapshot.mode", "always", "slot.name", "always")
	r := startTask(t, cfg, nil)
	offset := sdk.SourceOffset(r.next().Offset)
	r.stop()
	d.exec("INSERT INTO a VALUES (2)")
	r = startTask(t, cfg, offset)
	d.exec("INSERT INTO a VALUES (3)")
	want := []string{`c {"id":2} {"id":2}`, `r {"id":1} {"id":1}`, `r {"id":2} {"id":2}`, `c {"id":3} {"id":3}`}
	if diff := cmp.Diff(want, lines(r.take(4))); diff != "" {
		t.Error(diff)
	}
	r.stop()
}
