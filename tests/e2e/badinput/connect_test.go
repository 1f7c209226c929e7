package badinput

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/varvehq/varve/tests/harness"
	"github.com/varvehq/varve/tests/postgres"
)

// worker is a server with a Connect worker.
type worker struct {
	*harness.Process
	t *testing.T
}

// create makes a connector and returns the answer.
func (w *worker) create(name string, config map[string]string) (int, string) {
	w.t.Helper()
	body, err := json.Marshal(map[string]any{"name": name, "config": config})
	if err != nil {
		w.t.Fatal(err)
	}
	return call(w.t, "POST", "http://"+w.Connect+"/connectors", string(body))
}

// task is the state of a connector's first task, or the connector's own where that has failed.
func (w *worker) task(name string) (state, trace string) {
	w.t.Helper()
	_, body := call(w.t, "GET", "http://"+w.Connect+"/connectors/"+name+"/status", "")
	var s struct {
		Connector struct{ State, Trace string }
		Tasks     []struct{ State, Trace string }
	}
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		w.t.Fatal(err, body)
	}
	if s.Connector.State == "FAILED" || len(s.Tasks) == 0 {
		return s.Connector.State, s.Connector.Trace
	}
	return s.Tasks[0].State, s.Tasks[0].Trace
}

// fails waits for a task to fail, with words that say why and what to do.
func (w *worker) fails(name string, words ...string) {
	w.t.Helper()
	var trace string
	eventually(w.t, name+" fails", func() bool {
		var state string
		state, trace = w.task(name)
		return state == "FAILED"
	})
	has(w.t, trace, words...)
}

func (w *worker) put(path string) {
	w.t.Helper()
	if code, body := call(w.t, "PUT", "http://"+w.Connect+"/connectors/"+path, ""); code >= 300 {
		w.t.Fatal(path, code, body)
	}
}

func (w *worker) restart(name string) {
	w.t.Helper()
	if code, body := call(w.t, "POST", "http://"+w.Connect+"/connectors/"+name+"/restart?includeTasks=true", ""); code >= 300 {
		w.t.Fatal(code, body)
	}
}

// TestConnectorOnABadDatabase: what a person reads of a connector whose config or database is wrong.
func TestConnectorOnABadDatabase(t *testing.T) {
	t.Parallel()
	pg, err := postgres.Start(t.Context(), postgres.Options{Settings: map[string]string{"wal_level": "replica"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pg.Stop() })
	exec := func(sql string) {
		t.Helper()
		c, err := pgx.Connect(t.Context(), pg.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(context.Background()) }()
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatal(sql, err)
		}
	}
	exec("CREATE TABLE orders (id int PRIMARY KEY)")
	w := &worker{harness.StartProcess(t, harness.ProcessOptions{}), t}
	config := func(change ...string) map[string]string {
		c := map[string]string{"connector.class": "postgres-cdc", "database.hostname": "127.0.0.1", "database.port": fmt.Sprint(pg.Port()),
			"database.user": postgres.User, "database.password": postgres.Password, "database.dbname": postgres.Database,
			"topic.prefix": "shop", "table.include.list": "public.orders"}
		for i := 0; i < len(change); i += 2 {
			c[change[i]] = change[i+1]
		}
		return c
	}
	missing := config()
	delete(missing, "topic.prefix")
	if code, body := w.create("missing", missing); code != 400 || !strings.Contains(body, "topic.prefix") {
		t.Errorf("a config without topic.prefix: %d %s", code, body)
	}
	if code, body := w.create("unreachable", config("database.port", "1")); code != 400 || !strings.Contains(body, "cannot reach PostgreSQL") {
		t.Errorf("no database: %d %s", code, body)
	}
	if code, body := w.create("password", config("database.password", "guess")); code != 400 || !strings.Contains(body, "database.password") {
		t.Errorf("a wrong password: %d %s", code, body)
	}
	if code, body := w.create("cdc", config()); code < 300 {
		w.fails("cdc", "wal_level = logical", "restart PostgreSQL")
	} else if !strings.Contains(body, "wal_level = logical") {
		t.Errorf("wal_level=replica: %d %s", code, body)
	}
	if err := pg.Restart(t.Context(), map[string]string{"wal_level": "logical"}); err != nil {
		t.Fatal(err)
	}
	if state, _ := w.task("cdc"); state == "FAILED" {
		w.restart("cdc")
	} else if code, body := w.create("cdc", config()); code >= 300 {
		t.Fatal(code, body)
	}
	exec("INSERT INTO orders VALUES (1)")
	has(t, must(t, w.Process, "", "consume", "shop.public.orders", "-n", "1", "--wait", "30s"), `"id":1`)

	// The database goes away and comes back: the task goes on by itself.
	if err := pg.Halt(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log says that the database is away", func() bool { return strings.Contains(w.LogTail(2000), "cannot reach PostgreSQL") })
	if err := pg.Restart(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	exec("INSERT INTO orders VALUES (2)")
	has(t, must(t, w.Process, "", "consume", "shop.public.orders", "-n", "2", "--wait", "30s"), `"id":2`)

	// A table that is dropped ends the task at its next start, with what to do.
	exec("DROP TABLE orders")
	w.restart("cdc")
	w.fails("cdc", "no table matches", "dropped or renamed", "table.include.list")
	exec("CREATE TABLE orders (id int PRIMARY KEY)")
	w.restart("cdc")
	eventually(t, "the task runs again", func() bool { state, _ := w.task("cdc"); return state == "RUNNING" })
	exec("INSERT INTO orders VALUES (3)")
	has(t, must(t, w.Process, "", "consume", "shop.public.orders", "-n", "3", "--wait", "30s"), `"id":3`)

	w.put("cdc/stop")
	eventually(t, "the connector is stopped", func() bool { state, _ := w.task("cdc"); return state == "STOPPED" })
	exec("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
	w.put("cdc/resume")
	w.fails("cdc", "is gone", "snapshot.mode=when_needed")
}
