package outside

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/varvehq/varve/sdk/wire"
	"github.com/varvehq/varve/tests/harness"
)

// world is a server with the connector in its plugin folder, and one instance of it that behaves.
type world struct {
	t       *testing.T
	varve   *harness.Process
	adm     *kadm.Client
	program string
}

const (
	bystander = "bystander"
	records   = 1000
	patience  = 2 * time.Minute // the machine may be busy
)

func newWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("builds a module and starts the binary")
	}
	module, plugins := copyModule(t), t.TempDir()
	if err := os.Chmod(plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	goTool(t, module, "build", "-o", filepath.Join(plugins, program), ".")
	w := &world{t: t, program: filepath.Join(plugins, program), varve: harness.StartProcess(t, harness.ProcessOptions{Config: fmt.Sprintf(`
broker:
  properties:
    message.max.bytes: "%d"
connect:
  plugin_dir: %q
`, 2*wire.DefaultMaxRecord, plugins)})}
	w.adm = kadm.NewClient(harness.NewClient(t, w.varve.Kafka))
	w.create(bystander, nil)
	w.await(bystander, `"tasks":[{"id":0,"state":"RUNNING"`)
	return w
}

func (w *world) do(method, path string, body []byte) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, "http://"+w.varve.Connect+path, bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// create makes a connector that writes to the topic of its name.
func (w *world) create(name string, more map[string]string) {
	w.t.Helper()
	config := map[string]string{"connector.class": "outside", "topic": name, "count": strconv.Itoa(records),
		"value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter"}
	for k, v := range more {
		config[k] = v
	}
	b, err := json.Marshal(config)
	if err != nil {
		w.t.Fatal(err)
	}
	if status, body := w.do(http.MethodPut, "/connectors/"+name+"/config", b); status != http.StatusCreated {
		w.t.Fatalf("create %s: %d %s", name, status, body)
	}
}

// eventually repeats a look at something until it is as wished.
func (w *world) eventually(look func() (ok bool, seen string)) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, seen := look()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatal(seen)
		}
		<-tick.C
	}
}

// await waits until a connector's status holds all parts.
func (w *world) await(name string, parts ...string) {
	w.t.Helper()
	w.eventually(func() (bool, string) {
		_, body := w.do(http.MethodGet, "/connectors/"+name+"/status", nil)
		for _, p := range parts {
			if !strings.Contains(body, p) {
				return false, fmt.Sprintf("the status of %s does not come to hold %s: %s", name, p, body)
			}
		}
		return true, ""
	})
}

// awaitRecords waits until a topic has n records.
func (w *world) awaitRecords(topic string, n int64) {
	w.t.Helper()
	w.eventually(func() (bool, string) {
		ends, err := w.adm.ListEndOffsets(w.t.Context(), topic)
		if err != nil {
			return false, err.Error()
		}
		end, _ := ends.Lookup(topic, 0)
		return end.Offset >= n, fmt.Sprintf("%s ends at %d, want %d", topic, end.Offset, n)
	})
}

// unharmed demands that the other connector runs in the process in which it ran, and takes work.
func (w *world) unharmed() {
	w.t.Helper()
	w.await(bystander, `"connector":{"state":"RUNNING"`, `"tasks":[{"id":0,"state":"RUNNING"`)
	w.awaitRecords(bystander, records)
	for line := range strings.Lines(w.varve.LogTail(1 << 20)) {
		if strings.Contains(line, "msg=failed") && strings.Contains(line, "connector="+bystander) {
			w.t.Errorf("the other connector failed too: %s", line)
		}
	}
}

// restart restarts what has failed of a connector.
func (w *world) restart(name string) {
	w.t.Helper()
	if status, body := w.do(http.MethodPost, "/connectors/"+name+"/restart?includeTasks=true&onlyFailed=true", nil); status != http.StatusAccepted {
		w.t.Fatalf("restart %s: %d %s", name, status, body)
	}
}

// recovers demands that the connector is whole again and that all its records have come.
func (w *world) recovers(name string) {
	w.t.Helper()
	w.await(name, `"connector":{"state":"RUNNING"`, `"tasks":[{"id":0,"state":"RUNNING"`)
	w.awaitRecords(name, records)
}

