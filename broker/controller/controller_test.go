package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/vfs"
	"go.etcd.io/raft/v3/raftpb"
)

func TestOpenMakesCluster(t *testing.T) {
	env := testEnv(t, vfs.NewMem())
	env.ClusterID, env.NewID = "", nil
	env.Configs = testConfigs(t, config.Options{Static: map[string]string{"min.insync.replicas": "2"}})
	c := open(t, env)
	im := c.Image()
	if len(im.ClusterID) != 22 {
		t.Errorf("cluster id %q, want 22 characters", im.ClusterID)
	}
	if im.Features["metadata.version"] != MetadataVersion {
		t.Errorf("features %v", im.Features)
	}
	if own := im.BrokerConfigs[""]; len(own) != 1 || own["min.insync.replicas"] != "2" {
		t.Errorf("configs %v", own)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if again := open(t, env).Image(); again.ClusterID != im.ClusterID {
		t.Errorf("cluster id became %q, was %q", again.ClusterID, im.ClusterID)
	}
}

func TestOpenRefusesOtherClusterAndNode(t *testing.T) {
	env := testEnv(t, vfs.NewMem())
	if err := open(t, env).Close(); err != nil {
		t.Fatal(err)
	}
	other := env
	other.ClusterID = "AAAAAAAAAAAAAAAAAAAAAA"
	if _, err := Open(other); !errors.Is(err, ErrClusterID) {
		t.Errorf("another cluster: %v", err)
	}
	other = env
	other.NodeID = 7
	if _, err := Open(other); !errors.Is(err, ErrClusterID) {
		t.Errorf("another node: %v", err)
	}
}

func TestCreateTopics(t *testing.T) {
	c := openWithBroker(t, testEnv(t, vfs.NewMem()))
	mustCreate(t, c, topicOf("taken", 1), topicOf("dotted.name", 1))
	for _, tc := range []struct {
		name string
		ask  NewTopic
		want error
	}{
		{"plain", topicOf("a", 3), nil},
		{"defaults", NewTopic{Name: "b", Partitions: -1, ReplicationFactor: -1}, nil},
		{"internal topic with more replicas than brokers", NewTopic{Name: "c", Partitions: 2, ReplicationFactor: 3, Internal: true}, nil},
		{"manual", NewTopic{Name: "d", Partitions: -1, ReplicationFactor: -1, Assignments: [][]int32{{0}, {0}}}, nil},
		{"configs", NewTopic{Name: "e", Partitions: 1, ReplicationFactor: 1, Configs: map[string]string{"retention.ms": "1000"}}, nil},
		{"taken", topicOf("taken", 1), ErrTopicExists},
		{"illegal name", topicOf("a/b", 1), ErrInvalidTopic},
		{"empty name", topicOf("", 1), ErrInvalidTopic},
		{"equal in metrics", topicOf("dotted_name", 1), ErrInvalidTopic},
		{"of Kafka's own metadata", topicOf("__cluster_metadata", 1), ErrInvalidRequest},
		{"no partitions", topicOf("x", 0), ErrInvalidPartitions},
		{"too many partitions", topicOf("x", MaxPartitionsPerCall+1), ErrTooManyPartitions},
		{"no replicas", NewTopic{Name: "x", Partitions: 1}, ErrInvalidReplicationFactor},
		{"more replicas than brokers", NewTopic{Name: "x", Partitions: 1, ReplicationFactor: 2}, ErrInvalidReplicationFactor},
		{"unknown config", NewTopic{Name: "x", Partitions: 1, ReplicationFactor: 1, Configs: map[string]string{"no.such": "1"}}, ErrInvalidConfig},
		{"bad config", NewTopic{Name: "x", Partitions: 1, ReplicationFactor: 1, Configs: map[string]string{"retention.ms": "week"}}, ErrInvalidConfig},
		{"assignment and number", NewTopic{Name: "x", Partitions: 1, ReplicationFactor: -1, Assignments: [][]int32{{0}}}, ErrInvalidRequest},
		{"assignment to an unknown broker", NewTopic{Name: "x", Partitions: -1, ReplicationFactor: -1, Assignments: [][]int32{{5}}}, ErrInvalidAssignment},
		{"assignment twice to one broker", NewTopic{Name: "x", Partitions: -1, ReplicationFactor: -1, Assignments: [][]int32{{0, 0}}}, ErrInvalidAssignment},
		{"empty assignment", NewTopic{Name: "x", Partitions: -1, ReplicationFactor: -1, Assignments: [][]int32{{}}}, ErrInvalidAssignment},
		{"uneven assignment", NewTopic{Name: "x", Partitions: -1, ReplicationFactor: -1, Assignments: [][]int32{{0}, {}}}, ErrInvalidAssignment},
		{"id that is taken", NewTopic{Name: "x", ID: c.Image().Topic("taken").ID, Partitions: 1, ReplicationFactor: 1}, ErrTopicExists},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, validateOnly := range []bool{true, false} {
				results, err := c.CreateTopics(context.Background(), []NewTopic{tc.ask}, validateOnly)
				if err != nil {
					t.Fatal(err)
				}
				if !errors.Is(results[0].Err, tc.want) || (tc.want == nil) != (results[0].Topic != nil) {
					t.Errorf("validateOnly %v: %+v", validateOnly, results[0])
				}
				if made := c.Image().Topic(tc.ask.Name) != nil; made != (!validateOnly && tc.want == nil || tc.ask.Name == "taken") {
					t.Errorf("validateOnly %v: the topic is there: %v", validateOnly, made)
				}
			}
		})
	}
	topic := c.Image().Topic("c")
	want := []Partition{{Replicas: []int32{0}, ISR: []int32{0}}, {Replicas: []int32{0}, ISR: []int32{0}}}
	if diff := cmp.Diff(want, topic.Partitions); diff != "" {
		t.Error(diff)
	}
	if c.Image().TopicByID(topic.ID) != topic {
		t.Error("the topic is not found by its id")
	}
}

