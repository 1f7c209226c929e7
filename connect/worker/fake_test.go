package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/varvehq/varve/connect/plugin"
	"github.com/varvehq/varve/connect/topics"
	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/host"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakePlugins runs connectors in process.
type fakePlugins map[string]sdk.Connector

func (f fakePlugins) List() []plugin.Info {
	var out []plugin.Info
	for name := range maps.Keys(f) {
		i, _ := f.Lookup(name)
		out = append(out, i)
	}
	return out
}

func (f fakePlugins) Lookup(class string) (plugin.Info, bool) {
	c, ok := f[class]
	if !ok {
		return plugin.Info{}, false
	}
	s := c.Spec()
	return plugin.Info{Class: class, Type: s.Kind, Version: s.Version}, true
}

func (f fakePlugins) Launch(_ context.Context, class string) (plugin.Plugin, error) {
	c, ok := f[class]
	if !ok {
		return nil, plugin.ErrUnknownClass
	}
	return host.InProcess(c), nil
}

// counter is a source of records 0, 1, 2, … that goes on behind its stored offset, up to its limit and then waits.
type counter struct {
	topic string
	value func(n int) sdk.Value // default: text of n

	mu struct {
		sync.Mutex
		limit  int
		opens  int
		acked  int // highest, -1
		back   bool
		open   int // tasks open now
		most   int
		change chan struct{}
	}
}

func newCounter(topic string, limit int) *counter {
	c := &counter{topic: topic}
	c.mu.limit, c.mu.acked, c.mu.change = limit, -1, make(chan struct{})
	return c
}

func (c *counter) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.mu.change)
	c.mu.change = make(chan struct{})
}

func (c *counter) Spec() sdk.Spec {
	return sdk.Spec{Name: "counter", Kind: sdk.SourceKind, Version: "1.0", Config: []sdk.ConfigDef{
		{Name: "secret", Type: sdk.TypePassword, HasDefault: true, Default: "", Importance: "HIGH"},
	}}
}

func (c *counter) Validate(_ context.Context, cfg sdk.Config) []sdk.ConfigError {
	if cfg["bad"] != "" {
		return []sdk.ConfigError{{Key: "bad", Message: "Invalid value " + cfg["bad"] + " for configuration bad"}}
	}
	return nil
}

func (c *counter) Tasks(_ context.Context, cfg sdk.Config, limit int) ([]sdk.Config, error) {
	if cfg["fail.tasks"] != "" {
		return nil, errors.New(cfg["fail.tasks"])
	}
	n, _ := strconv.Atoi(cfg["tasks"])
	tasks := make([]sdk.Config, max(n, 1))
	for i := range tasks {
		tasks[i] = sdk.Config{"task": strconv.Itoa(i)}
	}
	return tasks, nil
}

func (c *counter) NewSource() sdk.Source { return &counterTask{c: c} }

type counterTask struct {
	c    *counter
	part *sdk.SourcePartition
	next int
}

func (t *counterTask) Open(_ context.Context, env sdk.SourceEnv) error {
	t.part = sdk.NewSourcePartition(`{"task":` + strconv.Itoa(env.Task) + `}`)
	for _, o := range env.Offsets {
		if string(o.Source.JSON) == string(t.part.JSON) {
			n, err := strconv.Atoi(strings.Trim(string(o.Offset), `{}"n:`))
			if err != nil {
				return err
			}
			t.next = n + 1
		}
	}
	t.c.set(func() { t.c.mu.opens++; t.c.mu.open++; t.c.mu.most = max(t.c.mu.most, t.c.mu.open) })
	return nil
}

