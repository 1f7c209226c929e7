package postgrescdc

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/varvehq/varve/sdk"
)

// session is a connection of its own, for transactions that overlap.
func (d *database) session() *database {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), d.server.DatabaseURL(d.name))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close(d.t.Context()) })
	return &database{t: d.t, server: d.server, name: d.name, conn: conn}
}

// start makes the slot without reading anything, and returns the offset of its start.
func (d *database) start(cfg sdk.Config) sdk.SourceOffset {
	d.t.Helper()
	cfg["snapshot.mode"] = "no_data"
	r := startTask(d.t, cfg, nil)
	r.stop()
	cfg["snapshot.mode"] = "initial"
	at := r.task.pos.commit
	return sdk.SourceOffset(appendCommitOffset(nil, at, at, 0, 0))
}

// checkResume reads all events once, and then again from the offset of each: the rest must follow, neither more nor less.
// Each restart is as after a crash: nothing was acknowledged, so that the server sends all again.
func checkResume(t *testing.T, d *database, cfg sdk.Config, start sdk.SourceOffset, n int) []event {
	t.Helper()
	r := startTask(t, cfg, start)
	all := r.take(n)
	r.stop()
	want := lines(all)
	for i := range all {
		r := startTask(t, cfg, sdk.SourceOffset(all[i].Offset))
		if got := lines(r.take(n - i - 1)); i < n-1 {
			if diff := cmp.Diff(want[i+1:], got); diff != "" {
				t.Fatalf("after event %d (%s, offset %s):\n%s", i, want[i], all[i].Offset, diff)
			}
		}
		r.stop()
	}
	return all
}

func TestResumeAtEveryEvent(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY, v text)", "CREATE TABLE x (id int)", "CREATE TABLE b (id int PRIMARY KEY)")
	cfg := d.config("table.exclude.list", "public.x", "publication.autocreate.mode", "all_tables", "skipped.operations", "none")
	start := d.start(cfg)
	d.exec("BEGIN", "INSERT INTO a SELECT i, 'v' || i FROM generate_series(1, 4) i", "INSERT INTO x VALUES (1), (2)", "UPDATE a SET v = 'w' WHERE id <= 2",
		"UPDATE a SET id = id + 10 WHERE id = 3", "DELETE FROM a WHERE id = 4", "COMMIT",
		"INSERT INTO x VALUES (3)",
		"COPY (SELECT 1) TO STDOUT",
		"BEGIN", "INSERT INTO a VALUES (20, 'twenty')", "SELECT pg_logical_emit_message(true, 'p', 'in')", "INSERT INTO b VALUES (1)", "TRUNCATE a, b", "COMMIT",
		"SELECT pg_logical_emit_message(false, 'p', 'out')",
		"INSERT INTO a VALUES (30, 'thirty')")
	all := checkResume(t, d, cfg, start, 4+2+3+2+1+1+1+2+1+1)
	if got := all[len(all)-1].String(); got != `c {"id":30} {"id":30,"v":"thirty"}` {
		t.Error("last event", got)
	}
	if all[14].op() != "t" || all[14].Key != nil || all[15].op() != "t" {
		t.Error("truncate", lines(all[13:16]))
	}
	m := all[16]
	if m.op() != "m" || m.Topic != "shop.message" || toJSON(m.Value["message"]) != `{"content":"b3V0","prefix":"p"}` || m.source("txId") != nil {
		t.Error("message", m.Topic, toJSON(m.Value))
	}
}

// TestResumeInterleaved has transactions that overlap, and commit in another order than they began: the rows of the one
// that commits last have lower log positions than those of the other.
func TestResumeInterleaved(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY, v text)")
	cfg := d.config()
	start := d.start(cfg)
	one, two, three := d.session(), d.session(), d.session()
	one.exec("BEGIN", "INSERT INTO a VALUES (1, 'one')")
	two.exec("BEGIN", "INSERT INTO a VALUES (2, 'two')")
	three.exec("BEGIN", "INSERT INTO a VALUES (3, 'three')")
	one.exec("INSERT INTO a VALUES (11, 'one')")
	two.exec("INSERT INTO a VALUES (12, 'two')", "COMMIT")
	three.exec("INSERT INTO a VALUES (13, 'three')", "ROLLBACK")
	one.exec("INSERT INTO a VALUES (21, 'one')", "COMMIT")
	all := checkResume(t, d, cfg, start, 5)
	want := []string{`c {"id":2} {"id":2,"v":"two"}`, `c {"id":12} {"id":12,"v":"two"}`, `c {"id":1} {"id":1,"v":"one"}`,
		`c {"id":11} {"id":11,"v":"one"}`, `c {"id":21} {"id":21,"v":"one"}`}
	if diff := cmp.Diff(want, lines(all)); diff != "" {
		t.Error(diff)
	}
}

