package harness

import (
	"context"
	"errors"
	"fmt"
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

// Bounds of a process's start and orderly stop.
const (
	processStart = 30 * time.Second
	processStop  = 30 * time.Second
)

// ProcessOptions say how the binary is run.
type ProcessOptions struct {
	// Dir is where data, config and log lie; empty: a folder of the test.
	Dir string
	// Bucket is --bucket; empty: the embedded default.
	Bucket string
	// Config is the content of the config file; empty: none.
	Config string
	// Roles is --roles; empty: the default.
	Roles string
	// Env are further environment variables, as NAME=value.
	Env []string
}

// Process is "varve server" as a process of its own.
type Process struct {
	// Kafka, Connect and Admin are the addresses it listens on, the same after a restart.
	Kafka, Connect, Admin string
	// Dir holds data, the config file and server.log.
	Dir string

	opts    ProcessOptions
	cmd     *exec.Cmd
	done    chan struct{}
	waitErr error // of cmd, once done is closed
}

// Binary is the path of the built program.
func Binary() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("harness: not inside the module")
		}
		dir = parent
	}
	bin := filepath.Join(dir, "bin", "varve")
	if _, err := os.Stat(bin); err != nil {
		return "", fmt.Errorf("%s is not built: run make build", bin)
	}
	return bin, nil
}

// StartProcess starts the binary and returns when it is ready. It is killed at the end of the test; the end of its log is
// shown where the test failed.
func StartProcess(t testing.TB, opts ProcessOptions) *Process {
	t.Helper()
	p := &Process{Dir: opts.Dir, opts: opts}
	if p.Dir == "" {
		p.Dir = t.TempDir()
	}
	for _, a := range []*string{&p.Kafka, &p.Connect, &p.Admin} {
		*a = freeAddr(t)
	}
	t.Cleanup(func() {
		p.Kill9()
		if t.Failed() {
			t.Logf("server log ends with:\n%s", p.LogTail(40))
		}
	})
	p.Restart(t)
	return p
}

// freeAddr is an address that was free a moment ago: a process that is killed must come back where its clients look for it.
func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// Restart starts the process on its data again, after Kill9 or Stop, and returns when it is ready.
func (p *Process) Restart(t testing.TB) {
	t.Helper()
	bin, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"server", "--data-dir", filepath.Join(p.Dir, "data"), "--listen", p.Kafka, "--connect-listen", p.Connect,
		"--admin-listen", p.Admin}
	if p.opts.Bucket != "" {
		args = append(args, "--bucket", p.opts.Bucket)
	}
	if p.opts.Roles != "" {
		args = append(args, "--roles", p.opts.Roles)
	}
	if p.opts.Config != "" {
		file := filepath.Join(p.Dir, "varve.yaml")
		if err := os.WriteFile(file, []byte(p.opts.Config), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", file)
	}
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the process has its own descriptor
	cmd := exec.Command(bin, args...)
	cmd.Env = append(os.Environ(), p.opts.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.cmd, p.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		p.waitErr = cmd.Wait()
		close(done)
	}(p.done)
	p.waitReady(t)
}

// waitReady asks for /ready until it is.
func (p *Process) waitReady(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), processStart)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !p.ready(ctx) {
		select {
		case <-p.done:
			t.Fatalf("varve server ended: %v\n%s", p.waitErr, p.LogTail(40))
		case <-ctx.Done():
			t.Fatalf("varve server is not ready after %v\n%s", processStart, p.LogTail(40))
		case <-tick.C:
		}
	}
}

func (p *Process) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Admin+"/ready", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// Kill9 ends the process without warning. It does nothing where the process has ended.
func (p *Process) Kill9() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
	p.cmd = nil
}

// Stop ends the process in order, and fails the test where it does not end well.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	if p.cmd == nil {
		return
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("stop varve server: %v", err)
	}
	timer := time.NewTimer(processStop)
	defer timer.Stop()
	select {
	case <-p.done:
		if p.waitErr != nil {
			t.Errorf("varve server ended with %v\n%s", p.waitErr, p.LogTail(40))
		}
		p.cmd = nil
	case <-timer.C:
		p.Kill9()
		t.Errorf("varve server did not stop in %v\n%s", processStop, p.LogTail(40))
	}
}

// PID is the id of the running process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// LogTail gives the last lines of what the process has printed.
func (p *Process) LogTail(lines int) string {
	b, err := os.ReadFile(p.logFile())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (p *Process) logFile() string { return filepath.Join(p.Dir, "server.log") }
