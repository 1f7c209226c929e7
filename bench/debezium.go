package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/varvehq/varve/tests/postgres"
)

// capture is a run against Debezium. Both workers write to the same Apache Kafka, so that nothing but they differs.
type capture struct {
	o        *options
	res      *results
	pg       *postgres.Server
	db       *pgx.Conn
	kafka    *broker
	kc       *client
	starters []workerStarter
	rows     int // of the snapshot
	warm     int // rows of the snapshot that warms a worker up
	txs      int // transactions of the drain, of txChanges each
	seen     int // records that a connector of a drain has sent before it
}

// What one transaction of the drain does, and how many records that makes: a delete is followed by a tombstone.
const (
	txInserts   = 60
	txUpdates   = 30
	txDeletes   = 10
	txChanges   = txInserts + txUpdates + txDeletes
	txRecords   = txChanges + txDeletes
	narrowTable = "(id bigint PRIMARY KEY, a int, b int, c text, ts timestamptz)"
	narrowRow   = "i, i%1000, i*7%100003, substr(md5(i::text),1,20), now() + i * interval '1 ms'"
)

var debeziumSettings = []string{
	"One Connect worker each, with one PostgreSQL " + postgres.Version + " (fsync on, synchronous_commit off) and one Apache Kafka " + kafkaVersion + " that both write to.",
	"Debezium " + debeziumVersion + " on Kafka Connect " + kafkaVersion + ", JVM flags of its own scripts (G1, heap 256 MB to 2 GB).",
	"Both: JSON without schemas, LZ4, one task, max.batch.size 8192, max.queue.size 32768, batch.size 262144, linger.ms 20: settings for throughput.",
	"A new worker for each round: start with one connector that streams, idle, a snapshot that warms up and does not count, the snapshot, the drain.",
	"CPU and memory are those of the worker with all its child processes; memory is the sum of their peaks. Rates are over the time from the request to the last record in the topic.",
}

// Marks of the comparison.
var debeziumMarks = []mark{
	{scenario: "snapshot", metric: "rows/s", bound: 3, atLeast: true},
	{scenario: "snapshot", metric: "CPU, µs/row", bound: 0.25},
	{scenario: "snapshot", metric: "peak memory, MB", bound: 0.25},
	{scenario: "drain", metric: "rows/s", bound: 3, atLeast: true},
	{scenario: "drain", metric: "CPU, µs/row", bound: 0.25},
	{scenario: "drain", metric: "peak memory, MB", bound: 0.25},
}

