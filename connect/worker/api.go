package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/varvehq/varve/connect/plugin"
	"github.com/varvehq/varve/connect/topics"
	"github.com/varvehq/varve/sdk"
)

// ErrorKind classes the errors that a caller can do something about.
type ErrorKind int

// The kinds.
const (
	Invalid   ErrorKind = iota + 1 // the request is wrong
	NotFound                       // no such connector, task or plugin
	Conflict                       // it exists, or a change is under way
	Forbidden                      // switched off
	Internal
)

// Error is an answer to the caller, in Kafka Connect's words.
type Error struct {
	Kind    ErrorKind
	Message string
}

func (e *Error) Error() string { return e.Message }

func errorf(kind ErrorKind, format string, args ...any) error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

func notFound(name string) error { return errorf(NotFound, "Connector %s not found", name) }

// ConnectorInfo is what a connector is.
type ConnectorInfo struct {
	Name   string
	Config map[string]string
	Tasks  []topics.TaskID
	Type   sdk.Kind // empty where its class is unknown
}

// ConnectorStatus is how a connector and its tasks fare.
type ConnectorStatus struct {
	Name      string
	Connector topics.Status
	Tasks     []TaskStatus
	Type      sdk.Kind
}

// TaskStatus is how a task fares.
type TaskStatus struct {
	ID int
	topics.Status
}

// ClusterID asks the brokers for the Kafka cluster's id.
func (w *Worker) ClusterID(ctx context.Context) (string, error) {
	md, err := w.adm.BrokerMetadata(ctx)
	if err != nil {
		return "", err
	}
	return md.Cluster, nil
}

// Connectors lists the connectors, sorted.
func (w *Worker) Connectors() []string { return w.store.Connectors() }

func (w *Worker) kind(config map[string]string) sdk.Kind {
	info, ok := w.env.Plugins.Lookup(config["connector.class"])
	if !ok {
		return ""
	}
	return info.Type
}

// Connector describes a connector.
func (w *Worker) Connector(name string) (ConnectorInfo, error) {
	c, ok := w.store.Connector(name)
	if !ok {
		return ConnectorInfo{}, notFound(name)
	}
	return w.info(c), nil
}

func (w *Worker) info(c topics.Connector) ConnectorInfo {
	info := ConnectorInfo{Name: c.Name, Config: c.Config, Tasks: []topics.TaskID{}, Type: w.kind(c.Config)}
	for i := range c.Tasks {
		info.Tasks = append(info.Tasks, topics.TaskID{Connector: c.Name, Task: i})
	}
	return info
}

// TaskConfigs returns the configurations of a connector's tasks.
func (w *Worker) TaskConfigs(name string) ([]map[string]string, error) {
	c, ok := w.store.Connector(name)
	if !ok {
		return nil, notFound(name)
	}
	return c.Tasks, nil
}

// Status tells how a connector fares.
func (w *Worker) Status(name string) (ConnectorStatus, error) {
	c, exists := w.store.Connector(name)
	st, ok := w.store.Status(topics.TaskID{Connector: name, Task: topics.ConnectorTask})
	if !ok || !exists {
		return ConnectorStatus{}, errorf(NotFound, "No status found for connector %s", name)
	}
	out := ConnectorStatus{Name: name, Connector: st, Type: w.kind(c.Config), Tasks: []TaskStatus{}}
	for _, id := range w.store.TaskIDs(name) {
		if st, ok := w.store.Status(id); ok {
			out.Tasks = append(out.Tasks, TaskStatus{id.Task, st})
		}
	}
	return out, nil
}

// TaskStatus tells how a task fares.
func (w *Worker) TaskStatus(id topics.TaskID) (TaskStatus, error) {
	st, ok := w.store.Status(id)
	if !ok {
		return TaskStatus{}, errorf(NotFound, "No status found for task %s", id)
	}
	return TaskStatus{id.Task, st}, nil
}

// Topics lists the topics that a connector has used.
func (w *Worker) Topics(name string) []string { return w.store.Topics(name) }

// ResetTopics forgets them.
func (w *Worker) ResetTopics(name string) { w.store.ResetTopics(name) }

// Create makes a connector that does not exist yet.
func (w *Worker) Create(ctx context.Context, name string, config map[string]string, initial topics.TargetState) (ConnectorInfo, error) {
	info, _, err := w.put(ctx, name, config, initial, false)
	return info, err
}

// Put makes a connector or gives it a new configuration; created tells which.
func (w *Worker) Put(ctx context.Context, name string, config map[string]string) (info ConnectorInfo, created bool, err error) {
	return w.put(ctx, name, config, "", true)
}

