package partition_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/varvehq/varve/broker/commitlog"
	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a controller, a data directory and a manager on one file system.
type world struct {
	t    testing.TB
	fs   vfs.FS
	ctl  *controller.Controller
	dir  *commitlog.Dir
	m    *partition.Manager
	stop func()
}

func quiet() partition.Config {
	c := partition.DefaultConfig()
	c.SweepInterval, c.RetentionInterval, c.CheckpointInterval, c.ScrubInterval = time.Hour, time.Hour, time.Hour, 0
	return c
}

// open starts a world. metaFS keeps the metadata, so that a test can break the data alone.
func open(t testing.TB, metaFS, fs vfs.FS) *world {
	t.Helper()
	r, err := config.NewResolver(config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, fs: fs}
	if w.ctl, err = controller.Open(controller.Env{FS: metaFS, Dir: "meta", NodeID: 1, Configs: r}); err != nil {
		t.Fatal(err)
	}
	if w.dir, err = commitlog.OpenDir(commitlog.DirEnv{FS: fs, NodeID: 1, ClusterID: w.ctl.Image().ClusterID}, "data"); err != nil {
		t.Fatal(err)
	}
	if w.m, err = partition.NewManager(quiet(), partition.Env{NodeID: 1, Dir: w.dir, Resolve: r.Topic}); err != nil {
		t.Fatal(err)
	}
	cancel := w.ctl.Subscribe(w.m.Apply)
	if err := w.m.Recover(t.Context(), w.ctl.Image()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.ctl.RegisterBroker(t.Context(), controller.Registration{ID: 1, Incarnation: kafka.NewUUID()}); err != nil {
		t.Fatal(err)
	}
	w.stop = sync.OnceFunc(func() {
		cancel()
		w.m.Close()
		_ = w.dir.Close(w.m.HighWatermarks()) // a broken disk may refuse
		_ = w.ctl.Close()
	})
	t.Cleanup(w.stop)
	return w
}

func (w *world) create(name string, partitions int32) {
	w.t.Helper()
	res, err := w.ctl.CreateTopics(w.t.Context(), []controller.NewTopic{{Name: name, Partitions: partitions, ReplicationFactor: 1}}, false)
	if err != nil || res[0].Err != nil {
		w.t.Fatal(err, res)
	}
}

func (w *world) get(name string, i int32) *partition.Partition {
	w.t.Helper()
	p, err := w.m.Get(name, i)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func batch(values ...string) []byte {
	b := record.NewBuilder(record.BuilderOptions{})
	for _, v := range values {
		b.Append(time.Now().UnixMilli(), nil, []byte(v), nil)
	}
	return b.Batch(0)
}

// records reads all committed values of a partition.
func records(t testing.TB, p *partition.Partition) []string {
	t.Helper()
	var out []string
	err := p.ForEachBatch(t.Context(), func(b []byte) error {
		return record.ForEachRecord(b, 1<<20, func(r *record.Record) error {
			if r.Offset != int64(len(out)) {
				return fmt.Errorf("offset %d where %d is due", r.Offset, len(out))
			}
			out = append(out, string(r.Value))
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestAcknowledgedSurvivesPowerLoss cuts the power at random moments under concurrent appends.
func TestAcknowledgedSurvivesPowerLoss(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 1))
		meta, disk := vfs.NewMem(), vfs.NewMem()
		w := open(t, meta, disk)
		w.create("t", 3)
		var mu sync.Mutex
		acked := make([][]string, 3)
		var total atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range acked {
			p := w.get("t", int32(i))
			wg.Go(func() {
				for k := 0; ctx.Err() == nil; k++ {
					v := fmt.Sprintf("%d/%d", i, k)
					a, err := p.Append(batch(v), partition.AppendOptions{AllReplicas: true})
					if err != nil || p.WaitCommitted(ctx, a.LastOffset) != nil {
						return
					}
					mu.Lock()
					acked[i] = append(acked[i], v)
					mu.Unlock()
					total.Add(1)
				}
			})
		}
		for limit := int64(rng.IntN(300) + 20); total.Load() < limit; {
			runtime.Gosched()
		}
		mu.Lock()
		promised := []int{len(acked[0]), len(acked[1]), len(acked[2])}
		mu.Unlock()
		crashed := disk.CrashClone(rng) // under the appends that go on
		cancel()
		wg.Wait()
		w.stop()
		again := open(t, meta, crashed)
		for i := range acked {
			got := records(t, again.get("t", int32(i)))
			if len(got) < promised[i] {
				t.Fatalf("seed %d: partition %d holds %d records of %d acknowledged", seed, i, len(got), promised[i])
			}
			for k, v := range got {
				if k < len(acked[i]) && v != acked[i][k] {
					t.Fatalf("seed %d: partition %d holds %q where %q was acknowledged", seed, i, v, acked[i][k])
				}
			}
		}
		again.stop()
	}
}

// TestAcknowledgedBeforeTheCrashIsThere stops all appends first, so that every acknowledged record must be found.
func TestAcknowledgedBeforeTheCrashIsThere(t *testing.T) {
	for seed := range uint64(10) {
		meta, disk := vfs.NewMem(), vfs.NewMem()
		w := open(t, meta, disk)
		w.create("t", 1)
		p := w.get("t", 0)
		var want []string
		for k := range 50 {
			v := fmt.Sprint(k)
			a, err := p.Append(batch(v), partition.AppendOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if k%7 == 0 {
				if err := p.WaitCommitted(t.Context(), a.LastOffset); err != nil {
					t.Fatal(err)
				}
				want = append(want[:0:0], values(k+1)...)
			}
		}
		again := open(t, meta, disk.CrashClone(rand.New(rand.NewPCG(seed, 2))))
		got := records(t, again.get("t", 0))
		if len(got) < len(want) {
			t.Fatalf("seed %d: %d records after the crash, %d were acknowledged", seed, len(got), len(want))
		}
		for k, v := range got {
			if v != fmt.Sprint(k) {
				t.Fatalf("seed %d: record %d is %q", seed, k, v)
			}
		}
		again.stop()
		w.stop()
	}
}

func values(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint(i)
	}
	return out
}

// TestFailedSyncAcknowledgesNothing: after a sync that failed nobody is told of success, and nobody reads the records.
func TestFailedSyncAcknowledgesNothing(t *testing.T) {
	var broken atomic.Bool
	disk := vfs.InjectErrors(vfs.NewMem(), func(op vfs.Op, _ string) error {
		if broken.Load() && (op == vfs.OpSync || op == vfs.OpSyncFS) {
			return errors.New("the disk is gone")
		}
		return nil
	})
	w := open(t, vfs.NewMem(), disk)
	w.create("t", 1)
	p := w.get("t", 0)
	a, err := p.Append(batch("good"), partition.AppendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.WaitCommitted(t.Context(), a.LastOffset); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	a, err = p.Append(batch("lost"), partition.AppendOptions{})
	if err == nil {
		err = p.WaitCommitted(t.Context(), a.LastOffset)
	}
	if !errors.Is(err, partition.ErrStorage) {
		t.Fatalf("the append that cannot be synced ended with %v", err)
	}
	if p.HighWatermark() != 1 {
		t.Fatalf("the high watermark is %d, beyond what is on disk", p.HighWatermark())
	}
	broken.Store(false)
	if _, err := p.Append(batch("later"), partition.AppendOptions{}); !errors.Is(err, partition.ErrStorage) {
		t.Fatalf("the log goes on after a failed sync: %v", err)
	}
	if _, err := p.Read(partition.ReadSpec{MaxBytes: 1000, LeaderEpoch: -1, LastFetchedEpoch: -1}); !errors.Is(err, partition.ErrStorage) {
		t.Fatalf("the failed partition is read: %v", err)
	}
}

func TestWatch(t *testing.T) {
	w := open(t, vfs.NewMem(), vfs.NewMem())
	w.create("t", 1)
	p := w.get("t", 0)
	sig := partition.NewSignal()
	fired := func() bool {
		select {
		case <-sig.C():
			return true
		default:
			return false
		}
	}
	var a, b partition.Wait
	p.Watch(&a, partition.Committed, 0, sig)
	p.Watch(&b, partition.Committed, 5, sig)
	if fired() {
		t.Fatal("fired without progress")
	}
	b.Cancel()
	b.Cancel() // twice is fine
	res, err := p.Append(batch("x"), partition.AppendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.WaitCommitted(t.Context(), res.LastOffset); err != nil {
		t.Fatal(err)
	}
	<-sig.C()
	a.Cancel()
	p.Watch(&a, partition.Flushed, 0, sig) // reached already
	if !fired() {
		t.Fatal("did not fire for what is reached")
	}
	a.Cancel()
	p.Watch(&a, partition.Committed, 100, sig)
	if _, err := w.ctl.DeleteTopics(t.Context(), []controller.TopicRef{{Name: "t"}}); err != nil {
		t.Fatal(err)
	}
	if !fired() {
		t.Fatal("the deletion did not wake the waiter")
	}
	if err := p.Err(); !errors.Is(err, partition.ErrUnknown) {
		t.Fatalf("the deleted partition says %v", err)
	}
	if _, err := w.m.Get("t", 0); !errors.Is(err, partition.ErrUnknown) {
		t.Fatalf("the deleted partition is found: %v", err)
	}
}

func TestImageChanges(t *testing.T) {
	w := open(t, vfs.NewMem(), vfs.NewMem())
	w.create("t", 1)
	if _, err := w.m.Get("t", 1); !errors.Is(err, partition.ErrUnknown) {
		t.Fatal(err)
	}
	p := w.get("t", 0)
	if _, err := w.ctl.CreatePartitions(t.Context(), []controller.NewPartitions{{Name: "t", Count: 3}}, false); err != nil {
		t.Fatal(err)
	}
	if w.get("t", 0) != p {
		t.Fatal("the partition that was there has been replaced")
	}
	if got, err := w.m.GetByID(p.TopicID(), 2); err != nil || got.Index() != 2 {
		t.Fatal(got, err)
	}
	alter := func(typ controller.ResourceType, name, key, value string) {
		t.Helper()
		errs, err := w.ctl.AlterConfigs(t.Context(), []controller.ConfigAlteration{{Type: typ, Name: name,
			Changes: []controller.ConfigChange{{Key: key, Value: value}}}}, false)
		if err = errors.Join(err, errors.Join(errs...)); err != nil {
			t.Fatal(err)
		}
	}
	alter(controller.ResourceTopic, "t", "max.message.bytes", "100")
	if _, err := p.Append(batch(string(make([]byte, 200))), partition.AppendOptions{}); !errors.Is(err, commitlog.ErrTooLarge) {
		t.Fatalf("the topic's new limit is not followed: %v", err)
	}
	alter(controller.ResourceTopic, "t", "max.message.bytes", "1000")
	if _, err := p.Append(batch(string(make([]byte, 200))), partition.AppendOptions{}); err != nil {
		t.Fatalf("an open log does not follow the topic's new limit: %v", err)
	}
	other := w.get("t", 1)
	alter(controller.ResourceBroker, "", "log.retention.ms", "1234")
	if got := other.Config().RetentionAge; got != 1234*time.Millisecond {
		t.Fatalf("a dynamic default is not followed: retention %v", got)
	}
}

// TestFoldersOfNoTopic: a folder that the metadata does not know is set aside, not deleted and not served.
func TestFoldersOfNoTopic(t *testing.T) {
	disk := vfs.NewMem()
	w := open(t, vfs.NewMem(), disk)
	w.create("t", 1)
	a, err := w.get("t", 0).Append(batch("precious"), partition.AppendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.get("t", 0).WaitCommitted(t.Context(), a.LastOffset); err != nil {
		t.Fatal(err)
	}
	cluster := w.ctl.Image().ClusterID
	w.stop()
	meta := vfs.NewMem() // metadata that has forgotten the topic
	r, err := config.NewResolver(config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctl, err := controller.Open(controller.Env{FS: meta, Dir: "meta", NodeID: 1, ClusterID: cluster, Configs: r})
	if err != nil {
		t.Fatal(err)
	}
	if err := ctl.Close(); err != nil {
		t.Fatal(err)
	}
	w = open(t, meta, disk)
	if _, err := w.m.Get("t", 0); !errors.Is(err, partition.ErrUnknown) {
		t.Fatal(err)
	}
	entries, err := disk.ReadDir("data")
	if err != nil {
		t.Fatal(err)
	}
	kept := false
	for _, e := range entries {
		kept = kept || e.IsDir() && len(e.Name()) > len("t-0") && e.Name()[:3] == "t-0"
	}
	if !kept {
		t.Fatalf("the folder is gone: %v", entries)
	}
}

// TestIdlePartitionsCostLittle: 10,000 partitions without records have no goroutine, no folder and little memory each.
func TestIdlePartitionsCostLittle(t *testing.T) {
	disk := vfs.NewMem()
	w := open(t, vfs.NewMem(), disk)
	w.m.Start()
	goroutines := runtime.NumGoroutine()
	before := heap()
	w.create("many", 10000)
	if got := runtime.NumGoroutine(); got > goroutines {
		t.Fatalf("%d goroutines more", got-goroutines)
	}
	if each := (heap() - before) / 10000; each > 20<<10 {
		t.Fatalf("%d bytes each", each)
	}
	if entries, err := disk.ReadDir("data"); err != nil || len(entries) > 10 {
		t.Fatalf("%d entries in the data directory, %v", len(entries), err)
	}
	w.m.Sweep()
	w.m.Retain()
	runtime.KeepAlive(w)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestLostFilesAreNoEmptyPartition: a partition without its metadata file serves its records, and one whose folder is gone
// answers with an error instead of passing for empty and giving its offsets again.
func TestLostFilesAreNoEmptyPartition(t *testing.T) {
	for what, harm := range map[string]func(fs vfs.FS) error{
		"no metadata file": func(fs vfs.FS) error { return fs.Remove("data/t-0/partition.metadata") },
		"metadata file of zeros": func(fs vfs.FS) error {
			return vfs.WriteFileAtomic(fs, "data/t-0/partition.metadata", make([]byte, 44))
		},
		"metadata file with a broken id": func(fs vfs.FS) error {
			return vfs.WriteFileAtomic(fs, "data/t-0/partition.metadata", []byte("version: 0\ntopic_id: !!\n"))
		},
		"no folder": func(fs vfs.FS) error { return fs.RemoveAll("data/t-0") },
	} {
		t.Run(what, func(t *testing.T) {
			meta, disk := vfs.NewMem(), vfs.NewMem()
			w := open(t, meta, disk)
			w.create("t", 1)
			a, err := w.get("t", 0).Append(batch("precious"), partition.AppendOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.get("t", 0).WaitCommitted(t.Context(), a.LastOffset); err != nil {
				t.Fatal(err)
			}
			w.stop()
			if err := harm(disk); err != nil {
				t.Fatal(err)
			}
			w = open(t, meta, disk)
			p := w.get("t", 0)
			if what == "no folder" {
				if _, err := p.ListOffset(t.Context(), partition.OffsetQuery{Timestamp: partition.Latest, LeaderEpoch: -1}); !errors.Is(err, partition.ErrStorage) {
					t.Errorf("list offsets: %v", err)
				}
				if _, err := p.Read(partition.ReadSpec{LeaderEpoch: -1, LastFetchedEpoch: -1}); !errors.Is(err, partition.ErrStorage) {
					t.Errorf("read: %v", err)
				}
				if _, err := p.Append(batch("again"), partition.AppendOptions{}); !errors.Is(err, partition.ErrStorage) {
					t.Errorf("append: %v", err)
				}
				return
			}
			if got := records(t, p); len(got) != 1 || got[0] != "precious" {
				t.Fatalf("records %q", got)
			}
		})
	}
}

// TestUnopenedLogIsNoEmptyPartition: where a log cannot be opened for now, its partition answers with the error, and serves
// once it can.
func TestUnopenedLogIsNoEmptyPartition(t *testing.T) {
	meta, disk := vfs.NewMem(), vfs.NewMem()
	w := open(t, meta, disk)
	w.create("t", 1)
	a, err := w.get("t", 0).Append(batch("precious"), partition.AppendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.get("t", 0).WaitCommitted(t.Context(), a.LastOffset); err != nil {
		t.Fatal(err)
	}
	w.stop()
	var broken atomic.Bool
	broken.Store(true)
	w = open(t, meta, vfs.InjectErrors(disk, func(_ vfs.Op, name string) error {
		if broken.Load() && strings.HasSuffix(name, ".log") {
			return vfs.ErrInjected
		}
		return nil
	}))
	p := w.get("t", 0)
	q := partition.OffsetQuery{Timestamp: partition.Latest, LeaderEpoch: -1}
	if got, err := p.ListOffset(t.Context(), q); !errors.Is(err, vfs.ErrInjected) {
		t.Fatalf("list offsets: %v, %v", got, err)
	}
	broken.Store(false)
	if got, err := p.ListOffset(t.Context(), q); err != nil || got.Offset != 1 {
		t.Fatalf("list offsets: %v, %v", got, err)
	}
}

// TestFullDiskIsAStorageError: an append to a full disk fails as storage does, which clients try again, and works once there
// is room.
func TestFullDiskIsAStorageError(t *testing.T) {
	var full atomic.Bool
	w := open(t, vfs.NewMem(), vfs.InjectErrors(vfs.NewMem(), func(op vfs.Op, name string) error {
		if full.Load() && op.Mutates() && strings.HasSuffix(name, ".log") {
			return &os.PathError{Op: "write", Path: name, Err: syscall.ENOSPC}
		}
		return nil
	}))
	w.create("t", 1)
	p := w.get("t", 0)
	full.Store(true)
	if _, err := p.Append(batch("a"), partition.AppendOptions{}); !errors.Is(err, partition.ErrStorage) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	full.Store(false)
	if _, err := p.Append(batch("a"), partition.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
}
