package postgrescdc

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/varvehq/varve/sdk"
)

// cpu is the processor time of this process so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// drain reads n records and acknowledges as it goes.
func drain(b *testing.B, tk *task, n int) {
	b.Helper()
	ctx := context.Background()
	start, used := time.Now(), cpu()
	bytes, got := 0, 0
	for got < n {
		recs, err := tk.Read(ctx)
		if err != nil {
			b.Fatal(err)
		}
		for i := range recs {
			bytes += len(recs[i].Key.Data) + len(recs[i].Value.Data) + len(recs[i].SourceOffset)
		}
		got += len(recs)
		if err := tk.Ack(ctx, sdk.PartitionOffset{Offset: recs[len(recs)-1].SourceOffset}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(got)/time.Since(start).Seconds(), "rows/s")
	b.ReportMetric(float64((cpu()-used).Nanoseconds())/float64(got)/1000, "µs-cpu/row")
	b.ReportMetric(float64(bytes)/float64(got), "B/row")
	b.ReportMetric(0, "ns/op")
}

const narrow = "(id bigint PRIMARY KEY, a int, b int, c text, ts timestamptz)"

func fill(d *database, table string, from, to int) {
	d.exec(fmt.Sprintf("INSERT INTO %s SELECT i, i %% 1000, i * 7 %% 100003, substr(md5(i::text), 1, 20), now() + i * interval '1 ms' "+
		"FROM generate_series(%d, %d) i", table, from, to))
}

func openBench(b *testing.B, cfg sdk.Config) *task {
	b.Helper()
	r := startTask(b, cfg, nil)
	return r.task
}

func BenchmarkSnapshot(b *testing.B) {
	for _, threads := range []string{"1", "2"} {
		b.Run("threads="+threads, func(b *testing.B) {
			d := newDatabase(b)
			const rows = 500_000
			d.exec("CREATE TABLE n " + narrow)
			fill(d, "n", 1, rows)
			d.exec("VACUUM ANALYZE n")
			for b.Loop() {
				b.StopTimer()
				tk := openBench(b, d.config("snapshot.mode", "always", "snapshot.max.threads", threads))
				b.StartTimer()
				drain(b, tk, rows)
				_ = tk.Close(context.Background())
			}
		})
	}
}

func BenchmarkDrain(b *testing.B) {
	d := newDatabase(b)
	const txs, perTx = 3000, 100
	d.exec("CREATE TABLE d "+narrow, `CREATE PROCEDURE churn(n int, base int) LANGUAGE plpgsql AS $$ DECLARE k bigint; BEGIN
 FOR k IN 0..n-1 LOOP
  INSERT INTO d SELECT i, i % 1000, i * 7 % 100003, substr(md5(i::text), 1, 20), clock_timestamp() FROM generate_series(base + k*60, base + k*60 + 59) i;
  UPDATE d SET b = b + 1, ts = clock_timestamp() WHERE id BETWEEN base + k*60 AND base + k*60 + 29;
  DELETE FROM d WHERE id BETWEEN base + k*60 AND base + k*60 + 9;
  COMMIT;
 END LOOP; END $$`)
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		cfg := d.config("snapshot.mode", "no_data", "tombstones.on.delete", "false")
		r := startTask(b, cfg, nil)
		r.stop()
		d.exec(fmt.Sprintf("CALL churn(%d, %d)", txs, 1+i*txs*60))
		tk := openBench(b, cfg)
		b.StartTimer()
		drain(b, tk, txs*perTx)
		_ = tk.Close(context.Background())
		b.StopTimer()
		d.exec("SELECT pg_drop_replication_slot('slot_" + d.name + "')")
		b.StartTimer()
	}
}
