package worker

import (
	"maps"
	"slices"

	"github.com/varvehq/varve/connect/topics"
)

// phase is how far the run of a connector or a task is.
type phase int

const (
	idle     phase = iota // nothing runs
	starting              // asked to start
	running
	stopping // asked to stop
	failed   // ended, or never came up; waits for a restart
)

func (p phase) live() bool { return p == starting || p == running || p == stopping }

// state is what the herder knows: per connector what is wanted and what runs. step is a pure function of it and an event:
// no clock, no I/O, so scripts test it.
type state struct {
	connectors map[string]*connState
	gens       map[topics.TaskID]int64 // last generation used
	shutdown   bool
}

type connState struct {
	want   topics.Connector
	exists bool

	phase   phase
	gen     int64
	up      bool              // the plugin was launched; tasks can be opened
	config  map[string]string // what it was started with
	rev     int64             // and its revision
	tasks   map[int]*taskState
	dropped bool // its own status says that it is stopped
}

type taskState struct {
	phase   phase
	gen     int64
	config  map[string]string
	paused  bool
	restart bool // start it again once it has ended
}

// The events.
type (
	// evWanted: the config topic says this of a connector now; exists is false where it was removed.
	evWanted struct {
		conn   topics.Connector
		exists bool
	}
	evRestart        topics.RestartRequest
	evRestartTask    struct{ id topics.TaskID }
	evShutdown       struct{}
	evConnectorUp    struct{ id runID }
	evConnectorError struct {
		id    runID
		up    bool // the plugin stays open for its tasks
		trace string
	}
	evConnectorDown struct{ id runID }
	evReconfigure   struct{ id runID }
	evTasksComputed struct {
		id    runID
		tasks []map[string]string
	}
	evTaskUp    struct{ id runID }
	evTaskEnded struct {
		id    runID
		trace string // empty: it ended because it was asked to
	}
)

// runID names one run of a connector (task ConnectorTask) or a task.
type runID struct {
	topics.TaskID
	gen int64
}

// The effects.
type (
	fxStartConnector struct {
		id     runID
		config map[string]string
	}
	fxRestartConnector struct{ id runID } // keep the plugin if it lives, watch anew
	fxStopConnector    struct{ id runID }
	fxComputeTasks     struct {
		id     runID
		config map[string]string
	}
	fxWriteTasks struct {
		name  string
		tasks []map[string]string
	}
	fxStartTask struct {
		id     runID
		config map[string]string
		paused bool
	}
	fxStopTask  struct{ id runID }
	fxPauseTask struct {
		id     runID
		paused bool
	}
	fxStatus struct {
		id    runID
		state topics.State
		trace string
	}
	fxRemoveStatus struct{ name string } // of the connector and all its tasks
	fxPruneStatus  struct {              // of tasks numbered n and up
		name string
		n    int
	}
)

func newState(gens map[topics.TaskID]int64) *state {
	return &state{connectors: map[string]*connState{}, gens: gens}
}

// step takes one event and says what is to be done.
func (s *state) step(ev any) []any {
	switch ev := ev.(type) {
	case evWanted:
		return s.wanted(ev)
	case evRestart:
		return s.restart(ev)
	case evRestartTask:
		c := s.connectors[ev.id.Connector]
		if c == nil || c.tasks[ev.id.Task] == nil {
			return nil
		}
		c.tasks[ev.id.Task].restart = true
		return append([]any{fxStatus{runID{ev.id, c.tasks[ev.id.Task].gen}, topics.Restarting, ""}}, s.reconcile(c)...)
	case evShutdown:
		s.shutdown = true
		var fx []any
		for _, name := range slices.Sorted(maps.Keys(s.connectors)) {
			fx = append(fx, s.reconcile(s.connectors[name])...)
		}
		return fx
	case evConnectorUp, evConnectorError, evConnectorDown, evReconfigure, evTasksComputed:
		return s.connectorEvent(ev)
	case evTaskUp:
		if c, t := s.task(ev.id); t != nil && t.phase == starting {
			t.phase = running
			return append([]any{fxStatus{ev.id, c.runState(), ""}}, s.reconcile(c)...)
		}
	case evTaskEnded:
		return s.taskEnded(ev)
	}
	return nil
}

// runState is what a task or connector that runs is called.
func (c *connState) runState() topics.State {
	if c.want.Target == topics.Paused {
		return topics.PausedNow
	}
	return topics.Running
}

func (c *connState) runID() runID {
	return runID{topics.TaskID{Connector: c.want.Name, Task: topics.ConnectorTask}, c.gen}
}