func runDebezium(ctx context.Context, o *options, res *results) (err error) {
	if err := installPeer(ctx, o, "debezium.sh"); err != nil {
		return err
	}
	res.Settings, res.marks = debeziumSettings, debeziumMarks
	c := &capture{o: o, res: res, starters: []workerStarter{startVarveWorker, startDebeziumWorker}, rows: 2_000_000, warm: 300_000, txs: 10_000, seen: 10}
	if o.quick {
		c.rows, c.warm, c.txs = 200_000, 50_000, 1000
	}
	res.Settings = append(res.Settings, fmt.Sprintf("Snapshot of %d narrow rows; drain of %d changes in %d transactions of %d inserts, %d updates and %d deletes.",
		c.rows, c.txs*txChanges, c.txs, txInserts, txUpdates, txDeletes))
	switch {
	case strings.Contains("debezium", o.side) && o.side != "":
		c.starters = c.starters[1:]
	case strings.Contains("varve", o.side) && o.side != "":
		c.starters = c.starters[:1]
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.open(ctx); err != nil {
		return err
	}
	if err := c.prepare(ctx); err != nil {
		return err
	}
	for round := 1; round <= o.rounds; round++ {
		for i := range c.starters {
			side := (i + round) % len(c.starters) // who goes first changes
			if err := c.round(ctx, side, round); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
	}
	return nil
}

// open starts the database and the broker.
func (c *capture) open(ctx context.Context) (err error) {
	c.pg, err = postgres.Start(ctx, postgres.Options{Fsync: true, Settings: map[string]string{"shared_buffers": "1GB", "max_wal_size": "16GB",
		"checkpoint_timeout": "30min", "synchronous_commit": "off", "max_replication_slots": "40", "max_wal_senders": "40"}})
	if err != nil {
		return err
	}
	if c.db, err = pgx.Connect(ctx, c.pg.URL()); err != nil {
		return err
	}
	if c.kafka, err = startKafka(c.o, filepath.Join(c.o.work, "kafka"), nil); err != nil {
		return err
	}
	if _, err := c.kafka.ready(ctx); err != nil {
		return err
	}
	c.kc, err = dial(c.kafka.addr)
	return err
}

func (c *capture) close() error {
	var errs []error
	if c.kc != nil {
		c.kc.close()
	}
	if c.kafka != nil {
		errs = append(errs, c.kafka.proc.stop())
	}
	if c.db != nil {
		errs = append(errs, c.db.Close(context.Background()))
	}
	if c.pg != nil {
		errs = append(errs, c.pg.Stop())
	}
	return errors.Join(errs...)
}

func (c *capture) exec(ctx context.Context, sql ...string) error {
	for _, q := range sql {
		if _, err := c.db.Exec(ctx, q); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	return nil
}

// config is a connector's, the same on both sides.
func (c *capture) config(name, table string, more map[string]string) map[string]string {
	conf := map[string]string{
		"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": "1",
		"database.hostname": "127.0.0.1", "database.port": fmt.Sprint(c.pg.Port()), "database.user": postgres.User,
		"database.password": postgres.Password, "database.dbname": postgres.Database,
		"topic.prefix": name, "plugin.name": "pgoutput", "slot.name": name, "publication.name": name,
		"publication.autocreate.mode": "filtered", "table.include.list": "public." + table,
		"max.batch.size": "8192", "max.queue.size": "32768", "producer.override.batch.size": "262144",
		"producer.override.linger.ms": "20", "producer.override.compression.type": "lz4",
	}
	maps.Copy(conf, more)
	return conf
}

var streamOnly = map[string]string{"snapshot.mode": "no_data"}

// start starts the worker of a side and waits until it takes connectors.
func (c *capture) start(ctx context.Context, side int) (*worker, error) {
	w, err := c.starters[side](c.o, c.kafka.addr)
	if err != nil {
		return nil, err
	}
	if err := w.listening(ctx); err != nil {
		return nil, errors.Join(err, w.proc.stop())
	}
	return w, nil
}

// prepare fills the tables, and makes the connectors whose backlog the drains work off: they are stopped while the changes
// are made. A connector that has drained its backlog is of no more use, so there is one for each round.
func (c *capture) prepare(ctx context.Context) error {
	fill := func(table string, rows int) []string {
		return []string{"CREATE TABLE " + table + " " + narrowTable,
			fmt.Sprintf("INSERT INTO %s SELECT %s FROM generate_series(1, %d) i", table, narrowRow, rows), "VACUUM ANALYZE " + table}
	}
	sql := append(append(fill("n", c.rows), fill("w", c.warm)...), fill("d", c.txs*txInserts)...)
	sql = append(sql, "CREATE TABLE up "+narrowTable, fmt.Sprintf(`CREATE PROCEDURE churn(n int) LANGUAGE plpgsql AS $$ DECLARE k bigint; BEGIN
 FOR k IN 0..n-1 LOOP
  INSERT INTO d SELECT %s FROM generate_series(n*%d + k*%d + 1, n*%d + (k+1)*%d) i;
  UPDATE d SET b = b + 1, ts = clock_timestamp() WHERE id BETWEEN n*%d + k*%d + 1 AND n*%d + k*%d + %d;
  DELETE FROM d WHERE id BETWEEN k*%d + 1 AND (k+1)*%d;
  COMMIT;
 END LOOP; END $$`, narrowRow, txInserts, txInserts, txInserts, txInserts, txInserts, txInserts, txInserts, txInserts, txUpdates, txDeletes, txDeletes))
	if err := c.exec(ctx, sql...); err != nil {
		return err
	}
	if err := c.eachWorker(ctx, c.attach); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "making the changes")
	if err := c.exec(ctx, fmt.Sprintf("CALL churn(%d)", c.txs), "CHECKPOINT"); err != nil {
		return err
	}
	return c.eachWorker(ctx, func(ctx context.Context, w *worker) error { // after the changes, so that its slot does not have them
		if err := w.put(ctx, "up_"+w.name, c.config("up_"+w.name, "up", streamOnly)); err != nil {
			return err
		}
		return c.untilActive(ctx, w, "up_"+w.name, true)
	})
}

// eachWorker starts the workers one after another and stops each when f is done with it.
func (c *capture) eachWorker(ctx context.Context, f func(context.Context, *worker) error) error {
	for side := range c.starters {
		w, err := c.start(ctx, side)
		if err != nil {
			return err
		}
		if err := errors.Join(f(ctx, w), w.proc.stop()); err != nil {
			return err
		}
	}
	return nil
}

func drainName(w *worker, round int) string { return fmt.Sprintf("d_%s_%d", w.name, round) }

// attach makes the connectors of a side's drains, lets each send something, so that its position is stored, and stops them.
func (c *capture) attach(ctx context.Context, w *worker) error {
	for round := 1; round <= c.o.rounds; round++ {
		name := drainName(w, round)
		if err := w.put(ctx, name, c.config(name, "d", streamOnly)); err != nil {
			return err
		}
		if err := c.untilActive(ctx, w, name, true); err != nil {
			return err
		}
	}
	last := c.txs * txInserts // rows that the changes leave alone
	if err := c.exec(ctx, fmt.Sprintf("UPDATE d SET a = a + 1 WHERE id > %d", last-c.seen)); err != nil {
		return err
	}
	for round := 1; round <= c.o.rounds; round++ {
		name := drainName(w, round)
		if _, _, err := c.untilEnd(ctx, w, name+".public.d", int64(c.seen)); err != nil {
			return err
		}
		if err := w.set(ctx, name, "stop"); err != nil {
			return err
		}
		if err := c.untilActive(ctx, w, name, false); err != nil {
			return err
		}
	}
	return nil
}

// untilActive waits until a slot streams, or is not in use. A slot is in use while it is made, too, and what is changed then it
// does not have.
func (c *capture) untilActive(ctx context.Context, w *worker, slot string, want bool) error {
	return w.proc.await(ctx, time.Minute, 10*time.Millisecond, "slot "+slot, func() error {
		var active, streams bool
		err := c.db.QueryRow(ctx, `SELECT s.active, coalesce(r.state = 'streaming', false) FROM pg_replication_slots s
 LEFT JOIN pg_stat_replication r ON r.pid = s.active_pid WHERE s.slot_name = $1`, slot).Scan(&active, &streams)
		if err != nil {
			return err
		}
		if want && !streams || !want && active {
			return fmt.Errorf("active is %v, streaming is %v", active, streams)
		}
		return nil
	})
}

// untilEnd waits until a topic has so many records, and tells when the first and the last were there.
func (c *capture) untilEnd(ctx context.Context, w *worker, topic string, records int64) (first, last time.Time, err error) {
	had := int64(-1)
	err = w.proc.await(ctx, 10*time.Minute, 20*time.Millisecond, "records in "+topic, func() error {
		n, err := c.kc.end(topic, 0)
		if err != nil {
			return err // it is made by the first record
		}
		if had < 0 {
			had, first = n, time.Now()
		}
		if n > had && had == int64(c.seen) { // the records of attach were there before
			first, had = time.Now(), n
		}
		if n < records {
			return fmt.Errorf("%d of %d records", n, records)
		}
		last = time.Now()
		return nil
	})
	return first, last, err
}

// round measures one side with a worker of its own.
func (c *capture) round(ctx context.Context, side, round int) (err error) {
	if err := c.exec(ctx, "CHECKPOINT"); err != nil {
		return err
	}
	w, err := c.starters[side](c.o, c.kafka.addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.proc.stop()) }()
	for _, step := range []struct {
		name string
		run  func(context.Context, *worker, int) (map[string]float64, error)
	}{{"start", c.starting}, {"snapshot", c.snapshot}, {"drain", c.drain}} {
		values, err := step.run(ctx, w, round)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", w.name, step.name, err)
		}
		c.res.add(sample{Scenario: step.name, Side: w.name, Round: round, Values: values})
		fmt.Fprintf(os.Stderr, "%d/%d %-10s %-9s %v\n", round, c.o.rounds, step.name, w.name, values)
	}
	return nil
}

