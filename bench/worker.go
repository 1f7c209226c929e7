package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// worker is a Connect worker with its plugins: one of the two sides.
type worker struct {
	name string // "varve" or "debezium"
	url  string // of its REST interface
	proc *process
}

// workerStarter starts one side's worker. What a worker knows lies in its topics, so that it can be started again.
type workerStarter func(o *options, bootstrap string) (*worker, error)

// workerProperties are what both workers are told.
func workerProperties(group string) map[string]string {
	p := map[string]string{"group.id": group}
	for _, role := range []string{"key", "value"} {
		p[role+".converter"] = "org.apache.kafka.connect.json.JsonConverter"
		p[role+".converter.schemas.enable"] = "false"
	}
	for _, what := range []string{"config", "offset", "status"} {
		p[what+".storage.topic"] = group + "-" + what
		p[what+".storage.replication.factor"] = "1"
	}
	return p
}

func startVarveWorker(o *options, bootstrap string) (*worker, error) {
	dir := filepath.Join(o.work, "varve-worker")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	listen, err := freeAddress()
	if err != nil {
		return nil, err
	}
	admin, err := freeAddress()
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString("connect:\n  properties:\n")
	for k, v := range workerProperties("varve") {
		fmt.Fprintf(&b, "    %s: %q\n", k, v)
	}
	conf := filepath.Join(dir, "varve.yaml")
	if err := os.WriteFile(conf, []byte(b.String()), 0o600); err != nil {
		return nil, err
	}
	p, err := startProcess("varve", filepath.Join(dir, "worker.log"), nil, filepath.Join(o.root, "bin", "varve"), "server", "--config", conf,
		"--roles", "connect", "--data-dir", filepath.Join(dir, "data"), "--connect-listen", listen, "--connect-bootstrap", bootstrap,
		"--admin-listen", admin)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "varve worker: pid %d, profiles at http://%s/debug/pprof/\n", p.cmd.Process.Pid, admin)
	return &worker{name: "varve", url: "http://" + listen, proc: p}, nil
}

// connectHeap is what connect-distributed.sh sets.
var connectHeap = []string{"-Xms256m", "-Xmx2g"}

const debeziumVersion = "3.6.1.Final"

func startDebeziumWorker(o *options, bootstrap string) (*worker, error) {
	dir := filepath.Join(o.work, "debezium-worker")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	listen, err := freeAddress()
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for k, v := range workerProperties("debezium") {
		fmt.Fprintf(&b, "%s=%s\n", k, v)
	}
	fmt.Fprintf(&b, "bootstrap.servers=%s\nlisteners=http://%s\nplugin.discovery=service_load\nplugin.path=%s\n", bootstrap, listen,
		filepath.Join(o.root, ".cache", "tools", "debezium-"+debeziumVersion))
	conf := filepath.Join(dir, "connect.properties")
	if err := os.WriteFile(conf, []byte(b.String()), 0o600); err != nil {
		return nil, err
	}
	p, err := startProcess("debezium", filepath.Join(dir, "worker.log"), nil,
		kafkaCommand(o, connectHeap, "org.apache.kafka.connect.cli.ConnectDistributed", conf)...)
	if err != nil {
		return nil, err
	}
	return &worker{name: "debezium", url: "http://" + listen, proc: p}, nil
}

// rest calls the worker.
func (w *worker) rest(ctx context.Context, method, path string, body any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.url+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 400 {
		return fmt.Errorf("%s: %s %s: %s: %s", w.name, method, path, resp.Status, text)
	}
	return nil
}

// listening waits until the worker takes connectors.
func (w *worker) listening(ctx context.Context) error {
	return w.proc.await(ctx, 2*time.Minute, 20*time.Millisecond, "its REST interface", func() error { return w.rest(ctx, http.MethodGet, "/connectors", nil) })
}

// put makes or changes a connector. A worker that has just started may still be settling who leads.
func (w *worker) put(ctx context.Context, name string, config map[string]string) error {
	return w.proc.await(ctx, time.Minute, 100*time.Millisecond, "connector "+name, func() error {
		return w.rest(ctx, http.MethodPut, "/connectors/"+name+"/config", config)
	})
}

// set asks for a state: stop, resume.
func (w *worker) set(ctx context.Context, name, state string) error {
	return w.proc.await(ctx, time.Minute, 100*time.Millisecond, state+" of "+name, func() error {
		return w.rest(ctx, http.MethodPut, "/connectors/"+name+"/"+state, nil)
	})
}

func (w *worker) remove(ctx context.Context, name string) error {
	return w.proc.await(ctx, time.Minute, 100*time.Millisecond, "end of "+name, func() error {
		return w.rest(ctx, http.MethodDelete, "/connectors/"+name, nil)
	})
}