// faulty makes a connector that misbehaves in its middle, and returns the id of its process once it does.
func (w *world) faulty(name, fault string) int {
	w.t.Helper()
	once := filepath.Join(w.t.TempDir(), "once")
	w.create(name, map[string]string{"fault": fault, "at": strconv.Itoa(records / 2), "once": once})
	var pid int
	w.eventually(func() (bool, string) {
		b, err := os.ReadFile(once)
		if err == nil {
			pid, err = strconv.Atoi(string(b))
		}
		return err == nil && pid > 0, fmt.Sprint(once, ": ", err)
	})
	return pid
}

// TestFaults lets the connector misbehave in every way: only its own task fails, with a reason, and restarts.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	run := func(name string, f func(t *testing.T, w *world)) {
		t.Run(name, func(t *testing.T) {
			sub := *w
			sub.t = t
			f(t, &sub)
			sub.unharmed()
		})
	}
	run("killed", func(t *testing.T, w *world) {
		pid := w.faulty("killed", "wait")
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		w.await("killed", `"tasks":[{"id":0,"state":"FAILED"`, "killed")
		w.restart("killed")
		w.recovers("killed")
	})
	run("stopped", func(t *testing.T, w *world) {
		pid := w.faulty("stopped", "wait")
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		w.await("stopped", `"tasks":[{"id":0,"state":"FAILED"`, "did not answer")
		w.restart("stopped")
		w.recovers("stopped")
	})
	run("hanging", func(t *testing.T, w *world) {
		pid := w.faulty("hanging", "hang")
		if status, body := w.do(http.MethodPost, "/connectors/hanging/tasks/0/restart", nil); status != http.StatusNoContent {
			t.Fatalf("restart: %d %s", status, body)
		}
		w.eventually(func() (bool, string) {
			return syscall.Kill(pid, 0) != nil, "the process that hangs still runs"
		})
		w.restart("hanging") // where the end of its process failed the connector's own run
		w.recovers("hanging")
	})
	run("flooding", func(t *testing.T, w *world) {
		w.faulty("flooding", "flood")
		w.eventually(func() (bool, string) {
			return strings.Contains(w.varve.LogTail(1<<20), "logs without measure"), "the flood is not slowed down"
		})
		if status, body := w.do(http.MethodPost, "/connectors/flooding/tasks/0/restart", nil); status != http.StatusNoContent {
			t.Fatalf("restart: %d %s", status, body)
		}
		w.recovers("flooding")
	})
	run("frames", func(t *testing.T, w *world) {
		w.other("frames", `"tasks":[{"id":0,"state":"FAILED"`, "larger than max")
	})
	run("handshake", func(t *testing.T, w *world) {
		w.other("handshake", `"connector":{"state":"FAILED"`, "incompatible API version")
	})
	run("largest", func(t *testing.T, w *world) {
		w.create("largest", map[string]string{"count": "2", "size": strconv.Itoa(wire.DefaultMaxRecord - 64),
			"producer.override.max.request.size": strconv.Itoa(2 * wire.DefaultMaxRecord)})
		w.awaitRecords("largest", 2)
		w.await("largest", `"tasks":[{"id":0,"state":"RUNNING"`)
	})
}

// other turns the program into one that breaks the rules, ends its process so that it is started again, and waits until that
// has failed with a reason.
func (w *world) other(name string, reason ...string) {
	w.t.Helper()
	pid := w.faulty(name, "wait")
	marker := w.program + "." + name
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
	w.await(name, `"tasks":[{"id":0,"state":"FAILED"`, "killed")
	w.restart(name)
	w.await(name, reason...)
	if err := os.Remove(marker); err != nil {
		w.t.Fatal(err)
	}
	// The process may live on, with the program that it was: stopping the connector ends it.
	if status, body := w.do(http.MethodPut, "/connectors/"+name+"/stop", nil); status != http.StatusNoContent {
		w.t.Fatalf("stop %s: %d %s", name, status, body)
	}
	w.await(name, `"state":"STOPPED"`)
	if status, body := w.do(http.MethodPut, "/connectors/"+name+"/resume", nil); status != http.StatusAccepted {
		w.t.Fatalf("resume %s: %d %s", name, status, body)
	}
	w.recovers(name)
}
