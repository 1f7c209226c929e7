package badinput

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varvehq/varve/tests/harness"
)

// varve runs a command of the binary against p and returns all that it prints.
func varve(t *testing.T, p *harness.Process, stdin string, args ...string) (string, error) {
	t.Helper()
	bin, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = append(cmd.Environ(), "VARVE_BOOTSTRAP="+p.Kafka)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func must(t *testing.T, p *harness.Process, stdin string, args ...string) string {
	t.Helper()
	out, err := varve(t, p, stdin, args...)
	if err != nil {
		t.Fatalf("varve %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// serverEnds runs a server that must refuse to start, on p's folder and addresses, and returns what it says.
func serverEnds(t *testing.T, p *harness.Process, args ...string) string {
	t.Helper()
	out, err := varve(t, p, "", append([]string{"server", "--data-dir", filepath.Join(p.Dir, "data"), "--listen", p.Kafka,
		"--connect-listen", p.Connect, "--admin-listen", p.Admin}, args...)...)
	if err == nil {
		t.Fatalf("the server ended without an error:\n%s", out)
	}
	return out
}

// has fails the test where text lacks one of the words.
func has(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in:\n%s", w, text)
		}
	}
}

// eventually waits for something outside of this process.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-ctx.Done():
			t.Fatalf("still not: %s", what)
		case <-tick.C:
		}
	}
}

// call makes an HTTP request and returns status and body.
func call(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if cerr := resp.Body.Close(); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
	return resp.StatusCode, string(b)
}

// metric is a metric without labels, as its text has it; "" where there is none.
func metric(t *testing.T, p *harness.Process, name string) string {
	t.Helper()
	_, body := call(t, http.MethodGet, "http://"+p.Admin+"/metrics", "")
	for line := range strings.Lines(body) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// rows are n lines of a kilobyte.
func rows(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%08d %s\n", i, strings.Repeat("r", 1000))
	}
	return b.String()
}

// tierOf is what `varve topic describe -o json` says of partition 0.
func tierOf(t *testing.T, p *harness.Process, topic string) (tieredEnd, localStart, end int64) {
	t.Helper()
	var d struct {
		Partitions []struct {
			TieredEnd  int64 `json:"tiered_end_offset"`
			LocalStart int64 `json:"local_start_offset"`
			End        int64 `json:"end_offset"`
		}
	}
	if err := json.Unmarshal([]byte(must(t, p, "", "topic", "describe", topic, "-o", "json")), &d); err != nil {
		t.Fatal(err)
	}
	return d.Partitions[0].TieredEnd, d.Partitions[0].LocalStart, d.Partitions[0].End
}
