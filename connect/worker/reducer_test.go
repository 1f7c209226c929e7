package worker

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/varvehq/varve/connect/topics"
)

// TestReducer runs the scripts of testdata/reducer. Every command is an event; what it prints are the effects, in order.
//
//	want c [target=STARTED|PAUSED|STOPPED] [v=<config version>] [tasks=<n>] [current=false] [gone]
//	up c | error c [up] trace | down c | computed c <n> | reconfigure c       of the connector's present run; gen=<n> for another
//	task-up c-0 | task-ended c-0 [trace]
//	restart c [tasks] [failed] | restart-task c-0 | shutdown | quiet
func TestReducer(t *testing.T) {
	datadriven.Walk(t, "testdata/reducer", func(t *testing.T, path string) {
		s := newState(map[topics.TaskID]int64{})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "quiet" {
				return fmt.Sprintln(s.quiet())
			}
			var out strings.Builder
			for _, fx := range s.step(scriptEvent(t, s, d)) {
				fmt.Fprintln(&out, describe(fx))
			}
			return out.String()
		})
	})
}

func scriptEvent(t *testing.T, s *state, d *datadriven.TestData) any {
	arg := func(i int) string {
		if i < len(d.CmdArgs) {
			return d.CmdArgs[i].Key
		}
		return ""
	}
	val := func(key, def string) string {
		for _, a := range d.CmdArgs {
			if a.Key == key && len(a.Vals) > 0 {
				return a.Vals[0]
			}
		}
		return def
	}
	name, task := arg(0), topics.ConnectorTask
	if n, num, ok := strings.Cut(name, "-"); ok {
		i, err := strconv.Atoi(num)
		if err != nil {
			t.Fatal(err)
		}
		name, task = n, i
	}
	id := runID{TaskID: topics.TaskID{Connector: name, Task: task}}
	if c := s.connectors[name]; c != nil {
		id.gen = c.gen
		if run := c.tasks[task]; run != nil {
			id.gen = run.gen
		}
	}
	if g := val("gen", ""); g != "" {
		id.gen, _ = strconv.ParseInt(g, 10, 64)
	}
	switch d.Cmd {
	case "want":
		n, _ := strconv.Atoi(val("tasks", "0"))
		rev, _ := strconv.ParseInt(val("v", "1"), 10, 64)
		return evWanted{topics.Connector{Name: name, Revision: rev, Config: map[string]string{"v": val("v", "1")}, Target: topics.TargetState(val("target", "STARTED")),
			Tasks: scriptTasks(n, val("of", "1")), TasksCurrent: val("current", "true") == "true" && val("tasks", "") != ""}, !d.HasArg("gone")}
	case "up":
		return evConnectorUp{id}
	case "error":
		return evConnectorError{id, d.HasArg("up"), "boom"}
	case "down":
		return evConnectorDown{id}
	case "reconfigure":
		return evReconfigure{id}
	case "computed":
		n, _ := strconv.Atoi(arg(1))
		return evTasksComputed{id, scriptTasks(n, val("of", "1"))}
	case "task-up":
		return evTaskUp{id}
	case "task-ended":
		return evTaskEnded{id, arg(1)}
	case "restart":
		return evRestart{Connector: name, IncludeTasks: d.HasArg("tasks"), OnlyFailed: d.HasArg("failed")}
	case "restart-task":
		return evRestartTask{id.TaskID}
	case "shutdown":
		return evShutdown{}
	}
	t.Fatalf("unknown command %s", d.Cmd)
	return nil
}

func scriptTasks(n int, of string) []map[string]string {
	var tasks []map[string]string
	for i := range n {
		tasks = append(tasks, map[string]string{"i": strconv.Itoa(i), "of": of})
	}
	return tasks
}

func describe(fx any) string {
	run := func(id runID) string {
		if id.Task == topics.ConnectorTask {
			return fmt.Sprintf("%s gen %d", id.Connector, id.gen)
		}
		return fmt.Sprintf("%s gen %d", id.TaskID, id.gen)
	}
	switch fx := fx.(type) {
	case fxStartConnector:
		return "start connector " + run(fx.id) + " v" + fx.config["v"]
	case fxRestartConnector:
		return "restart connector " + run(fx.id)
	case fxStopConnector:
		return "stop connector " + run(fx.id)
	case fxComputeTasks:
		return "compute tasks " + run(fx.id)
	case fxWriteTasks:
		return fmt.Sprintf("write %d tasks of %s", len(fx.tasks), fx.name)
	case fxStartTask:
		return fmt.Sprintf("start task %s paused=%v", run(fx.id), fx.paused)
	case fxStopTask:
		return "stop task " + run(fx.id)
	case fxPauseTask:
		return fmt.Sprintf("pause task %s %v", run(fx.id), fx.paused)
	case fxStatus:
		return strings.TrimSpace(fmt.Sprintf("status %s %s %s", run(fx.id), fx.state, fx.trace))
	case fxRemoveStatus:
		return "remove status of " + fx.name
	case fxPruneStatus:
		return fmt.Sprintf("prune status of %s from %d", fx.name, fx.n)
	}
	return fmt.Sprintf("%T", fx)
}
