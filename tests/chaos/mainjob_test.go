//go:build chaos

package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/varvehq/varve/cmd/varve/demo/job"
	"github.com/varvehq/varve/tests/harness"
	"github.com/varvehq/varve/tests/postgres"
	"github.com/varvehq/varve/tests/s3server"
)

var duckproof = flag.String("duckproof", "", "program that folds Parquet files with DuckDB")

// size is how much the main job does.
type size struct {
	rows    int
	outage  time.Duration // how long the store is down
	between int           // changes that are let go by before each kill, at most
	pace    time.Duration // between two transactions of the load
}

// TestMainJobUnderKills runs the demo's job while the table changes all the time. The server is killed by SIGKILL in the
// snapshot, in the stream, between a segment's PUT and its manifest, and twice at the close of a Parquet file: before the
// store has it, and when it has it and the answer is on its way; and the store is down for a while. In the end the topic
// has every change, repeated only as at-least-once allows, and what a reader saw meanwhile is there; topic, Parquet files
// and table have one content; the Parquet files hold each record once; the archive is without fault. No plugin outlives
// its server.
func TestMainJobUnderKills(t *testing.T) {
	r := newRun(t)
	r.snapshot()
	type point struct {
		name string
		kill func(name string)
	}
	points := []point{
		{"streaming", r.inStream},
		{"between a segment's PUT and its manifest", func(name string) { r.atTrap(name, newTrap(false, betweenSegmentAndManifest)) }},
		{"close of a Parquet file, before its PUT", func(name string) { r.atTrap(name, newTrap(false, atParquetFile)) }},
		{"close of a Parquet file, after its PUT", func(name string) { r.atTrap(name, newTrap(true, atParquetFile)) }},
	}
	r.rng.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	down := r.rng.Intn(len(points) + 1)
	for i, p := range points {
		if i == down {
			r.outage()
		}
		p.kill(p.name)
	}
	if down == len(points) {
		r.outage()
	}
	r.finish()
	r.prove()
	r.print()
}

// run is one run of the job.
type run struct {
	t      *testing.T
	size   size
	seed   int64
	rng    *rand.Rand
	mark   string
	began  time.Time
	s3     *s3server.Server
	gate   *gate
	tap    *tap
	server *harness.Process
	job    *job.Job
	watch  *watcher
	sql    *pgx.Conn // to look at the slot

	stopLoad context.CancelFunc
	loaded   chan error // what the load ended with

	kills   []kill
	summary [][2]string
}

// orphaned is the line of the summary about the segment whose manifest was not written.
const orphaned = "segment without a manifest"

// kill is what is known of one.
type kill struct {
	point, inFlight string
	at, back, gone  time.Duration
	plugins         int
}

