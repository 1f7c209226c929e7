package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/vfs"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/testing/protocmp"
)

// filled makes a closed controller with some topics and returns its log file.
func filled(t *testing.T, env Env) []byte {
	t.Helper()
	c := openWithBroker(t, env)
	for i := range 5 {
		mustCreate(t, c, topicOf(fmt.Sprint("t", i), 3))
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := vfs.ReadFile(env.FS, env.Dir+"/"+logName)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeLog(t *testing.T, env Env, b []byte) {
	t.Helper()
	if err := vfs.WriteFileAtomic(env.FS, env.Dir+"/"+logName, b); err != nil {
		t.Fatal(err)
	}
}

// A log cut anywhere in its last frame opens without that frame; what follows is written over it.
func TestTornTail(t *testing.T) {
	env := testEnv(t, vfs.NewMem())
	whole := filled(t, env)
	content, err := readLog(whole)
	if err != nil || content.size != int64(len(whole)) {
		t.Fatal(err)
	}
	last := bytes.LastIndex(whole, []byte(frameMagic))
	for cut := last; cut < len(whole); cut += 7 {
		for _, tail := range [][]byte{nil, make([]byte, 100)} {
			writeLog(t, env, append(bytes.Clone(whole[:cut]), tail...))
			c := open(t, env)
			if n := c.Image().NumTopics(); n != 4 {
				t.Fatalf("cut at %d: %d topics", cut, n)
			}
			mustCreate(t, c, topicOf("t4", 1))
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if again := open(t, env); again.Image().NumTopics() != 5 {
				t.Fatalf("cut at %d: the next entry is lost", cut)
			} else if err := again.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Where nothing can have been lost, a last frame that is all there but wrong is damage; one whose end is missing is torn.
func TestDamagedTailOfACompleteLog(t *testing.T) {
	env := testEnv(t, vfs.NewMem())
	whole := filled(t, env)
	env.Complete = true
	last := bytes.LastIndex(whole, []byte(frameMagic))
	for cut := last; cut < len(whole); cut += 7 {
		writeLog(t, env, whole[:cut])
		c := open(t, env)
		if n := c.Image().NumTopics(); n != 4 {
			t.Fatalf("cut at %d: %d topics", cut, n)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for at := last; at < len(whole); at++ {
		if at >= last+4 && at < last+8 {
			continue // a larger length is that of a torn frame
		}
		bad := bytes.Clone(whole)
		bad[at] ^= 0x40
		writeLog(t, env, bad)
		if _, err := Open(env); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), logName) {
			t.Fatalf("bit flipped in byte %d: %v", at, err)
		}
	}
}

// A cluster that has partitions is not made anew.
func TestMissingMetadataIsNotANewCluster(t *testing.T) {
	env := testEnv(t, vfs.NewMem())
	env.MustExist = true
	if _, err := Open(env); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	if _, err := env.FS.Open(env.Dir + "/" + snapshotName); !vfs.IsNotExist(err) {
		t.Fatalf("something was made: %v", err)
	}
}

// A flipped bit before the last frame is an error that names the file, never a shorter history.
func TestCorruptMiddle(t *testing.T) {
	env := testEnv(t, vfs.NewMem())
	whole := filled(t, env)
	last := bytes.LastIndex(whole, []byte(frameMagic))
	for at := 0; at < last; at += 5 {
		bad := bytes.Clone(whole)
		bad[at] ^= 0x40
		writeLog(t, env, bad)
		if _, err := Open(env); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("bit flipped in byte %d: %v", at, err)
		}
	}
}

func TestLostAndDamagedFiles(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(vfs.FS, string) error
	}{
		{"no snapshot", func(f vfs.FS, dir string) error { return f.Remove(dir + "/" + snapshotName) }},
		{"no log", func(f vfs.FS, dir string) error { return f.Remove(dir + "/" + logName) }},
		{"empty snapshot", func(f vfs.FS, dir string) error { return vfs.WriteFileAtomic(f, dir+"/"+snapshotName, nil) }},
		{"empty log", func(f vfs.FS, dir string) error { return vfs.WriteFileAtomic(f, dir+"/"+logName, nil) }},
		{"log of a later snapshot", func(f vfs.FS, dir string) error {
			return vfs.WriteFileAtomic(f, dir+"/"+logName, encodeLogHeader(logPosition{index: 1000, term: 3}))
		}},
		{"damaged snapshot", func(f vfs.FS, dir string) error {
			b, err := vfs.ReadFile(f, dir+"/"+snapshotName)
			if err != nil {
				return err
			}
			b[len(b)/2] ^= 1
			return vfs.WriteFileAtomic(f, dir+"/"+snapshotName, b)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := testEnv(t, vfs.NewMem())
			filled(t, env)
			if err := tc.damage(env.FS, env.Dir); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(env); !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
		})
	}
}

// A crash before the first snapshot leaves a log without entries; the next start makes the cluster.
func TestBrokenOffBootstrap(t *testing.T) {
	env := testEnv(t, vfs.NewMem())
	if err := env.FS.MkdirAll(env.Dir); err != nil {
		t.Fatal(err)
	}
	writeLog(t, env, encodeLogHeader(logPosition{index: 1, term: 1}))
	if got := open(t, env).Image().ClusterID; got != testCluster {
		t.Errorf("cluster %q", got)
	}
}

// A snapshot replaces the log, and the restarted image equals the one before, whatever is in it.
func TestSnapshotAndRestart(t *testing.T) {
	env := testEnv(t, vfs.NewMem())
	env.SnapshotBytes = 2000
	c := openWithBroker(t, env)
	ids := []kafka.UUID{}
	for i := range 100 {
		ids = append(ids, mustCreate(t, c, topicOf(fmt.Sprintf("t.%d", i), 1+int32(i%5)))[0].ID)
	}
	if _, err := c.DeleteTopics(context.Background(), []TopicRef{{ID: ids[3]}, {ID: ids[50]}}); err != nil {
		t.Fatal(err)
	}
	if err := c.SetManifests(context.Background(), []ManifestUpdate{{TopicID: ids[4], Partition: 2, Manifest: 17}}); err != nil {
		t.Fatal(err)
	}
	if err := c.SetFeatures(context.Background(), map[string]int16{"group.version": 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AllocateProducerIDs(context.Background(), 1000); err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		if errs, err := c.AlterConfigs(context.Background(), []ConfigAlteration{{Type: ResourceBroker, Name: "",
			Changes: []ConfigChange{{Key: "log.retention.ms", Value: fmt.Sprint(1000 + i)}}}}, false); err != nil || errs[0] != nil {
			t.Fatal(err, errs)
		}
	}
	if c.store.snapshot.index == 1 {
		t.Fatal("no snapshot was made")
	}
	want := c.Image()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	got := open(t, env).Image()
	diffImages(t, want, got)
	if got.Topic("t.4").Partitions[2].Manifest != 17 || len(got.PendingDeletes) != 2 {
		t.Errorf("%+v %v", got.Topic("t.4"), got.PendingDeletes)
	}
	if got.edit().metricTwin("t_7") != "t.7" {
		t.Error("names in metrics are lost")
	}
}

func diffImages(t *testing.T, want, got *Image) {
	t.Helper()
	if diff := cmp.Diff(want.Records(), got.Records()); diff != "" {
		t.Error(diff)
	}
	if want.NumTopics() != got.NumTopics() || want.NumPartitions() != got.NumPartitions() {
		t.Errorf("%d topics and %d partitions, want %d and %d", got.NumTopics(), got.NumPartitions(), want.NumTopics(), want.NumPartitions())
	}
}

// A snapshot that cannot be written is left for later, and nothing is lost.
func TestSnapshotFails(t *testing.T) {
	mem := vfs.NewMem()
	env := testEnv(t, mem)
	env.FS = vfs.InjectErrors(mem, func(op vfs.Op, name string) error {
		if op == vfs.OpCreate && filepath.Base(name) == snapshotName+vfs.TempSuffix {
			if _, err := mem.Stat(env.Dir + "/" + snapshotName); err == nil {
				return vfs.ErrInjected
			}
		}
		return nil
	})
	env.SnapshotBytes = 300
	c := openWithBroker(t, env)
	for i := range 20 {
		mustCreate(t, c, topicOf(fmt.Sprint("t", i), 1))
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	env.FS = mem
	if n := open(t, env).Image().NumTopics(); n != 20 {
		t.Errorf("%d topics", n)
	}
}

// Entries of a later term take the place of those that were never committed.
func TestLogReplacesEntries(t *testing.T) {
	entry := func(index, term uint64, data string) *raftpb.Entry {
		return &raftpb.Entry{Index: &index, Term: &term, Type: raftpb.EntryNormal.Enum(), Data: []byte(data)}
	}
	b := encodeLogHeader(logPosition{index: 10, term: 2})
	b = appendFrame(b, int64(len(b)), payloadOf([]*raftpb.Entry{entry(11, 2, "a"), entry(12, 2, "b"), entry(13, 2, "c")}, &raftpb.HardState{}))
	b = appendFrame(b, int64(len(b)), payloadOf([]*raftpb.Entry{entry(12, 3, "d")}, &raftpb.HardState{}))
	c, err := readLog(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]*raftpb.Entry{entry(11, 2, "a"), entry(12, 3, "d")}, c.entries, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	gap := appendFrame(bytes.Clone(b), int64(len(b)), payloadOf([]*raftpb.Entry{entry(14, 3, "e")}, &raftpb.HardState{}))
	if _, err := readLog(gap); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a gap: %v", err)
	}
}

// The fixture was written by format 1 of log and snapshot and version 0 of all records; every later build must read it.
func TestFixture(t *testing.T) {
	env := testEnv(t, vfs.NewMem())
	if err := env.FS.MkdirAll(env.Dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{logName, snapshotName} {
		b, err := os.ReadFile(filepath.Join("testdata", "format1", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFileAtomic(env.FS, env.Dir+"/"+name, b); err != nil {
			t.Fatal(err)
		}
	}
	im := open(t, env).Image()
	want, err := os.ReadFile(filepath.Join("testdata", "format1", "image.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), dumpImage(im)); diff != "" {
		t.Error(diff)
	}
}

// fixtureCalls fills the fixture: every kind of record, some in the snapshot and some in the log.
func fixtureCalls(t *testing.T, c *Controller) {
	t.Helper()
	ctx := context.Background()
	var ids []kafka.UUID
	for i := range 12 {
		ask := topicOf(fmt.Sprintf("topic.%d", i), 1+int32(i%3))
		ask.Configs = map[string]string{"retention.ms": fmt.Sprint(1000 * (i + 1))}
		ids = append(ids, mustCreate(t, c, ask)[0].ID)
	}
	_, err := c.DeleteTopics(ctx, []TopicRef{{ID: ids[1]}, {ID: ids[2]}})
	errs, err2 := c.AlterConfigs(ctx, []ConfigAlteration{
		{Type: ResourceBroker, Changes: []ConfigChange{{Key: "log.retention.ms", Value: "123456"}}},
		{Type: ResourceBroker, Name: "0", Changes: []ConfigChange{{Key: "message.max.bytes", Value: "2048"}}},
		{Type: ResourceTopic, Name: "topic.3", Replace: true, Changes: []ConfigChange{{Key: "segment.ms", Value: "77"}}},
	}, false)
	_, err3 := c.AllocateProducerIDs(ctx, 1000)
	err = errors.Join(append(errs, err, err2, err3,
		c.SetManifests(ctx, []ManifestUpdate{{TopicID: ids[5], Partition: 1, Manifest: 12}}),
		c.BucketDeleted(ctx, []kafka.UUID{ids[1]}),
		c.SetFeatures(ctx, map[string]int16{"group.version": 1}))...)
	if err != nil {
		t.Fatal(err)
	}
	register(t, c, 0, 2)
	register(t, c, 1, 3)
}
