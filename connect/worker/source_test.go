package worker

import (
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/connect/topics"
	"github.com/varvehq/varve/sdk"
)

func source(extra ...string) map[string]string {
	m := map[string]string{"connector.class": "counter"}
	for i := 0; i < len(extra); i += 2 {
		m[extra[i]] = extra[i+1]
	}
	return m
}

func TestSourceDeliversAndAcknowledges(t *testing.T) {
	c := newCounter("out", 100)
	b := newBench(t, fakePlugins{"counter": c})
	b.create("src", source())
	b.awaitState("src", 0, topics.Running)
	c.await(t, "acknowledgement of 99", func() bool { return c.mu.acked == 99 })
	recs := b.read("out", 100)
	for i, r := range recs {
		if string(r.Value) != strconv.Itoa(i) || string(r.Key) != "k" {
			t.Fatalf("record %d is %s=%s", i, r.Key, r.Value)
		}
	}
	offs, err := b.w.Offsets(t.Context(), "src")
	if err != nil || len(offs) != 1 || string(offs[0].Offset) != `{"n":99}` || string(offs[0].Partition) != `{"task":0}` {
		t.Errorf("offsets %v %v", offs, err)
	}
	if got := b.w.Topics("src"); len(got) != 1 || got[0] != "out" {
		t.Errorf("topics %v", got)
	}
	// A new worker goes on where the old one was.
	b.close()
	b.open()
	c.set(func() { c.mu.limit = 150 })
	c.await(t, "acknowledgement of 149", func() bool { return c.mu.acked == 149 })
	if recs := b.read("out", 150); string(recs[100].Value) != "100" || len(recs) != 150 {
		t.Errorf("after the restart comes %s, of %d", recs[100].Value, len(recs))
	}
	if now := c.snapshot(); now.back || now.most != 1 {
		t.Errorf("acknowledged backwards: %v; tasks at once: %d", now.back, now.most)
	}
}

// Offsets that cannot be written are not acknowledged, and after the task's end the records come again: nothing is lost.
func TestDiesBetweenProduceAndOffsets(t *testing.T) {
	c := newCounter("out", 10)
	b := newBench(t, fakePlugins{"counter": c})
	b.refuseOffsets()
	b.create("src", source())
	b.awaitState("src", 0, topics.Failed)
	if acked := c.snapshot().acked; acked != -1 {
		t.Fatalf("acknowledged %d though the offsets were refused", acked)
	}
	b.refusing.Store(false)
	b.close()
	b.open()
	if err := b.w.Restart(t.Context(), topics.RestartRequest{Connector: "src", IncludeTasks: true}); err != nil {
		t.Fatal(err)
	}
	c.await(t, "acknowledgement of 9", func() bool { return c.mu.acked == 9 })
	recs := b.read("out", 20)
	for i := range 10 {
		if string(recs[i].Value) != strconv.Itoa(i) || string(recs[i+10].Value) != strconv.Itoa(i) {
			t.Errorf("record %d: %s, again %s", i, recs[i].Value, recs[i+10].Value)
		}
	}
}

// refuseOffsets makes the cluster refuse writes to the offset topic.
func (b *bench) refuseOffsets() {
	b.refuse(topics.DefaultConfig().OffsetTopic, kerr.TopicAuthorizationFailed.Code)
}

func (b *bench) refuse(topic string, code int16) {
	b.refusing.Store(true)
	b.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.cluster.KeepControl()
		if !b.refusing.Load() {
			return nil, nil, false
		}
		r := req.(*kmsg.ProduceRequest)
		resp := r.ResponseKind().(*kmsg.ProduceResponse)
		hit := false
		for _, rt := range r.Topics {
			name := rt.Topic
			if name == "" {
				if ti := b.cluster.TopicIDInfo(rt.TopicID); ti != nil {
					name = ti.Topic
				}
			}
			hit = hit || name == topic
			st := kmsg.NewProduceResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewProduceResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, code
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, hit
	})
}

// KAFKA-8586: a producer that is refused ends the task, and its offsets do not move on.
func TestRefusedRecordFailsTheTask(t *testing.T) {
	c := newCounter("out", 10)
	b := newBench(t, fakePlugins{"counter": c})
	b.refuse("out", kerr.TopicAuthorizationFailed.Code)
	b.create("src", source())
	st := b.awaitState("src", 0, topics.Failed)
	if acked := c.snapshot().acked; st.Trace == "" || acked != -1 || len(b.w.store.Offsets("src")) != 0 {
		t.Errorf("trace %q, acknowledged %d, offsets %v", st.Trace, acked, b.w.store.Offsets("src"))
	}
}