func (s *state) task(id runID) (*connState, *taskState) {
	c := s.connectors[id.Connector]
	if c == nil {
		return nil, nil
	}
	t := c.tasks[id.Task]
	if t == nil || t.gen != id.gen {
		return c, nil // an earlier run: too late to matter
	}
	return c, t
}

func (s *state) wanted(ev evWanted) []any {
	c := s.connectors[ev.conn.Name]
	if c == nil {
		if !ev.exists {
			return nil
		}
		c = &connState{tasks: map[int]*taskState{}}
		s.connectors[ev.conn.Name] = c
	}
	before := c.runState()
	c.want, c.exists = ev.conn, ev.exists
	var fx []any
	if c.exists && c.want.TasksCurrent {
		fx = append(fx, fxPruneStatus{c.want.Name, len(c.want.Tasks)})
	}
	if now := c.runState(); c.phase == running && now != before {
		fx = append(fx, fxStatus{c.runID(), now, ""})
		if now == topics.Running && c.taskless() && c.rev == c.want.Revision {
			fx = append(fx, fxComputeTasks{c.runID(), c.config})
		}
	}
	return append(fx, s.reconcile(c)...)
}

// taskless reports that the connector has never been asked for tasks. One that was made paused is asked when it is resumed,
// as Kafka Connect does it.
func (c *connState) taskless() bool { return len(c.want.Tasks) == 0 && !c.want.TasksCurrent }

func (s *state) restart(ev evRestart) []any {
	c := s.connectors[ev.Connector]
	if c == nil || s.shutdown || c.want.Target == topics.Stopped {
		return nil
	}
	var fx []any
	if !ev.OnlyFailed || c.phase == failed {
		switch {
		case c.up && (c.phase == running || c.phase == failed):
			c.phase = starting
			fx = append(fx, fxStatus{c.runID(), topics.Restarting, ""}, fxRestartConnector{c.runID()})
		case c.phase == failed:
			c.phase = idle
			fx = append(fx, fxStatus{c.runID(), topics.Restarting, ""})
		}
	}
	if ev.IncludeTasks {
		for _, n := range slices.Sorted(maps.Keys(c.tasks)) {
			if t := c.tasks[n]; !ev.OnlyFailed || t.phase == failed {
				t.restart = true
				fx = append(fx, fxStatus{runID{topics.TaskID{Connector: c.want.Name, Task: n}, t.gen}, topics.Restarting, ""})
			}
		}
	}
	return append(fx, s.reconcile(c)...)
}

func (s *state) connectorEvent(ev any) []any {
	var id runID
	switch ev := ev.(type) {
	case evConnectorUp:
		id = ev.id
	case evConnectorError:
		id = ev.id
	case evConnectorDown:
		id = ev.id
	case evReconfigure:
		id = ev.id
	case evTasksComputed:
		id = ev.id
	}
	c := s.connectors[id.Connector]
	if c == nil || c.gen != id.gen {
		return nil
	}
	var fx []any
	switch ev := ev.(type) {
	case evConnectorUp:
		c.up = true
		if c.phase == starting {
			c.phase = running
			fx = append(fx, fxStatus{id, c.runState(), ""})
			if c.want.Target != topics.Paused || !c.taskless() {
				fx = append(fx, fxComputeTasks{id, c.config})
			}
		}
	case evConnectorError:
		c.up = ev.up
		if c.phase == starting || c.phase == running {
			c.phase = failed
			fx = append(fx, fxStatus{id, topics.Failed, ev.trace})
		}
		if c.phase == stopping && !ev.up {
			c.phase = idle
		}
	case evConnectorDown:
		c.phase, c.up = idle, false
	case evReconfigure:
		if c.phase == running {
			fx = append(fx, fxComputeTasks{id, c.config})
		}
	case evTasksComputed:
		current := c.want.TasksCurrent && slices.EqualFunc(c.want.Tasks, ev.tasks, maps.Equal)
		if c.phase == running && c.rev == c.want.Revision && c.wantsRun(s) && !current {
			fx = append(fx, fxWriteTasks{c.want.Name, ev.tasks})
		}
	}
	return append(fx, s.reconcile(c)...)
}

