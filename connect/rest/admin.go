package rest

import (
	"net/http"
	"strings"
	"time"

	"github.com/varvehq/varve/connect/worker"
)

type offsetsDoc struct {
	Offsets []worker.Offset `json:"offsets"`
}

type messageDoc struct {
	Message string `json:"message"`
}

func (s *server) offsets(r *http.Request) (answer, error) {
	offs, err := s.w.Offsets(r.Context(), name(r))
	if err != nil {
		return answer{}, err
	}
	return ok(offsetsDoc{offs})
}

func (s *server) alterOffsets(r *http.Request) (answer, error) {
	var req offsetsDoc
	if err := decode(r, &req); err != nil {
		return answer{}, err
	}
	msg, err := s.w.AlterOffsets(r.Context(), name(r), req.Offsets)
	if err != nil {
		return answer{}, err
	}
	return ok(messageDoc{msg})
}

func (s *server) resetOffsets(r *http.Request) (answer, error) {
	msg, err := s.w.ResetOffsets(r.Context(), name(r))
	if err != nil {
		return answer{}, err
	}
	return ok(messageDoc{msg})
}

func (s *server) plugins(r *http.Request) (answer, error) {
	out := s.w.ListPlugins(flag(r, "connectorsOnly", true), s.env.Version)
	if out == nil {
		out = []worker.PluginInfo{}
	}
	return ok(out)
}

func (s *server) pluginConfig(r *http.Request) (answer, error) {
	keys, err := s.w.PluginConfig(r.Context(), r.PathValue("plugin"))
	if err != nil {
		return answer{}, err
	}
	return ok(keys)
}

func (s *server) validate(r *http.Request) (answer, error) {
	var cfg config
	if err := decode(r, &cfg); err != nil {
		return answer{}, err
	}
	plugin := r.PathValue("plugin")
	class, has := cfg["connector.class"]
	if !has {
		return answer{}, &badRequest{http.StatusBadRequest, "Connector config contains no connector type"}
	}
	if !s.w.SameClass(plugin, class) {
		return answer{}, &badRequest{http.StatusBadRequest, "Included connector type " + class + " does not match request type " + plugin}
	}
	res, err := s.w.Validate(r.Context(), class, cfg)
	if err != nil {
		return answer{}, err
	}
	return ok(res)
}

type loggerDoc struct {
	Level        string `json:"level"`
	LastModified *int64 `json:"last_modified"`
}

const rootLogger = "root"

func (s *server) listLoggers(*http.Request) (answer, error) {
	return ok(map[string]loggerDoc{rootLogger: s.loggers.doc()})
}

func (s *server) getLogger(r *http.Request) (answer, error) {
	if r.PathValue("logger") != rootLogger {
		return answer{}, &badRequest{http.StatusNotFound, "Logger " + r.PathValue("logger") + " not found."}
	}
	return ok(s.loggers.doc())
}

func (s *server) putLogger(r *http.Request) (answer, error) {
	var req struct {
		Level *string `json:"level"`
	}
	if err := decode(r, &req); err != nil {
		return answer{}, err
	}
	if req.Level == nil {
		return answer{}, &badRequest{http.StatusBadRequest, "Desired 'level' parameter was not specified in request."}
	}
	level, known := levels[strings.ToUpper(*req.Level)]
	if !known {
		return answer{}, &badRequest{http.StatusNotFound, "invalid log level '" + *req.Level + "'."}
	}
	if r.PathValue("logger") != rootLogger || s.env.Level == nil {
		return answer{}, &badRequest{http.StatusNotFound, "Logger " + r.PathValue("logger") + " not found."}
	}
	changed := s.loggers.set(level, time.Now().UnixMilli())
	switch {
	case strings.EqualFold(r.URL.Query().Get("scope"), "cluster"):
		return answer{status: http.StatusNoContent}, nil
	case changed:
		return ok([]string{rootLogger})
	}
	return ok([]string{})
}