func (t *counterTask) Read(ctx context.Context) ([]sdk.Record, error) {
	for {
		t.c.mu.Lock()
		limit, change := t.c.mu.limit, t.c.mu.change
		t.c.mu.Unlock()
		if t.next < limit {
			var recs []sdk.Record
			for len(recs) < 10 && t.next < limit {
				v := sdk.TextValue(strconv.Itoa(t.next))
				if t.c.value != nil {
					v = t.c.value(t.next)
				}
				recs = append(recs, sdk.Record{Topic: t.c.topic, Partition: sdk.AnyPartition, Key: sdk.TextValue("k"), Value: v,
					Source: t.part, SourceOffset: []byte(`{"n":` + strconv.Itoa(t.next) + `}`)})
				t.next++
			}
			return recs, nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (t *counterTask) Ack(_ context.Context, at sdk.PartitionOffset) error {
	n, err := strconv.Atoi(strings.Trim(string(at.Offset), `{}"n:`))
	t.c.set(func() {
		t.c.mu.back = t.c.mu.back || n < t.c.mu.acked
		t.c.mu.acked = n
	})
	return err
}

func (t *counterTask) Close(context.Context) error {
	t.c.set(func() { t.c.mu.open-- })
	return nil
}

type counterState struct {
	acked, most int
	back        bool
}

func (c *counter) snapshot() counterState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return counterState{c.mu.acked, c.mu.most, c.mu.back}
}

// collector is a sink that remembers what it is given.
type collector struct {
	mu struct {
		sync.Mutex
		recs    []string // topic-partition@offset=value
		at      map[sdk.TopicPartition]int64
		writes  int
		onWrite func(s *collectorTask, recs []sdk.Record) error
		assigns []sdk.Assignment
		onAsgn  func(s *collectorTask, parts []sdk.Assignment)
		change  chan struct{}
	}
}

func newCollector() *collector {
	c := &collector{}
	c.mu.change = make(chan struct{})
	c.mu.at = map[sdk.TopicPartition]int64{}
	return c
}

func (c *collector) Spec() sdk.Spec {
	return sdk.Spec{Name: "collector", Kind: sdk.SinkKind, Version: "2.0"}
}
func (c *collector) Validate(context.Context, sdk.Config) []sdk.ConfigError { return nil }
func (c *collector) Tasks(_ context.Context, cfg sdk.Config, limit int) ([]sdk.Config, error) {
	tasks := make([]sdk.Config, limit)
	for i := range tasks {
		tasks[i] = cfg
	}
	return tasks, nil
}
func (c *collector) NewSink() sdk.Sink { return &collectorTask{c: c} }

type collectorTask struct {
	c   *collector
	env sdk.SinkEnv
}

func (t *collectorTask) Open(_ context.Context, env sdk.SinkEnv) error { t.env = env; return nil }
func (t *collectorTask) Assign(_ context.Context, parts []sdk.Assignment) error {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	t.c.mu.assigns = append(t.c.mu.assigns, parts...)
	if t.c.mu.onAsgn != nil {
		t.c.mu.onAsgn(t, parts)
	}
	return nil
}

func (t *collectorTask) Write(_ context.Context, recs []sdk.Record) error {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	defer func() { close(t.c.mu.change); t.c.mu.change = make(chan struct{}) }()
	t.c.mu.writes++
	if t.c.mu.onWrite != nil {
		if err := t.c.mu.onWrite(t, recs); err != nil {
			return err
		}
	}
	for _, r := range recs {
		t.c.mu.recs = append(t.c.mu.recs, fmt.Sprintf("%s-%d@%d=%s", r.Topic, r.Partition, r.Offset, r.Value.Data))
		t.c.mu.at[sdk.TopicPartition{Topic: r.Topic, Partition: r.Partition}] = r.Offset + 1
	}
	return nil
}

func (t *collectorTask) Flush(context.Context) (map[sdk.TopicPartition]int64, error) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	return maps.Clone(t.c.mu.at), nil
}
func (t *collectorTask) Revoke(context.Context, []sdk.TopicPartition) error { return nil }
func (t *collectorTask) Close(context.Context) error                        { return nil }

func (c *collector) records() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.mu.recs)
}

