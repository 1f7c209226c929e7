package topics

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// State is how a connector or a task fares.
type State string

// The states.
const (
	Unassigned State = "UNASSIGNED"
	Running    State = "RUNNING"
	PausedNow  State = "PAUSED"
	Failed     State = "FAILED"
	Restarting State = "RESTARTING"
	StoppedNow State = "STOPPED"   // connectors only
	Destroyed  State = "DESTROYED" // never shown
)

// Status is the status of a connector or a task.
type Status struct {
	State      State
	Trace      string
	WorkerID   string
	Generation int64
	Version    string
}

// TaskID names a task.
type TaskID struct {
	Connector string
	Task      int
}

func (t TaskID) String() string { return t.Connector + "-" + strconv.Itoa(t.Task) }

// ConnectorTask is the number that stands for the connector itself in the place of a task.
const ConnectorTask = -1

type statusDoc struct {
	State      State   `json:"state"`
	Trace      *string `json:"trace"`
	WorkerID   string  `json:"worker_id"`
	Generation int64   `json:"generation"`
	Version    *string `json:"version"`
}

func (s Status) doc() statusDoc {
	d := statusDoc{State: s.State, WorkerID: s.WorkerID, Generation: s.Generation}
	if s.Trace != "" {
		d.Trace = &s.Trace
	}
	if s.Version != "" {
		d.Version = &s.Version
	}
	return d
}

func statusKey(id TaskID) string {
	if id.Task == ConnectorTask {
		return "status-connector-" + id.Connector
	}
	return "status-task-" + id.String()
}

func topicKey(connector, topic string) string {
	return "status-topic-" + topic + ":connector-" + connector
}

// statusTable is the folded status topic, with our own records in it before they are read back.
type statusTable struct {
	status map[TaskID]*statusEntry
	topics map[string]map[string]bool // connector, topic
}

type statusEntry struct {
	Status
	gone    bool
	at      int64 // offset of the record in its partition
	pending int   // our records under way
}

func (t *statusTable) entry(id TaskID) *statusEntry {
	e := t.status[id]
	if e == nil {
		e = &statusEntry{gone: true, at: -1}
		t.status[id] = e
	}
	return e
}

func (t *statusTable) setTopic(connector, topic string, on bool) {
	m := t.topics[connector]
	if m == nil {
		if !on {
			return
		}
		m = map[string]bool{}
		t.topics[connector] = m
	}
	if on {
		m[topic] = true
		return
	}
	delete(m, topic)
}

// apply folds one record in.
func (t *statusTable) apply(key string, value []byte, at int64) error {
	var id TaskID
	switch {
	case strings.HasPrefix(key, "status-topic-"):
		rest := key[len("status-topic-"):]
		i := strings.Index(rest, ":connector-")
		if i < 0 {
			return fmt.Errorf("topic status key without connector")
		}
		t.setTopic(rest[i+len(":connector-"):], rest[:i], value != nil)
		return nil
	case strings.HasPrefix(key, "status-connector-"):
		id = TaskID{key[len("status-connector-"):], ConnectorTask}
	case strings.HasPrefix(key, "status-task-"):
		rest := key[len("status-task-"):]
		i := strings.LastIndexByte(rest, '-')
		if i < 0 {
			return fmt.Errorf("task status key without number")
		}
		n, err := strconv.Atoi(rest[i+1:])
		if err != nil {
			return fmt.Errorf("task status key without number")
		}
		id = TaskID{rest[:i], n}
	default:
		return nil
	}
	e := t.entry(id)
	if e.pending > 0 || at <= e.at {
		return nil // what we are writing, or wrote, comes later
	}
	e.at = at
	if value == nil {
		e.Status, e.gone = Status{}, true
		return nil
	}
	var d statusDoc
	if err := json.Unmarshal(value, &d); err != nil {
		return err
	}
	e.gone = d.State == Destroyed
	e.Status = Status{State: d.State, WorkerID: d.WorkerID, Generation: d.Generation}
	if d.Trace != nil {
		e.Trace = *d.Trace
	}
	if d.Version != nil {
		e.Version = *d.Version
	}
	return nil
}

// tasks lists the tasks of a connector that have a status, by number.
func (t *statusTable) tasks(connector string) []TaskID {
	var ids []TaskID
	for id, e := range t.status {
		if id.Connector == connector && id.Task != ConnectorTask && !e.gone {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b TaskID) int { return a.Task - b.Task })
	return ids
}
