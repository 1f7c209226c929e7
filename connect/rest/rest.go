// Package rest is Kafka Connect's REST interface: the paths, status codes, bodies and words that kcctl, Kafka UIs and
// scripts know. It owns nothing but the translation: every decision is the worker's. It never listens by itself.
package rest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/varvehq/varve/connect/topics"
	"github.com/varvehq/varve/connect/worker"
)

// Env is what the interface is given from outside.
type Env struct {
	Worker *worker.Worker
	Log    *slog.Logger
	// Version and Commit are shown at /.
	Version, Commit string
	// Level is the worker's log level, which /admin/loggers shows and sets; nil: fixed.
	Level *slog.LevelVar
}

// requestTimeout bounds every call, as Kafka Connect's does.
const requestTimeout = 90 * time.Second

// maxBody bounds a request's body.
const maxBody = 8 << 20

type server struct {
	env     Env
	w       *worker.Worker
	loggers *loggers
}

// Handler serves the interface.
func Handler(env Env) http.Handler {
	s := &server{env: env, w: env.Worker, loggers: newLoggers(env.Level)}
	mux := http.NewServeMux()
	handle := func(pattern string, f func(r *http.Request) (answer, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, f) })
	}
	handle("GET /{$}", s.root)
	handle("GET /health", s.health)
	handle("GET /connectors", s.list)
	handle("POST /connectors", s.create)
	handle("GET /connectors/{name}", s.get)
	handle("DELETE /connectors/{name}", s.remove)
	handle("GET /connectors/{name}/config", s.getConfig)
	handle("PUT /connectors/{name}/config", s.putConfig)
	handle("PATCH /connectors/{name}/config", s.patchConfig)
	handle("GET /connectors/{name}/status", s.status)
	handle("GET /connectors/{name}/topics", s.topics)
	handle("PUT /connectors/{name}/topics/reset", s.resetTopics)
	handle("PUT /connectors/{name}/pause", s.target(topics.Paused, http.StatusAccepted))
	handle("PUT /connectors/{name}/resume", s.target(topics.Started, http.StatusAccepted))
	handle("PUT /connectors/{name}/stop", s.target(topics.Stopped, http.StatusNoContent))
	handle("POST /connectors/{name}/restart", s.restart)
	handle("GET /connectors/{name}/tasks", s.tasks)
	handle("GET /connectors/{name}/tasks/{task}/status", s.taskStatus)
	handle("POST /connectors/{name}/tasks/{task}/restart", s.restartTask)
	handle("GET /connectors/{name}/offsets", s.offsets)
	handle("PATCH /connectors/{name}/offsets", s.alterOffsets)
	handle("DELETE /connectors/{name}/offsets", s.resetOffsets)
	handle("GET /connector-plugins", s.plugins)
	handle("GET /connector-plugins/{plugin}/config", s.pluginConfig)
	handle("PUT /connector-plugins/{plugin}/config/validate", s.validate)
	handle("GET /admin/loggers", s.listLoggers)
	handle("GET /admin/loggers/{logger}", s.getLogger)
	handle("PUT /admin/loggers/{logger}", s.putLogger)
	return withErrors(mux)
}

// answer is a status and a body; a nil body is none. location is a path.
type answer struct {
	status   int
	body     any
	location string
}

func ok(body any) (answer, error) { return answer{status: http.StatusOK, body: body}, nil }

// errorBody is the body of every error.
type errorBody struct {
	Code    int    `json:"error_code"`
	Message string `json:"message"`
}

// badRequest is an error of the request itself.
type badRequest struct {
	status  int
	message string
}

func (e *badRequest) Error() string { return e.message }

