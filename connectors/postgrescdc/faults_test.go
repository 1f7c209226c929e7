package postgrescdc

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/tests/postgres"
)

// openError opens a task that must not open, and returns why.
func openError(t *testing.T, cfg sdk.Config, offset sdk.SourceOffset) error {
	t.Helper()
	r := &running{t: t, task: New().NewSource().(*task), cfg: cfg, last: offset}
	err := r.open()
	if err == nil {
		r.stop()
		t.Fatal("the task opened")
	}
	return err
}

func wantError(t *testing.T, err error, retriable bool, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q lacks %q", err, p)
		}
	}
	if errors.Is(err, sdk.ErrRetriable) != retriable {
		t.Errorf("retriable must be %t: %v", retriable, err)
	}
}

func TestMessagesSayWhatToDo(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)", "CREATE ROLE reader LOGIN PASSWORD 'r'", "CREATE ROLE replicator LOGIN REPLICATION PASSWORD 'r'")
	t.Cleanup(func() { d.exec("DROP ROLE reader", "DROP ROLE replicator") })
	wantError(t, openError(t, d.config("database.password", "wrong"), nil), false, "database.password", "pg_hba.conf")
	wantError(t, openError(t, d.config("database.dbname", "nowhere"), nil), false, "database.dbname")
	wantError(t, openError(t, d.config("database.port", "1"), nil), true, "cannot reach PostgreSQL", "database.port")
	wantError(t, openError(t, d.config("database.user", "reader", "database.password", "r"), nil), false, "may not make publication", "CREATE PUBLICATION")
	wantError(t, openError(t, d.config("publication.autocreate.mode", "disabled"), nil), false, "CREATE PUBLICATION dbz_publication")
	wantError(t, openError(t, d.config("table.include.list", "nothing"), nil), false, "table.include.list")
	d.exec("CREATE PUBLICATION dbz_publication FOR TABLE a")
	wantError(t, openError(t, d.config("database.user", "reader", "database.password", "r", "table.include.list", "public.a"), nil), false, "REPLICATION")
	r := startTask(t, d.config("database.user", "replicator", "database.password", "r", "table.include.list", "public.a"), nil)
	var err error
	for err == nil {
		err = r.read()
	}
	wantError(t, err, false, "public.a", "SELECT on the captured tables")
	errs := New().Validate(t.Context(), d.config("database.password", "wrong"))
	if len(errs) != 1 || !strings.Contains(errs[0].Message, "database.password") {
		t.Error(errs)
	}
}

func TestSlotGoneOrMadeAnew(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)")
	cfg := d.config()
	drop := "SELECT pg_drop_replication_slot('slot_" + d.name + "')"
	r := startTask(t, cfg, nil)
	d.exec("INSERT INTO a VALUES (1)")
	r.next()
	r.ack()
	r.stop()
	offset := r.last
	d.exec("INSERT INTO a VALUES (2)", drop)
	wantError(t, openError(t, cfg, offset), false, "is gone", "snapshot.mode=when_needed")
	d.exec("SELECT pg_create_logical_replication_slot('slot_" + d.name + "', 'pgoutput')")
	wantError(t, openError(t, cfg, offset), false, "behind the stored offset", "made anew", "pg_drop_replication_slot")
	ahead := fmt.Sprintf(`{"lsn_commit":%d,"lsn_proc":1,"messageType":"COMMIT"}`, uint64(1)<<60)
	wantError(t, openError(t, cfg, sdk.SourceOffset(ahead)), false, "ahead of the server's log")
	cfg["snapshot.mode"] = "when_needed"
	r = startTask(t, cfg, offset)
	if got := strings.Join(lines(r.take(2)), ";"); got != `r {"id":1} {"id":1};r {"id":2} {"id":2}` {
		t.Error("when_needed gave", got)
	}
	r.stop()
	d.exec(drop, "SELECT pg_create_logical_replication_slot('slot_"+d.name+"', 'test_decoding')")
	wantError(t, openError(t, d.config(), nil), false, "test_decoding", "slot.name")
}

func TestSlotInUse(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)")
	first := startTask(t, d.config(), nil)
	d.exec("INSERT INTO a VALUES (1)")
	first.next()
	// Another connector is refused.
	other := &running{t: t, task: New().NewSource().(*task), cfg: d.config("slot.max.retries", "1")}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := other.task.Open(ctx, sdk.SourceEnv{Env: sdk.Env{Connector: "other", Config: other.cfg}})
	if err == nil {
		t.Fatal("a second connector opened")
	}
	wantError(t, err, false, "in use by \"varve postgres-cdc test\"", "slot.name", "pg_terminate_backend")
	// The same connector takes over from the task that was left behind, which would otherwise go on for ever.
	second := startTask(t, d.config("errors.max.retries", "0"), first.last)
	d.exec("INSERT INTO a VALUES (2)")
	if got := second.next().String(); got != `c {"id":2} {"id":2}` {
		t.Error(got)
	}
	// The task that was left behind finds out, and does not take the slot back.
	for err = nil; err == nil; {
		err = first.read()
	}
	wantError(t, err, false, "taken over by another run")
	d.exec("INSERT INTO a VALUES (3)")
	if got := second.next().String(); got != `c {"id":3} {"id":3}` {
		t.Error(got)
	}
	second.stop()
}

