package controller

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/vfs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testCluster = "MkU3OEVBNTcwNTJENDM2Qg"

func testConfigs(t testing.TB, opt config.Options) *config.Resolver {
	t.Helper()
	r, err := config.NewResolver(opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// testEnv draws ids 1, 2, 3, … and has a clock that stands still.
func testEnv(t testing.TB, fsys vfs.FS) Env {
	var n uint64
	return Env{
		FS: fsys, Dir: "data/metadata", ClusterID: testCluster,
		Configs: testConfigs(t, config.Options{Bucket: true, TierTopics: true}),
		Clock:   func() time.Time { return time.UnixMilli(1_700_000_000_000) },
		NewID: func() kafka.UUID {
			n++
			return testID(n)
		},
	}
}

func testID(n uint64) (id kafka.UUID) {
	binary.BigEndian.PutUint64(id[8:], n)
	return id
}

func open(t testing.TB, env Env) *Controller {
	t.Helper()
	c, err := Open(env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// openWithBroker also registers broker 0.
func openWithBroker(t testing.TB, env Env) *Controller {
	t.Helper()
	c := open(t, env)
	register(t, c, 0, 1)
	return c
}

func register(t testing.TB, c *Controller, id int32, incarnation uint64) int64 {
	t.Helper()
	epoch, err := c.RegisterBroker(context.Background(), Registration{
		ID: id, Incarnation: testID(1000 + incarnation),
		Listeners: []Listener{{Name: "PLAINTEXT", Host: "localhost", Port: 9092, Protocol: "PLAINTEXT"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return epoch
}

func mustCreate(t testing.TB, c *Controller, topics ...NewTopic) []TopicResult {
	t.Helper()
	results, err := c.CreateTopics(context.Background(), topics, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			t.Fatalf("create %s: %v", r.Name, r.Err)
		}
	}
	return results
}

func topicOf(name string, partitions int32) NewTopic {
	return NewTopic{Name: name, Partitions: partitions, ReplicationFactor: 1}
}
