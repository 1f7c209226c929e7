package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/host"
)

// Host is the Registry of a worker. Its methods may be called concurrently.
type Host struct {
	cfg     Config
	log     *slog.Logger
	entries map[string]*entry // by class

	mu struct {
		sync.Mutex
		running map[Plugin]struct{}
		closed  bool
	}
}

// entry is one plugin.
type entry struct {
	Info
	connector sdk.Connector // of a built-in
	checksum  []byte        // of an executable
}

// New returns a Host with the built-ins and the plugins of the directory, each of which is started once to ask for its
// spec. A plugin of the directory that does not start is logged and left out; one whose name is taken is an error.
func New(ctx context.Context, cfg Config) (*Host, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	h := &Host{cfg: cfg, log: cfg.Log, entries: map[string]*entry{}}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	h.mu.running = map[Plugin]struct{}{}
	for _, c := range cfg.Builtins {
		if err := h.add(&entry{Info: info(c.Spec(), ""), connector: c}); err != nil {
			return nil, err
		}
	}
	found, err := h.scan(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range found {
		if err := h.add(e); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func info(s sdk.Spec, path string) Info {
	return Info{Class: s.Name, Type: s.Kind, Version: s.Version, Aliases: s.Aliases, Doc: s.Doc, Path: path}
}

func (h *Host) add(e *entry) error {
	if e.Class == "" || e.Type != sdk.SourceKind && e.Type != sdk.SinkKind {
		return fmt.Errorf("plugins: %s has no name or no kind", cmp.Or(e.Path, e.Class))
	}
	for _, name := range append([]string{e.Class}, e.Aliases...) {
		if other := h.find(name); other != nil {
			return fmt.Errorf("plugins: the name %s is claimed by %s and by %s", name, describe(other), describe(e))
		}
	}
	h.entries[e.Class] = e
	return nil
}

func describe(e *entry) string {
	if e.Path != "" {
		return e.Path
	}
	return "the built-in " + e.Class
}

// List returns all plugins, sorted by class.
func (h *Host) List() []Info {
	var out []Info
	for _, e := range h.entries {
		out = append(out, e.Info)
	}
	slices.SortFunc(out, func(a, b Info) int { return cmp.Compare(a.Class, b.Class) })
	return out
}

// Lookup finds a plugin by class, alias, or the simple name of an alias.
func (h *Host) Lookup(class string) (Info, bool) {
	if e := h.find(class); e != nil {
		return e.Info, true
	}
	return Info{}, false
}

func (h *Host) find(class string) *entry {
	if e := h.entries[class]; e != nil {
		return e
	}
	var simple *entry
	for _, e := range h.entries {
		for _, a := range e.Aliases {
			if a == class {
				return e
			}
			// As Kafka Connect: PostgresConnector also by Postgres.
			if short := a[strings.LastIndexByte(a, '.')+1:]; short == class || strings.TrimSuffix(short, "Connector") == class {
				simple = e
			}
		}
	}
	return simple
}

// Launch starts a plugin for one connector, whose tasks share it. ctx bounds the start only.
func (h *Host) Launch(ctx context.Context, class string) (Plugin, error) {
	e := h.find(class)
	if e == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknownClass, class)
	}
	p, err := h.start(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", e.Class, err)
	}
	h.mu.Lock()
	closed := h.mu.closed
	if !closed {
		h.mu.running[p] = struct{}{}
	}
	h.mu.Unlock()
	if closed {
		return nil, errors.Join(ErrClosed, p.Close())
	}
	return &launched{Plugin: p, host: h}, nil
}

func (h *Host) start(ctx context.Context, e *entry) (Plugin, error) {
	if e.connector != nil && h.cfg.Isolation == IsolationNone {
		return host.InProcess(e.connector), nil
	}
	opts := host.Options{Env: environment(h.cfg.PassEnv), Log: h.log.With("plugin", e.Class)}
	if e.connector != nil {
		opts.Env = environment(append(slices.Clone(h.cfg.PassEnv), h.cfg.BuiltinEnv...))
		opts.Path, opts.Args = h.builtinCommand(e.Class)
	} else {
		opts.Path, opts.Checksum = e.Path, e.checksum
	}
	return host.Launch(ctx, opts)
}

// launched takes itself off the host's list.
type launched struct {
	Plugin
	host *Host
}

func (l *launched) Close() error {
	l.host.mu.Lock()
	delete(l.host.mu.running, l.Plugin)
	l.host.mu.Unlock()
	return l.Plugin.Close()
}

// Close ends all plugins still running; idempotent.
func (h *Host) Close() error {
	h.mu.Lock()
	h.mu.closed = true
	var all []Plugin
	for p := range h.mu.running {
		all = append(all, p)
	}
	clear(h.mu.running)
	h.mu.Unlock()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() { errs[i] = p.Close() })
	}
	wg.Wait()
	return errors.Join(errs...)
}
