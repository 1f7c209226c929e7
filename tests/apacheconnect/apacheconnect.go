// Package apacheconnect runs Apache Kafka Connect for tests that compare Varve's worker with it: one distributed worker with
// Debezium's PostgreSQL connector and Kafka's file connectors, from the jars that tests/tools/connect.sh installs, on
// loopback. It ends with the process that started it. It starts no broker.
package apacheconnect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ErrNotInstalled means that the jars are missing.
var ErrNotInstalled = errors.New("apacheconnect: not installed: run tests/tools/connect.sh install")

const (
	startTimeout = 4 * time.Minute // a JVM on a busy machine
	stopTimeout  = 20 * time.Second
)

// Options say what is started.
type Options struct {
	// Bootstrap is the brokers' address.
	Bootstrap string
	// Properties are further settings of the worker; they win.
	Properties map[string]string
}

// Worker is a running worker. Its methods are not safe for concurrent use.
type Worker struct {
	// Addr is the address of its REST interface, host:port.
	Addr string

	dir  string
	cmd  *exec.Cmd
	done chan struct{}
}

// ForTest starts a worker that ends with the test, and returns once it is healthy. The end of its log is shown where the
// test failed.
func ForTest(t testing.TB, o Options) *Worker {
	t.Helper()
	w, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Apache Kafka Connect's log ends with:\n%s", w.LogTail(40))
		}
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// Start starts a worker and returns once it is healthy.
func Start(ctx context.Context, o Options) (*Worker, error) {
	script, err := scriptPath()
	if err != nil {
		return nil, err
	}
	w := &Worker{}
	if w.Addr, err = freeAddr(); err != nil {
		return nil, err
	}
	if w.dir, err = os.MkdirTemp("", "varve-apacheconnect-"); err != nil {
		return nil, err
	}
	if err := w.start(ctx, script, o); err != nil {
		return nil, errors.Join(err, w.Stop())
	}
	return w, nil
}

// scriptPath is tests/tools/connect.sh, found from the working folder upwards.
func scriptPath() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("apacheconnect: not inside the module")
		}
		dir = up
	}
	script := filepath.Join(dir, "tests", "tools", "connect.sh")
	if err := exec.Command(script, "installed").Run(); err != nil {
		return "", ErrNotInstalled
	}
	return script, nil
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (w *Worker) start(ctx context.Context, script string, o Options) error {
	plugins, err := exec.Command(script, "plugins").Output()
	if err != nil {
		return err
	}
	conf := filepath.Join(w.dir, "connect.properties")
	if err := os.WriteFile(conf, []byte(properties(w.Addr, strings.TrimSpace(string(plugins)), o)), 0o600); err != nil {
		return err
	}
	log, err := os.Create(w.logFile())
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own descriptor
	cmd := exec.Command(script, "worker", conf)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttr()
	if err := cmd.Start(); err != nil {
		return err
	}
	w.cmd, w.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(w.done)
	return w.wait(ctx)
}

// properties is the content of connect.properties.
func properties(addr, plugins string, o Options) string {
	all := map[string]string{
		"bootstrap.servers":                o.Bootstrap,
		"group.id":                         "apache-connect",
		"key.converter":                    "org.apache.kafka.connect.json.JsonConverter",
		"value.converter":                  "org.apache.kafka.connect.json.JsonConverter",
		"listeners":                        "http://" + addr,
		"plugin.path":                      plugins,
		"plugin.discovery":                 "service_load",
		"offset.flush.interval.ms":         "1000",
		"offset.storage.partitions":        "1",
		"status.storage.partitions":        "1",
		"rest.advertised.host.name":        "127.0.0.1",
		"scheduled.rebalance.max.delay.ms": "0",
	}
	for _, what := range []string{"config", "offset", "status"} {
		all[what+".storage.topic"] = "apache-connect-" + what
		all[what+".storage.replication.factor"] = "1"
	}
	for k, v := range o.Properties {
		all[k] = v
	}
	lines := make([]string, 0, len(all))
	for k, v := range all {
		lines = append(lines, k+"="+v+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// wait asks for the health until it is good.
func (w *Worker) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !w.healthy(ctx) {
		select {
		case <-tick.C:
		case <-w.done:
			return fmt.Errorf("apacheconnect: the worker ended at its start:\n%s", w.LogTail(40))
		case <-ctx.Done():
			return fmt.Errorf("apacheconnect: the worker does not answer: %w\n%s", ctx.Err(), w.LogTail(40))
		}
	}
	return nil
}

func (w *Worker) healthy(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.Addr+"/health", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

func (w *Worker) logFile() string { return filepath.Join(w.dir, "worker.log") }

// LogTail gives the last lines of what the worker has printed.
func (w *Worker) LogTail(lines int) string {
	b, err := os.ReadFile(w.logFile())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Stop ends the worker. It is idempotent.
func (w *Worker) Stop() error {
	if w.cmd != nil {
		if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		timer := time.NewTimer(stopTimeout)
		defer timer.Stop()
		select {
		case <-w.done:
		case <-timer.C:
			_ = w.cmd.Process.Kill() // it may have ended meanwhile
			<-w.done
		}
		w.cmd = nil
	}
	return os.RemoveAll(w.dir)
}
