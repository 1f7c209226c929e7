package rest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/varvehq/varve/connect/topics"
	"github.com/varvehq/varve/connect/worker"
	"github.com/varvehq/varve/sdk"
)

func (s *server) root(r *http.Request) (answer, error) {
	id, err := s.w.ClusterID(r.Context())
	if err != nil {
		return answer{}, err
	}
	return ok(struct {
		Version string `json:"version"`
		Commit  string `json:"commit"`
		Cluster string `json:"kafka_cluster_id"`
	}{s.env.Version, s.env.Commit, id})
}

// health answers 200 once the worker has read its topics, which it has before it serves.
func (s *server) health(*http.Request) (answer, error) {
	return ok(struct {
		Status  string `json:"status"`
		Message string `json:"message"`
	}{"healthy", "Worker has completed startup and is ready to handle requests."})
}

type taskDoc struct {
	Connector string `json:"connector"`
	Task      int    `json:"task"`
}

type infoDoc struct {
	Name   string            `json:"name"`
	Config map[string]string `json:"config"`
	Tasks  []taskDoc         `json:"tasks"`
	Type   string            `json:"type"`
}

func kindName(k sdk.Kind) string {
	if k == "" {
		return "unknown"
	}
	return string(k)
}

func docOfInfo(i worker.ConnectorInfo) infoDoc {
	d := infoDoc{i.Name, i.Config, []taskDoc{}, kindName(i.Type)}
	for _, t := range i.Tasks {
		d.Tasks = append(d.Tasks, taskDoc{t.Connector, t.Task})
	}
	return d
}

type stateDoc struct {
	State   topics.State `json:"state"`
	Worker  string       `json:"worker_id"`
	Trace   string       `json:"trace,omitempty"`
	Version string       `json:"version,omitempty"`
}

type taskStateDoc struct {
	ID int `json:"id"`
	stateDoc
}

type statusDoc struct {
	Name      string         `json:"name"`
	Connector stateDoc       `json:"connector"`
	Tasks     []taskStateDoc `json:"tasks"`
	Type      string         `json:"type"`
}

func docOfState(st topics.Status) stateDoc {
	return stateDoc{st.State, st.WorkerID, st.Trace, st.Version}
}

func docOfStatus(st worker.ConnectorStatus) statusDoc {
	d := statusDoc{st.Name, docOfState(st.Connector), []taskStateDoc{}, kindName(st.Type)}
	for _, t := range st.Tasks {
		d.Tasks = append(d.Tasks, taskStateDoc{t.ID, docOfState(t.Status)})
	}
	return d
}

func (s *server) list(r *http.Request) (answer, error) {
	names := s.w.Connectors()
	expand := r.URL.Query()["expand"]
	if len(expand) == 0 {
		if names == nil {
			names = []string{}
		}
		return ok(names)
	}
	type expanded struct {
		Status *statusDoc `json:"status,omitempty"`
		Info   *infoDoc   `json:"info,omitempty"`
	}
	out := map[string]expanded{}
	for _, n := range names {
		var e expanded
		if slices.Contains(expand, "status") {
			st, err := s.w.Status(n)
			if err != nil {
				continue // deleted meanwhile, or too new to have one
			}
			d := docOfStatus(st)
			e.Status = &d
		}
		if slices.Contains(expand, "info") {
			i, err := s.w.Connector(n)
			if err != nil {
				continue
			}
			d := docOfInfo(i)
			e.Info = &d
		}
		out[n] = e
	}
	return ok(out)
}

// config is a flat map of strings that takes numbers and booleans too, as Kafka Connect's reader does.
type config map[string]string

func (c *config) UnmarshalJSON(b []byte) error {
	patch, err := looseStrings(b)
	if err != nil {
		return err
	}
	*c = config{}
	for k, v := range patch {
		if v != nil {
			(*c)[k] = *v
		}
	}
	return nil
}

func looseStrings(b []byte) (map[string]*string, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, err
	}
	out := map[string]*string{}
	for k, v := range raw {
		var text string
		switch v[0] {
		case 'n':
			out[k] = nil
			continue
		case '"':
			if err := json.Unmarshal(v, &text); err != nil {
				return nil, err
			}
		case '{', '[':
			return nil, &badRequest{http.StatusBadRequest, "the value of " + k + " is neither a string, a number nor a boolean"}
		default:
			text = string(v)
		}
		out[k] = &text
	}
	return out, nil
}

func (s *server) create(r *http.Request) (answer, error) {
	var req struct {
		Name    *string `json:"name"`
		Config  config  `json:"config"`
		Initial *string `json:"initial_state"`
	}
	if err := decode(r, &req); err != nil {
		return answer{}, err
	}
	n := ""
	if req.Name != nil {
		n = strings.TrimSpace(*req.Name)
	}
	if req.Config == nil {
		req.Config = config{}
	}
	if err := checkName(&n, req.Config); err != nil {
		return answer{}, err
	}
	initial := topics.TargetState("")
	if req.Initial != nil {
		switch strings.ToUpper(*req.Initial) {
		case "RUNNING":
			initial = topics.Started
		case "PAUSED":
			initial = topics.Paused
		case "STOPPED":
			initial = topics.Stopped
		default:
			return answer{}, &badRequest{http.StatusBadRequest, "Invalid initial_state " + *req.Initial + ": it is one of RUNNING, PAUSED, STOPPED"}
		}
	}
	info, err := s.w.Create(r.Context(), n, req.Config, initial)
	if err != nil {
		return answer{}, err
	}
	return answer{http.StatusCreated, docOfInfo(info), "/connectors/" + url.PathEscape(n)}, nil
}