func TestSlotDropOnStop(t *testing.T) {
	d := newDatabase(t)
	r := startTask(t, d.config("slot.drop.on.stop", "true"), nil)
	r.stop()
	if n := d.value("SELECT count(*)::text FROM pg_replication_slots WHERE database = $1", d.name); n != "0" {
		t.Error(n, "slots are left")
	}
}

// TestSlowReader: the server ends senders that it does not hear of for wal_sender_timeout. A reader of batches that is
// slower than that must not lead there.
func TestSlowReader(t *testing.T) {
	server, err := postgres.Start(t.Context(), postgres.Options{Settings: map[string]string{"wal_sender_timeout": "1s"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Stop() }()
	d := databaseOn(t, server)
	d.exec("CREATE TABLE a (id int PRIMARY KEY, v text)")
	r := startTask(t, d.config("status.update.interval.ms", "200", "errors.max.retries", "0", "max.batch.size", "10"), nil)
	d.exec("INSERT INTO a SELECT i, repeat('x', 1000) FROM generate_series(1, 30000) i")
	r.take(5)
	pid := d.value("SELECT active_pid::text FROM pg_replication_slots WHERE database = $1", d.name)
	// The reader waits until the server has looked at its timeout several times: the clock that matters is the server's.
	d.exec("SELECT pg_sleep(3)")
	r.take(29995)
	if now := d.value("SELECT active_pid::text FROM pg_replication_slots WHERE database = $1", d.name); now != pid {
		t.Error("the server had ended the stream")
	}
	r.stop()
}

// TestServerRestarts kills and restarts the server under the task, which goes on by itself and repeats nothing.
func TestServerRestarts(t *testing.T) {
	dir := t.TempDir()
	server, err := postgres.Start(t.Context(), postgres.Options{Fsync: true})
	if err != nil {
		t.Fatal(filepath.Base(dir), err)
	}
	defer func() { _ = server.Stop() }()
	d := databaseOn(t, server)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)")
	r := startTask(t, d.config("status.update.interval.ms", "100"), nil)
	for i := range 3 {
		d.exec(fmt.Sprintf("INSERT INTO a SELECT generate_series(%d, %d)", 10*i, 10*i+2))
		for j := range 3 {
			if got, want := fmt.Sprint(r.next().row("after")["id"]), fmt.Sprint(10*i+j); got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
		}
		if i == 0 {
			r.ack()
		}
		server.Kill9()
		if err := server.Restart(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if d.conn, err = pgx.Connect(t.Context(), server.DatabaseURL(d.name)); err != nil {
			t.Fatal(err)
		}
	}
	// A server that is frozen keeps its connections: only its silence tells.
	server.Freeze()
	time.AfterFunc(3*time.Second, server.Thaw)
	d.exec("INSERT INTO a VALUES (100)")
	if got := fmt.Sprint(r.next().row("after")["id"]); got != "100" {
		t.Error("after the freeze", got)
	}
	r.stop()
	if err := server.Restart(t.Context(), map[string]string{"wal_level": "replica", "max_wal_senders": "2", "max_replication_slots": "2"}); err == nil {
		t.Error("PostgreSQL starts with a logical slot and wal_level=replica: expected it to refuse")
	}
}

func TestWALLevel(t *testing.T) {
	server, err := postgres.Start(t.Context(), postgres.Options{Settings: map[string]string{"wal_level": "replica"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Stop() }()
	d := databaseOn(t, server)
	wantError(t, openError(t, d.config(), nil), false, "wal_level = logical", "restart PostgreSQL")
}

func TestHeartbeats(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE beats (id int, at timestamptz)", "INSERT INTO beats VALUES (1)")
	r := startTask(t, d.config("heartbeat.interval.ms", "50", "heartbeat.action.query", "UPDATE beats SET at = now()", "table.include.list", "public.a"), nil)
	for range 3 {
		e := r.next()
		if e.Topic != "__debezium-heartbeat.shop" || toJSON(e.Key) != `{"serverName":"shop"}` || e.Value["ts_ms"] == nil {
			t.Errorf("%s %s %v", e.Topic, toJSON(e.Key), e.Value)
		}
		if l, ok := commitOf(sdk.SourceOffset(e.Offset)); !ok || l == 0 {
			t.Error("offset", e.Offset)
		}
	}
	if d.value("SELECT (at IS NOT NULL)::text FROM beats") != "true" {
		t.Error("the query did not run")
	}
}

// TestLogRemoved lets the server remove log that the slot needs.
func TestLogRemoved(t *testing.T) {
	server, err := postgres.Start(t.Context(), postgres.Options{Settings: map[string]string{
		"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Stop() }()
	d := databaseOn(t, server)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)")
	cfg := d.config()
	r := startTask(t, cfg, d.start(cfg))
	d.exec("INSERT INTO a VALUES (1)")
	r.next()
	r.ack()
	r.stop()
	waitFor(t, func() bool {
		d.exec("INSERT INTO a SELECT max(id) + 1 FROM a", "SELECT pg_switch_wal()", "CHECKPOINT")
		return d.value("SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1", cfg["slot.name"]) == "lost"
	})
	wantError(t, openError(t, cfg, r.last), false, "was invalidated", "snapshot.mode=when_needed")
	cfg["snapshot.mode"] = "when_needed"
	r = startTask(t, cfg, r.last)
	if got := r.next().String(); got != `r {"id":1} {"id":1}` {
		t.Error(got)
	}
	r.stop()
}
