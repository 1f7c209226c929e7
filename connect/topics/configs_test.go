package topics

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

type rec struct{ key, value string } // value "-" is null

func fold(t *testing.T, recs ...rec) (*ConfigState, []ChangeKind) {
	t.Helper()
	s := NewConfigState()
	var kinds []ChangeKind
	for _, r := range recs {
		var value []byte
		if r.value != "-" {
			value = []byte(r.value)
		}
		ch, ok, err := s.Apply(r.key, value)
		if err != nil {
			t.Fatalf("%s: %v", r.key, err)
		}
		if ok {
			kinds = append(kinds, ch.Kind)
		}
	}
	return s, kinds
}

var (
	conn    = rec{"connector-c", `{"properties":{"a":"1"}}`}
	task0   = rec{"task-c-0", `{"properties":{"t":"0"}}`}
	task1   = rec{"task-c-1", `{"properties":{"t":"1"}}`}
	commit1 = rec{"commit-c", `{"tasks":1}`}
	commit2 = rec{"commit-c", `{"tasks":2}`}
)

func TestTasksApplyAtCommit(t *testing.T) {
	s, kinds := fold(t, conn, task0)
	if c, _ := s.Connector("c"); len(c.Tasks) != 0 || c.TasksCurrent {
		t.Errorf("before the commit: %+v", c)
	}
	if d := cmp.Diff([]ChangeKind{ConnectorChanged}, kinds); d != "" {
		t.Error(d)
	}
	s, kinds = fold(t, conn, task0, task1, commit2)
	want := Connector{Name: "c", Config: map[string]string{"a": "1"}, Revision: 1, Target: Started, TasksCurrent: true, Tasks: []map[string]string{{"t": "0"}, {"t": "1"}}}
	if c, _ := s.Connector("c"); cmp.Diff(want, c) != "" {
		t.Error(cmp.Diff(want, c))
	}
	if d := cmp.Diff([]ChangeKind{ConnectorChanged, TasksCommitted}, kinds); d != "" {
		t.Error(d)
	}
}

func TestInconsistentTasksMustBeMadeAnew(t *testing.T) {
	s, _ := fold(t, conn, task1, commit2)
	if c, ok := s.Connector("c"); !ok || c.TasksCurrent || len(c.Tasks) != 0 {
		t.Errorf("got %+v", c)
	}
}

func TestNewConfigOutdatesTasks(t *testing.T) {
	s, _ := fold(t, conn, task0, commit1, rec{"connector-c", `{"properties":{"a":"2"}}`})
	if c, _ := s.Connector("c"); c.TasksCurrent {
		t.Errorf("got %+v", c)
	}
}

// KAFKA-8869: a connector that is deleted and made again does not run the old one's tasks, also when compaction has taken
// the tombstone.
func TestDeleteAndCreateAgain(t *testing.T) {
	for name, recs := range map[string][]rec{
		"tombstone seen":      {conn, task0, commit1, {"connector-c", "-"}, {"target-state-c", "-"}, conn},
		"tombstone compacted": {task0, commit1, conn},
	} {
		s, _ := fold(t, recs...)
		if c, ok := s.Connector("c"); !ok || len(c.Tasks) != 0 || c.TasksCurrent {
			t.Errorf("%s: got %+v", name, c)
		}
	}
	s, kinds := fold(t, conn, rec{"connector-c", "-"})
	if len(s.Names()) != 0 || kinds[1] != ConnectorRemoved {
		t.Errorf("got %v %v", s.Names(), kinds)
	}
}

func TestTargetStates(t *testing.T) {
	for _, c := range []struct {
		value string
		want  TargetState
	}{
		{`{"state":"PAUSED"}`, Paused}, {`{"state":"PAUSED","state.v2":"STOPPED"}`, Stopped}, {`{"state":"STARTED","state.v2":"STARTED"}`, Started}, {"-", Started},
	} {
		s, _ := fold(t, conn, rec{"target-state-c", c.value})
		if got, _ := s.Connector("c"); got.Target != c.want {
			t.Errorf("%s: %s", c.value, got.Target)
		}
	}
	// An initial state comes before the connector's own record.
	s, kinds := fold(t, rec{"target-state-c", `{"state":"PAUSED","state.v2":"STOPPED"}`}, conn)
	if got, _ := s.Connector("c"); got.Target != Stopped || len(kinds) != 1 {
		t.Errorf("%v %v", got, kinds)
	}
	if got := string(targetRecord("c", Stopped).value); got != `{"state":"PAUSED","state.v2":"STOPPED"}` {
		t.Error(got)
	}
}

func TestUnreadableRecordsLeaveTheState(t *testing.T) {
	s, _ := fold(t, conn, task0, commit1)
	before, _ := s.Connector("c")
	for _, r := range []rec{{"connector-c", `{"x":1}`}, {"connector-c", `{`}, {"commit-c", `{}`}, {"task-c-x", `{}`}, {"target-state-c", `{"state":"ODD"}`}} {
		if _, ok, err := s.Apply(r.key, []byte(r.value)); err == nil || ok {
			t.Errorf("%v: no error", r)
		}
	}
	if after, _ := s.Connector("c"); cmp.Diff(before, after) != "" {
		t.Error(cmp.Diff(before, after))
	}
	if _, ok, err := s.Apply("session-key", []byte(`{}`)); ok || err != nil {
		t.Errorf("a key of another kind: %v %v", ok, err)
	}
}

func TestRestartRequest(t *testing.T) {
	s, _ := fold(t, conn)
	ch, ok, err := s.Apply("restart-connector-c", []byte(`{"include-tasks":true,"only-failed":false}`))
	if err != nil || !ok || ch.Restart != (RestartRequest{Connector: "c", IncludeTasks: true}) {
		t.Errorf("%+v %v %v", ch, ok, err)
	}
}

func FuzzApply(f *testing.F) {
	f.Add("connector-c", []byte(`{"properties":{"a":"1"}}`))
	f.Add("task-c-0", []byte(`{"properties":{"a":null}}`))
	f.Add("commit-c", []byte(`{"tasks":1}`))
	f.Add("target-state-c", []byte(`{"state":"PAUSED"}`))
	f.Add(`["c",{"a":1}]`, []byte(`{"o":1}`))
	f.Add("status-task-c-0", []byte(`{"state":"RUNNING"}`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		s := NewConfigState()
		_, _, _ = s.Apply("connector-c", []byte(`{"properties":{}}`))
		_, _, _ = s.Apply(key, value)
		o := offsetTable{connectors: map[string]map[string]*offsetEntry{}}
		_ = o.apply([]byte(key), value, 0)
		st := statusTable{status: map[TaskID]*statusEntry{}, topics: map[string]map[string]bool{}}
		_ = st.apply(key, value, 0)
	})
}