// Patch changes keys of a configuration; a nil value removes its key (KIP-477).
func (w *Worker) Patch(ctx context.Context, name string, patch map[string]*string) (ConnectorInfo, error) {
	c, ok := w.store.Connector(name)
	if !ok {
		return ConnectorInfo{}, notFound(name)
	}
	config := c.Config
	for k, v := range patch {
		if v == nil {
			delete(config, k)
		} else {
			config[k] = *v
		}
	}
	info, _, err := w.put(ctx, name, config, "", true)
	return info, err
}

func (w *Worker) put(ctx context.Context, name string, config map[string]string, initial topics.TargetState, replace bool) (ConnectorInfo, bool, error) {
	config = maps.Clone(config)
	if config["name"] == "" {
		config["name"] = name
	}
	if err := w.check(ctx, config); err != nil {
		return ConnectorInfo{}, false, err
	}
	w.putMu.Lock()
	defer w.putMu.Unlock()
	_, exists := w.store.Connector(name)
	if exists && !replace {
		return ConnectorInfo{}, false, errorf(Conflict, "Connector %s already exists", name)
	}
	if err := w.store.PutConnector(ctx, name, config, initial); err != nil {
		return ConnectorInfo{}, false, err
	}
	c, ok := w.store.Connector(name)
	if !ok {
		return ConnectorInfo{}, false, errorf(Conflict, "Connector %s was removed while it was made", name)
	}
	return w.info(c), !exists, nil
}

// check validates a configuration and gives all that is wrong in one error.
func (w *Worker) check(ctx context.Context, config map[string]string) error {
	if config["connector.class"] == "" {
		return errorf(Invalid, "Connector config contains no connector type")
	}
	res, err := w.Validate(ctx, config["connector.class"], config)
	if err != nil {
		return err
	}
	if res.ErrorCount == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Connector configuration is invalid and contains the following %d error(s):", res.ErrorCount)
	for _, c := range res.Configs {
		for _, e := range c.Value.Errors {
			fmt.Fprintf(&b, "\n%s", e)
		}
	}
	b.WriteString("\nYou can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`")
	return errorf(Invalid, "%s", b.String())
}

// Delete removes a connector. Its offsets stay.
func (w *Worker) Delete(ctx context.Context, name string) error {
	w.putMu.Lock()
	defer w.putMu.Unlock()
	if _, ok := w.store.Connector(name); !ok {
		return notFound(name)
	}
	return w.store.RemoveConnector(ctx, name)
}

// SetTarget pauses, resumes or stops a connector. It returns when the wish is durable, not when it is fulfilled.
func (w *Worker) SetTarget(ctx context.Context, name string, target topics.TargetState) error {
	w.putMu.Lock()
	defer w.putMu.Unlock()
	c, ok := w.store.Connector(name)
	if !ok {
		return errorf(NotFound, "Unknown connector %s", name)
	}
	if c.Target == target {
		return nil
	}
	return w.store.PutTarget(ctx, name, target)
}

// Restart restarts a connector, and its tasks where the request says so.
func (w *Worker) Restart(ctx context.Context, r topics.RestartRequest) error {
	if _, ok := w.store.Connector(r.Connector); !ok {
		return errorf(NotFound, "Unknown connector: %s", r.Connector)
	}
	return w.store.PutRestart(ctx, r)
}

// RestartTask restarts a task.
func (w *Worker) RestartTask(id topics.TaskID) error {
	c, ok := w.store.Connector(id.Connector)
	if !ok {
		return errorf(NotFound, "Unknown connector: %s", id.Connector)
	}
	if id.Task < 0 || id.Task >= len(c.Tasks) {
		return errorf(NotFound, "Unknown task: %s", id)
	}
	w.post(evRestartTask{id})
	return nil
}

// Plugins lists what connectors can be made of.
func (w *Worker) Plugins() []plugin.Info { return w.env.Plugins.List() }

// borrow launches a plugin for a question, apart from a running connector.
func (w *Worker) borrow(ctx context.Context, class string, ask func(plugin.Plugin) error) error {
	p, err := w.env.Plugins.Launch(ctx, class)
	if errors.Is(err, plugin.ErrUnknownClass) {
		return w.unknownClass(class)
	}
	if err != nil {
		return err
	}
	err = ask(p)
	return errors.Join(err, p.Close())
}

func (w *Worker) unknownClass(class string) error {
	var names []string
	for _, i := range w.env.Plugins.List() {
		names = append(names, i.Class)
	}
	return errorf(Invalid, "Failed to find any class that implements Connector and which name matches %s, available connectors are: %s", class, strings.Join(names, ", "))
}
