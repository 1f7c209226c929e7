package objstoretest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// ProxyFault is what a Proxy does to one request.
type ProxyFault int

// The faults of a Proxy.
const (
	PassThrough ProxyFault = iota
	SlowDown               // 503 SlowDown, the request is not forwarded
	Internal               // 500 InternalError, not forwarded
	Conflict               // 409 ConditionalRequestConflict, not forwarded
	DropReply              // forwarded, then the connection is cut instead of an answer
	Hang                   // not forwarded, no answer until the client gives up
	TornAnswer             // forwarded; the connection is cut in the middle of the answer's body
	DropRequest            // the connection is cut before anything is forwarded
)

// Proxy stands between an S3 client and a server, plain or with TLS, and injects faults on the wire.
type Proxy struct {
	URL    string
	Client *http.Client // trusts the proxy's certificate

	plan func(*http.Request) ProxyFault
	mu   struct {
		sync.Mutex
		hits     map[ProxyFault]int
		trailers int
	}
}

// NewProxy starts a proxy to the server at endpoint, a URL; plan may be nil. It ends with the test.
func NewProxy(t testing.TB, endpoint string, tls bool, plan func(*http.Request) ProxyFault) *Proxy {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{plan: plan}
	p.mu.hits = map[ProxyFault]int{}
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 32}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
			r.Out.Host = r.In.Host // it is signed
		},
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	var server *httptest.Server
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, forward) })
	if tls {
		server = httptest.NewTLSServer(handler)
	} else {
		server = httptest.NewServer(handler)
	}
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	p.URL, p.Client = server.URL, server.Client()
	return p
}

// Hits counts what was done.
func (p *Proxy) Hits(f ProxyFault) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.hits[f]
}

// Trailers counts the uploads whose checksum came in a trailer.
func (p *Proxy) Trailers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.trailers
}

func (p *Proxy) note(r *http.Request) ProxyFault {
	fault := PassThrough
	if p.plan != nil {
		fault = p.plan(r)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.hits[fault]++
	if strings.HasSuffix(r.Header.Get("X-Amz-Content-Sha256"), "-TRAILER") {
		p.mu.trailers++
	}
	return fault
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	switch p.note(r) {
	case SlowDown:
		refuse(w, r, http.StatusServiceUnavailable, "SlowDown")
	case Internal:
		refuse(w, r, http.StatusInternalServerError, "InternalError")
	case Conflict:
		refuse(w, r, http.StatusConflict, "ConditionalRequestConflict")
	case DropReply:
		forward.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case TornAnswer:
		forward.ServeHTTP(&tearing{ResponseWriter: w}, r)
	case Hang:
		_, _ = io.Copy(io.Discard, r.Body) // so that the server notices when the client leaves
		<-r.Context().Done()
	case DropRequest:
		panic(http.ErrAbortHandler)
	default:
		forward.ServeHTTP(w, r)
	}
}

func refuse(w http.ResponseWriter, r *http.Request, status int, code string) {
	_, _ = io.Copy(io.Discard, r.Body) // or the client sees a reset instead of the answer
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>`+code+`</Code><Message>injected</Message></Error>`)
}

// tearing writes half of the first piece of a body and cuts the connection.
type tearing struct{ http.ResponseWriter }

func (w *tearing) Write(b []byte) (int, error) {
	_, _ = io.Copy(w.ResponseWriter, bytes.NewReader(b[:len(b)/2]))
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
	panic(http.ErrAbortHandler)
}
