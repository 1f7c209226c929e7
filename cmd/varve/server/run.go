package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvehq/varve/broker"
	"github.com/varvehq/varve/broker/commitlog"
	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/cmd/varve/internal/builtin"
	"github.com/varvehq/varve/connect"
	"github.com/varvehq/varve/connect/plugin"
	"github.com/varvehq/varve/internal/lifecycle"
	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/open"
	"github.com/varvehq/varve/internal/obs"
	"github.com/varvehq/varve/internal/vfs"
)

// stopTimeout bounds the whole stop; what has not ended by then is cut off, as a kill would.
const stopTimeout = 30 * time.Second

// process is one running `varve server`.
type process struct {
	cfg      Config
	version  string
	log      *slog.Logger
	level    *slog.LevelVar
	registry *prometheus.Registry
	stack    lifecycle.Stack
	failed   chan error
	kafka    string // address of the own broker
	// addresses and folders that the process serves, as pairs for the log
	addresses []any
}

// run starts everything, waits for the end of ctx or a fatal failure, and stops everything.
func run(ctx context.Context, cfg Config, version string) error {
	log, level, err := obs.NewLogger(os.Stderr, cfg.Log.Level, cfg.Log.Format)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	p := &process{cfg: cfg, version: version, log: log, level: level, registry: obs.NewRegistry(), failed: make(chan error, 1)}
	began := time.Now()
	err = p.start(ctx)
	if err == nil {
		log.Info("varve is ready", append([]any{"version", version, "roles", strings.Join(cfg.Roles, ","),
			"took", time.Since(began).Round(time.Millisecond)}, p.addresses...)...)
		select {
		case <-ctx.Done():
			log.Info("stopping")
		case err = <-p.failed:
			log.Error("stopping after a failure", "error", err)
		}
	}
	stop, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return errors.Join(err, p.stack.Close(stop))
}

func (p *process) start(ctx context.Context) error {
	admin, err := obs.ServeAdmin(p.cfg.Admin.Listen, p.registry, p.log)
	if err != nil {
		if used := p.folderInUse(); used != nil {
			return used
		}
		return listenError(err, "--admin-listen")
	}
	p.stack.Push("admin", admin.Close)
	p.addresses = append(p.addresses, "metrics", "http://"+admin.Addr()+"/metrics")
	if p.cfg.has("broker") {
		if err := p.startBroker(ctx); err != nil {
			return listenError(err, "--listen")
		}
	}
	if p.cfg.has("connect") {
		if err := p.startConnect(ctx); err != nil {
			return listenError(err, "--connect-listen")
		}
	}
	admin.SetReady(true)
	return nil
}

// folderInUse reports that another server runs on the data folder: where an address is taken, that is the reason.
func (p *process) folderInUse() error {
	if !p.cfg.has("broker") {
		return nil
	}
	err := commitlog.InUse(vfs.OS(), filepath.ToSlash(filepath.Join(p.cfg.DataDir, "logs")))
	if !errors.Is(err, vfs.ErrLocked) {
		return nil
	}
	return storageError(err)
}

// listenError adds what to do where an address is taken.
func listenError(err error, flag string) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "listen" {
		return fmt.Errorf("%w\nif another program, perhaps another varve server, has this address, stop it or choose another with %s", err, flag)
	}
	return err
}

// storageError adds what to do about a data directory that cannot be used.
func storageError(err error) error {
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return fmt.Errorf("%w\nanother varve server runs on this folder: stop it, or choose another with --data-dir", err)
	case errors.Is(err, controller.ErrCorrupt):
		return fmt.Errorf("%w\nrestore the folder metadata of the data folder from a backup; without one, move the data folder away and start anew: what is in the bucket is read by `varve archive`", err)
	case errors.Is(err, objstore.ErrNoBucket):
		return fmt.Errorf("%w\nmake the bucket with the store's own tools, or mend its name in --bucket", err)
	}
	return err
}

func (p *process) startBroker(ctx context.Context) error {
	dir, err := filepath.Abs(p.cfg.DataDir)
	if err != nil {
		return err
	}
	url, err := p.cfg.bucketURL()
	if err != nil {
		return err
	}
	bucket, err := open.Bucket(ctx, url)
	if err != nil {
		return fmt.Errorf("bucket: %w", err)
	}
	bucket, err = objstore.WithMetrics(bucket, p.registry)
	if err != nil {
		return err
	}
	bucket = objstore.WithRetry(bucket, objstore.DefaultRetryConfig())
	p.stack.Push("bucket", func(context.Context) error { return bucket.Close() })

	cfg := broker.DefaultConfig()
	cfg.NodeID, cfg.Rack = p.cfg.Broker.NodeID, p.cfg.Broker.Rack
	cfg.DataDir = filepath.ToSlash(dir)
	cfg.Kafka = p.cfg.Broker.Properties
	cfg.Listeners = []broker.Listener{{Name: "PLAINTEXT", Address: p.cfg.Listen, Advertise: p.cfg.Advertise}}
	b, err := broker.Open(ctx, cfg, broker.Env{
		FS: vfs.OS(), BootID: vfs.BootID(), Bucket: bucket, BucketConfigured: p.cfg.bucketConfigured(),
		Log: p.log.With("component", "broker"), Metrics: p.registry,
		OnFailed: func(err error) {
			select {
			case p.failed <- err:
			default:
			}
		},
	})
	if err != nil {
		return storageError(err)
	}
	p.stack.Push("broker", b.Close)
	p.kafka = b.Addr().String()
	p.addresses = append(p.addresses, "kafka", p.kafka, "data", dir, "bucket", bucket.Name())
	return nil
}

// bucketEnv are the variables that the built-in connectors get: how they find their credentials for a bucket.
var bucketEnv = []string{
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE",
	"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_SESSION_NAME",
	"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CA_BUNDLE",
}

func (p *process) startConnect(ctx context.Context) error {
	log := p.log.With("component", "connect")
	pc := plugin.DefaultConfig()
	pc.Builtins, pc.Dir, pc.Log = builtin.Connectors(), p.cfg.Connect.PluginDir, log
	pc.PassEnv, pc.BuiltinEnv = p.cfg.Connect.PluginEnv, bucketEnv
	plugins, err := plugin.New(ctx, pc)
	if err != nil {
		return fmt.Errorf("connect.plugin_dir (--plugin-dir): %w", err)
	}
	p.stack.Push("plugins", func(context.Context) error { return plugins.Close() })

	cfg := connect.DefaultConfig()
	cfg.Listen = p.cfg.Connect.Listen
	cfg.Bootstrap = p.cfg.Connect.Bootstrap
	if len(cfg.Bootstrap) == 0 {
		cfg.Bootstrap = []string{p.kafka}
	}
	if err := cfg.Worker.Apply(p.cfg.Connect.Properties); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	c, err := connect.Open(ctx, cfg, connect.Env{Log: log, Registerer: p.registry, Plugins: plugins, Version: p.version, Level: p.level})
	if err != nil {
		return err
	}
	p.stack.Push("connect", c.Close)
	p.addresses = append(p.addresses, "connect", "http://"+c.Addr())
	return nil
}
