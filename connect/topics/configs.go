package topics

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// TargetState is what the user wants of a connector.
type TargetState string

// The target states, as the config topic spells them.
const (
	Started TargetState = "STARTED"
	Paused  TargetState = "PAUSED"
	Stopped TargetState = "STOPPED"
)

// Connector is what the config topic says of one connector.
type Connector struct {
	Name   string
	Config map[string]string
	// Revision grows with every record that sets Config, also where it sets the same again. It means something within one
	// process only.
	Revision int64
	Target   TargetState
	// Tasks are the task configurations of the last commit, by number; empty while there is none.
	Tasks []map[string]string
	// TasksCurrent reports that Tasks were committed for the present Config and completely. Otherwise they must be made anew.
	TasksCurrent bool
}

// RestartRequest asks for a restart of a connector.
type RestartRequest struct {
	Connector    string
	IncludeTasks bool
	OnlyFailed   bool
}

// ChangeKind says what a config record changed.
type ChangeKind int

// The kinds of changes.
const (
	ConnectorChanged ChangeKind = iota + 1
	ConnectorRemoved
	TargetChanged
	TasksCommitted
	RestartRequested
)

// Change is what one config record did. Connector is a copy, after the change.
type Change struct {
	Kind      ChangeKind
	Connector Connector
	Restart   RestartRequest
}

// ConfigState folds the records of the config topic. It is a plain value without locks.
type ConfigState struct {
	connectors map[string]*connectorState
	targets    map[string]TargetState
	revision   int64
}

type connectorState struct {
	config   map[string]string // nil: no such connector
	revision int64
	tasks    []map[string]string
	current  bool
	pending  map[int]map[string]string
}

// NewConfigState returns the state of an empty topic.
func NewConfigState() *ConfigState {
	return &ConfigState{connectors: map[string]*connectorState{}, targets: map[string]TargetState{}}
}

