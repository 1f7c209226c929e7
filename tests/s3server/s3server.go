// Package s3server starts real S3 servers for tests, the demo and benchmarks: versitygw or MinIO as separate programs on
// loopback, over a throw-away folder. The programs are installed by tests/tools/s3.sh. It never touches a server that it
// did not start.
package s3server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// ErrNotInstalled means that the program is missing; `make s3-server` installs it.
var ErrNotInstalled = errors.New("s3server: the S3 server is not installed: run make s3-server")

// Credentials of every server started here.
const (
	AccessKey = "varve-test"
	SecretKey = "varve-test-secret"
	Bucket    = "varve"
)

// Options say what is started. The zero value is versitygw on a free port.
type Options struct {
	// MinIO starts MinIO instead of versitygw.
	MinIO bool
	// Port to listen on; 0 picks a free one.
	Port int
	// Dir keeps the objects; empty: a temporary folder that Stop removes.
	Dir string
	// Log receives the server's output; nil drops it.
	Log io.Writer
}

// Server is a running server. Its methods are not safe for concurrent use.
type Server struct {
	opts      Options
	bin       string
	dir       string
	temporary bool
	port      int
	cmd       *exec.Cmd
	done      chan struct{}
}

// Binary finds the installed program: the variable VARVE_TEST_VERSITYGW or VARVE_TEST_MINIO names it, else it is in the
// tools folder of the clone.
func Binary(minio bool) (string, error) {
	name, env := "versitygw", "VARVE_TEST_VERSITYGW"
	if minio {
		name, env = "minio", "VARVE_TEST_MINIO"
	}
	if p := os.Getenv(env); p != "" {
		return p, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			p := filepath.Join(dir, ".cache", "tools", "bin", name)
			if _, err := os.Stat(p); err == nil {
				return p, nil
			}
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("%w (%s)", ErrNotInstalled, name)
		}
		dir = up
	}
}

// Start starts a server with one bucket and returns once it answers.
func Start(ctx context.Context, o Options) (*Server, error) {
	bin, err := Binary(o.MinIO)
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, bin: bin, dir: o.Dir, port: o.Port}
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "varve-s3-"); err != nil {
			return nil, err
		}
		s.temporary = true
	}
	if err := os.MkdirAll(filepath.Join(s.dir, Bucket), 0o755); err != nil {
		return nil, err
	}
	if s.port == 0 {
		if s.port, err = freePort(); err != nil {
			return nil, err
		}
	}
	return s, s.Restart(ctx)
}

// ForTest starts a server that ends with the test. Where the program is missing the test is skipped, but not in CI.
func ForTest(t testing.TB, o Options) *Server {
	t.Helper()
	if o.MinIO && os.Getenv("VARVE_TEST_MINIO") == "" {
		t.Skip("VARVE_TEST_MINIO is not set: no MinIO to test against; make compat sets it")
	}
	s, err := Start(t.Context(), o)
	if errors.Is(err, ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// Restart starts the server again on the same port and folder, after Halt or Kill9.
func (s *Server) Restart(ctx context.Context) error {
	if s.opts.MinIO {
		s.cmd = exec.Command(s.bin, "server", "--quiet", "--address", s.hostPort(), s.dir)
		s.cmd.Env = append(os.Environ(), "MINIO_ROOT_USER="+AccessKey, "MINIO_ROOT_PASSWORD="+SecretKey, "MINIO_UPDATE=off", "MINIO_BROWSER=off")
	} else {
		s.cmd = exec.Command(s.bin, "--port", s.hostPort(), "posix", s.dir)
		s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+AccessKey, "ROOT_SECRET_KEY="+SecretKey)
	}
	s.cmd.Stdout, s.cmd.Stderr = s.opts.Log, s.opts.Log
	s.cmd.SysProcAttr = childAttr()
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(s.cmd, s.done)
	return s.wait(ctx)
}

func (s *Server) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint(), nil)
		if err != nil {
			return err
		}
		if res, err := http.DefaultClient.Do(req); err == nil {
			return res.Body.Close()
		}
		select {
		case <-tick.C:
		case <-s.done:
			return fmt.Errorf("s3server: %s ended at its start", s.bin)
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("s3server: %s does not answer: %w", s.bin, ctx.Err()), s.Stop())
		}
	}
}

func (s *Server) hostPort() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Endpoint is the server's URL.
func (s *Server) Endpoint() string { return "http://" + s.hostPort() }

// URL is a bucket URL of Varve's for a prefix in the bucket.
func (s *Server) URL(prefix string) string {
	u := "s3://" + Bucket
	if prefix != "" {
		u += "/" + prefix
	}
	return u + "?endpoint=" + url.QueryEscape(s.Endpoint()) + "&region=us-east-1&path_style=true"
}

// Env are the credentials as a client's environment has them.
func (s *Server) Env() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + AccessKey, "AWS_SECRET_ACCESS_KEY=" + SecretKey, "AWS_REGION=us-east-1"}
}

// Dir is where the server keeps its objects as plain files.
func (s *Server) Dir() string { return s.dir }

// Kill9 ends the server by SIGKILL; Restart brings it back.
func (s *Server) Kill9() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

// Halt ends the server and keeps its folder; Restart brings it back.
func (s *Server) Halt() error {
	select {
	case <-s.done:
		return nil
	default:
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.done:
	case <-time.After(10 * time.Second):
		s.Kill9()
	}
	return nil
}

// Stop ends the server and removes a temporary folder.
func (s *Server) Stop() error {
	err := s.Halt()
	if s.temporary {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}