func TestCreateTopicsTwiceInOneCall(t *testing.T) {
	c := openWithBroker(t, testEnv(t, vfs.NewMem()))
	results, err := c.CreateTopics(context.Background(), []NewTopic{topicOf("a", 1), topicOf("b", 1), topicOf("a", 1)}, false)
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(results[0].Err, ErrInvalidRequest) || results[1].Err != nil || !errors.Is(results[2].Err, ErrInvalidRequest) {
		t.Errorf("%+v", results)
	}
}

// Concurrent creations of one name have one winner, whether or not they share an entry.
func TestCreateTopicsConcurrently(t *testing.T) {
	c := openWithBroker(t, testEnv(t, vfs.NewMem()))
	var wg sync.WaitGroup
	won := make([]int, 20)
	for i := range 200 {
		wg.Go(func() {
			results, err := c.CreateTopics(context.Background(), []NewTopic{topicOf(fmt.Sprint("t", i%20), 1)}, false)
			switch {
			case err != nil:
				t.Error(err)
			case results[0].Err == nil:
				c.subs.Lock()
				won[i%20]++
				c.subs.Unlock()
			case !errors.Is(results[0].Err, ErrTopicExists):
				t.Error(results[0].Err)
			}
		})
	}
	wg.Wait()
	for i, n := range won {
		if n != 1 {
			t.Errorf("t%d was made %d times", i, n)
		}
	}
	if n := c.Image().NumTopics(); n != 20 {
		t.Errorf("%d topics", n)
	}
}