func (c *collector) assigned() []sdk.Assignment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.mu.assigns)
}

// await waits until f is true, woken by changes.
func (c *counter) await(t *testing.T, what string, f func() bool) {
	t.Helper()
	awaitChange(t, what, func() (bool, <-chan struct{}) { c.mu.Lock(); defer c.mu.Unlock(); return f(), c.mu.change })
}

func (c *collector) await(t *testing.T, what string, f func() bool) {
	t.Helper()
	awaitChange(t, what, func() (bool, <-chan struct{}) { c.mu.Lock(); defer c.mu.Unlock(); return f(), c.mu.change })
}

func awaitChange(t *testing.T, what string, f func() (bool, <-chan struct{})) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		ok, change := f()
		if ok {
			return
		}
		select {
		case <-change:
		case <-deadline:
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// bench is a worker over a fake cluster.
type bench struct {
	t       *testing.T
	cluster *kfake.Cluster
	client  []kgo.Opt
	plugins fakePlugins
	cl      *kgo.Client
	adm     *kadm.Client
	w       *Worker

	refusing atomic.Bool
}

func newBench(t *testing.T, plugins fakePlugins, opts ...kfake.Opt) *bench {
	t.Helper()
	c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1))...)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, cluster: c, client: []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}, plugins: plugins}
	if b.cl, err = kgo.NewClient(b.client...); err != nil {
		t.Fatal(err)
	}
	b.adm = kadm.NewClient(b.cl)
	b.open()
	t.Cleanup(func() {
		b.close()
		b.cl.Close()
		c.Close()
	})
	return b
}

func (b *bench) open() {
	b.t.Helper()
	cfg := DefaultConfig()
	cfg.FlushInterval = 20 * time.Millisecond
	cfg.Topics.OffsetPartitions, cfg.Topics.StatusPartitions = 2, 2
	cfg.Converters = map[string]string{"key.converter": "string", "value.converter": "string"}
	var err error
	b.w, err = Open(b.t.Context(), cfg, Env{Log: testLog(), Plugins: b.plugins, Client: b.client})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) close() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := b.w.Close(ctx); err != nil {
		b.t.Error(err)
	}
}

func (b *bench) create(name string, config map[string]string) {
	b.t.Helper()
	if _, err := b.w.Create(b.t.Context(), name, config, ""); err != nil {
		b.t.Fatal(err)
	}
}

// awaitState waits for the state of a connector (task -1) or a task, by following the status topic.
func (b *bench) awaitState(name string, task int, want topics.State) topics.Status {
	b.t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		st, _ := b.w.store.Status(topics.TaskID{Connector: name, Task: task})
		if st.State == want {
			return st
		}
		select {
		case <-tick.C:
		case <-deadline:
			b.t.Fatalf("%s task %d: state %q (%s), want %q", name, task, st.State, st.Trace, want)
		}
	}
}

// read returns the first n values of a topic.
func (b *bench) read(topic string, n int) []*kgo.Record {
	b.t.Helper()
	cl, err := kgo.NewClient(append(b.client, kgo.ConsumeTopics(topic))...)
	if err != nil {
		b.t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	var out []*kgo.Record
	for len(out) < n {
		fs := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			b.t.Fatalf("%s has %d records, want %d", topic, len(out), n)
		}
		out = append(out, fs.Records()...)
	}
	return out
}

func (b *bench) produce(topic string, n int, value func(i int) string) {
	b.t.Helper()
	var recs []*kgo.Record
	for i := range n {
		recs = append(recs, &kgo.Record{Topic: topic, Value: []byte(value(i))})
	}
	if err := b.cl.ProduceSync(b.t.Context(), recs...).FirstErr(); err != nil {
		b.t.Fatal(err)
	}
}

// testLog shows what the worker says under -v.
func testLog() *slog.Logger {
	if !testing.Verbose() {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}