func newRun(t *testing.T) *run {
	r := &run{t: t, began: time.Now(), seed: runSeed(), size: size{rows: 100_000, outage: 20 * time.Second, between: 10_000, pace: 40 * time.Millisecond}}
	if testing.Short() {
		r.size = size{rows: 15_000, outage: 3 * time.Second, between: 1000, pace: 80 * time.Millisecond}
	}
	r.rng = rand.New(rand.NewSource(r.seed))
	t.Logf("seed %d, %d rows", r.seed, r.size.rows)
	pg, err := postgres.Start(t.Context(), postgres.Options{Fsync: true, Settings: map[string]string{"wal_level": "logical"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.check(pg.Stop()) })
	r.s3 = s3server.ForTest(t, s3server.Options{})
	r.gate = openGate(t, r.s3.Endpoint())
	for _, v := range r.s3.Env() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	bin, err := harness.Binary()
	r.check(err)
	var bucket string
	if bucket = strings.Replace(r.s3.URL("chaos"), portOf(r.s3.Endpoint()), portOf(r.gate.addr), 1); bucket == r.s3.URL("chaos") {
		t.Fatal("the bucket's URL does not lead through the gate")
	}
	r.mark = fmt.Sprintf("%d-%d", os.Getpid(), r.seed)
	r.server = harness.StartProcess(t, harness.ProcessOptions{Bucket: bucket, Env: []string{marker + "=" + r.mark}, Config: `broker:
  properties:
    log.retention.check.interval.ms: "500"
    remote.log.manager.task.interval.ms: "500"
    group.initial.rebalance.delay.ms: "0"
    group.min.session.timeout.ms: "1000"
connect:
  plugin_env: [` + marker + `]
`})
	r.job = &job.Job{
		Kafka: r.server.Kafka, Connect: r.server.Connect, Binary: bin, Bucket: bucket, Partitions: 4, Prover: *duckproof, Dir: t.TempDir(),
		TopicConfig: map[string]string{"segment.ms": "1500"},
		// A sink that was killed is a member of its group until its session ends; the next one gets its partitions then.
		SinkConfig: map[string]string{"consumer.override.session.timeout.ms": "4000", "consumer.override.heartbeat.interval.ms": "1000"},
	}
	r.openTable(pg)
	return r
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// openTable fills the table, and puts the tap between it and its connector.
func (r *run) openTable(pg *postgres.Server) {
	ctx := r.t.Context()
	var err error
	r.job.Source, err = job.OpenSource(ctx, pg.URL(), r.seed)
	r.check(err)
	r.t.Cleanup(func() { r.check(r.job.Source.Close(context.Background())) })
	r.check(r.job.Source.Load(ctx, r.size.rows))
	r.sql, err = pgx.Connect(ctx, pg.URL())
	r.check(err)
	r.t.Cleanup(func() { _ = r.sql.Close(context.Background()) })
	var bytes int64
	r.check(r.sql.QueryRow(ctx, "SELECT sum(octet_length(t::text)) FROM "+job.TableName+" t").Scan(&bytes))
	r.tap = openTap(r.t, net.JoinHostPort("127.0.0.1", fmt.Sprint(pg.Port())), bytes*3/4)
	r.job.Postgres = strings.Replace(pg.URL(), fmt.Sprint(pg.Port()), portOf(r.tap.addr), 1)
}

// check ends the test where err is not nil.
func (r *run) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// log says what happens, with the time since the start.
func (r *run) log(format string, args ...any) {
	r.t.Logf("[%5.1fs] %s", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// load changes the table, a transaction of a hundred changes at a time, until it is stopped.
func (r *run) load() {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.stopLoad, r.loaded = cancel, make(chan error, 1)
	r.t.Cleanup(cancel)
	go func() {
		pace := time.NewTicker(r.size.pace)
		defer pace.Stop()
		for {
			select {
			case <-ctx.Done():
				r.loaded <- nil
				return
			case <-pace.C:
			}
			// Without ctx: a transaction of which it is not known whether it was committed could not be counted.
			if err := r.job.Source.Change(context.Background(), 100); err != nil {
				r.loaded <- err
				return
			}
		}
	}()
}

// snapshot starts everything and kills the server within the snapshot. The table changes from the first record on.
func (r *run) snapshot() {
	ctx := r.t.Context()
	adm, err := r.job.Admin()
	r.check(err)
	defer adm.Close()
	r.check(r.job.CreateTopic(ctx, adm))
	r.watch, err = watch(r.job)
	r.check(err)
	r.t.Cleanup(r.watch.stop)
	r.check(r.job.StartSource(ctx))
	r.check(r.job.StartSink(ctx, 3000))
	least := int64(r.size.rows) * int64(10+r.rng.Intn(30)) / 100
	deadline := time.Now().Add(time.Minute)
	for n := int64(0); n < least; {
		if n, err = job.Records(ctx, adm); err != nil || time.Now().After(deadline) {
			r.t.Fatalf("%d of %d rows after a minute; %v", n, least, err)
		}
		if n > 0 && r.stopLoad == nil {
			r.load()
		}
		if n >= int64(r.size.rows) {
			r.t.Fatal("the snapshot was over before the kill")
		}
		if n >= least {
			r.kill("snapshot", fmt.Sprintf("%d of %d rows in the topic", n, r.size.rows))
		}
	}
}

// kill kills the server, looks for plugins that outlive it, and starts it again.
func (r *run) kill(point, what string) {
	r.t.Helper()
	requests := r.gate.requests()
	plugins := marked(r.t, r.mark, r.server.PID())
	at := time.Since(r.began)
	r.server.Kill9()
	gone := wantGone(r.t, r.mark)
	if len(plugins) < 2 {
		r.t.Errorf("%d plugin processes ran at the kill; the two connectors have one each", len(plugins))
	}
	k := kill{point: point, at: at, gone: gone, plugins: len(plugins)}
	k.inFlight = fmt.Sprintf("%s; %s not confirmed to PostgreSQL", what, r.unconfirmed())
	if len(requests) > 0 {
		k.inFlight += "; requests to the store: " + strings.Join(requests, ", ")
	}
	r.log("killed: %s (seed %d); in flight: %s; %d plugins, the last seen %s after", point, r.seed, k.inFlight, k.plugins, gone.Round(time.Millisecond))
	select {
	case <-r.tap.opened:
	default:
		close(r.tap.opened)
	}
	back := time.Now()
	r.server.Restart(r.t)
	r.wait("the Connect interface", func() (bool, error) { return r.connectUp(), nil })
	k.back = time.Since(back)
	r.kills = append(r.kills, k)
}

// unconfirmed is how much log PostgreSQL keeps for the connector.
func (r *run) unconfirmed() (size string) {
	r.check(r.sql.QueryRow(context.Background(), "SELECT coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)), 0)::int8 || ' bytes of log' "+
		"FROM pg_replication_slots WHERE slot_name = $1", job.SlotName).Scan(&size))
	return size
}

// confirmed is how far the connector has confirmed its slot.
func (r *run) confirmed() (at string) {
	r.check(r.sql.QueryRow(context.Background(), "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", job.SlotName).Scan(&at))
	return at
}

func (r *run) connectUp() bool {
	res, err := http.Get("http://" + r.server.Connect + "/health")
	if err != nil {
		return false
	}
	return res.Body.Close() == nil && res.StatusCode == http.StatusOK
}

func (r *run) wait(what string, f func() (bool, error)) {
	r.t.Helper()
	r.check(job.Until(r.t.Context(), what, f))
}

// running waits until the stream goes on behind what is there now, and both connectors are well.
func (r *run) running() {
	before := r.confirmed()
	r.wait("the stream to go on", func() (bool, error) {
		for _, name := range []string{job.SourceJob, job.SinkJob} {
			if err := r.job.Failed(r.t.Context(), name); err != nil {
				return false, err
			}
		}
		return r.confirmed() != before, nil
	})
}

// inStream kills the server after some more changes have come through the stream.
func (r *run) inStream(point string) {
	r.running()
	ctx := r.t.Context()
	adm, err := r.job.Admin()
	r.check(err)
	defer adm.Close()
	began, err := job.Records(ctx, adm)
	r.check(err)
	n, least := began, began+1+r.rng.Int63n(int64(r.size.between))
	deadline := time.Now().Add(time.Minute)
	for n < least {
		if n, err = job.Records(ctx, adm); err != nil || time.Now().After(deadline) {
			r.t.Fatalf("%d of %d records after a minute; %v", n, least, err)
		}
	}
	r.kill(point, fmt.Sprintf("%d records in the topic, %d of them since the stream went on", n, n-began))
}

// atTrap kills the server when it has sent the request that the trap holds.
func (r *run) atTrap(point string, tr *trap) {
	r.running()
	r.gate.set(tr)
	select {
	case what := <-tr.caught:
		r.kill(point, what)
	case <-time.After(time.Minute):
		r.t.Fatalf("%s: no such request within a minute", point)
	}
	close(tr.release)
	if segment, _, ok := strings.Cut(r.kills[len(r.kills)-1].inFlight, segmentStored); ok {
		r.summary = append(r.summary, [2]string{orphaned, segment})
	}
}

// outage stops the store; the server goes on without it, and catches up.
func (r *run) outage() {
	r.running()
	ctx := r.t.Context()
	adm, err := r.job.Admin()
	r.check(err)
	defer adm.Close()
	before, err := job.Records(ctx, adm)
	r.check(err)
	r.gate.shut()
	r.check(r.s3.Halt())
	r.log("the S3 server is stopped for %s", r.size.outage)
	time.Sleep(r.size.outage) // the fault itself
	meanwhile, err := job.Records(ctx, adm)
	r.check(err)
	if meanwhile == before {
		r.t.Error("nothing was written while the store was down: local service must go on")
	}
	r.check(r.s3.Restart(ctx))
	r.gate.reopen(r.t)
	manifests, files := r.gate.count("manifest"), r.gate.count("parquet")
	r.wait("segments and Parquet files to reach the store again", func() (bool, error) {
		return r.gate.count("manifest") > manifests && r.gate.count("parquet") > files, nil
	})
	r.running()
	r.summary = append(r.summary, [2]string{"S3 server stopped", fmt.Sprintf("for %s; %d records were written meanwhile", r.size.outage, meanwhile-before)})
}

// finish ends the load and waits until all of it is in the topic, the bucket and the Parquet files.
func (r *run) finish() {
	r.running()
	r.stopLoad()
	r.check(<-r.loaded)
	r.log("the table has had %s", r.job.Source.Counts)
	var end string
	r.check(r.sql.QueryRow(r.t.Context(), "SELECT pg_current_wal_lsn()::text").Scan(&end))
	r.wait("the slot to be confirmed up to the last change", func() (done bool, err error) {
		err = r.sql.QueryRow(r.t.Context(), "SELECT confirmed_flush_lsn >= $1::pg_lsn FROM pg_replication_slots WHERE slot_name = $2", end, job.SlotName).Scan(&done)
		if err == nil && !done {
			err = r.job.Failed(r.t.Context(), job.SourceJob)
		}
		return done, err
	})
	r.check(r.job.WaitSink(r.t.Context()))
	r.log("all of it is confirmed, and in the Parquet files")
}