// The trace of a task whose topic was deleted says so, and what to do; a restart makes the topic and goes on.
func TestSourceWhoseTopicIsDeleted(t *testing.T) {
	c := newCounter("out", 10)
	b := newBench(t, fakePlugins{"counter": c})
	b.create("src", source())
	c.await(t, "acknowledgement of 9", func() bool { return c.mu.acked == 9 })
	if _, err := b.adm.DeleteTopic(t.Context(), "out"); err != nil {
		t.Fatal(err)
	}
	c.set(func() { c.mu.limit = 20 })
	if st := b.awaitState("src", 0, topics.Failed); !strings.Contains(st.Trace, "topic out was deleted") || !strings.Contains(st.Trace, "restart the task") {
		t.Errorf("trace %q", st.Trace)
	}
	if err := b.w.RestartTask(topics.TaskID{Connector: "src"}); err != nil {
		t.Fatal(err)
	}
	c.await(t, "acknowledgement of 19", func() bool { return c.mu.acked == 19 })
}

// KAFKA-14079: with errors.tolerance=all offsets go on behind refused records.
func TestToleratedRefusedRecords(t *testing.T) {
	c := newCounter("out", 10)
	b := newBench(t, fakePlugins{"counter": c})
	b.refuse("out", kerr.TopicAuthorizationFailed.Code)
	b.create("src", source("errors.tolerance", "all"))
	c.await(t, "acknowledgement of 9", func() bool { return c.mu.acked == 9 })
}

func TestRecordThatCannotBeConverted(t *testing.T) {
	bad := func(n int) sdk.Value {
		if n == 5 {
			return sdk.Value{Schema: sdk.Of(sdk.Int32), Data: []byte{0x80}} // truncated
		}
		return sdk.TextValue(strconv.Itoa(n))
	}
	c := newCounter("out", 10)
	c.value = bad
	b := newBench(t, fakePlugins{"counter": c})
	b.create("strict", source())
	b.awaitState("strict", 0, topics.Failed)
	if acked := c.snapshot().acked; acked != 4 {
		t.Errorf("acknowledged %d, want 4: what is before the bad record", acked)
	}
	if err := b.w.Delete(t.Context(), "strict"); err != nil {
		t.Fatal(err)
	}
	b.create("lenient", source("errors.tolerance", "all"))
	c.await(t, "acknowledgement of 9", func() bool { return c.mu.acked == 9 })
}

func TestLifeCycle(t *testing.T) {
	c := newCounter("out", 10)
	b := newBench(t, fakePlugins{"counter": c})
	ctx := t.Context()
	b.create("src", source())
	c.await(t, "acknowledgement of 9", func() bool { return c.mu.acked == 9 })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(b.w.SetTarget(ctx, "src", topics.Paused))
	b.awaitState("src", 0, topics.PausedNow)
	b.awaitState("src", -1, topics.PausedNow)
	must(b.w.SetTarget(ctx, "src", topics.Started))
	b.awaitState("src", 0, topics.Running)
	c.set(func() { c.mu.limit = 20 })
	c.await(t, "acknowledgement of 19", func() bool { return c.mu.acked == 19 })

	if _, err := b.w.AlterOffsets(ctx, "src", []Offset{{[]byte(`{"task":0}`), []byte(`{"n":4}`)}}); err == nil {
		t.Error("offsets of a running connector were altered")
	}
	must(b.w.SetTarget(ctx, "src", topics.Stopped))
	b.awaitState("src", -1, topics.StoppedNow)
	for {
		if info, err := b.w.Connector("src"); err != nil || len(info.Tasks) == 0 {
			break
		}
	}
	if _, ok := b.w.store.Status(topics.TaskID{Connector: "src", Task: 0}); ok {
		t.Error("a stopped connector's task has a status")
	}
	_, err := b.w.AlterOffsets(ctx, "src", []Offset{{[]byte(`{"task":0}`), []byte(`{"n":4}`)}})
	must(err)
	must(b.w.SetTarget(ctx, "src", topics.Started))
	b.awaitState("src", 0, topics.Running)
	b.read("out", 35)
	c.await(t, "task", func() bool { return c.mu.acked == 19 })

	// A new configuration restarts the task; more tasks come, fewer go.
	_, _, err = b.w.Put(ctx, "src", source("tasks.max", "2", "tasks", "2"))
	must(err)
	b.awaitState("src", 1, topics.Running)
	_, _, err = b.w.Put(ctx, "src", source("tasks.max", "2", "tasks", "1"))
	must(err)
	b.awaitState("src", 1, "")
	b.awaitState("src", 0, topics.Running)

	// KAFKA-8869: delete and create again.
	must(b.w.Delete(ctx, "src"))
	b.awaitState("src", -1, "")
	if _, err := b.w.Status("src"); err == nil {
		t.Error("a deleted connector has a status")
	}
	b.create("src", source("tasks", "1"))
	b.awaitState("src", 0, topics.Running)
	if most := c.snapshot().most; most > 2 {
		t.Errorf("%d tasks were open at once", most)
	}
}