func (s *server) serve(w http.ResponseWriter, r *http.Request, f func(r *http.Request) (answer, error)) {
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	a, err := f(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if a.location != "" {
		scheme := "http://"
		if r.TLS != nil {
			scheme = "https://"
		}
		w.Header().Set("Location", scheme+r.Host+a.location)
	}
	if a.body == nil {
		w.WriteHeader(a.status)
		return
	}
	write(w, a.status, a.body)
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(body) // the client is gone
}

// fail answers with the status that Kafka Connect gives for that kind of error.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	var we *worker.Error
	var be *badRequest
	switch {
	case errors.As(err, &be):
		status = be.status
	case errors.As(err, &we):
		switch we.Kind {
		case worker.Invalid:
			status = http.StatusBadRequest
		case worker.NotFound:
			status = http.StatusNotFound
		case worker.Conflict:
			status = http.StatusConflict
		case worker.Forbidden:
			status = http.StatusForbidden
		}
	case errors.Is(err, context.DeadlineExceeded):
		err = errors.New("Request timed out. " + err.Error()) //nolint:staticcheck // Kafka's wording
	}
	if status == http.StatusInternalServerError {
		s.env.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	write(w, status, errorBody{status, err.Error()})
}

// withErrors gives the router's own errors (no such path, wrong method) the body that clients expect, and takes paths with
// a slash at the end.
func withErrors(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.Path; len(p) > 1 && strings.HasSuffix(p, "/") { // clients write /connectors/ too
			u := *r.URL
			u.Path, u.RawPath = strings.TrimRight(p, "/"), strings.TrimRight(u.RawPath, "/")
			if u.Path == "" {
				u.Path = "/"
			}
			r2 := *r
			r2.URL = &u
			r = &r2
		}
		if _, pattern := mux.Handler(r); pattern == "" {
			rec := &statusOnly{header: http.Header{}}
			mux.ServeHTTP(rec, r)
			if allow := rec.header.Get("Allow"); allow != "" {
				w.Header().Set("Allow", allow)
				if r.Method == http.MethodOptions {
					options(w, allow)
					return
				}
			}
			write(w, rec.status, errorBody{rec.status, "HTTP " + strconv.Itoa(rec.status) + " " + http.StatusText(rec.status)})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// options answers OPTIONS with the methods of a path.
func options(w http.ResponseWriter, allow string) {
	allow += ", " + http.MethodOptions
	w.Header().Set("Allow", allow)
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, allow) // the client is gone
}

type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }

// decode reads the body as JSON.
func decode(r *http.Request, into any) error {
	if mt, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mt != "application/json" {
		return &badRequest{http.StatusUnsupportedMediaType, "HTTP 415 Unsupported Media Type"}
	}
	dec := json.NewDecoder(r.Body)
	dec.UseNumber()
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return &badRequest{http.StatusBadRequest, "Invalid JSON in the request body: " + jsonProblem(err)}
	}
	if _, err := dec.Token(); err != io.EOF {
		return &badRequest{http.StatusBadRequest, "Invalid JSON in the request body: something follows the document"}
	}
	return nil
}

// jsonProblem words a decoder's error without the names of our types.
func jsonProblem(err error) string {
	var wrong *json.UnmarshalTypeError
	var be *badRequest
	switch {
	case errors.Is(err, io.EOF):
		return "it is empty"
	case errors.As(err, &be):
		return be.message
	case errors.As(err, &wrong) && wrong.Field != "":
		return wrong.Field + " cannot be a JSON " + wrong.Value
	case errors.As(err, &wrong):
		return "a JSON object is expected, not a JSON " + wrong.Value
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

func name(r *http.Request) string { return r.PathValue("name") }

// flag reads a boolean of the query; absent and unreadable are false.
func flag(r *http.Request, key string, def bool) bool {
	v := r.URL.Query().Get(key)
	if v == "" {
		return def
	}
	return strings.EqualFold(v, "true")
}

func taskID(r *http.Request) (topics.TaskID, error) {
	n, err := strconv.Atoi(r.PathValue("task"))
	if err != nil {
		return topics.TaskID{}, &badRequest{http.StatusNotFound, "HTTP 404 Not Found"}
	}
	return topics.TaskID{Connector: name(r), Task: n}, nil
}

// loggers is the one logger that the worker has, under Kafka Connect's names.
type loggers struct {
	level *slog.LevelVar // nil: fixed
	mu    struct {
		sync.Mutex
		modified *int64 // in Unix milliseconds; nil: never
	}
}

func newLoggers(level *slog.LevelVar) *loggers { return &loggers{level: level} }

// doc is the logger as REST shows it.
func (l *loggers) doc() loggerDoc {
	l.mu.Lock()
	defer l.mu.Unlock()
	return loggerDoc{Level: l.name(), LastModified: l.mu.modified}
}

// set changes the level, and reports whether it was another.
func (l *loggers) set(to slog.Level, now int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.level.Level() == to {
		return false
	}
	l.level.Set(to)
	l.mu.modified = &now
	return true
}

var levels = map[string]slog.Level{"TRACE": slog.LevelDebug - 4, "DEBUG": slog.LevelDebug, "INFO": slog.LevelInfo, "WARN": slog.LevelWarn,
	"ERROR": slog.LevelError, "FATAL": slog.LevelError + 4, "OFF": slog.LevelError + 8}

func (l *loggers) name() string {
	at := slog.LevelInfo
	if l.level != nil {
		at = l.level.Level()
	}
	names := make([]string, 0, len(levels))
	for n := range levels {
		names = append(names, n)
	}
	sort.Slice(names, func(i, j int) bool { return levels[names[i]] < levels[names[j]] })
	for _, n := range names {
		if levels[n] >= at {
			return n
		}
	}
	return "OFF"
}
