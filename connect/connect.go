// Package connect is the Kafka-Connect-compatible worker as one component: it composes the internal topics (topics), the
// task life cycle (worker) and the REST interface (rest). It speaks only the Kafka protocol to the brokers, so it runs
// equally against Varve, Apache Kafka and others. It promises that a source is told to forget only what is durable, and
// that a sink's offsets are committed only as far as the sink says that its records are durable. It never imports the broker.
package connect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/connect/plugin"
	"github.com/varvehq/varve/connect/rest"
	"github.com/varvehq/varve/connect/worker"
)

// Env is what a Connect is given from outside.
type Env struct {
	Log        *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics are published
	// Plugins are the connectors; the caller closes them after Close.
	Plugins plugin.Registry
	// Version and Commit of the binary, for REST.
	Version, Commit string
	// Level is the log level that REST may change; nil: it may not.
	Level *slog.LevelVar
}

// Config of the component.
type Config struct {
	// Bootstrap are the brokers' addresses, host:port.
	Bootstrap []string
	// Listen is the address of the REST interface, host:port; port 0 lets the system choose.
	Listen string
	// Worker configures tasks and internal topics. An empty WorkerID becomes the REST interface's address.
	Worker worker.Config
	// Client are further options of every Kafka client, for TLS and SASL.
	Client []kgo.Opt
}

// DefaultConfig is the embedded worker's: REST on 127.0.0.1:8083, brokers at 127.0.0.1:9092.
func DefaultConfig() Config {
	w := worker.DefaultConfig()
	w.WorkerID = ""
	return Config{Bootstrap: []string{"127.0.0.1:9092"}, Listen: "127.0.0.1:8083", Worker: w}
}

// Validate names the first field that cannot be used.
func (c Config) Validate() error {
	if len(c.Bootstrap) == 0 {
		return errors.New("connect.bootstrap: at least one broker address is needed")
	}
	for _, b := range c.Bootstrap {
		if _, _, err := net.SplitHostPort(b); err != nil {
			return fmt.Errorf("connect.bootstrap: %w", err)
		}
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("connect.listen: %w", err)
	}
	w := c.Worker
	if w.WorkerID == "" {
		w.WorkerID = c.Listen
	}
	if err := w.Validate(); err != nil {
		return fmt.Errorf("connect.%w", err)
	}
	return nil
}

// Connect is a running worker.
type Connect struct {
	log    *slog.Logger
	addr   string
	server *http.Server
	worker *worker.Worker
	served chan struct{}

	closing  sync.Once
	closeErr error
}

// Open creates the internal topics where they are missing, replays them, starts the connectors found there, and serves
// REST. ctx bounds the start only.
func Open(ctx context.Context, cfg Config, env Env) (*Connect, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if env.Plugins == nil {
		return nil, errors.New("connect: no plugins")
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("connect.listen: %w", err)
	}
	c := &Connect{log: env.Log, addr: ln.Addr().String(), served: make(chan struct{})}
	if cfg.Worker.WorkerID == "" {
		cfg.Worker.WorkerID = c.addr
	}
	client := append([]kgo.Opt{kgo.SeedBrokers(cfg.Bootstrap...), kgo.SoftwareNameAndVersion("varve-connect", softwareVersion(env.Version)), kgo.DisableClientMetrics()}, cfg.Client...)
	c.worker, err = worker.Open(ctx, cfg.Worker, worker.Env{Log: env.Log, Registerer: env.Registerer, Plugins: env.Plugins, Client: client})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect: %w", err), ln.Close())
	}
	c.server = &http.Server{
		Handler:           rest.Handler(rest.Env{Worker: c.worker, Log: env.Log, Version: env.Version, Commit: env.Commit, Level: env.Level}),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	go func() {
		defer close(c.served)
		if err := c.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			c.log.Error("Connect REST interface ended", "err", err)
		}
	}()
	return c, nil
}

// softwareVersion is a version as ApiVersions takes it (KIP-511): letters, digits, dots and dashes, at both ends no dash or dot.
func softwareVersion(v string) string {
	v = strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, v), "-.")
	if v == "" {
		return "dev"
	}
	return v
}

// Addr is the REST interface's address, host:port.
func (c *Connect) Addr() string { return c.addr }

// Worker is the worker behind the REST interface.
func (c *Connect) Worker() *worker.Worker { return c.worker }

// requestGrace is how long requests under way may take once the worker closes.
const requestGrace = 2 * time.Second

// Close ends REST, then stops the tasks gracefully within ctx, then the clients. It is idempotent.
func (c *Connect) Close(ctx context.Context) error {
	c.closing.Do(func() {
		graceful, cancel := context.WithTimeout(ctx, requestGrace)
		defer cancel()
		if c.server.Shutdown(graceful) != nil {
			c.closeErr = c.server.Close() // what a request began on the config topic is done or not, as its answer would have said
		}
		<-c.served
		c.closeErr = errors.Join(c.closeErr, c.worker.Close(ctx))
	})
	return c.closeErr
}
