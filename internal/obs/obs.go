// Package obs makes a process observable: its logger, its metrics registry and the admin listener with /metrics, /health,
// /ready and /debug/pprof. It knows no component; components are given a logger and a registerer.
package obs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewLogger returns a logger that writes to w, and its level, which may be changed at any time. level is debug, info, warn or
// error; format is text or json.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, *slog.LevelVar, error) {
	l := &slog.LevelVar{}
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, nil, fmt.Errorf("log.level: %q is none of debug, info, warn, error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), l, nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), l, nil
	}
	return nil, nil, fmt.Errorf("log.format: %q is none of text, json", format)
}

// NewRegistry returns a registry with the metrics of the process and of the Go runtime.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	return r
}

// Admin serves the admin endpoints until it is closed.
type Admin struct {
	server http.Server
	addr   string
	ready  atomic.Bool
	done   chan struct{}
}

// ServeAdmin listens on addr and serves. /ready answers 503 until SetReady(true); /health answers 200 while the process
// serves at all.
func ServeAdmin(addr string, gatherer prometheus.Gatherer, log *slog.Logger) (*Admin, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("admin.listen: %w", err)
	}
	a := &Admin{addr: l.Addr().String(), done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "healthy") })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if a.ready.Load() {
			answer(w, http.StatusOK, "ready")
			return
		}
		answer(w, http.StatusServiceUnavailable, "starting")
	})
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	a.server = http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(a.done)
		if err := a.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("admin listener ended", "error", err)
		}
	}()
	return a, nil
}

func answer(w http.ResponseWriter, code int, status string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, "{\"status\":%q}\n", status)
}

// Addr is where the admin endpoints are, host:port.
func (a *Admin) Addr() string { return a.addr }

// SetReady sets what /ready answers.
func (a *Admin) SetReady(ready bool) { a.ready.Store(ready) }

// Close ends the listener and waits for calls under way, within ctx.
func (a *Admin) Close(ctx context.Context) error {
	a.ready.Store(false)
	err := a.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, a.server.Close())
	}
	<-a.done
	return err
}