// starting measures the start, to the moment where a known connector streams, and what a worker takes that has nothing to do.
func (c *capture) starting(ctx context.Context, w *worker, _ int) (map[string]float64, error) {
	if err := c.untilActive(ctx, w, "up_"+w.name, true); err != nil {
		return nil, err
	}
	took := time.Since(w.proc.started)
	cpu := w.proc.cpu()
	settle, idle := 3*time.Second, 5*time.Second
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	before := w.proc.cpu()
	if err := pause(ctx, idle); err != nil {
		return nil, err
	}
	rss, _ := w.proc.memory()
	return map[string]float64{"connector streams, ms": float64(took.Milliseconds()), "CPU, s": cpu.Seconds(), "idle RSS, MB": rss,
		"idle CPU, % of a core": (w.proc.cpu() - before).Seconds() / idle.Seconds() * 100}, nil
}

func (c *capture) snapshot(ctx context.Context, w *worker, round int) (map[string]float64, error) {
	if _, err := c.snapshotOf(ctx, w, fmt.Sprintf("w_%s_%d", w.name, round), "w", c.warm); err != nil {
		return nil, err
	}
	return c.snapshotOf(ctx, w, fmt.Sprintf("s_%s_%d", w.name, round), "n", c.rows)
}

func (c *capture) snapshotOf(ctx context.Context, w *worker, name, table string, rows int) (map[string]float64, error) {
	topic := name + ".public." + table
	values, err := c.measure(ctx, w, topic, int64(rows), rows, func() error { return w.put(ctx, name, c.config(name, table, nil)) })
	if err != nil {
		return nil, err
	}
	if err := w.remove(ctx, name); err != nil {
		return nil, err
	}
	return values, c.forget(ctx, w, name, topic)
}