// TestResumeAcknowledged acknowledges each event before it stops, so that the slot moves along.
func TestResumeAcknowledged(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)")
	cfg := d.config()
	r := startTask(t, cfg, d.start(cfg))
	last := r.last
	r.stop()
	for i := range 8 {
		d.exec(fmt.Sprintf("INSERT INTO a SELECT generate_series(%d, %d)", i*2, i*2+1))
	}
	for i := range 16 {
		r := startTask(t, cfg, last)
		e := r.next()
		if got := fmt.Sprint(e.row("after")["id"]); got != fmt.Sprint(i) {
			t.Fatalf("event %d has id %s", i, got)
		}
		r.ack()
		last = sdk.SourceOffset(e.Offset)
		r.stop()
		confirmed := d.value("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", cfg["slot.name"])
		at, err := parseLSN(confirmed)
		if err != nil {
			t.Fatal(err)
		}
		if stored, _ := commitOf(last); at != stored {
			t.Fatalf("event %d: the slot is confirmed at %s, the offset says %s", i, at, stored)
		}
	}
}

// TestConfirmsOnlyAcknowledgedTransactions: what was read but not acknowledged holds the slot back, half a transaction
// too, and so do keepalives.
func TestConfirmsOnlyAcknowledgedTransactions(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE x (id int)")
	cfg := d.config("status.update.interval.ms", "100", "table.exclude.list", "public.x")
	r := startTask(t, cfg, d.start(cfg))
	confirmed := func() string {
		return d.value("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", cfg["slot.name"])
	}
	before := confirmed()
	d.exec("INSERT INTO a SELECT generate_series(1, 3)")
	events := r.take(3)
	d.exec("INSERT INTO x SELECT generate_series(1, 1000)", "SELECT pg_switch_wal()", "INSERT INTO a VALUES (4)")
	events = append(events, r.next())
	if got := confirmed(); got != before {
		t.Errorf("without an acknowledgement the slot went from %s to %s", before, got)
	}
	for i, wantMove := range []bool{false, false, true, true} {
		r.last = sdk.SourceOffset(events[i].Offset)
		r.ack()
		stored, _ := commitOf(r.last)
		if moved := stored.String() != before; moved != wantMove {
			t.Errorf("event %d: the offset confirms %s, the start was %s", i, stored, before)
		}
		waitFor(t, func() bool { return confirmed() == stored.String() })
		before = confirmed()
	}
}

// waitFor polls the server's state, which changes without telling.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	end := time.Now().Add(15 * time.Second)
	for !ok() {
		if time.Now().After(end) {
			t.Fatal("what was waited for did not happen")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestUncapturedChangesMoveTheSlot: where only other tables change, records without a topic carry the position along.
func TestUncapturedChangesMoveTheSlot(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE x (id int)")
	cfg := d.config("status.update.interval.ms", "100", "table.include.list", "public.a")
	r := startTask(t, cfg, d.start(cfg))
	d.exec("INSERT INTO x SELECT generate_series(1, 1000)")
	target := d.value("SELECT pg_current_wal_lsn()::text")
	want, _ := parseLSN(target)
	for {
		if at, _ := commitOf(r.last); at >= want {
			break
		}
		if err := r.read(); err != nil {
			t.Fatal(err)
		}
		r.ack()
	}
	waitFor(t, func() bool {
		at, _ := parseLSN(d.value("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", cfg["slot.name"]))
		return at >= want
	})
	r.stop()
	d.exec("INSERT INTO a VALUES (1)")
	r = startTask(t, cfg, r.last)
	if got := r.next().String(); got != `c {"id":1} {"id":1}` {
		t.Error(got)
	}
}

// TestDebeziumOffsets begins from offsets as Debezium stores them.
func TestDebeziumOffsets(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)")
	cfg := d.config()
	start := d.start(cfg)
	d.exec("INSERT INTO a VALUES (1)", "BEGIN", "INSERT INTO a VALUES (2)", "INSERT INTO a VALUES (3)", "COMMIT", "INSERT INTO a VALUES (4)")
	r := startTask(t, cfg, start)
	all := r.take(4)
	r.stop()
	commit := func(i int) lsn {
		l, _ := commitOf(sdk.SourceOffset(all[i].Offset))
		return l
	}
	for name, c := range map[string]struct {
		offset string
		first  int
	}{
		"snapshot complete":      {fmt.Sprintf(`{"snapshot":"INITIAL","last_snapshot_record":true,"lsn":%d,"txId":7,"ts_usec":1}`, startOf(start)), 1},
		"after the first commit": {fmt.Sprintf(`{"lsn":%[1]d,"lsn_proc":%[1]d,"lsn_commit":%[1]d,"txId":%[2]v,"messageType":"COMMIT"}`, commit(0), all[0].source("txId")), 2},
		"within the second": {fmt.Sprintf(`{"lsn":%[1]v,"lsn_proc":%[1]v,"lsn_commit":%[2]d,"txId":%[3]v,"messageType":"INSERT","lsn_events_processed":1}`,
			all[1].source("lsn"), commit(0), all[1].source("txId")), 3},
		"after the second": {fmt.Sprintf(`{"lsn":%[1]d,"lsn_proc":%[1]d,"lsn_commit":%[1]d,"messageType":"COMMIT"}`, commit(2)), 4},
	} {
		t.Run(name, func(t *testing.T) {
			r := startTask(t, cfg, sdk.SourceOffset(c.offset))
			if got := fmt.Sprint(r.next().row("after")["id"]); got != fmt.Sprint(c.first) {
				t.Errorf("went on with %s, want %d", got, c.first)
			}
			r.stop()
		})
	}
}

func startOf(o sdk.SourceOffset) lsn {
	l, _ := commitOf(o)
	return l
}