// checkName makes the name of the request and that of the configuration one.
func checkName(n *string, cfg config) error {
	inConfig, has := cfg["name"]
	if has && strings.TrimSpace(inConfig) != *n {
		return &badRequest{http.StatusBadRequest, "Connector name configuration (" + inConfig + ") doesn't match connector name in the URL (" + *n + ")"}
	}
	cfg["name"] = *n
	return nil
}

func (s *server) get(r *http.Request) (answer, error) {
	i, err := s.w.Connector(name(r))
	if err != nil {
		return answer{}, err
	}
	return ok(docOfInfo(i))
}

func (s *server) getConfig(r *http.Request) (answer, error) {
	i, err := s.w.Connector(name(r))
	if err != nil {
		return answer{}, err
	}
	return ok(i.Config)
}

func (s *server) putConfig(r *http.Request) (answer, error) {
	var cfg config
	if err := decode(r, &cfg); err != nil {
		return answer{}, err
	}
	if cfg == nil {
		cfg = config{}
	}
	n := name(r)
	if err := checkName(&n, cfg); err != nil {
		return answer{}, err
	}
	info, created, err := s.w.Put(r.Context(), n, cfg)
	if err != nil {
		return answer{}, err
	}
	if created {
		return answer{http.StatusCreated, docOfInfo(info), "/connectors/" + url.PathEscape(n)}, nil
	}
	return ok(docOfInfo(info))
}

func (s *server) patchConfig(r *http.Request) (answer, error) {
	var raw json.RawMessage
	if err := decode(r, &raw); err != nil {
		return answer{}, err
	}
	patch, err := looseStrings(raw)
	if err != nil {
		return answer{}, &badRequest{http.StatusBadRequest, err.Error()}
	}
	if n := patch["name"]; n != nil && *n != name(r) {
		return answer{}, &badRequest{http.StatusBadRequest, "Connector name configuration (" + *n + ") doesn't match connector name in the URL (" + name(r) + ")"}
	}
	info, err := s.w.Patch(r.Context(), name(r), patch)
	if err != nil {
		return answer{}, err
	}
	return ok(docOfInfo(info))
}

func (s *server) remove(r *http.Request) (answer, error) {
	return answer{status: http.StatusNoContent}, s.w.Delete(r.Context(), name(r))
}

func (s *server) status(r *http.Request) (answer, error) {
	st, err := s.w.Status(name(r))
	if err != nil {
		return answer{}, err
	}
	return ok(docOfStatus(st))
}

func (s *server) topics(r *http.Request) (answer, error) {
	return ok(map[string]map[string][]string{name(r): {"topics": s.w.Topics(name(r))}})
}

func (s *server) resetTopics(r *http.Request) (answer, error) {
	s.w.ResetTopics(name(r))
	return answer{status: http.StatusAccepted}, nil
}

func (s *server) target(t topics.TargetState, status int) func(r *http.Request) (answer, error) {
	return func(r *http.Request) (answer, error) {
		return answer{status: status}, s.w.SetTarget(r.Context(), name(r), t)
	}
}

func (s *server) restart(r *http.Request) (answer, error) {
	req := topics.RestartRequest{Connector: name(r), IncludeTasks: flag(r, "includeTasks", false), OnlyFailed: flag(r, "onlyFailed", false)}
	if err := s.w.Restart(r.Context(), req); err != nil {
		return answer{}, err
	}
	if !req.IncludeTasks && !req.OnlyFailed {
		return answer{status: http.StatusNoContent}, nil
	}
	st, err := s.w.Status(name(r))
	if err != nil {
		return answer{}, err
	}
	d := docOfStatus(st)
	// The request is on its way: what it concerns shows as restarting.
	if !req.OnlyFailed || d.Connector.State == topics.Failed {
		d.Connector = restarting(d.Connector)
	}
	for i := range d.Tasks {
		if t := &d.Tasks[i]; req.IncludeTasks && (!req.OnlyFailed || t.State == topics.Failed) {
			t.stateDoc = restarting(t.stateDoc)
		}
	}
	return answer{status: http.StatusAccepted, body: d}, nil
}

func restarting(st stateDoc) stateDoc {
	st.State, st.Trace = topics.Restarting, ""
	return st
}

func (s *server) tasks(r *http.Request) (answer, error) {
	configs, err := s.w.TaskConfigs(name(r))
	if err != nil {
		return answer{}, err
	}
	type doc struct {
		ID     taskDoc           `json:"id"`
		Config map[string]string `json:"config"`
	}
	out := []doc{}
	for i, c := range configs {
		out = append(out, doc{taskDoc{name(r), i}, c})
	}
	return ok(out)
}

func (s *server) taskStatus(r *http.Request) (answer, error) {
	id, err := taskID(r)
	if err != nil {
		return answer{}, err
	}
	st, err := s.w.TaskStatus(id)
	if err != nil {
		return answer{}, err
	}
	return ok(taskStateDoc{st.ID, docOfState(st.Status)})
}

func (s *server) restartTask(r *http.Request) (answer, error) {
	id, err := taskID(r)
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, s.w.RestartTask(id)
}
