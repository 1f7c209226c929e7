//go:build chaos

package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// gate is a proxy in front of the S3 server. It sees what the bucket is asked for, can hold one request at a chosen moment,
// and can be closed as if the store were down.
type gate struct {
	addr    string
	forward *httputil.ReverseProxy

	mu struct {
		sync.Mutex
		server   *http.Server
		inFlight map[*http.Request]struct{}
		stored   map[string]int    // successful PUTs by kind
		unnamed  map[string]string // by the folder of a partition: a segment that is stored and that no manifest names yet
		trap     *trap
	}
}

// trap is a moment: the first request that matches is held, before it is forwarded, or behind it with the answer in hand.
// It never gets an answer.
type trap struct {
	match    func(g *gate, r *http.Request) (what string, ok bool) // with the gate locked
	answered bool                                                  // hold it with the answer in hand
	caught   chan string
	release  chan struct{}
}

func newTrap(answered bool, match func(*gate, *http.Request) (string, bool)) *trap {
	return &trap{match: match, answered: answered, caught: make(chan string, 1), release: make(chan struct{})}
}

// openGate starts the proxy to the server at endpoint.
func openGate(t *testing.T, endpoint string) *gate {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{addr: l.Addr().String()}
	g.mu.inFlight, g.mu.stored, g.mu.unnamed = map[*http.Request]struct{}{}, map[string]int{}, map[string]string{}
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 32}
	g.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
			r.Out.Host = r.In.Host // it is signed
		},
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	g.serve(l)
	t.Cleanup(func() {
		g.shut()
		transport.CloseIdleConnections()
	})
	return g
}

func (g *gate) serve(l net.Listener) {
	s := &http.Server{Handler: g}
	g.mu.Lock()
	g.mu.server = s
	g.mu.Unlock()
	go func() { _ = s.Serve(l) }()
}

// shut refuses connections and cuts those there are.
func (g *gate) shut() {
	g.mu.Lock()
	s := g.mu.server
	g.mu.Unlock()
	_ = s.Close()
}

// reopen takes connections again.
func (g *gate) reopen(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	g.serve(l)
}

// set arms a trap.
func (g *gate) set(tr *trap) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.trap = tr
}

// requests lists what is in flight.
func (g *gate) requests() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []string
	for r := range g.mu.inFlight {
		out = append(out, r.Method+" "+short(r.URL.Path))
	}
	slices.Sort(out)
	return out
}

// count is how many objects of a kind were stored.
func (g *gate) count(kind string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.stored[kind]
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	g.mu.inFlight[r] = struct{}{}
	tr, what := g.mu.trap, ""
	caught := false
	if tr != nil {
		if what, caught = tr.match(g, r); caught {
			g.mu.trap = nil
		}
	}
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		delete(g.mu.inFlight, r)
		g.mu.Unlock()
	}()
	if caught {
		g.hold(tr, what, r)
	}
	g.pass(w, r)
}

// hold keeps a request that was caught until its client is dead.
func (g *gate) hold(tr *trap, what string, r *http.Request) {
	body, err := io.ReadAll(r.Body) // all of it has arrived
	if err == nil && tr.answered {
		r = r.WithContext(context.WithoutCancel(r.Context()))
		r.Body = io.NopCloser(bytes.NewReader(body))
		rec := &statusWriter{ResponseWriter: httptest.NewRecorder()}
		g.pass(rec, r)
		what += fmt.Sprintf(", answer %d in hand", rec.status)
	}
	tr.caught <- fmt.Sprintf("%s, %d bytes of body", what, len(body))
	<-tr.release
	panic(http.ErrAbortHandler)
}

// pass forwards a request and takes note of what was stored.
func (g *gate) pass(w http.ResponseWriter, r *http.Request) {
	s := &statusWriter{ResponseWriter: w}
	g.forward.ServeHTTP(s, r)
	kind := kindOf(r)
	if kind == "" || s.status/100 != 2 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.stored[kind]++
	switch kind {
	case "segment":
		g.mu.unnamed[folder(r.URL.Path)] = r.URL.Path
	case "manifest":
		delete(g.mu.unnamed, folder(r.URL.Path))
	}
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// kindOf tells what a PUT stores; "" for any other request.
func kindOf(r *http.Request) string {
	switch p := r.URL.Path; {
	case r.Method != http.MethodPut:
		return ""
	case strings.HasSuffix(p, ".seg"):
		return "segment"
	case strings.Contains(p, "/manifest/"):
		return "manifest"
	case strings.HasSuffix(p, ".parquet"):
		return "parquet"
	}
	return ""
}

// folder is the folder of the partition that a segment or a manifest is of.
func folder(path string) string {
	for range 2 {
		path = path[:max(strings.LastIndexByte(path, '/'), 0)]
	}
	return path
}

// short is a path without what all have in common.
func short(path string) string {
	if i := strings.Index(path, "/topics/"); i >= 0 {
		return path[i+len("/topics/"):]
	}
	return path
}

// segmentStored follows the key of a segment whose manifest is held.
const segmentStored = " stored"

// Traps of the named moments.
var (
	betweenSegmentAndManifest = func(g *gate, r *http.Request) (string, bool) {
		segment, ok := g.mu.unnamed[folder(r.URL.Path)]
		return short(segment) + segmentStored + ", PUT " + short(r.URL.Path) + " not", ok && kindOf(r) == "manifest"
	}
	atParquetFile = func(_ *gate, r *http.Request) (string, bool) {
		return "PUT " + short(r.URL.Path), kindOf(r) == "parquet"
	}
)

// tap is a proxy in front of PostgreSQL that lets only so many bytes of each connection through to the client, until it is
// opened.
type tap struct {
	addr   string
	limit  int64
	opened chan struct{}
}

// openTap starts it; its connections end with the test.
func openTap(t *testing.T, target string, limit int64) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{addr: l.Addr().String(), limit: limit, opened: make(chan struct{})}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.join(c, target)
		}
	}()
	return p
}

func (p *tap) join(client net.Conn, target string) {
	server, err := net.Dial("tcp", target)
	if err != nil {
		_ = client.Close()
		return
	}
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	if n, err := io.Copy(client, io.LimitReader(server, p.limit)); err == nil && n == p.limit {
		<-p.opened
		_, err = io.Copy(client, server)
		_ = errors.Join(err, client.Close())
		return
	}
	_ = client.Close()
}
