package topics

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/varvehq/varve/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func cluster(t *testing.T, opts ...kfake.Opt) []kgo.Opt {
	t.Helper()
	c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}
}

func open(t *testing.T, client []kgo.Opt, onChange func(Change)) *Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := Open(ctx, DefaultConfig(), Env{Log: slog.New(slog.DiscardHandler), Client: client, OnChange: onChange})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStoreSurvivesReopening(t *testing.T) {
	client := cluster(t)
	ctx := t.Context()
	changes := make(chan Change, 10)
	s := open(t, client, func(ch Change) { changes <- ch })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.PutConnector(ctx, "c", map[string]string{"name": "c"}, Stopped))
	must(s.PutTasks(ctx, "c", []map[string]string{{"t": "0"}, {"t": "1"}}))
	must(s.PutTarget(ctx, "c", Paused))
	must(s.PutConnector(ctx, "gone", map[string]string{}, ""))
	must(s.RemoveConnector(ctx, "gone"))
	part := func(doc string) *sdk.SourcePartition { return sdk.NewSourcePartition(doc) }
	must(s.PutOffsets(ctx, "c", []sdk.PartitionOffset{{Source: part(`{"a":1,"b":"<x>"}`), Offset: []byte(`{"o":1}`)}, {Source: part(`{"a":2}`), Offset: []byte(`{"o":5}`)}}))
	// The same partition in another spelling is the same record key.
	must(s.PutOffsets(ctx, "c", []sdk.PartitionOffset{{Source: part(`{ "b":"<x>", "a":1}`), Offset: []byte(`{"o":2}`)}, {Source: part(`{"a":2}`)}}))
	id := TaskID{"c", 1}
	s.PutStatus(id, Status{State: Running, WorkerID: "w", Generation: 3})
	s.PutStatus(id, Status{State: Failed, Trace: "boom", WorkerID: "w", Generation: 4})
	s.PutTopic("c", 1, "orders")
	must(s.Flush(ctx))

	check := func(s *Store) {
		t.Helper()
		want := Connector{Name: "c", Config: map[string]string{"name": "c"}, Revision: 1, Target: Paused, TasksCurrent: true, Tasks: []map[string]string{{"t": "0"}, {"t": "1"}}}
		got, ok := s.Connector("c")
		if d := cmp.Diff(want, got); d != "" || !ok {
			t.Error(d)
		}
		if d := cmp.Diff([]string{"c"}, s.Connectors()); d != "" {
			t.Error(d)
		}
		offs := s.Offsets("c")
		if len(offs) != 1 || string(offs[0].Source.JSON) != `{"a":1,"b":"<x>"}` || string(offs[0].Offset) != `{"o":2}` {
			t.Errorf("offsets %v", offs)
		}
		if st, ok := s.Status(id); !ok || st.State != Failed || st.Trace != "boom" || st.Generation != 4 {
			t.Errorf("status %+v", st)
		}
		if d := cmp.Diff([]string{"orders"}, s.Topics("c")); d != "" {
			t.Error(d)
		}
	}
	check(s)
	s.Close()
	s = open(t, client, nil)
	check(s)
	s.RemoveStatus("c")
	must(s.Flush(ctx))
	s.Close()
	s = open(t, client, nil)
	if _, ok := s.Status(id); ok || len(s.Topics("c")) != 0 {
		t.Error("removed status is back")
	}
	s.Close()
	var kinds []ChangeKind
	for len(changes) > 0 {
		kinds = append(kinds, (<-changes).Kind)
	}
	if d := cmp.Diff([]ChangeKind{ConnectorChanged, TasksCommitted, TargetChanged, ConnectorChanged, ConnectorRemoved}, kinds); d != "" {
		t.Error(d)
	}
}

func TestOffsetRecordsAreConnects(t *testing.T) {
	client := cluster(t)
	s := open(t, client, nil)
	defer s.Close()
	if err := s.PutOffsets(t.Context(), `my "conn"`, []sdk.PartitionOffset{{Source: sdk.NewSourcePartition(`{"server":"shop"}`), Offset: []byte(`{"lsn":9223372036854775807}`)}}); err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(append(client, kgo.ConsumeTopics(DefaultConfig().OffsetTopic))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	recs := cl.PollFetches(t.Context()).Records()
	if len(recs) != 1 || string(recs[0].Key) != `["my \"conn\"",{"server":"shop"}]` || string(recs[0].Value) != `{"lsn":9223372036854775807}` {
		t.Errorf("got %s = %s", recs[0].Key, recs[0].Value)
	}
}

func TestTopicThatForgetsIsRefused(t *testing.T) {
	client := cluster(t, kfake.SeedTopics(1, DefaultConfig().ConfigTopic))
	_, err := Open(t.Context(), DefaultConfig(), Env{Log: slog.New(slog.DiscardHandler), Client: client})
	if err == nil {
		t.Fatal("a config topic with cleanup.policy=delete was taken")
	}
}