// Names lists the connectors, sorted.
func (s *ConfigState) Names() []string {
	var names []string
	for name, c := range s.connectors {
		if c.config != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Connector returns a copy of what is known of a connector.
func (s *ConfigState) Connector(name string) (Connector, bool) {
	c := s.connectors[name]
	if c == nil || c.config == nil {
		return Connector{Name: name}, false
	}
	out := Connector{Name: name, Config: maps.Clone(c.config), Revision: c.revision, Target: s.target(name), TasksCurrent: c.current}
	for _, t := range c.tasks {
		out.Tasks = append(out.Tasks, maps.Clone(t))
	}
	return out, true
}

func (s *ConfigState) target(name string) TargetState {
	if t, ok := s.targets[name]; ok {
		return t
	}
	return Started
}

// Apply folds one record in. ok is false where nothing that matters changed (yet). Keys of kinds that are not ours are
// passed over; an error says that a record of ours cannot be read, and leaves the state as it was.
func (s *ConfigState) Apply(key string, value []byte) (ch Change, ok bool, err error) {
	switch {
	case strings.HasPrefix(key, "connector-"):
		return s.applyConnector(key[len("connector-"):], value)
	case strings.HasPrefix(key, "task-"):
		return Change{}, false, s.applyTask(key[len("task-"):], value)
	case strings.HasPrefix(key, "commit-"):
		return s.applyCommit(key[len("commit-"):], value)
	case strings.HasPrefix(key, "target-state-"):
		return s.applyTarget(key[len("target-state-"):], value)
	case strings.HasPrefix(key, "restart-connector-"):
		return s.applyRestart(key[len("restart-connector-"):], value)
	}
	return Change{}, false, nil
}

func (s *ConfigState) change(kind ChangeKind, name string) Change {
	c, _ := s.Connector(name)
	return Change{Kind: kind, Connector: c}
}

func (s *ConfigState) applyConnector(name string, value []byte) (Change, bool, error) {
	if value == nil {
		c := s.connectors[name]
		// All that belongs to the old connector goes with it, so that a new one of that name does not run its tasks.
		delete(s.connectors, name)
		return s.change(ConnectorRemoved, name), c != nil && c.config != nil, nil
	}
	props, err := properties(value)
	if err != nil {
		return Change{}, false, err
	}
	c := s.connectors[name]
	if c == nil {
		c = &connectorState{}
		s.connectors[name] = c
	}
	s.revision++
	c.config, c.revision, c.current = props, s.revision, false
	return s.change(ConnectorChanged, name), true, nil
}

func (s *ConfigState) applyTask(rest string, value []byte) error {
	i := strings.LastIndexByte(rest, '-')
	if i < 0 {
		return fmt.Errorf("task key without number")
	}
	n, err := strconv.Atoi(rest[i+1:])
	if err != nil || n < 0 {
		return fmt.Errorf("task key without number")
	}
	c := s.connectors[rest[:i]]
	if c == nil || c.config == nil {
		return nil // left over from a connector that was removed before
	}
	if value == nil {
		delete(c.pending, n)
		return nil
	}
	props, err := properties(value)
	if err != nil {
		return err
	}
	if c.pending == nil {
		c.pending = map[int]map[string]string{}
	}
	c.pending[n] = props
	return nil
}

func (s *ConfigState) applyCommit(name string, value []byte) (Change, bool, error) {
	c := s.connectors[name]
	if value == nil || c == nil || c.config == nil {
		return Change{}, false, nil
	}
	var doc struct {
		Tasks *int `json:"tasks"`
	}
	if err := json.Unmarshal(value, &doc); err != nil || doc.Tasks == nil || *doc.Tasks < 0 {
		return Change{}, false, fmt.Errorf("commit record without number of tasks")
	}
	pending := c.pending
	c.pending = nil
	tasks := make([]map[string]string, *doc.Tasks)
	complete := len(pending) >= len(tasks)
	for i := range tasks {
		if tasks[i] = pending[i]; tasks[i] == nil {
			complete = false
		}
	}
	if !complete {
		// Compaction took some of them: the set must be made anew.
		c.current = false
		return s.change(TasksCommitted, name), true, nil
	}
	c.tasks, c.current = tasks, true
	return s.change(TasksCommitted, name), true, nil
}

func (s *ConfigState) applyTarget(name string, value []byte) (Change, bool, error) {
	before := s.target(name)
	if value == nil {
		delete(s.targets, name)
	} else {
		var doc struct {
			State   TargetState `json:"state"`
			StateV2 TargetState `json:"state.v2"`
		}
		if err := json.Unmarshal(value, &doc); err != nil {
			return Change{}, false, err
		}
		if doc.StateV2 != "" {
			doc.State = doc.StateV2
		}
		if doc.State != Started && doc.State != Paused && doc.State != Stopped {
			return Change{}, false, fmt.Errorf("unknown target state %q", doc.State)
		}
		s.targets[name] = doc.State
	}
	c := s.connectors[name]
	return s.change(TargetChanged, name), c != nil && c.config != nil && before != s.target(name), nil
}

func (s *ConfigState) applyRestart(name string, value []byte) (Change, bool, error) {
	c := s.connectors[name]
	if value == nil || c == nil || c.config == nil {
		return Change{}, false, nil
	}
	var doc struct {
		IncludeTasks bool `json:"include-tasks"`
		OnlyFailed   bool `json:"only-failed"`
	}
	if err := json.Unmarshal(value, &doc); err != nil {
		return Change{}, false, err
	}
	ch := s.change(RestartRequested, name)
	ch.Restart = RestartRequest{Connector: name, IncludeTasks: doc.IncludeTasks, OnlyFailed: doc.OnlyFailed}
	return ch, true, nil
}

func properties(value []byte) (map[string]string, error) {
	var doc struct {
		Properties map[string]*string `json:"properties"`
	}
	if err := json.Unmarshal(value, &doc); err != nil {
		return nil, err
	}
	if doc.Properties == nil {
		return nil, fmt.Errorf("record without properties")
	}
	props := make(map[string]string, len(doc.Properties))
	for k, v := range doc.Properties {
		if v != nil {
			props[k] = *v
		}
	}
	return props, nil
}

// keyed is a record to be written.
type keyed struct {
	key   string
	value []byte
}

func record(key string, value any) keyed {
	if value == nil {
		return keyed{key: key}
	}
	b, err := marshal(value)
	if err != nil {
		panic(err) // maps of strings and plain structs always encode
	}
	return keyed{key, b}
}

func propertiesRecord(key string, props map[string]string) keyed {
	return record(key, map[string]any{"properties": props})
}

func targetRecord(name string, t TargetState) keyed {
	v1 := t
	if t == Stopped {
		v1 = Paused // what workers of before STOPPED understand
	}
	return record("target-state-"+name, struct {
		State   TargetState `json:"state"`
		StateV2 TargetState `json:"state.v2"`
	}{v1, t})
}