func (c *capture) drain(ctx context.Context, w *worker, round int) (map[string]float64, error) {
	name := drainName(w, round)
	topic := name + ".public.d"
	values, err := c.measure(ctx, w, topic, int64(c.seen+c.txs*txRecords), c.txs*txChanges, func() error { return w.set(ctx, name, "resume") })
	if err != nil {
		return nil, err
	}
	if err := w.remove(ctx, name); err != nil {
		return nil, err
	}
	return values, c.forget(ctx, w, name, topic)
}

// measure begins something and waits until the topic has so many records.
func (c *capture) measure(ctx context.Context, w *worker, topic string, records int64, rows int, begin func() error) (map[string]float64, error) {
	if err := w.proc.resetPeak(); err != nil {
		return nil, err
	}
	before, start := w.proc.cpu(), time.Now()
	if err := begin(); err != nil {
		return nil, err
	}
	first, last, err := c.untilEnd(ctx, w, topic, records)
	if err != nil {
		return nil, err
	}
	used := w.proc.cpu() - before
	_, peak := w.proc.memory()
	return map[string]float64{
		"rows/s":                    float64(rows) / last.Sub(start).Seconds(),
		"rows/s, from the first on": float64(rows) / last.Sub(first).Seconds(),
		"CPU, µs/row":               float64(used.Microseconds()) / float64(rows),
		"peak memory, MB":           peak,
	}, nil
}

// forget drops what a connector that is gone has left.
func (c *capture) forget(ctx context.Context, w *worker, name, topic string) error {
	if err := c.untilActive(ctx, w, name, false); err != nil {
		return err
	}
	if err := c.exec(ctx, "SELECT pg_drop_replication_slot('"+name+"')", "DROP PUBLICATION IF EXISTS "+name); err != nil {
		return err
	}
	return c.kc.deleteTopic(topic)
}
