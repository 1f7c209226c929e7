package host

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/wire"
)

// both runs a test against the connector in process and in a process of its own.
func both(t *testing.T, name string, test func(t *testing.T, p Plugin)) {
	t.Run("process", func(t *testing.T) { test(t, start(t, testOptions(t, name))) })
	t.Run("in process", func(t *testing.T) {
		var c sdk.Connector = testConnector{}
		if name == "sink" {
			c = testSinkConnector{}
		}
		p := InProcess(c)
		t.Cleanup(func() { _ = p.Close() })
		test(t, p)
	})
}

func env(cfg sdk.Config, offsets ...sdk.PartitionOffset) sdk.SourceEnv {
	return sdk.SourceEnv{Env: sdk.Env{Connector: "c", Task: 1, Config: cfg, Generation: 7}, Offsets: offsets}
}

func at(n int64) sdk.PartitionOffset {
	return sdk.PartitionOffset{Source: sdk.NewSourcePartition(`{"n":"one"}`), Offset: []byte(`{"n":` + strconv.FormatInt(n, 10) + `}`)}
}

func TestConnectorCalls(t *testing.T) {
	both(t, "source", func(t *testing.T, p Plugin) {
		ctx := bounded(t)
		spec, err := p.Spec(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(testConnector{}.Spec(), spec); diff != "" {
			t.Error(diff)
		}
		errs, err := p.Validate(ctx, sdk.Config{"size": "-1"})
		want := []sdk.ConfigError{
			{Key: "count", Message: `Missing required configuration "count" which has no default value.`},
			{Key: "size", Message: "Invalid value -1 for configuration size: Value must be at least 0"},
		}
		if diff := cmp.Diff(want, errs); diff != "" || err != nil {
			t.Error(diff, err)
		}
		errs, err = p.Validate(ctx, sdk.Config{"count": "1", "mode": "invalid"})
		if diff := cmp.Diff([]sdk.ConfigError{{Key: "mode", Message: "no such mode"}}, errs); diff != "" || err != nil {
			t.Error(diff, err)
		}
		tasks, err := p.Tasks(ctx, sdk.Config{"count": "1"}, 3)
		if diff := cmp.Diff([]sdk.Config{{"count": "1"}, {"max": "3"}}, tasks); diff != "" || err != nil {
			t.Error(diff, err)
		}
		if _, err = p.Tasks(ctx, sdk.Config{"mode": "retry"}, 1); !errors.Is(err, sdk.ErrRetriable) || err.Error() != "not yet" {
			t.Errorf("Tasks: %v", err)
		}
		f, err := p.Features(ctx, sdk.Config{})
		if diff := cmp.Diff(Features{Watches: true, AltersOffsets: true}, f); diff != "" || err != nil {
			t.Error(diff, err)
		}
		if err := p.AlterOffsets(ctx, nil, []sdk.PartitionOffset{{Source: sdk.NewSourcePartition(`{}`)}}); err != nil {
			t.Error(err)
		}
		if err := p.AlterOffsets(ctx, nil, []sdk.PartitionOffset{at(3)}); err == nil || !strings.Contains(err.Error(), "cannot be") {
			t.Errorf("AlterOffsets: %v", err)
		}
	})
}

func TestWatch(t *testing.T) {
	both(t, "source", func(t *testing.T, p Plugin) {
		ctx, cancel := context.WithCancel(bounded(t))
		asked := 0
		if err := p.Watch(ctx, sdk.Config{}, func() { asked++; cancel() }); err != nil || asked != 1 {
			t.Errorf("Watch: %v, asked %d times", err, asked)
		}
		if err := p.Watch(bounded(t), sdk.Config{"mode": "watch-fails"}, func() {}); err == nil || err.Error() != "lost sight" {
			t.Errorf("Watch: %v", err)
		}
	})
}

// readAll reads until there are n records, and checks that they are numbered from first on.
func readAll(t testing.TB, task SourceTask, first, n int64) {
	t.Helper()
	ctx := bounded(t)
	for want := first; want < first+n; {
		recs, err := task.Read(ctx)
		if err != nil {
			t.Fatalf("after %d records: %v", want-first, err)
		}
		for i := range recs {
			r := &recs[i]
			if varint(r.Value.Data) != want || string(r.Key.Data) != strconv.FormatInt(want, 10) || r.Topic != "t" ||
				r.Partition != sdk.AnyPartition || r.Timestamp != 1000+want || string(r.SourceOffset) != string(at(want).Offset) ||
				string(r.Source.JSON) != `{"n":"one"}` || r.Value.Schema.Name != "Row" || r.Key.Schema != sdk.TextSchema {
				t.Fatalf("record %d is %+v", want, *r)
			}
			want++
		}
	}
}

func TestSource(t *testing.T) {
	both(t, "source", func(t *testing.T, p Plugin) {
		ctx := bounded(t)
		task, err := p.OpenSource(ctx, env(sdk.Config{"count": "20000", "mode": "close-says"}, at(9)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if !task.(BatchEnder).BatchEnd() {
				t.Error("the last records do not end a batch")
			}
		}()
		readAll(t, task, 10, 19990)
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		if _, err := task.Read(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Read with nothing to read: %v", err)
		}
		if err := task.Ack(ctx, at(19999)); err != nil {
			t.Error(err)
		}
		if err := task.Rewind(ctx, []sdk.PartitionOffset{at(99)}); err != nil {
			t.Fatal(err)
		}
		readAll(t, task, 100, 500)
		if err := task.Rewind(ctx, []sdk.PartitionOffset{at(15999)}); err != nil {
			t.Fatal(err)
		}
		readAll(t, task, 16000, 4000)
		if err := task.Close(ctx); err == nil || err.Error() != `closed after {"n":19999}` {
			t.Errorf("Close: %v", err)
		}
	})
}

func TestSourceErrors(t *testing.T) {
	both(t, "source", func(t *testing.T, p Plugin) {
		ctx := bounded(t)
		if _, err := p.OpenSource(ctx, env(sdk.Config{})); err == nil || !strings.Contains(err.Error(), "Missing required") {
			t.Errorf("Open: %v", err)
		}
		if _, err := p.OpenSource(ctx, env(sdk.Config{"count": "1", "mode": "open-fails"})); !errors.Is(err, sdk.ErrRetriable) {
			t.Errorf("Open: %v", err)
		}
		if _, err := p.OpenSource(ctx, env(sdk.Config{"count": "1", "mode": "open-panics"})); err == nil || !strings.Contains(err.Error(), "nil map") {
			t.Errorf("Open: %v", err)
		}
		if _, err := p.OpenSink(ctx, sdk.SinkEnv{}); err == nil || !strings.Contains(err.Error(), "no sink") {
			t.Errorf("OpenSink: %v", err)
		}
		task, err := p.OpenSource(ctx, env(sdk.Config{"count": "5", "mode": "retriable", "batch": "1"}))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			if _, err := task.Read(ctx); !errors.Is(err, sdk.ErrRetriable) || !strings.HasPrefix(err.Error(), "failure") {
				t.Fatalf("read %d: %v", i, err)
			}
			readAll(t, task, int64(i), 1)
		}
		if err := task.Close(ctx); err != nil {
			t.Error(err)
		}
		task, err = p.OpenSource(ctx, env(sdk.Config{"count": "5", "mode": "panics"}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := task.Read(ctx); err == nil || !strings.Contains(err.Error(), "index out of range") {
			t.Errorf("Read: %v", err)
		}
		if err := task.Close(ctx); err != nil {
			t.Error(err)
		}
		task, err = p.OpenSource(ctx, env(sdk.Config{"count": "5", "mode": "ack-fails"}))
		if err != nil {
			t.Fatal(err)
		}
		if err := task.Ack(ctx, at(1)); err == nil || err.Error() != "slot is gone" {
			t.Errorf("Ack: %v", err)
		}
		if err := task.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestLargestRecordPasses(t *testing.T) {
	p := start(t, testOptions(t, "source"))
	ctx := bounded(t)
	size := wire.DefaultMaxRecord - 64
	task, err := p.OpenSource(ctx, env(sdk.Config{"count": "3", "size": strconv.Itoa(size)}))
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, task, 0, 3)
	if err := task.Close(ctx); err != nil {
		t.Error(err)
	}
	task, err = p.OpenSource(ctx, env(sdk.Config{"count": "1", "size": strconv.Itoa(size + 100)}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := task.Read(ctx); err == nil || !strings.Contains(err.Error(), wire.ErrRecordTooLarge.Error()) {
		t.Errorf("Read: %v", err)
	}
	if err := task.Close(ctx); err != nil {
		t.Error(err)
	}
}

func TestSink(t *testing.T) {
	both(t, "sink", func(t *testing.T, p Plugin) {
		ctx := bounded(t)
		var mu sync.Mutex
		var events []string
		note := func(s string) { mu.Lock(); defer mu.Unlock(); events = append(events, s) }
		task, err := p.OpenSink(ctx, sdk.SinkEnv{
			Env:          sdk.Env{Connector: "c", Config: sdk.Config{"seek": "yes", "mode": "retriable"}, Generation: 3},
			Seek:         func(tp sdk.TopicPartition, o int64) { note("seek " + tp.Topic + " " + strconv.FormatInt(o, 10)) },
			Pause:        func(tps ...sdk.TopicPartition) { note("pause " + tps[0].Topic) },
			Resume:       func(tps ...sdk.TopicPartition) { note("resume " + tps[0].Topic) },
			RequestFlush: func() { note("flush") },
			Report: func(r *sdk.Record, err error) error {
				note("report " + strconv.FormatInt(r.Offset, 10) + " " + err.Error())
				if r.Offset == 666 {
					return errors.New("errors.tolerance is none")
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		tp := sdk.TopicPartition{Topic: "a", Partition: 3}
		if err := task.Assign(ctx, []sdk.Assignment{{TopicPartition: tp, Offset: 5, TopicID: "the-id"}}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"seek a 15", "pause a", "resume a", "flush"}, events); diff != "" {
			t.Error(diff)
		}
		recs := []sdk.Record{
			{Topic: "a", Partition: 3, Offset: 15, Value: sdk.TextValue("x"), Headers: []sdk.Header{{Key: "h", Value: sdk.RawBytes([]byte("v"))}}},
			{Topic: "a", Partition: 3, Offset: 16},
		}
		if err := task.Write(ctx, recs); !errors.Is(err, sdk.ErrRetriable) {
			t.Errorf("Write: %v", err)
		}
		if err := task.Write(ctx, recs); err != nil {
			t.Error(err)
		}
		if err := task.Write(ctx, []sdk.Record{{Topic: "a", Partition: 3, Offset: 666}}); err == nil || err.Error() != "errors.tolerance is none" {
			t.Errorf("Write: %v", err)
		}
		if diff := cmp.Diff([]string{"report 16 tombstone", "report 666 tombstone"}, events[4:]); diff != "" {
			t.Error(diff)
		}
		offsets, err := task.Flush(ctx)
		if diff := cmp.Diff(map[sdk.TopicPartition]int64{tp: 17}, offsets); diff != "" || err != nil {
			t.Error(diff, err)
		}
		if err := task.Tick(ctx); err != nil {
			t.Error(err)
		}
		if err := task.Revoke(ctx, []sdk.TopicPartition{tp}); err != nil {
			t.Error(err)
		}
		if offsets, err := task.Flush(ctx); len(offsets) > 0 || err != nil {
			t.Errorf("Flush: %v %v", offsets, err)
		}
		if err := task.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestSinkLargeBatchAndFailures(t *testing.T) {
	both(t, "sink", func(t *testing.T, p Plugin) {
		ctx := bounded(t)
		task, err := p.OpenSink(ctx, sdk.SinkEnv{})
		if err != nil {
			t.Fatal(err)
		}
		var recs []sdk.Record
		for i := range 40 {
			recs = append(recs, sdk.Record{Topic: "a", Offset: int64(i), Value: sdk.RawBytes(make([]byte, 500<<10))})
		}
		recs = append(recs, sdk.Record{Topic: "a", Offset: 40, Value: sdk.RawBytes(make([]byte, wire.DefaultMaxRecord-100))})
		if err := task.Write(ctx, recs); err != nil {
			t.Fatal(err)
		}
		offsets, err := task.Flush(ctx)
		if offsets[sdk.TopicPartition{Topic: "a"}] != 41 || err != nil {
			t.Errorf("Flush: %v %v", offsets, err)
		}
		if err := task.Close(ctx); err != nil {
			t.Error(err)
		}
		task, err = p.OpenSink(ctx, sdk.SinkEnv{Env: sdk.Env{Config: sdk.Config{"mode": "panics"}, Generation: 1}})
		if err != nil {
			t.Fatal(err)
		}
		if err := task.Write(ctx, recs[:1]); err == nil || !strings.Contains(err.Error(), "panicked") {
			t.Errorf("Write: %v", err)
		}
		if err := task.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestStrangersAreRefused dials the plugin's socket without the host's certificate.
func TestStrangersAreRefused(t *testing.T) {
	p := start(t, testOptions(t, "source")).(*remote)
	addr := p.client.ReattachConfig().Addr
	for name, cfg := range map[string]*tls.Config{
		"no certificate":    {InsecureSkipVerify: true},
		"other certificate": func() *tls.Config { c, _, _ := mutualTLS(); c.InsecureSkipVerify = true; return c }(),
	} {
		conn, err := tls.Dial(addr.Network(), addr.String(), cfg)
		if err == nil { // in TLS 1.3 the server's refusal comes with the first read
			_, err = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
		if err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// lines is a log handler that keeps messages.
type lines struct {
	slog.Handler
	note func(line string)
	mu   sync.Mutex
	seen []string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	l.seen = append(l.seen, text)
	if l.note != nil {
		l.note(text)
	}
	return nil
}
func (l *lines) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *lines) WithGroup(string) slog.Handler      { return l }
func (l *lines) all() []string                      { l.mu.Lock(); defer l.mu.Unlock(); return slices.Clone(l.seen) }

func TestLogs(t *testing.T) {
	log := &lines{}
	opts := testOptions(t, "source")
	opts.Log = slog.New(log)
	p := start(t, opts)
	ctx := bounded(t)
	task, err := p.OpenSource(ctx, env(sdk.Config{"count": "10", "mode": "prints"}))
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, task, 0, 10)
	if err := task.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	all := strings.Join(log.all(), "\n")
	for _, want := range []string{"INFO opened", "next=0", "password=[hidden]", "connector=c", "task=1", "DEBUG from the task"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
}

// TestLogFloodIsSlowedDown floods until the host has said so; the task can still be ended.
func TestLogFloodIsSlowedDown(t *testing.T) {
	ctx, told := context.WithCancel(bounded(t))
	log := &lines{note: func(l string) {
		if strings.Contains(l, "logs without measure") {
			told()
		}
	}}
	opts := testOptions(t, "source")
	opts.Log = slog.New(log)
	p := start(t, opts)
	flood, err := p.OpenSource(ctx, env(sdk.Config{"count": "10", "mode": "floods"}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := flood.Read(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Read: %v", err)
	}
	if err := flood.Close(bounded(t)); err != nil {
		t.Error(err)
	}
}

func TestLogRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slowed := 0
		tail := newStderrTail(make(chan struct{}), func(time.Duration) { slowed++ })
		line := []byte(strings.Repeat("x", 1024-lineCost))
		begun := time.Now()
		for n := 0; n < 2*logBurst; n += 1024 {
			_, _ = tail.Write(line)
			_, _ = tail.Write([]byte("\n"))
		}
		if took := time.Since(begun); took < 3500*time.Millisecond || took > 4500*time.Millisecond || slowed == 0 {
			t.Errorf("twice the burst took %s, slowed down %d times", took, slowed)
		}
		if got := tail.Tail(); len(got) > tailBytes || !strings.HasSuffix(got, "xxx") {
			t.Errorf("a tail of %d bytes", len(got))
		}
	})
}

func TestMetricsAndLag(t *testing.T) {
	p := start(t, testOptions(t, "source"))
	ctx := bounded(t)
	got := &gauges{v: map[string]float64{}}
	e := env(sdk.Config{"count": "10"})
	e.Metrics = got
	task, err := p.OpenSource(ctx, e)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := task.Ack(ctx, at(5)); err != nil {
			t.Fatal(err)
		}
	}
	task.(*remoteSource).fetchMetrics(ctx)
	if err := task.Ack(ctx, at(6)); err != nil {
		t.Fatal(err)
	}
	task.(*remoteSource).lastMetrics(ctx)
	if diff := cmp.Diff(map[string]float64{"opened": 1, "acked": 6, "acks": 4}, got.v); diff != "" {
		t.Error(diff)
	}
	if n, unit, ok := task.Lag(); n != 42 || unit != "rows" || !ok {
		t.Errorf("Lag: %d %s %t", n, unit, ok)
	}
	if err := task.Close(ctx); err != nil {
		t.Error(err)
	}
}

type gauges struct{ v map[string]float64 }

func (g *gauges) Set(name string, v float64) { g.v[name] = v }
func (g *gauges) Add(name string, v float64) { g.v[name] += v }

func BenchmarkSourceWire(b *testing.B) {
	for _, size := range []int{100, 1000, 10000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			p := start(b, testOptions(b, "source"))
			ctx := context.Background()
			task, err := p.OpenSource(ctx, env(sdk.Config{"count": strconv.Itoa(b.N), "size": strconv.Itoa(size)}))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; {
				recs, err := task.Read(ctx)
				if err != nil {
					b.Fatal(err)
				}
				n += len(recs)
			}
			b.StopTimer()
			if err := task.Close(ctx); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func BenchmarkSinkWire(b *testing.B) {
	p := start(b, testOptions(b, "sink"))
	ctx := context.Background()
	task, err := p.OpenSink(ctx, sdk.SinkEnv{})
	if err != nil {
		b.Fatal(err)
	}
	recs := make([]sdk.Record, 500)
	for i := range recs {
		recs[i] = sdk.Record{Topic: "t", Offset: int64(i), Value: sdk.RawBytes(make([]byte, 1000))}
	}
	b.SetBytes(1000)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += len(recs) {
		if err := task.Write(ctx, recs); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	if err := task.Close(ctx); err != nil {
		b.Fatal(err)
	}
}
