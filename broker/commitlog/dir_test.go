package commitlog

import (
	"bytes"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

func TestDirMeta(t *testing.T) {
	fs := vfs.NewMem()
	d, err := OpenDir(DirEnv{FS: fs, NodeID: 3}, "/d")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDir(DirEnv{FS: fs, NodeID: 3}, "/d"); err == nil {
		t.Fatal("opened twice")
	} else {
		wantErr(t, err, vfs.ErrLocked)
	}
	id := d.DirectoryID()
	if id.IsZero() || d.ClusterID() != "" {
		t.Fatal(id, d.ClusterID())
	}
	if err := d.SetClusterID("abc"); err != nil {
		t.Fatal(err)
	}
	wantErr(t, d.SetClusterID("other"), ErrMeta)
	if err := d.Close(nil); err != nil {
		t.Fatal(err)
	}
	for _, env := range []DirEnv{{FS: fs, NodeID: 4}, {FS: fs, NodeID: 3, ClusterID: "x"}} {
		_, err := OpenDir(env, "/d")
		wantErr(t, err, ErrMeta)
	}
	d, err = OpenDir(DirEnv{FS: fs, NodeID: 3, ClusterID: "abc"}, "/d")
	if err != nil || d.DirectoryID() != id || !d.WasClean() {
		t.Fatal(err, d)
	}
	if err := d.Close(nil); err != nil {
		t.Fatal(err)
	}
	b, err := vfs.ReadFile(fs, "/d/meta.properties")
	if want := fmt.Sprintf("cluster.id=abc\ndirectory.id=%s\nnode.id=3\nversion=1\n", id); err != nil || string(b) != want {
		t.Fatalf("%q %v", b, err)
	}
}

// TestDirLogs: folders, topic ids, deletion, recreation under the same name, setting aside, high watermarks.
func TestDirLogs(t *testing.T) {
	fs := vfs.NewMem()
	open := func() *Dir {
		t.Helper()
		d, err := OpenDir(DirEnv{FS: fs, NodeID: 1}, "/d")
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := open()
	long := strings.Repeat("n", kafka.MaxTopicName)
	tps := []kafka.TopicPartition{{Topic: "a", Partition: 0}, {Topic: "a-b", Partition: 12}, {Topic: long, Partition: 3}}
	ids := []kafka.UUID{kafka.NewUUID(), kafka.NewUUID(), kafka.NewUUID()}
	appendTo := func(d *Dir, i int) *Log {
		t.Helper()
		l, err := d.OpenLog(tps[i], ids[i], DefaultConfig(), Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		b := record.NewBuilder(record.BuilderOptions{})
		b.Append(1, nil, []byte("v"), nil)
		if _, err := l.Append(b.Batch(0), 0); err != nil {
			t.Fatal(err)
		}
		return l
	}
	for i := range tps {
		appendTo(d, i)
	}
	if _, err := d.OpenLog(tps[0], ids[0], DefaultConfig(), Hooks{}); err == nil {
		t.Fatal("a log was opened twice")
	}
	folders, err := d.Folders()
	if err != nil || len(folders) != 3 || folders[1] != (Folder{tps[1], ids[1]}) {
		t.Fatal(folders, err)
	}
	if err := d.Close(map[kafka.TopicPartition]int64{tps[0]: 1}); err != nil {
		t.Fatal(err)
	}
	d = open()
	if d.HighWatermark(tps[0]) != 1 || d.HighWatermark(tps[1]) != 0 {
		t.Fatal("high watermarks")
	}
	_, err = d.OpenLog(tps[0], kafka.NewUUID(), DefaultConfig(), Hooks{})
	wantErr(t, err, ErrTopicID)
	for i, drop := range []func(kafka.TopicPartition) error{d.DeleteLog, d.SetAside, d.DeleteLog} {
		if err := drop(tps[i]); err != nil {
			t.Fatal(err)
		}
		ids[i] = kafka.NewUUID()
		l := appendTo(d, i)
		if l.EndOffset() != 1 || l.StartOffset() != 0 {
			t.Fatalf("%v goes on at %d", tps[i], l.EndOffset())
		}
	}
	if err := d.CloseLog(tps[1]); err != nil {
		t.Fatal(err)
	}
	if l := appendTo(d, 1); l.EndOffset() != 2 {
		t.Fatal("closed and opened again:", l.EndOffset())
	}
	names := ""
	entries, err := fs.ReadDir("/d")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range entries {
		if x.IsDir() {
			names += x.Name()[strings.LastIndexByte(x.Name(), '-'):] + " "
		}
		if len(x.Name()) > 255 {
			t.Fatal("name too long:", x.Name())
		}
	}
	if strings.Count(names, "-stray") != 1 || strings.Contains(names, "delete") {
		t.Fatal(names)
	}
	if err := d.DeleteLog(kafka.TopicPartition{Topic: "never", Partition: 1}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(nil); err != nil {
		t.Fatal(err)
	}
}

// TestSliceOutlivesRetention: a slice that was handed out stays readable after its segment was deleted, and its files go
// with the last user.
func TestSliceOutlivesRetention(t *testing.T) {
	e := filled(t, 20)
	defer e.kill()
	s, err := e.log.Read(0, 1<<20, 20, true)
	if err != nil {
		t.Fatal(err)
	}
	files, err := e.log.OpenSegment(0)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := e.log.DeleteSegmentsBefore(12); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	_, err = e.log.Read(0, 1<<20, 20, true)
	wantErr(t, err, ErrOffsetOutOfRange)
	b := make([]byte, s.Length)
	if err := s.ReadAll(b); err != nil || record.VerifyBatch(b) != nil {
		t.Fatal("slice after deletion:", err)
	}
	deleted := func() (names []string) {
		entries, err := e.fs.ReadDir(testRoot + "/t-0")
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range entries {
			if strings.HasSuffix(x.Name(), suffixDeleted) {
				names = append(names, x.Name())
			}
		}
		return names
	}
	if len(deleted()) != 3 {
		t.Fatal(deleted())
	}
	s.Release()
	if len(deleted()) != 3 {
		t.Fatal(deleted())
	}
	if err := files.Close(); err != nil || len(deleted()) != 0 {
		t.Fatal(err, deleted())
	}
}

// TestOpenSegment: what an upload gets is a whole Kafka segment.
func TestOpenSegment(t *testing.T) {
	e := newEnv(t, vfs.NewMem(), smallConfig()).mustStart()
	defer e.kill()
	for i := range 30 {
		b := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: 7, BaseSequence: int32(i)}})
		b.Append(e.now.UnixMilli()+int64(i), nil, bytes.Repeat([]byte{1}, 300), nil)
		if _, err := e.log.Append(b.Batch(0), int32(i/20)); err != nil {
			t.Fatal(err)
		}
	}
	infos, err := e.log.Segments()
	if err != nil || len(infos) < 3 {
		t.Fatal(infos, err)
	}
	_, err = e.log.OpenSegment(infos[len(infos)-1].BaseOffset)
	wantErr(t, err, ErrNotFound)
	for _, lose := range []bool{false, true} {
		info := infos[1]
		if lose { // a snapshot that is gone is made again
			if err := e.fs.Remove(fileName(testRoot+"/t-0", info.NextOffset, suffixSnapshot)); err != nil {
				t.Fatal(err)
			}
		}
		f, err := e.log.OpenSegment(info.BaseOffset)
		if err != nil {
			t.Fatal(err)
		}
		states, err := record.ParseProducerSnapshot(f.ProducerSnapshot)
		if err != nil || len(states) != 1 || states[0].LastSequence != int32(info.NextOffset-1) || states[0].LastOffset != info.NextOffset-1 {
			t.Fatalf("%+v %v", states, err)
		}
		if f.LogBytes != info.Bytes || f.Info.Records != info.NextOffset-info.BaseOffset || len(f.Epochs) == 0 || f.Epochs[0] != (record.EpochEntry{}) {
			t.Fatalf("%+v", f)
		}
		if last, ok := record.TimeIndex(f.TimeIndex).Last(); !ok || last.Timestamp != info.MaxTimestamp {
			t.Fatal("time index ends at", last)
		}
		b := make([]byte, f.LogBytes)
		if err := readFull(f.Log, b, 0); err != nil {
			t.Fatal(err)
		}
		it, next := record.NewBatchIterator(b), info.BaseOffset
		for h, _, ok := it.Next(); ok; h, _, ok = it.Next() {
			if h.BaseOffset != next {
				t.Fatalf("offset %d, want %d", h.BaseOffset, next)
			}
			next = h.NextOffset()
		}
		if it.Err() != nil || next != info.NextOffset {
			t.Fatal(it.Err(), next)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOpenFiles: many logs share a few descriptors, on a real disk.
func TestOpenFiles(t *testing.T) {
	d, err := OpenDir(DirEnv{FS: vfs.OS(), NodeID: 1, MaxOpenFiles: 8}, filepath.ToSlash(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	const logs = 40
	for round := range 3 {
		for i := range logs {
			tp := kafka.TopicPartition{Topic: "t", Partition: int32(i)}
			l, ok := d.Log(tp)
			if !ok {
				if l, err = d.OpenLog(tp, testID, smallConfig(), Hooks{}); err != nil {
					t.Fatal(err)
				}
			}
			b := record.NewBuilder(record.BuilderOptions{})
			b.Append(1, nil, make([]byte, 900), nil)
			for range 6 {
				if _, err := l.Append(b.Batch(0), 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := d.Checkpoint(nil); err != nil { // what is synced needs no descriptor
			t.Fatal(err)
		}
		if n := len(d.files.mu.ring); n > 8 {
			t.Fatalf("round %d: %d files open", round, n)
		}
		for _, l := range d.Logs() {
			if _, err := readAll(l, 0, l.EndOffset(), 4000); err != nil {
				t.Fatal(err)
			}
			if l.FlushedOffset() != int64(6*(round+1)) {
				t.Fatal("not flushed by the checkpoint:", l.FlushedOffset())
			}
		}
	}
	if err := d.Close(nil); err != nil {
		t.Fatal(err)
	}
}

// TestIdleCost: an idle log that has data costs little memory and no goroutine.
func TestIdleCost(t *testing.T) {
	fs := vfs.NewMem()
	d, err := OpenDir(DirEnv{FS: fs, NodeID: 1}, "/d")
	if err != nil {
		t.Fatal(err)
	}
	const logs = 500
	for i := range logs {
		l, err := d.OpenLog(kafka.TopicPartition{Topic: "t", Partition: int32(i)}, testID, DefaultConfig(), Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		b := record.NewBuilder(record.BuilderOptions{})
		b.Append(1, nil, make([]byte, 100), nil)
		if _, err := l.Append(b.Batch(0), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(nil); err != nil {
		t.Fatal(err)
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, goroutines := heap(), runtime.NumGoroutine()
	if d, err = OpenDir(DirEnv{FS: fs, NodeID: 1}, "/d"); err != nil {
		t.Fatal(err)
	}
	for i := range logs {
		if _, err := d.OpenLog(kafka.TopicPartition{Topic: "t", Partition: int32(i)}, testID, DefaultConfig(), Hooks{}); err != nil {
			t.Fatal(err)
		}
	}
	each := (heap() - before) / logs
	t.Logf("%d bytes of heap per idle log", each)
	if each > 20<<10 || runtime.NumGoroutine() > goroutines+1 {
		t.Fatalf("%d bytes of heap and %d goroutines for %d idle logs", each, runtime.NumGoroutine()-goroutines, logs)
	}
	if err := d.Close(nil); err != nil {
		t.Fatal(err)
	}
}

// A log that is deleted goes in steps, open or not, but for the segments that a reader holds: those it can still read.
func TestDeleteLogInSteps(t *testing.T) {
	cuts := 0
	fs := vfs.InjectErrors(vfs.NewMem(), func(op vfs.Op, name string) error {
		if op == vfs.OpTruncate && strings.Contains(name, "-delete/") {
			cuts++
		}
		return nil
	})
	tp, id := kafka.TopicPartition{Topic: "t"}, kafka.NewUUID()
	open := func() (*Dir, *Log) {
		t.Helper()
		d, err := OpenDir(DirEnv{FS: fs, NodeID: 1}, "/d")
		if err != nil {
			t.Fatal(err)
		}
		l, err := d.OpenLog(tp, id, DefaultConfig(), Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			b := record.NewBuilder(record.BuilderOptions{})
			b.Append(1, nil, make([]byte, 900_000), nil)
			if _, err := l.Append(b.Batch(0), 0); err != nil {
				t.Fatal(err)
			}
		}
		return d, l
	}
	for _, c := range []struct {
		held, closed bool
		cuts         int
	}{{false, false, 4}, {false, true, 4}, {true, false, 0}} {
		cuts = 0
		d, l := open()
		if c.closed {
			if err := d.Close(nil); err != nil {
				t.Fatal(err)
			}
			var err error
			if d, err = OpenDir(DirEnv{FS: fs, NodeID: 1}, "/d"); err != nil {
				t.Fatal(err)
			}
		}
		var slice Slice
		if c.held {
			var err error
			if slice, err = l.Read(0, 1<<20, l.EndOffset(), true); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.DeleteLog(tp); err != nil {
			t.Fatal(err)
		}
		if cuts != c.cuts {
			t.Errorf("%+v: %d cuts", c, cuts)
		}
		if c.held {
			if _, err := slice.File.ReadAt(make([]byte, slice.Length), slice.Position); err != nil {
				t.Errorf("a reader of a deleted log: %v", err)
			}
			slice.Release()
		}
		if err := d.Close(nil); err != nil {
			t.Fatal(err)
		}
	}
}
