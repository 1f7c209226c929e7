//go:build differential

package connect

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// call is one call of testdata/calls.txt.
type call struct {
	name, method, path, body string
	header                   map[string]string
	await                    []string
}

func readCalls(t *testing.T, file string) []call {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), "\n=== ")
	var calls []call
	names := map[string]bool{}
	for part := range strings.SplitSeq(text, "\n=== ") {
		lines := strings.Split(part, "\n")
		c := call{name: lines[0], header: map[string]string{}}
		var rest []string
		for _, l := range lines[1:] {
			if what, ok := strings.CutPrefix(l, "await "); ok {
				c.await = append(c.await, what)
			} else {
				rest = append(rest, l)
			}
		}
		head, body, _ := strings.Cut(strings.Join(rest, "\n"), "\n\n")
		c.body = strings.TrimRight(body, "\n")
		lines = strings.Split(strings.TrimRight(head, "\n"), "\n")
		c.method, c.path, _ = strings.Cut(lines[0], " ")
		for _, l := range lines[1:] {
			k, v, ok := strings.Cut(l, ": ")
			if !ok {
				t.Fatalf("%s: call %s: %q is no header", file, c.name, l)
			}
			c.header[k] = v
		}
		if names[c.name] || c.method == "" || c.path == "" {
			t.Fatalf("%s: call %s is there twice or has no path", file, c.name)
		}
		names[c.name] = true
		calls = append(calls, c)
	}
	return calls
}

// side is one worker.
type side struct {
	t    *testing.T
	addr string
	dir  string
}

// answer is what a call gave, as fields.
type answer map[string]string

// stands are the names and ids that are normal to differ.
func (s side) stands() *strings.Replacer {
	return strings.NewReplacer(s.dir, "DIR", s.addr, "WORKER")
}

// sameClass maps Kafka's and Debezium's connectors to ours where plugins are listed.
var sameClass = map[string]string{
	"org.apache.kafka.connect.file.FileStreamSourceConnector": "file-source",
	"org.apache.kafka.connect.file.FileStreamSinkConnector":   "file-sink",
	"io.debezium.connector.postgresql.PostgresConnector":      "postgres-cdc",
}

// unify replaces versions, ids and times by their kind.
func unify(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			v[k] = unify(k, x)
		}
	case []any:
		for i, x := range v {
			v[i] = unify("", x)
		}
	case string:
		switch {
		case key == "class" && sameClass[v] != "":
			return sameClass[v]
		case v != "" && (key == "version" || key == "commit" || key == "kafka_cluster_id"):
			return strings.ToUpper(key)
		}
	case float64:
		if key == "last_modified" {
			return "TIME"
		}
	}
	return v
}

// methods sorts the names of methods.
func methods(list string) string {
	m := strings.Split(strings.ReplaceAll(list, " ", ""), ",")
	slices.Sort(m)
	return strings.Join(m, ",")
}

func (s side) do(method, path string, header map[string]string, body string) (*http.Response, []byte) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.addr+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp, b
}

// run sends a call and waits for what is to follow it.
func (s side) run(c call) answer {
	s.t.Helper()
	resp, body := s.do(c.method, c.path, c.header, strings.ReplaceAll(c.body, "{dir}", s.dir))
	a := answer{"status": resp.Status}
	stands := s.stands()
	for _, h := range []string{"Content-Type", "Location"} {
		a["header "+h] = stands.Replace(resp.Header.Get(h))
	}
	a["header Allow"] = methods(resp.Header.Get("Allow"))
	var doc any
	switch {
	case json.Unmarshal(body, &doc) == nil:
		flatten(a, "body", unifyText(stands, unify("", doc)))
	case c.method == http.MethodOptions:
		a["body"] = methods(string(body))
	default:
		a["body"] = stands.Replace(string(body))
	}
	for _, w := range c.await {
		s.await(c.name, w)
	}
	return a
}

// unifyText replaces names in all strings and keys.
func unifyText(r *strings.Replacer, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			out[r.Replace(k)] = unifyText(r, x)
		}
		return out
	case []any:
		for i, x := range v {
			v[i] = unifyText(r, x)
		}
	case string:
		return r.Replace(v)
	}
	return v
}

// awaitTimeout is long since the machine may be busy.
const awaitTimeout = 90 * time.Second

// await repeats a GET until its answer holds every text: "path text text…".
func (s side) await(name, what string) {
	s.t.Helper()
	parts := strings.Split(what, " ")
	deadline := time.Now().Add(awaitTimeout)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		_, b := s.do(http.MethodGet, parts[0], nil, "")
		b = bytes.ReplaceAll(b, []byte(" "), nil)
		if !slices.ContainsFunc(parts[1:], func(p string) bool { return !bytes.Contains(b, []byte(p)) }) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("after %s: %s does not come to hold %s: %s", name, parts[0], strings.Join(parts[1:], " and "), b)
		}
		<-tick.C
	}
}