func (s *state) taskEnded(ev evTaskEnded) []any {
	c, t := s.task(ev.id)
	if t == nil {
		return nil
	}
	if ev.trace != "" && t.phase != stopping {
		t.phase = failed
		return append([]any{fxStatus{ev.id, topics.Failed, ev.trace}}, s.reconcile(c)...)
	}
	delete(c.tasks, ev.id.Task)
	var fx []any
	switch {
	case c.want.TasksCurrent && ev.id.Task >= len(c.want.Tasks) && !s.shutdown:
		fx = append(fx, fxPruneStatus{c.want.Name, len(c.want.Tasks)})
	case !t.restart || s.shutdown:
		fx = append(fx, fxStatus{ev.id, topics.Unassigned, ""})
	}
	return append(fx, s.reconcile(c)...)
}

// wantsRun reports whether the connector is to run at all.
func (c *connState) wantsRun(s *state) bool {
	return c.exists && !s.shutdown && c.want.Target != topics.Stopped
}

// reconcile asks for what brings a connector nearer to what is wanted. Order is what makes it safe: tasks end before their
// connector does, and both before their successors start.
func (s *state) reconcile(c *connState) []any {
	fits := c.wantsRun(s) && (c.phase == idle || c.rev == c.want.Revision)
	fx := s.reconcileTasks(c, fits)
	live := false
	for _, t := range c.tasks {
		live = live || t.phase.live()
	}
	if !fits && !live {
		switch {
		case c.up && (c.phase == running || c.phase == failed):
			c.phase = stopping
			fx = append(fx, fxStopConnector{c.runID()})
		case c.phase == starting:
			c.phase = stopping
			fx = append(fx, fxStopConnector{c.runID()})
		case c.phase == failed:
			c.phase = idle
		}
	}
	if c.phase == idle && c.wantsRun(s) && !live {
		c.phase, c.config, c.rev, c.dropped = starting, c.want.Config, c.want.Revision, false
		id := topics.TaskID{Connector: c.want.Name, Task: topics.ConnectorTask}
		s.gens[id]++
		c.gen = s.gens[id]
		return append(fx, fxStartConnector{c.runID(), c.config})
	}
	if c.phase == idle && !live && !c.wantsRun(s) {
		fx = append(fx, s.rest(c)...)
	}
	return fx
}

// rest leaves a connector that does not run any more.
func (s *state) rest(c *connState) []any {
	switch {
	case !c.exists:
		delete(s.connectors, c.want.Name)
		return []any{fxRemoveStatus{c.want.Name}}
	case c.dropped:
		return nil
	case s.shutdown:
		c.dropped = true
		return []any{fxStatus{c.runID(), topics.Unassigned, ""}}
	}
	c.dropped = true
	clear(c.tasks)
	fx := []any{fxStatus{c.runID(), topics.StoppedNow, ""}, fxPruneStatus{c.want.Name, 0}}
	if len(c.want.Tasks) > 0 {
		fx = append(fx, fxWriteTasks{c.want.Name, nil})
	}
	return fx
}

func (s *state) reconcileTasks(c *connState, fits bool) []any {
	var fx []any
	wantTasks := fits && c.want.TasksCurrent
	paused := c.want.Target == topics.Paused
	for _, n := range slices.Sorted(maps.Keys(c.tasks)) {
		t := c.tasks[n]
		id := runID{topics.TaskID{Connector: c.want.Name, Task: n}, t.gen}
		// While new task configurations are made, the present ones run on; a new configuration of the connector ends them.
		keep := fits && !t.restart && (!c.want.TasksCurrent || n < len(c.want.Tasks) && maps.Equal(t.config, c.want.Tasks[n]))
		switch {
		case (t.phase == starting || t.phase == running) && !keep:
			t.phase = stopping
			fx = append(fx, fxStopTask{id})
		case t.phase == running && t.paused != paused:
			t.paused = paused
			fx = append(fx, fxPauseTask{id, paused}, fxStatus{id, c.runState(), ""})
		case t.phase == failed && !keep:
			delete(c.tasks, n)
		}
	}
	if !wantTasks || !c.up {
		return fx
	}
	for n, config := range c.want.Tasks {
		if c.tasks[n] != nil {
			continue
		}
		id := topics.TaskID{Connector: c.want.Name, Task: n}
		s.gens[id]++
		c.tasks[n] = &taskState{phase: starting, gen: s.gens[id], config: config, paused: paused}
		fx = append(fx, fxStartTask{runID{id, s.gens[id]}, config, paused})
	}
	return fx
}

// quiet reports that nothing runs any more.
func (s *state) quiet() bool {
	for _, c := range s.connectors {
		if c.phase.live() || c.up {
			return false
		}
		for _, t := range c.tasks {
			if t.phase.live() {
				return false
			}
		}
	}
	return true
}
