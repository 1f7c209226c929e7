package harness

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/broker"
	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/vfs"
)

// StopTimeout bounds an orderly stop.
const StopTimeout = 10 * time.Second

// Option changes how a node is started.
type Option func(*options)

type options struct {
	cfg broker.Config
	env broker.Env
}

// WithConfig changes the broker's configuration.
func WithConfig(f func(*broker.Config)) Option { return func(o *options) { f(&o.cfg) } }

// WithKafka sets a broker config by Kafka's name.
func WithKafka(name, value string) Option {
	return func(o *options) { o.cfg.Kafka[name] = value }
}

// WithFS keeps the node's data in fs.
func WithFS(fs vfs.FS) Option { return func(o *options) { o.env.FS = fs } }

// WithBucket gives the node a remote tier.
func WithBucket(b objstore.Bucket) Option {
	return func(o *options) { o.env.Bucket, o.env.BucketConfigured = b, true }
}

// WithClock replaces the node's clock.
func WithClock(now func() time.Time) Option { return func(o *options) { o.env.Clock = now } }

// WithLog sends the node's log to l; without it only a failed test shows it.
func WithLog(l *slog.Logger) Option { return func(o *options) { o.env.Log = l } }

func newOptions(t testing.TB, opts []Option) *options {
	o := &options{cfg: broker.DefaultConfig()}
	o.cfg.DataDir = t.TempDir()
	o.cfg.Listeners = []broker.Listener{{Name: "PLAINTEXT", Address: "127.0.0.1:0"}}
	o.cfg.Kafka = map[string]string{"group.initial.rebalance.delay.ms": "0"}
	o.env.FS = vfs.OS()
	o.env.Log = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelInfo}))
	for _, f := range opts {
		f(o)
	}
	return o
}

// testWriter writes log lines to the test's log.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Helper()
	w.t.Logf("%s", b[:max(len(b)-1, 0)])
	return len(b), nil
}

// Node is a broker in the test's process.
type Node struct {
	*broker.Broker
	Metrics *prometheus.Registry
	t       testing.TB
	opts    *options
	stopped bool
}

// Start starts a broker, on a port of the system's choice, with data in a folder of the test.
func Start(t testing.TB, opts ...Option) *Node {
	t.Helper()
	n := &Node{t: t, opts: newOptions(t, opts)}
	n.start()
	t.Cleanup(n.Stop)
	return n
}

func (n *Node) start() {
	n.t.Helper()
	n.Metrics = prometheus.NewRegistry()
	env := n.opts.env
	env.Metrics = n.Metrics
	b, err := broker.Open(n.t.Context(), n.opts.cfg, env)
	if err != nil {
		n.t.Fatalf("start broker: %v", err)
	}
	n.Broker, n.stopped = b, false
}

// Stop stops the broker in order. It is idempotent.
func (n *Node) Stop() {
	n.t.Helper()
	if n.stopped {
		return
	}
	n.stopped = true
	ctx, cancel := context.WithTimeout(context.Background(), StopTimeout)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		n.t.Errorf("stop broker: %v", err)
	}
}

// Restart stops the broker and starts it again on the same data and, where it can, the same port.
func (n *Node) Restart(opts ...Option) {
	n.t.Helper()
	addr := n.Addr().String()
	n.Stop()
	n.opts.cfg.Listeners[0].Address = addr
	for _, f := range opts {
		f(n.opts)
	}
	n.start()
}

// DataDir is the folder of the node's data.
func (n *Node) DataDir() string { return n.opts.cfg.DataDir }

// Bootstrap is the address clients connect to.
func (n *Node) Bootstrap() string { return n.Addr().String() }

// Client makes a client of the node that is closed with the test.
func (n *Node) Client(opts ...kgo.Opt) *kgo.Client { return NewClient(n.t, n.Bootstrap(), opts...) }

// Counter sums a counter or gauge over its labels; "name{label=value}" picks one.
func (n *Node) Counter(name string, labels ...string) float64 {
	n.t.Helper()
	families, err := n.Metrics.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			match := true
			for i := 0; i+1 < len(labels); i += 2 {
				found := false
				for _, l := range m.GetLabel() {
					found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
				}
				match = match && found
			}
			if match {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// NewClient makes a client that is closed with the test.
func NewClient(t testing.TB, bootstrap string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.RetryTimeout(20 * time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
