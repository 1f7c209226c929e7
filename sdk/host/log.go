package host

import (
	"bytes"
	"context"
	"io"
	"log"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// slogAdapter lets go-plugin log to slog. Its own messages, of no use to a user, go to debug; a plugin's lines, which
// come through a named sub-logger, keep their level.
type slogAdapter struct {
	log    *slog.Logger
	name   string
	plugin bool
	args   []any
}

var _ hclog.Logger = (*slogAdapter)(nil)

func level(l hclog.Level) slog.Level {
	switch l {
	case hclog.Trace:
		return slog.LevelDebug - 4
	case hclog.Debug:
		return slog.LevelDebug
	case hclog.Warn:
		return slog.LevelWarn
	case hclog.Error:
		return slog.LevelError
	}
	return slog.LevelInfo
}

func (a *slogAdapter) Log(l hclog.Level, msg string, args ...any) {
	at := level(l)
	if !a.plugin {
		at = min(at, slog.LevelDebug)
	}
	if !a.log.Enabled(context.Background(), at) {
		return
	}
	kept := make([]any, 0, len(args))
	for i := 0; i+1 < len(args); i += 2 {
		if args[i] != "timestamp" { // the line gets ours
			kept = append(kept, args[i], args[i+1])
		}
	}
	a.log.Log(context.Background(), at, msg, kept...)
}

func (a *slogAdapter) Trace(msg string, args ...any) { a.Log(hclog.Trace, msg, args...) }
func (a *slogAdapter) Debug(msg string, args ...any) { a.Log(hclog.Debug, msg, args...) }
func (a *slogAdapter) Info(msg string, args ...any)  { a.Log(hclog.Info, msg, args...) }
func (a *slogAdapter) Warn(msg string, args ...any)  { a.Log(hclog.Warn, msg, args...) }
func (a *slogAdapter) Error(msg string, args ...any) { a.Log(hclog.Error, msg, args...) }

func (a *slogAdapter) IsTrace() bool { return a.log.Enabled(context.Background(), slog.LevelDebug-4) }
func (a *slogAdapter) IsDebug() bool { return a.log.Enabled(context.Background(), slog.LevelDebug) }
func (a *slogAdapter) IsInfo() bool  { return a.log.Enabled(context.Background(), slog.LevelInfo) }
func (a *slogAdapter) IsWarn() bool  { return a.log.Enabled(context.Background(), slog.LevelWarn) }
func (a *slogAdapter) IsError() bool { return a.log.Enabled(context.Background(), slog.LevelError) }

func (a *slogAdapter) ImpliedArgs() []any { return a.args }

func (a *slogAdapter) With(args ...any) hclog.Logger {
	c := *a
	c.log, c.args = a.log.With(args...), append(append([]any{}, a.args...), args...)
	return &c
}

func (a *slogAdapter) Name() string { return a.name }

// Named is what go-plugin calls for the plugin's lines, and for its stdio service.
func (a *slogAdapter) Named(name string) hclog.Logger {
	c := *a
	c.name, c.plugin = name, name != "stdio"
	return &c
}

func (a *slogAdapter) ResetNamed(name string) hclog.Logger { return a.Named(name) }
func (a *slogAdapter) SetLevel(hclog.Level)                {}

func (a *slogAdapter) GetLevel() hclog.Level {
	switch {
	case a.IsTrace():
		return hclog.Trace
	case a.IsDebug():
		return hclog.Debug
	case a.IsInfo():
		return hclog.Info
	case a.IsWarn():
		return hclog.Warn
	}
	return hclog.Error
}

func (a *slogAdapter) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(a.log.Handler(), slog.LevelDebug)
}

func (a *slogAdapter) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return io.Discard }

// printed logs, line by line, what a plugin prints to its standard output or error after the handshake.
type printed struct {
	log  *slog.Logger
	tail *stderrTail
	line []byte
}

func (p *printed) Write(b []byte) (int, error) {
	p.line = append(p.line, b...)
	for {
		i := bytes.IndexByte(p.line, '\n')
		if i < 0 && len(p.line) > tailBytes {
			i = len(p.line) - 1
		}
		if i < 0 {
			return len(b), nil
		}
		p.log.Info("the plugin printed", "line", string(bytes.TrimRight(p.line[:i+1], "\r\n")))
		_, _ = p.tail.Write(p.line[:i+1])
		p.line = append(p.line[:0], p.line[i+1:]...)
	}
}