func TestPlacementIsEven(t *testing.T) {
	c := open(t, testEnv(t, vfs.NewMem()))
	for id := range int32(4) {
		register(t, c, id, uint64(id))
	}
	mustCreate(t, c, NewTopic{Name: "a", Partitions: 24, ReplicationFactor: 3}, NewTopic{Name: "b", Partitions: 24, ReplicationFactor: 3})
	leaders, seconds := map[int32]int{}, map[[2]int32]int{}
	for topic := range c.Image().Topics() {
		for _, p := range topic.Partitions {
			leaders[p.Leader]++
			seconds[[2]int32{p.Replicas[0], p.Replicas[1]}]++
			if s := slices.Sorted(slices.Values(p.Replicas)); len(slices.Compact(s)) != 3 {
				t.Fatalf("replicas %v", p.Replicas)
			}
		}
	}
	for id := range int32(4) {
		if leaders[id] != 12 {
			t.Errorf("broker %d leads %d of 48", id, leaders[id])
		}
	}
	if len(seconds) != 12 {
		t.Errorf("second replicas are not spread: %v", seconds)
	}
}

func TestDeleteTopics(t *testing.T) {
	c := openWithBroker(t, testEnv(t, vfs.NewMem()))
	made := mustCreate(t, c, topicOf("a.b", 2),
		NewTopic{Name: "compacted", Partitions: 1, ReplicationFactor: 1, Configs: map[string]string{"cleanup.policy": "compact"}})
	results, err := c.DeleteTopics(context.Background(), []TopicRef{
		{Name: "a.b"}, {ID: made[1].ID}, {Name: "never"}, {ID: testID(999)}, {ID: made[0].ID},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []error{nil, nil, ErrUnknownTopic, ErrUnknownTopicID, ErrUnknownTopicID} {
		if !errors.Is(results[i].Err, want) {
			t.Errorf("%d: %v, want %v", i, results[i].Err, want)
		}
	}
	if results[1].Name != "compacted" {
		t.Errorf("deleted by id: %q", results[1].Name)
	}
	// Only the tiered one waits for the bucket.
	pending := c.Image().PendingDeletes
	if p := pending[made[0].ID]; len(pending) != 1 || p.Name != "a.b" || p.Partitions != 2 || p.DeletedAt.UnixMilli() != 1_700_000_000_000 {
		t.Errorf("pending deletes: %v", pending)
	}
	// Its name is free, also in metrics, and its next life has another id.
	if again := mustCreate(t, c, topicOf("a_b", 1)); again[0].ID == made[0].ID {
		t.Error("the id came back")
	}
	if err := c.BucketDeleted(context.Background(), []kafka.UUID{made[0].ID, testID(12345)}); err != nil {
		t.Fatal(err)
	}
	if pending := c.Image().PendingDeletes; len(pending) != 0 {
		t.Errorf("pending deletes: %v", pending)
	}
}

func TestDeletionDisabled(t *testing.T) {
	env := testEnv(t, vfs.NewMem())
	env.Configs = testConfigs(t, config.Options{Static: map[string]string{"delete.topic.enable": "false"}})
	c := openWithBroker(t, env)
	mustCreate(t, c, topicOf("a", 1))
	results, err := c.DeleteTopics(context.Background(), []TopicRef{{Name: "a"}})
	if err != nil || !errors.Is(results[0].Err, ErrDeletionDisabled) || c.Image().Topic("a") == nil {
		t.Errorf("%v %+v", err, results)
	}
}

func TestCreatePartitions(t *testing.T) {
	c := openWithBroker(t, testEnv(t, vfs.NewMem()))
	mustCreate(t, c, topicOf("a", 2))
	for _, tc := range []struct {
		ask  NewPartitions
		want error
	}{
		{NewPartitions{Name: "a", Count: 2}, ErrInvalidPartitions},
		{NewPartitions{Name: "a", Count: 1}, ErrInvalidPartitions},
		{NewPartitions{Name: "a", Count: 1 << 30}, ErrTooManyPartitions},
		{NewPartitions{Name: "b", Count: 3}, ErrUnknownTopic},
		{NewPartitions{Name: "a", Count: 4, Assignments: [][]int32{{0}}}, ErrInvalidAssignment},
		{NewPartitions{Name: "a", Count: 3, Assignments: [][]int32{{9}}}, ErrInvalidAssignment},
		{NewPartitions{Name: "a", Count: 5}, nil},
		{NewPartitions{Name: "a", Count: 6, Assignments: [][]int32{{0}}}, nil},
	} {
		results, err := c.CreatePartitions(context.Background(), []NewPartitions{tc.ask}, false)
		if err != nil || !errors.Is(results[0].Err, tc.want) {
			t.Errorf("%+v: %v %v", tc.ask, err, results[0].Err)
		}
	}
	if n := len(c.Image().Topic("a").Partitions); n != 6 {
		t.Errorf("%d partitions", n)
	}
	if n := c.Image().NumPartitions(); n != 6 {
		t.Errorf("%d partitions in all", n)
	}
}

func TestAlterConfigs(t *testing.T) {
	c := openWithBroker(t, testEnv(t, vfs.NewMem()))
	mustCreate(t, c, NewTopic{Name: "a", Partitions: 1, ReplicationFactor: 1, Configs: map[string]string{"retention.ms": "5", "segment.ms": "7"}})
	topic := func(changes ...ConfigChange) ConfigAlteration {
		return ConfigAlteration{Type: ResourceTopic, Name: "a", Changes: changes}
	}
	broker := func(name string, changes ...ConfigChange) ConfigAlteration {
		return ConfigAlteration{Type: ResourceBroker, Name: name, Changes: changes}
	}
	set := func(k, v string) ConfigChange { return ConfigChange{Op: config.Set, Key: k, Value: v} }
	for _, tc := range []struct {
		name string
		a    ConfigAlteration
		want error
	}{
		{"set", topic(set("retention.ms", "9"), set("local.retention.ms", "4")), nil},
		{"delete", topic(ConfigChange{Op: config.Delete, Key: "segment.ms"}), nil},
		{"delete what is not set", topic(ConfigChange{Op: config.Delete, Key: "segment.bytes"}), nil},
		{"set and append", topic(ConfigChange{Op: config.Append, Key: "leader.replication.throttled.replicas", Value: "0:0,1:0"}), nil},
		{"subtract", topic(ConfigChange{Op: config.Subtract, Key: "leader.replication.throttled.replicas", Value: "0:0"}), nil},
		{"append to what is no list", topic(ConfigChange{Op: config.Append, Key: "retention.ms", Value: "1"}), ErrInvalidConfig},
		{"unknown", topic(set("no.such", "1")), ErrInvalidConfig},
		{"twice", topic(set("retention.ms", "1"), set("retention.ms", "2")), ErrInvalidRequest},
		{"local above all", topic(set("local.retention.ms", "100")), ErrInvalidConfig},
		{"tiering off without a word on the objects", topic(set("remote.storage.enable", "false")), ErrInvalidConfig},
		{"all or nothing", topic(set("retention.ms", "11"), set("segment.bytes", "1")), ErrInvalidConfig},
		{"unknown topic", ConfigAlteration{Type: ResourceTopic, Name: "b"}, ErrUnknownTopic},
		{"no topic name", ConfigAlteration{Type: ResourceTopic}, ErrInvalidRequest},
		{"bad value for a topic that does not exist", ConfigAlteration{Type: ResourceTopic, Name: "missing",
			Changes: []ConfigChange{{Key: "retention.ms", Value: "soon"}}}, ErrInvalidConfig},
		{"illegal topic name", ConfigAlteration{Type: ResourceTopic, Name: "a/b"}, ErrInvalidTopic},
		{"unknown type", ConfigAlteration{Type: 99, Name: "b"}, ErrInvalidRequest},
		{"broker", broker("0", set("log.retention.ms", "77")), nil},
		{"all brokers", broker("", set("message.max.bytes", "2000")), nil},
		{"per-broker for all", broker("", set("listeners", "PLAINTEXT://:1")), ErrInvalidConfig},
		{"read-only", broker("0", set("num.partitions", "3")), config.ErrReadOnly},
		{"unknown broker", broker("9", set("log.retention.ms", "77")), ErrUnknownBroker},
		{"no broker", broker("zero", set("log.retention.ms", "77")), ErrInvalidRequest},
	} {
		for _, validateOnly := range []bool{true, false} {
			before := c.Image()
			errs, err := c.AlterConfigs(context.Background(), []ConfigAlteration{tc.a}, validateOnly)
			if err != nil || !errors.Is(errs[0], tc.want) {
				t.Errorf("%s: %v %v", tc.name, err, errs[0])
			}
			if validateOnly && c.Image() != before {
				t.Errorf("%s: validateOnly changed the metadata", tc.name)
			}
		}
	}
	want := map[string]string{"retention.ms": "9", "local.retention.ms": "4", "leader.replication.throttled.replicas": "1:0"}
	if diff := cmp.Diff(want, c.Image().Topic("a").Configs); diff != "" {
		t.Error(diff)
	}
	view := c.Image().TopicConfig(c.env.Configs, 0, c.Image().Topic("a"))
	if view.MaxMessageBytes != 2000 || view.RetentionAge.Milliseconds() != 9 {
		t.Errorf("effective configs %+v", view)
	}
	replace := topic(set("segment.ms", "3"))
	replace.Replace = true
	if errs, err := c.AlterConfigs(context.Background(), []ConfigAlteration{replace}, false); err != nil || errs[0] != nil {
		t.Fatal(err, errs)
	}
	if diff := cmp.Diff(map[string]string{"segment.ms": "3"}, c.Image().Topic("a").Configs); diff != "" {
		t.Error(diff)
	}
}

func TestRegisterBrokerFencesTheEarlierProcess(t *testing.T) {
	env := testEnv(t, vfs.NewMem())
	c := openWithBroker(t, env)
	mustCreate(t, c, topicOf("a", 2))
	first := c.Image().Brokers[0].Epoch
	if again := register(t, c, 0, 1); again != first || c.Image().Topic("a").Partitions[0].LeaderEpoch != 0 {
		t.Errorf("the same process: epoch %d, was %d; %+v", again, first, c.Image().Topic("a"))
	}
	if next := register(t, c, 0, 2); next <= first {
		t.Errorf("epoch %d, was %d", next, first)
	}
	for _, p := range c.Image().Topic("a").Partitions {
		if p.LeaderEpoch != 1 || p.PartitionEpoch != 1 {
			t.Errorf("%+v", p)
		}
	}
}

func TestAllocateProducerIDs(t *testing.T) {
	env := testEnv(t, vfs.NewMem())
	c := open(t, env)
	var mu sync.Mutex
	var firsts []int64
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			first, err := c.AllocateProducerIDs(context.Background(), ProducerIDBlockSize)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			firsts = append(firsts, first)
			mu.Unlock()
		})
	}
	wg.Wait()
	slices.Sort(firsts)
	for i, first := range firsts {
		if first != int64(i)*ProducerIDBlockSize {
			t.Fatalf("blocks %v", firsts)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if first, err := open(t, env).AllocateProducerIDs(context.Background(), 1); err != nil || first != 50*ProducerIDBlockSize {
		t.Errorf("after a restart: %d %v", first, err)
	}
	if _, err := c.AllocateProducerIDs(context.Background(), 0); !errors.Is(err, ErrInvalidRequest) {
		t.Error(err)
	}
}

func TestSetManifests(t *testing.T) {
	c := openWithBroker(t, testEnv(t, vfs.NewMem()))
	id := mustCreate(t, c, topicOf("a", 2))[0].ID
	for _, n := range []int64{3, 2, 5, 5} {
		if err := c.SetManifests(context.Background(), []ManifestUpdate{
			{TopicID: id, Partition: 1, Manifest: n}, {TopicID: id, Partition: 7, Manifest: n}, {TopicID: testID(99), Manifest: n},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if p := c.Image().Topic("a").Partitions; p[0].Manifest != 0 || p[1].Manifest != 5 {
		t.Errorf("%+v", p)
	}
	version := c.Image().Version
	if err := c.SetManifests(context.Background(), []ManifestUpdate{{TopicID: id, Partition: 1, Manifest: 4}}); err != nil {
		t.Fatal(err)
	}
	if c.Image().Version != version {
		t.Error("a late update wrote an entry")
	}
}

func TestSubscribe(t *testing.T) {
	c := openWithBroker(t, testEnv(t, vfs.NewMem()))
	mustCreate(t, c, topicOf("before", 1))
	var last *Image
	seen := map[string]int{}
	cancel := c.Subscribe(func(old, new *Image) {
		if last != nil && old != last {
			t.Error("an image was left out or came out of order")
		}
		last = new
		for was, is := range DiffTopics(old, new) {
			switch {
			case was == nil:
				seen[is.Name] += len(is.Partitions)
			case is == nil:
				delete(seen, was.Name)
			default:
				seen[is.Name] += len(is.Partitions) - len(was.Partitions)
			}
		}
	})
	for i := range 50 {
		mustCreate(t, c, topicOf(fmt.Sprint("t", i), 2))
		if seen[fmt.Sprint("t", i)] != 2 {
			t.Fatal("the call returned before the subscriber saw the topic")
		}
	}
	if _, err := c.DeleteTopics(context.Background(), []TopicRef{{Name: "t7"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreatePartitions(context.Background(), []NewPartitions{{Name: "t8", Count: 5}}, false); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 50 || seen["before"] != 1 || seen["t8"] != 5 || seen["t7"] != 0 {
		t.Errorf("%v", seen)
	}
	cancel()
	mustCreate(t, c, topicOf("after", 1))
	if seen["after"] != 0 {
		t.Error("called after cancel")
	}
}

func TestClose(t *testing.T) {
	c := openWithBroker(t, testEnv(t, vfs.NewMem()))
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, err := c.CreateTopics(context.Background(), []NewTopic{topicOf("a", 1)}, false); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if c.Image().ClusterID != testCluster {
		t.Error("the last image is gone")
	}
}

func TestContext(t *testing.T) {
	c := openWithBroker(t, testEnv(t, vfs.NewMem()))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.AllocateProducerIDs(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A voter that hears of a later term steps down and refuses calls.
func TestNotLeader(t *testing.T) {
	c := openWithBroker(t, testEnv(t, vfs.NewMem()))
	from, to, term, heartbeat := uint64(9), raftID(0), uint64(50), raftpb.MsgHeartbeat
	c.Step(&raftpb.Message{Type: &heartbeat, From: &from, To: &to, Term: &term})
	if _, err := c.AllocateProducerIDs(context.Background(), 1); !errors.Is(err, ErrNotLeader) {
		t.Error(err)
	}
}

func TestEnsureTopic(t *testing.T) {
	c := openWithBroker(t, testEnv(t, vfs.NewMem()))
	ctx := context.Background()
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if topic, err := c.EnsureTopic(ctx, kafka.ConsumerOffsetsTopic); err != nil || len(topic.Partitions) != 50 {
				t.Error(topic, err)
			}
		})
	}
	wg.Wait()
	offsets := c.Image().Topic(kafka.ConsumerOffsetsTopic)
	want := map[string]string{"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
	if diff := cmp.Diff(want, offsets.Configs); diff != "" {
		t.Error(diff)
	}
	if c.Image().TopicConfig(c.Configs(), 0, offsets).Tiered {
		t.Error("an internal topic is tiered")
	}
	plain, err := c.EnsureTopic(ctx, "plain")
	if err != nil || len(plain.Partitions) != 1 || !c.Image().TopicConfig(c.Configs(), 0, plain).Tiered {
		t.Error(plain, err)
	}
	if _, err := c.EnsureTopic(ctx, "not legal"); !errors.Is(err, ErrInvalidTopic) {
		t.Error(err)
	}
}
