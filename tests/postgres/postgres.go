// Package postgres starts real PostgreSQL servers for tests, the demo and benchmarks. It owns a cache of the server's
// programs and of a freshly initialised data folder, and one process per Server, which listens on 127.0.0.1 only, is set up
// for logical replication and ends with the process that started it. Run by root, it starts the server as the user nobody
// (PostgreSQL refuses root). It never touches a server that it did not start.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Version is the PostgreSQL release that is started.
const Version = "18.4.0"

// User and Password are the superuser's; Database is what URL names.
const (
	User     = "postgres"
	Password = "postgres"
	Database = "postgres"
)

// Options say how a server is set up. The zero value is a throw-away server.
type Options struct {
	// Dir is the data folder: made and initialised if it does not exist, kept by Stop. Empty: a temporary folder that
	// Stop removes. Where root starts the server, the parents of Dir must be open to other users.
	Dir string
	// Port to listen on; 0 picks a free one.
	Port int
	// Fsync turns on durable commits; off, a server starts and loads faster.
	Fsync bool
	// Settings are server settings that go into its configuration, e.g. {"wal_level": "replica"}.
	Settings map[string]string
	// Log receives the server's log; nil keeps it in the data folder as server.log.
	Log io.Writer
}

// Server is a running server. Its methods are not safe for concurrent use.
type Server struct {
	opts      Options
	bin       string
	dir       string
	temporary bool
	port      int
	proc      *process
}

// Start starts a server and returns once it accepts connections. The first call on a machine fetches the programs.
func Start(ctx context.Context, o Options) (*Server, error) {
	c, err := openCache()
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, bin: c.bin, dir: o.Dir, port: o.Port}
	if s.dir == "" {
		parent, err := os.MkdirTemp("", "varve-postgres-")
		if err != nil {
			return nil, err
		}
		if err := os.Chmod(parent, 0o755); err != nil {
			return nil, err
		}
		s.dir, s.temporary = filepath.Join(parent, "data"), true
	}
	if s.dir, err = filepath.Abs(s.dir); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(s.dir, "PG_VERSION")); errors.Is(err, os.ErrNotExist) {
		if err := c.copyTemplate(s.dir); err != nil {
			return nil, err
		}
	}
	if err := s.start(ctx); err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	for try := 0; ; try++ {
		port := s.port
		if port == 0 {
			var err error
			if port, err = freePort(); err != nil {
				return err
			}
		}
		err := s.startOn(ctx, port)
		if err == nil {
			s.port = port
			return nil
		}
		switch {
		case ctx.Err() != nil || try == 100:
			return err
		case s.port == 0 && strings.Contains(err.Error(), "could not bind"):
			// Somebody else took the free port before the server had it.
		case strings.Contains(err.Error(), "pre-existing shared memory block"):
			// Backends of a server that was killed are still on their way out.
			time.Sleep(50 * time.Millisecond)
		default:
			return err
		}
	}
}

func (s *Server) startOn(ctx context.Context, port int) error {
	if err := s.writeSettings(port); err != nil {
		return err
	}
	logName := filepath.Join(s.dir, "server.log")
	out := s.opts.Log
	if out == nil {
		f, err := os.OpenFile(logName, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		out = f
	}
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), "-D", s.dir)
	cmd.Dir = s.dir
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	proc, err := startProcess(cmd)
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	if err := s.ready(ctx, port, proc); err != nil {
		_ = proc.signal(syscall.SIGKILL)
		<-proc.done
		tail, _ := os.ReadFile(logName)
		return fmt.Errorf("PostgreSQL did not start: %w\n%s", err, tail[max(0, len(tail)-2000):])
	}
	s.proc = proc
	return nil
}

