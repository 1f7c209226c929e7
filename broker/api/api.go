package api

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/quota"
)

// Env is what the handlers need of the broker. Every field of an interface type may be nil only as long as no request for
// its keys comes in.
type Env struct {
	// NodeID is this broker's id, ClusterID the cluster's.
	NodeID    int32
	ClusterID string

	Data       DataEnv       // keys 0, 1, 2, 22, 23
	Controller ControllerEnv // keys 3, 19, 20, 32, 60, 75
	Admin      AdminEnv      // keys 49, 55, 57
	LogDir     LogDir        // keys 34, 35
	Groups     GroupEnv      // keys 8 to 16 and 42
	Txns       TxnEnv        // keys 22, 24 to 28, 61, 65, 66

	// Quotas measures clients against their quotas; nil limits nobody.
	Quotas *quota.Manager

	// Draining is closed when the broker stops: what waits for data answers at once. Nil never drains.
	Draining <-chan struct{}

	// MaxSessions bounds the incremental fetch sessions (max.incremental.fetch.session.cache.slots); 0 means 1000.
	MaxSessions int

	// MaxFetchBytes bounds the records of one Fetch response whatever a client asks for (fetch.max.bytes); 0 means 55 MiB.
	MaxFetchBytes int
	// RemoteFetchWait is how long a fetch waits for the remote tier at least, where its own max.wait is shorter
	// (remote.fetch.max.wait.ms); 0 means 500 ms.
	RemoteFetchWait time.Duration

	Clock func() time.Time // nil means time.Now
	Log   *slog.Logger     // nil means none
}

// Handlers holds the handler methods of all keys.
type Handlers struct {
	Env
	table    *Table
	sessions *sessionCache
	warnNext atomic.Int64 // time of the next warning, in milliseconds of the clock
}

// warnEvery is the least time between two warnings about requests that fail on the broker's side: a client tries again at
// once, and the log is no place for each try.
const warnEvery = 5 * time.Second

// warn logs a failure on the broker's side, unless another was logged a moment ago.
func (h *Handlers) warn(msg string, args ...any) {
	now, next := h.Clock().UnixMilli(), h.warnNext.Load()
	if now >= next && h.warnNext.CompareAndSwap(next, now+warnEvery.Milliseconds()) {
		h.Log.Warn(msg, args...)
	}
}

// New returns the handlers over env, with their table.
func New(env Env) *Handlers {
	if env.Clock == nil {
		env.Clock = time.Now
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	if env.MaxSessions == 0 {
		env.MaxSessions = 1000
	}
	if env.MaxFetchBytes == 0 {
		env.MaxFetchBytes = 55 << 20
	}
	if env.RemoteFetchWait == 0 {
		env.RemoteFetchWait = 500 * time.Millisecond
	}
	h := &Handlers{Env: env, sessions: newSessionCache(env.MaxSessions, env.Clock)}
	h.table = newTable(h.dataAPIs(), h.controllerAPIs(), h.groupAPIs(), h.txnAPIs(), h.adminAPIs())
	return h
}

// Table returns the registration table.
func (h *Handlers) Table() *Table { return h.table }

// Request is one decoded request.
type Request struct {
	Key      int16
	Version  int16
	ClientID *string // nil where the client gave none
	// Body is of the key's kmsg type. Its strings are its own. Its byte slices alias the frame: for entries with
	// ReusesFrame they are valid until the response is written, for all others for ever.
	Body     kmsg.Request
	Conn     *ConnInfo
	Received time.Time
}

// Client is the client id, or "" where the client gave none.
func (r *Request) Client() string {
	if r.ClientID == nil {
		return ""
	}
	return *r.ClientID
}

// ConnInfo tells of the connection a request came by. It lives as long as the connection.
type ConnInfo struct {
	ID         uint64
	RemoteAddr net.Addr
	LocalAddr  net.Addr
	// Listener is the name of the listener the connection came by, as in advertised.listeners.
	Listener string
	// Principal is whom the connection is authenticated as, in Kafka's form.
	Principal string

	software atomic.Pointer[Software]
}

// Software is what a client says of itself in ApiVersions v3 and later (KIP-511).
type Software struct{ Name, Version string }

// AnonymousPrincipal is the principal of listeners without authentication.
const AnonymousPrincipal = "User:ANONYMOUS"

// Software tells the client's own name and version, both "" until it gave them.
func (c *ConnInfo) Software() Software {
	if s := c.software.Load(); s != nil {
		return *s
	}
	return Software{}
}

// Host is the client's address without port, in Kafka's form ("/10.0.0.1").
func (c *ConnInfo) Host() string {
	if c == nil || c.RemoteAddr == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(c.RemoteAddr.String())
	if err != nil {
		host = c.RemoteAddr.String()
	}
	return "/" + host
}

// HandleFunc answers a request before it returns.
type HandleFunc func(ctx context.Context, r *Request) (kmsg.Response, error)

// BeginFunc starts a request whose answer comes later. It must not block for others.
type BeginFunc func(ctx context.Context, r *Request) (Later, error)

// Later is an answer that is still to come. Exactly one of Wait and Abandon is called, once.
type Later interface {
	// Wait returns the answer, or what the handler's error would be. It ends early when ctx does.
	Wait(ctx context.Context) (kmsg.Response, error)
	// Abandon tells that the connection is gone and nobody will Wait; it releases what the request holds.
	Abandon()
}

// LaterFunc makes a function that may block into a Later with nothing to release.
type LaterFunc func(ctx context.Context) (kmsg.Response, error)

// Wait calls f.
func (f LaterFunc) Wait(ctx context.Context) (kmsg.Response, error) { return f(ctx) }

// Abandon does nothing.
func (f LaterFunc) Abandon() {}

// Ready is a Later that is already answered.
func Ready(resp kmsg.Response) Later {
	return LaterFunc(func(context.Context) (kmsg.Response, error) { return resp, nil })
}
