package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/varvehq/varve/sdk/wire"
	"github.com/varvehq/varve/sdk/wire/wirepb"
)

// Options say how to start a plugin.
type Options struct {
	Path string
	Args []string
	// Env is the plugin's whole environment.
	Env []string
	// Checksum is the SHA-256 that the file at Path must have; nil: not checked.
	Checksum []byte
	Log      *slog.Logger
	// StartTimeout bounds the time to the handshake; 0: 30 s.
	StartTimeout time.Duration
	// MaxRecord is max.record.bytes; 0: wire.DefaultMaxRecord. Credit is how far a source may run ahead; 0: wire.DefaultCredit.
	MaxRecord, Credit int
	// PingInterval and PingTimeout decide when a plugin counts as hung: no answer to its health check; 0: 5 s and 20 s.
	PingInterval, PingTimeout time.Duration
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.StartTimeout, 30*time.Second)
	def(&o.PingInterval, 5*time.Second)
	def(&o.PingTimeout, 20*time.Second)
	if o.MaxRecord == 0 {
		o.MaxRecord = wire.DefaultMaxRecord
	}
	if o.Credit == 0 {
		o.Credit = wire.DefaultCredit
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// exitGrace is how long a plugin may take to exit after its standard input was closed.
const exitGrace = 2 * time.Second

// remote is a plugin in a process of its own.
type remote struct {
	opts   Options
	child  *child
	client *goplugin.Client
	api    wirepb.ConnectorClient
	tail   *stderrTail
	dir    string   // private folder of its socket
	lock   *os.File // held as long as dir is in use

	background sync.WaitGroup
	closing    chan struct{}
	once       sync.Once

	mu struct {
		sync.Mutex
		why   error // why we killed it
		tasks map[*stream]struct{}
	}
}

// Launch starts a plugin and shakes hands with it. ctx bounds the start only.
func Launch(ctx context.Context, opts Options) (Plugin, error) {
	p, err := launch(ctx, opts.withDefaults())
	if err != nil {
		return nil, err
	}
	return p, nil
}

func launch(ctx context.Context, opts Options) (*remote, error) {
	if err := verify(opts); err != nil {
		return nil, err
	}
	dir, lock, err := socketDir()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(opts.Path, opts.Args...)
	p := &remote{opts: opts, child: newChild(cmd), dir: dir, lock: lock, closing: make(chan struct{})}
	p.mu.tasks = map[*stream]struct{}{}
	p.tail = newStderrTail(p.child.exited, p.slowed())
	tlsConfig, cert, err := mutualTLS()
	if err != nil {
		removeSocketDir(dir, lock)
		return nil, err
	}
	p.client = goplugin.NewClient(p.clientConfig(tlsConfig, cert))
	stop := context.AfterFunc(ctx, func() { p.kill(errors.New("it was not ready in time")) })
	err = p.connect()
	if !stop() && err != nil {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("start %s: %w%s", filepath.Base(opts.Path), err, p.lastWords())
	}
	p.background.Go(p.supervise)
	return p, nil
}

// verify compares the executable's checksum. The plugin directory must not be writable by others for this to mean much.
func verify(opts Options) error {
	if opts.Checksum == nil {
		return nil
	}
	ok, err := (&goplugin.SecureConfig{Checksum: bytes.Clone(opts.Checksum), Hash: sha256.New()}).Check(opts.Path)
	if err != nil {
		return fmt.Errorf("checksum of %s: %w", opts.Path, err)
	}
	if !ok {
		return fmt.Errorf("%s has changed since it was found: %w", opts.Path, goplugin.ErrChecksumsDoNotMatch)
	}
	return nil
}

func (p *remote) clientConfig(tlsConfig *tls.Config, cert string) *goplugin.ClientConfig {
	return &goplugin.ClientConfig{
		HandshakeConfig:  wire.Handshake,
		VersionedPlugins: map[int]goplugin.PluginSet{wire.ProtocolVersion: {wire.PluginName: &wire.GRPCPlugin{}}},
		RunnerFunc: func(_ hclog.Logger, spec *exec.Cmd, _ string) (runner.Runner, error) {
			p.child.cmd.Env = append(append([]string{}, p.opts.Env...), append(spec.Env, "PLUGIN_CLIENT_CERT="+cert)...)
			return p.child, nil
		},
		TLSConfig:        tlsConfig,
		SkipHostEnv:      true,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: p.dir},
		StartTimeout:     p.opts.StartTimeout,
		Stderr:           p.tail,
		SyncStdout:       &printed{log: p.opts.Log, tail: p.tail},
		SyncStderr:       &printed{log: p.opts.Log, tail: p.tail},
		Logger:           &slogAdapter{log: p.opts.Log},
		GRPCDialOptions: []grpc.DialOption{
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxMessage), grpc.MaxCallSendMsgSize(wire.MaxMessage)),
			grpc.WithInitialWindowSize(wire.Window), grpc.WithInitialConnWindowSize(4 * wire.Window),
			grpc.WithReadBufferSize(128 << 10), grpc.WithWriteBufferSize(128 << 10),
		},
	}
}

