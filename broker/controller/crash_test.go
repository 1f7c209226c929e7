package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/vfs"
)

// model is what the acknowledged calls add up to.
type model struct {
	topics    map[string]string // retention.ms by topic
	producers int64
	asked     map[string]bool // topics of a call whose outcome is not known
}

// workload makes calls until one fails, and notes what was acknowledged.
func workload(c *Controller, rng *rand.Rand, m *model, calls int) error {
	ctx := context.Background()
	for range calls {
		name := fmt.Sprint("t", rng.IntN(12))
		_, there := m.topics[name]
		switch op := rng.IntN(6); {
		case op == 0:
			first, err := c.AllocateProducerIDs(ctx, 10)
			if err != nil {
				return err
			}
			if first < m.producers {
				return fmt.Errorf("producer ids from %d on were given twice", first)
			}
			m.producers = first + 10
		case op <= 2 && there:
			value := fmt.Sprint(1 + rng.IntN(1_000_000))
			m.asked[name] = true
			errs, err := c.AlterConfigs(ctx, []ConfigAlteration{{Type: ResourceTopic, Name: name,
				Changes: []ConfigChange{{Op: config.Set, Key: "retention.ms", Value: value}}}}, false)
			if err := errors.Join(append(errs, err)...); err != nil {
				return err
			}
			delete(m.asked, name)
			m.topics[name] = value
		case op == 3 && there:
			m.asked[name] = true
			results, err := c.DeleteTopics(ctx, []TopicRef{{Name: name}})
			if err != nil || results[0].Err != nil {
				return errors.Join(err, fmt.Errorf("%+v", results))
			}
			delete(m.asked, name)
			delete(m.topics, name)
		case !there:
			m.asked[name] = true
			ask := topicOf(name, int32(1+rng.IntN(20)))
			ask.Configs = map[string]string{"retention.ms": "604800000"}
			results, err := c.CreateTopics(ctx, []NewTopic{ask}, false)
			if err != nil || results[0].Err != nil {
				return errors.Join(err, fmt.Errorf("%+v", results))
			}
			delete(m.asked, name)
			m.topics[name] = "604800000"
		}
	}
	return nil
}

// check compares an image with what was acknowledged. A call under way may have happened or not.
func (m *model) check(t *testing.T, im *Image) {
	t.Helper()
	for name, retention := range m.topics {
		if m.asked[name] {
			continue
		}
		topic := im.Topic(name)
		if topic == nil {
			t.Fatalf("topic %s is lost", name)
		}
		if topic.Configs["retention.ms"] != retention {
			t.Fatalf("topic %s has retention.ms %s, acknowledged was %s", name, topic.Configs["retention.ms"], retention)
		}
	}
	for topic := range im.Topics() {
		if _, ok := m.topics[topic.Name]; !ok && !m.asked[topic.Name] {
			t.Fatalf("topic %s came back", topic.Name)
		}
	}
	if im.NextProducerID < m.producers {
		t.Fatalf("next producer id is %d, %d were given", im.NextProducerID, m.producers)
	}
}

func (m *model) settle(im *Image) {
	clear(m.topics)
	clear(m.asked)
	for topic := range im.Topics() {
		m.topics[topic.Name] = topic.Configs["retention.ms"]
	}
	m.producers = im.NextProducerID
}