func (s *Server) ready(ctx context.Context, port int, proc *process) error {
	for {
		conn, err := pgx.Connect(ctx, databaseURL(port, Database))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-proc.done:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *Server) writeSettings(port int) error {
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(port),
		"unix_socket_directories": "",
		"wal_level":               "logical",
		"max_wal_senders":         "20",
		"max_replication_slots":   "20",
		"max_connections":         "60",
		"fsync":                   "off",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
	}
	if s.opts.Fsync {
		settings["fsync"] = "on"
	}
	for k, v := range s.opts.Settings {
		settings[k] = v
	}
	var b strings.Builder
	for k, v := range settings {
		fmt.Fprintf(&b, "%s = '%s'\n", k, strings.ReplaceAll(v, "'", "''"))
	}
	lines := strings.SplitAfter(b.String(), "\n")
	sort.Strings(lines)
	return os.WriteFile(filepath.Join(s.dir, "varve.conf"), []byte(strings.Join(lines, "")), 0o644)
}

// URL is the superuser's URL of the database postgres.
func (s *Server) URL() string { return databaseURL(s.port, Database) }

// DatabaseURL is the superuser's URL of another database.
func (s *Server) DatabaseURL(name string) string { return databaseURL(s.port, name) }

func databaseURL(port int, name string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(User, Password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Path: "/" + name, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Port is where the server listens, on 127.0.0.1. It stays the same over Restart.
func (s *Server) Port() int { return s.port }

// Dir is the data folder.
func (s *Server) Dir() string { return s.dir }

// PID is the process id of the server's main process, 0 where it does not run.
func (s *Server) PID() int {
	if s.proc == nil {
		return 0
	}
	return s.proc.pid
}

// Stop ends the server cleanly and removes a temporary data folder. It may be called again.
func (s *Server) Stop() error {
	err := s.shutdown()
	s.remove()
	return err
}

func (s *Server) shutdown() error {
	if s.proc == nil {
		return nil
	}
	proc := s.proc
	s.proc = nil
	if err := proc.signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-proc.done:
		return nil
	case <-time.After(30 * time.Second):
		proc.killAll()
		<-proc.done
		return errors.New("PostgreSQL did not stop within 30 s and was killed")
	}
}

func (s *Server) remove() {
	if s.temporary {
		_ = os.RemoveAll(filepath.Dir(s.dir))
	}
}

// Kill9 ends the server and its backends by SIGKILL and keeps the data folder, for Restart.
func (s *Server) Kill9() {
	if s.proc == nil {
		return
	}
	s.proc.killAll()
	<-s.proc.done
	s.proc = nil
}

// Freeze stops the server and its backends by SIGSTOP; Thaw lets them go on.
func (s *Server) Freeze() {
	if s.proc != nil {
		s.proc.signalAll(syscall.SIGSTOP)
	}
}

// Thaw undoes Freeze.
func (s *Server) Thaw() {
	if s.proc != nil {
		s.proc.signalAll(syscall.SIGCONT)
	}
}

// Halt ends the server cleanly and keeps the data folder, for Restart.
func (s *Server) Halt() error { return s.shutdown() }

// Restart starts the server again on the same port and data, with changed settings where some are given.
func (s *Server) Restart(ctx context.Context, settings map[string]string) error {
	if err := s.shutdown(); err != nil {
		return err
	}
	if settings != nil {
		merged := map[string]string{}
		for _, m := range []map[string]string{s.opts.Settings, settings} {
			for k, v := range m {
				merged[k] = v
			}
		}
		s.opts.Settings = merged
	}
	return s.start(ctx)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

var shared struct {
	sync.Mutex
	server *Server
}

// Shared returns one throw-away server of the calling process, started at the first call. StopShared ends it.
func Shared(ctx context.Context) (*Server, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		return shared.server, nil
	}
	s, err := Start(ctx, Options{})
	if err != nil {
		return nil, err
	}
	shared.server = s
	return s, nil
}

// StopShared ends the server that Shared started, if any.
func StopShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		_ = shared.server.Stop()
		shared.server = nil
	}
}

// CreateDatabase makes a new, empty database and returns its URL.
func (s *Server) CreateDatabase(ctx context.Context, name string) (string, error) {
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", err
	}
	return s.DatabaseURL(name), nil
}