// slowed logs, at most every ten seconds, that the plugin logs faster than it may.
func (p *remote) slowed() func(time.Duration) {
	var last atomic.Int64
	return func(time.Duration) {
		now, before := time.Now().UnixNano(), last.Load()
		if now-before >= int64(10*time.Second) && last.CompareAndSwap(before, now) {
			p.opts.Log.Warn("the plugin logs without measure and is slowed down", "bytes_per_second", logRate)
		}
	}
}

func (p *remote) connect() error {
	c, err := p.client.Client()
	if err != nil {
		return err
	}
	api, err := c.Dispense(wire.PluginName)
	if err != nil {
		return err
	}
	p.api = api.(wirepb.ConnectorClient)
	return nil
}

// supervise kills a plugin that does not answer its health check, and ends its tasks when it is gone.
func (p *remote) supervise() {
	c, err := p.client.Client()
	if err != nil {
		return
	}
	health := grpc_health_v1.NewHealthClient(c.(*goplugin.GRPCClient).Conn)
	ticker := time.NewTicker(p.opts.PingInterval)
	defer ticker.Stop()
	for {
		select {
		case <-p.closing:
			return
		case <-p.child.exited:
			p.opts.Log.Error("plugin process has ended", "status", p.child.status())
			return
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), p.opts.PingTimeout)
		_, err := health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: goplugin.GRPCServiceName})
		if ctx.Err() != nil {
			p.kill(fmt.Errorf("%w: killed since it did not answer for %s", ErrHung, p.opts.PingTimeout))
		} else if err != nil {
			p.opts.Log.Warn("health check of the plugin failed", "err", err)
		}
		cancel()
	}
}

// kill ends the process at once; the first reason is the one that its tasks report.
func (p *remote) kill(why error) {
	p.mu.Lock()
	if p.mu.why == nil {
		p.mu.why = why
	}
	p.mu.Unlock()
	_ = p.child.Kill(context.Background())
}

func (p *remote) lastWords() string {
	if s := p.tail.Tail(); s != "" {
		return "\nits last output:\n" + s
	}
	return ""
}

func (p *remote) Done() <-chan struct{} { return p.child.exited }

// Close hangs up: the plugin exits on the end of its standard input, or is killed.
func (p *remote) Close() error {
	p.once.Do(func() {
		close(p.closing)
		p.mu.Lock()
		tasks := p.mu.tasks
		p.mu.tasks = nil
		p.mu.Unlock()
		for t := range tasks {
			t.fail(ErrClosed)
		}
		if p.child.pid.Load() != 0 {
			p.child.hangUp()
			timer := time.NewTimer(exitGrace)
			select {
			case <-p.child.exited:
			case <-timer.C:
				p.kill(fmt.Errorf("%w: killed since it did not exit", ErrHung))
			}
			timer.Stop()
		}
		p.client.Kill()
		p.background.Wait()
		removeSocketDir(p.dir, p.lock)
	})
	return nil
}