func TestConnectorThatFails(t *testing.T) {
	b := newBench(t, fakePlugins{"counter": newCounter("out", 1)})
	b.create("many", source("tasks", "3"))
	if st := b.awaitState("many", -1, topics.Failed); st.Trace == "" {
		t.Error("no trace")
	}
	b.create("odd", source("fail.tasks", "nothing to do"))
	if st := b.awaitState("odd", -1, topics.Failed); st.Trace != "nothing to do" {
		t.Errorf("trace %q", st.Trace)
	}
	if _, _, err := b.w.Put(t.Context(), "odd", source()); err != nil {
		t.Fatal(err)
	}
	b.awaitState("odd", 0, topics.Running)
}

func TestTopicCreation(t *testing.T) {
	c := newCounter("made", 1)
	b := newBench(t, fakePlugins{"counter": c})
	b.create("src", source("topic.creation.groups", "special", "topic.creation.special.include", "ma.*", "topic.creation.special.partitions", "3",
		"topic.creation.special.cleanup.policy", "compact", "topic.creation.default.partitions", "1", "topic.creation.default.replication.factor", "1",
		"transforms", "r", "transforms.r.type", "RegexRouter", "transforms.r.regex", "(ma)de", "transforms.r.replacement", "$1x"))
	c.await(t, "acknowledgement", func() bool { return c.mu.acked == 0 })
	tops, err := b.adm.ListTopics(t.Context(), "max", "made")
	if err != nil || len(tops["max"].Partitions) != 3 || len(tops["made"].Partitions) != 0 {
		t.Errorf("topics %v %v", tops, err)
	}
	rcs, err := b.adm.DescribeTopicConfigs(t.Context(), "max")
	if err != nil {
		t.Fatal(err)
	}
	for _, cfg := range rcs[0].Configs {
		if cfg.Key == "cleanup.policy" && *cfg.Value != "compact" {
			t.Errorf("cleanup.policy=%s", *cfg.Value)
		}
	}
}

func TestSourceConfigurationsThatAreRefused(t *testing.T) {
	for want, conf := range map[string]map[string]string{
		"topic.creation.default.partitions": source("name", "x", "topic.creation.default.replication.factor", "1"),
		"topic.creation.g.include":          source("name", "x", "topic.creation.groups", "g", "topic.creation.default.partitions", "1", "topic.creation.default.replication.factor", "1"),
		"errors.tolerance":                  source("name", "x", "errors.tolerance", "some"),
		"value.converter":                   source("name", "x", "value.converter", "Nope"),
		"name":                              source(),
		"transforms.t.type":                 source("name", "x", "transforms", "t", "transforms.t.type", "Nope"),
	} {
		if _, errs := parseConn(DefaultConfig(), sdk.SourceKind, conf); len(errs) != 1 || errs[0].Key != want {
			t.Errorf("%s: got %v", want, errs)
		}
	}
	for _, conf := range []map[string]string{
		{"name": "x", "connector.class": "c", "topics": "a", "topics.regex": "b"},
		{"name": "x", "connector.class": "c"},
	} {
		if _, errs := parseConn(DefaultConfig(), sdk.SinkKind, conf); len(errs) != 2 || errs[0].Key != "topics" || errs[1].Key != "topics.regex" {
			t.Errorf("got %v, want an error of topics and of topics.regex", errs)
		}
	}
	for want, conf := range map[string]map[string]string{
		"errors.deadletterqueue.topic.name": {"name": "x", "connector.class": "c", "topics": "a,b", "errors.deadletterqueue.topic.name": "b"},
		"topics.regex":                      {"name": "x", "connector.class": "c", "topics.regex": "("},
	} {
		if _, errs := parseConn(DefaultConfig(), sdk.SinkKind, conf); len(errs) != 1 || errs[0].Key != want {
			t.Errorf("%s: got %v", want, errs)
		}
	}
}