// Power is lost again and again at random points, some inside a write, a snapshot or a start; whatever subset of the
// un-synced bytes and renames survives, every acknowledged call does.
func TestCrash(t *testing.T) {
	seeds := uint64(400)
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		mem := vfs.NewMem()
		if err := errors.Join(mem.MkdirAll("data"), mem.SyncDir(".")); err != nil {
			t.Fatal(err)
		}
		m := &model{topics: map[string]string{}, asked: map[string]bool{}}
		for life := range 4 {
			mem = crashingLife(t, rng, mem, m, uint64(life)+1)
		}
		c := open(t, crashEnv(t, mem, rng))
		m.check(t, c.Image())
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func crashEnv(t *testing.T, fsys vfs.FS, rng *rand.Rand) Env {
	env := testEnv(t, fsys)
	base := rng.Uint64()
	n := uint64(0)
	env.NewID = func() kafka.UUID { n++; return testID(base + n) }
	env.SnapshotBytes = 1500 // a snapshot every few calls
	return env
}

// crashingLife opens, checks, works until some mutation of the disk at random fails as the power does, and returns what is
// left.
func crashingLife(t *testing.T, rng *rand.Rand, mem *vfs.Mem, m *model, incarnation uint64) *vfs.Mem {
	t.Helper()
	var mu sync.Mutex
	left, dead := rng.IntN(60), false
	power := rand.New(rand.NewPCG(rng.Uint64(), 2)) // of the controller's goroutine
	var after *vfs.Mem
	fsys := vfs.InjectErrors(mem, func(op vfs.Op, _ string) error {
		mu.Lock()
		defer mu.Unlock()
		if !op.Mutates() || dead {
			if dead {
				return vfs.ErrInjected
			}
			return nil
		}
		if left--; left < 0 {
			dead, after = true, mem.CrashClone(power)
			return vfs.ErrInjected
		}
		return nil
	})
	c, err := Open(crashEnv(t, fsys, rng))
	if err == nil {
		m.check(t, c.Image())
		m.settle(c.Image())
		if _, err = c.RegisterBroker(context.Background(), Registration{ID: 0, Incarnation: testID(1 << 40 * incarnation)}); err == nil {
			err = workload(c, rng, m, 40)
		}
		if cerr := c.Close(); cerr != nil && !errors.Is(cerr, vfs.ErrInjected) {
			t.Fatal(cerr)
		}
	}
	if err != nil && !errors.Is(err, vfs.ErrInjected) {
		t.Fatal(err)
	}
	if after == nil {
		after = mem.CrashClone(rng)
	}
	return after
}

// Every single failing operation ends in an error, never in a wrong state: the controller latches, and a restart has all
// that was acknowledged.
func TestNthError(t *testing.T) {
	for n := 0; ; n++ {
		rng := rand.New(rand.NewPCG(7, 7))
		mem := vfs.NewMem()
		fail, fired := vfs.NthError(n, func(op vfs.Op, _ string) bool { return op != vfs.OpClose })
		m := &model{topics: map[string]string{}, asked: map[string]bool{}}
		failed := make(chan error, 2)
		env := crashEnv(t, vfs.InjectErrors(mem, fail), rng)
		env.OnFailed = func(err error) { failed <- err }
		c, err := Open(env)
		if err == nil {
			if _, err = c.RegisterBroker(context.Background(), Registration{ID: 0, Incarnation: testID(1 << 40)}); err == nil {
				err = workload(c, rng, m, 60)
			}
			if err != nil {
				checkLatched(t, c, err, failed)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		} else if !errors.Is(err, vfs.ErrInjected) {
			t.Fatalf("operation %d: %v", n, err)
		}
		again := open(t, crashEnv(t, mem, rng))
		m.check(t, again.Image())
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		if !fired() {
			t.Logf("%d operations", n)
			return
		}
	}
}

func checkLatched(t *testing.T, c *Controller, err error, failed chan error) {
	t.Helper()
	if !errors.Is(err, ErrFailed) || !errors.Is(err, vfs.ErrInjected) {
		t.Fatalf("the call answered %v", err)
	}
	if _, err := c.AllocateProducerIDs(context.Background(), 1); !errors.Is(err, ErrFailed) {
		t.Fatalf("after a failure: %v", err)
	}
	if err := <-failed; !errors.Is(err, ErrFailed) {
		t.Fatal(err)
	}
	if c.Image() == nil {
		t.Fatal("the image is gone")
	}
}

// A full disk stops the controller; with room again, a restart goes on.
func TestDiskFull(t *testing.T) {
	mem := vfs.NewMem()
	env := testEnv(t, mem)
	c := openWithBroker(t, env)
	mustCreate(t, c, topicOf("a", 1))
	mem.SetCapacity(mem.Used() + 100)
	if _, err := c.CreateTopics(context.Background(), []NewTopic{topicOf("b", 1000)}, false); !errors.Is(err, ErrFailed) {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	mem.SetCapacity(1 << 30)
	c = open(t, env)
	if c.Image().Topic("a") == nil || c.Image().Topic("b") != nil {
		t.Error("not what was acknowledged")
	}
	mustCreate(t, c, topicOf("b", 1000))
}
