package postgrescdc

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/tests/postgres"
)

func TestMain(m *testing.M) {
	code := m.Run()
	postgres.StopShared()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

var databases atomic.Int64

// database is a database of its own on the shared server.
type database struct {
	t      testing.TB
	server *postgres.Server
	name   string
	conn   *pgx.Conn
}

func newDatabase(t testing.TB) *database {
	t.Helper()
	server, err := postgres.Shared(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return databaseOn(t, server)
}

func databaseOn(t testing.TB, server *postgres.Server) *database {
	t.Helper()
	ctx := context.Background()
	d := &database{t: t, server: server, name: fmt.Sprintf("db%d", databases.Add(1))}
	url, err := server.CreateDatabase(ctx, d.name)
	if err != nil {
		t.Fatal(err)
	}
	if d.conn, err = pgx.Connect(ctx, url); err != nil {
		t.Fatal(err)
	}
	d.exec("CREATE TABLE zz_end (id serial PRIMARY KEY)")
	t.Cleanup(func() {
		_ = d.conn.Close(ctx)
		conn, err := pgx.Connect(ctx, server.URL())
		if err != nil {
			return
		}
		defer func() { _ = conn.Close(ctx) }()
		_, _ = conn.Exec(ctx, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = $1 AND active", d.name)
		for range 100 {
			if _, err = conn.Exec(ctx, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1", d.name); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		_, _ = conn.Exec(ctx, "DROP DATABASE "+d.name+" WITH (FORCE)")
	})
	return d
}

// exec runs statements, each its own transaction unless they say BEGIN.
func (d *database) exec(statements ...string) {
	d.t.Helper()
	for _, s := range statements {
		if _, err := d.conn.Exec(context.Background(), s); err != nil {
			d.t.Fatalf("%s: %v", s, err)
		}
	}
}

func (d *database) value(sql string, args ...any) string {
	d.t.Helper()
	var v string
	if err := d.conn.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// config is a connector's configuration for the database.
func (d *database) config(kv ...string) sdk.Config {
	c := sdk.Config{
		"database.hostname": "127.0.0.1", "database.port": fmt.Sprint(d.server.Port()), "database.user": postgres.User,
		"database.password": postgres.Password, "database.dbname": d.name, "database.sslmode": "disable",
		"topic.prefix": "shop", "slot.name": "slot_" + d.name, "publication.autocreate.mode": "filtered",
		"slot.retry.delay.ms": "20", "slot.max.retries": "0",
	}
	for i := 0; i < len(kv); i += 2 {
		c[kv[i]] = kv[i+1]
	}
	return c
}

// event is a record as a consumer of JSON would see it.
type event struct {
	Topic   string
	Key     any
	Value   map[string]any // nil: tombstone
	Headers map[string]any
	Offset  string
	rec     sdk.Record
}

func (e event) op() string {
	if e.Value == nil {
		return "tombstone"
	}
	return fmt.Sprint(e.Value["op"])
}

func (e event) row(which string) map[string]any {
	m, _ := e.Value[which].(map[string]any)
	return m
}

func (e event) source(field string) any { return e.row("source")[field] }

// String is the event in short: op, key and the row.
func (e event) String() string {
	row := e.row("after")
	if row == nil {
		row = e.row("before")
	}
	return fmt.Sprintf("%s %s %s", e.op(), toJSON(e.Key), toJSON(row))
}

func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// running is a task under test with its consumer.
type running struct {
	t      testing.TB
	task   *task
	cfg    sdk.Config
	closed bool
	last   sdk.SourceOffset
	queue  []event
	marks  int // records without a topic
}

func startTask(t testing.TB, cfg sdk.Config, offset sdk.SourceOffset) *running {
	t.Helper()
	r := &running{t: t, task: New().NewSource().(*task), cfg: cfg, last: offset}
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.stop)
	return r
}

func (r *running) open() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	env := sdk.SourceEnv{Env: sdk.Env{Connector: "test", Config: r.cfg}}
	if testing.Verbose() {
		env.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if r.last != nil {
		env.Offsets = []sdk.PartitionOffset{{Source: sdk.NewSourcePartition(`{"server":"shop"}`), Offset: r.last}}
	}
	return r.task.Open(ctx, env)
}

// read reads the next batch into the queue.
func (r *running) read() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	recs, err := r.task.Read(ctx)
	if err != nil {
		return err
	}
	for i := range recs {
		if recs[i].Topic == "" {
			r.marks++
			r.last = append(sdk.SourceOffset(nil), recs[i].SourceOffset...)
			continue
		}
		r.queue = append(r.queue, decodeEvent(r.t, &recs[i]))
	}
	return nil
}

// next returns the next event.
func (r *running) next() event {
	r.t.Helper()
	for len(r.queue) == 0 {
		if err := r.read(); err != nil {
			stacks := make([]byte, 1<<18)
			r.t.Fatalf("read: %v\n%s", err, stacks[:runtime.Stack(stacks, true)])
		}
	}
	e := r.queue[0]
	r.queue = r.queue[1:]
	r.last = sdk.SourceOffset(e.Offset)
	return e
}

func (r *running) take(n int) []event {
	r.t.Helper()
	var out []event
	for range n {
		out = append(out, r.next())
	}
	return out
}

// until reads events up to and without the first of the table zz_end.
func (r *running) until(d *database) []event {
	r.t.Helper()
	d.exec("INSERT INTO zz_end DEFAULT VALUES")
	var out []event
	for {
		e := r.next()
		if strings.HasSuffix(e.Topic, ".zz_end") {
			return out
		}
		out = append(out, e)
	}
}

// ack acknowledges the last event taken.
func (r *running) ack() {
	r.t.Helper()
	if err := r.task.Ack(context.Background(), sdk.PartitionOffset{Offset: r.last}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *running) stop() {
	if r.closed {
		return
	}
	r.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := r.task.Close(ctx); err != nil {
		r.t.Error(err)
	}
}

func decodeEvent(t testing.TB, rec *sdk.Record) event {
	t.Helper()
	e := event{Topic: rec.Topic, Offset: string(rec.SourceOffset), rec: *rec}
	e.Key = decodeValue(t, rec.Key)
	if v, ok := decodeValue(t, rec.Value).(map[string]any); ok {
		e.Value = v
	}
	for _, h := range rec.Headers {
		if e.Headers == nil {
			e.Headers = map[string]any{}
		}
		e.Headers[h.Key] = decodeValue(t, h.Value)
	}
	return e
}

func decodeValue(t testing.TB, v sdk.Value) any {
	t.Helper()
	if v.Data == nil {
		return nil
	}
	r := sdk.NewReader(v)
	out := decode(&r, v.Schema, false)
	if r.Err() != nil || r.Len() != 0 {
		t.Fatalf("malformed value of %s: %v, %d bytes left", v.Schema.Name, r.Err(), r.Len())
	}
	return out
}

// decode reads a value as Kafka Connect's JSON converter shows it. An optional schema at the top of a record value is a union.
func decode(r *sdk.Reader, s *sdk.Schema, _ bool) any {
	if s.Optional && r.Null() {
		return nil
	}
	switch s.Type {
	case sdk.Int8, sdk.Int16, sdk.Int32, sdk.Int64:
		return r.Int()
	case sdk.Float32:
		return float(float64(r.Float32()))
	case sdk.Float64:
		return float(r.Float64())
	case sdk.Boolean:
		return r.Bool()
	case sdk.String:
		return string(r.Bytes())
	case sdk.Bytes:
		return base64.StdEncoding.EncodeToString(r.Bytes())
	case sdk.Array:
		out := []any{}
		for n := r.Count(); n > 0 && r.Err() == nil; n = r.Count() {
			for range n {
				out = append(out, decode(r, s.Elem, false))
			}
		}
		return out
	case sdk.Struct:
		out := map[string]any{}
		for _, f := range s.Fields {
			out[f.Name] = decode(r, f.Schema, false)
		}
		return out
	}
	return nil
}

func float(f float64) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return fmt.Sprint(f)
	}
	return f
}

func lines(events []event) []string {
	var out []string
	for _, e := range events {
		out = append(out, e.String())
	}
	return out
}
