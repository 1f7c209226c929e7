package objstoretest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Server is an S3 server of a test: a process on loopback with an empty bucket.
type Server struct {
	Endpoint  string // http://127.0.0.1:port
	Bucket    string
	AccessKey string
	SecretKey string
	DataDir   string
}

// StartVersityGW starts versitygw, from VARVE_TEST_VERSITYGW or .cache/tools/bin at the root of the repository, and skips
// the test where there is none. It ends with the test.
func StartVersityGW(t testing.TB) *Server {
	t.Helper()
	bin := tool(t, "VARVE_TEST_VERSITYGW", "versitygw")
	return start(t, func(s *Server, addr string) *exec.Cmd {
		cmd := exec.Command(bin, "--port", addr, "posix", s.DataDir)
		cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.AccessKey, "ROOT_SECRET_KEY="+s.SecretKey)
		return cmd
	})
}

// StartMinIO starts MinIO from VARVE_TEST_MINIO, and skips the test where that is not set.
func StartMinIO(t testing.TB) *Server {
	t.Helper()
	bin := os.Getenv("VARVE_TEST_MINIO")
	if bin == "" {
		t.Skip("VARVE_TEST_MINIO is not set: no MinIO to test against; tests/tools/s3.sh install minio builds one")
	}
	return start(t, func(s *Server, addr string) *exec.Cmd {
		cmd := exec.Command(bin, "server", "--quiet", "--address", addr, s.DataDir)
		cmd.Env = append(os.Environ(), "MINIO_ROOT_USER="+s.AccessKey, "MINIO_ROOT_PASSWORD="+s.SecretKey, "MINIO_UPDATE=off", "MINIO_BROWSER=off")
		return cmd
	})
}

func tool(t testing.TB, env, name string) string {
	t.Helper()
	if bin := os.Getenv(env); bin != "" {
		return bin
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test's folder")
		}
	}
	bin := filepath.Join(dir, ".cache", "tools", "bin", name)
	if _, err := os.Stat(bin); err != nil {
		t.Skipf("%s is not there: run tests/tools/s3.sh install, or set %s", bin, env)
	}
	return bin
}

func start(t testing.TB, command func(*Server, string) *exec.Cmd) *Server {
	t.Helper()
	s := &Server{Bucket: "varve", AccessKey: "varve-test", SecretKey: "varve-test-secret", DataDir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(s.DataDir, s.Bucket), 0o755); err != nil { // both servers take a folder for a bucket
		t.Fatal(err)
	}
	addr := freeAddr(t)
	s.Endpoint = "http://" + addr
	cmd := command(s, addr)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	var waitErr error
	go func() {
		defer close(exited)
		waitErr = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-exited
	})
	if err := waitReady(s.Endpoint, exited); err != nil {
		_ = cmd.Process.Kill() // it may have ended
		<-exited
		t.Fatalf("%s: %v, %v\n%s", cmd.Path, err, waitErr, out.String())
	}
	return s
}

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return addr
}

// waitReady asks until the server answers anything.
func waitReady(endpoint string, exited <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			http.DefaultClient.CloseIdleConnections()
			return resp.Body.Close()
		}
		select {
		case <-exited:
			return errors.New("the server has ended")
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
