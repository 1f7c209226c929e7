package worker

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/sdk"
)

// rows is a source of n records of a typed schema, as fast as they are taken.
type rows struct {
	n      int
	schema *sdk.Schema
	data   []byte
	acked  chan int
}

func newRows(n int) *rows {
	s := sdk.StructOf("shop.public.orders.Value", sdk.Field{Name: "id", Schema: sdk.Of(sdk.Int64)}, sdk.Field{Name: "customer", Schema: sdk.Of(sdk.Int32)},
		sdk.Field{Name: "note", Schema: sdk.OptionalOf(sdk.String)}, sdk.Field{Name: "price", Schema: sdk.Of(sdk.Float64)},
		sdk.Field{Name: "at", Schema: &sdk.Schema{Type: sdk.Int64, Name: "io.debezium.time.MicroTimestamp", Version: 1}})
	var a sdk.Appender
	a.Int(123456789)
	a.Int(4711)
	a.Present()
	a.String(strings.Repeat("n", 60))
	a.Float64(19.99)
	a.Int(1700000000123456)
	return &rows{n: n, schema: s, data: a.Buf, acked: make(chan int, 1)}
}

func (r *rows) Spec() sdk.Spec                                         { return sdk.Spec{Name: "rows", Kind: sdk.SourceKind} }
func (r *rows) Validate(context.Context, sdk.Config) []sdk.ConfigError { return nil }
func (r *rows) Tasks(context.Context, sdk.Config, int) ([]sdk.Config, error) {
	return []sdk.Config{{}}, nil
}
func (r *rows) NewSource() sdk.Source { return &rowsTask{r: r} }

type rowsTask struct {
	r    *rows
	sent int
	part *sdk.SourcePartition
	recs []sdk.Record
}

func (t *rowsTask) Open(context.Context, sdk.SourceEnv) error {
	t.part, t.recs = sdk.NewSourcePartition(`{"server":"shop"}`), make([]sdk.Record, 2048)
	return nil
}

func (t *rowsTask) Read(ctx context.Context) ([]sdk.Record, error) {
	n := min(len(t.recs), t.r.n-t.sent)
	if n == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for i := range n {
		t.recs[i] = sdk.Record{Topic: "shop.public.orders", Partition: sdk.AnyPartition, Timestamp: 1700000000123,
			Key: sdk.Value{Schema: t.r.schema.Fields[0].Schema, Data: t.r.data[:4]}, Value: sdk.Value{Schema: t.r.schema, Data: t.r.data},
			Source: t.part, SourceOffset: []byte(`{"lsn":123}`)}
	}
	t.sent += n
	t.recs[n-1].SourceOffset = fmt.Appendf(nil, `{"n":%d}`, t.sent)
	return t.recs[:n], nil
}

func (t *rowsTask) Ack(_ context.Context, at sdk.PartitionOffset) error {
	if string(at.Offset) == fmt.Sprintf(`{"n":%d}`, t.r.n) {
		t.r.acked <- t.r.n
	}
	return nil
}
func (t *rowsTask) Close(context.Context) error { return nil }

// BenchmarkSource moves b.N rows from a source into a topic, through the JSON converter. VARVE_BENCH_BOOTSTRAP names the
// brokers.
func BenchmarkSource(b *testing.B) {
	bootstrap := strings.Fields(os.Getenv("VARVE_BENCH_BOOTSTRAP"))
	if len(bootstrap) == 0 {
		b.Skip("VARVE_BENCH_BOOTSTRAP names no broker to measure with")
	}
	for _, schemas := range []string{"false", "true"} {
		b.Run("schemas="+schemas, func(b *testing.B) {
			src := newRows(b.N)
			cfg := DefaultConfig()
			prefix := fmt.Sprintf("bench-%d-", time.Now().UnixNano())
			cfg.Topics.ConfigTopic, cfg.Topics.OffsetTopic, cfg.Topics.StatusTopic = prefix+"configs", prefix+"offsets", prefix+"status"
			w, err := Open(b.Context(), cfg, Env{Log: testLog(), Plugins: fakePlugins{"rows": src}, Client: []kgo.Opt{kgo.SeedBrokers(bootstrap...)}})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = w.Close(context.Background()) }()
			var before, after syscall.Rusage
			b.ResetTimer()
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
			var m0, m1 runtime.MemStats
			runtime.ReadMemStats(&m0)
			if _, err := w.Create(b.Context(), "rows", map[string]string{"connector.class": "rows", "value.converter": "json", "value.converter.schemas.enable": schemas}, ""); err != nil {
				b.Fatal(err)
			}
			<-src.acked
			runtime.ReadMemStats(&m1)
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
			cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-µs/row")
			b.ReportMetric(float64(m1.Mallocs-m0.Mallocs)/float64(b.N), "mallocs/row")
		})
	}
}
