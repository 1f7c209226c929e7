package commitlog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// keyed appends one batch; "k=v" is a value, "k" a tombstone.
func (e *env) keyed(records ...string) {
	e.t.Helper()
	b := record.NewBuilder(record.BuilderOptions{})
	for _, r := range records {
		k, v, ok := strings.Cut(r, "=")
		var value []byte
		if ok {
			value = []byte(v)
		}
		b.Append(e.now.UnixMilli(), []byte(k), value, nil)
	}
	if _, err := e.log.Append(b.Batch(0), 0); err != nil {
		e.t.Fatal(err)
	}
}

// seal makes all there is compactable.
func (e *env) seal() {
	e.t.Helper()
	if err := e.log.Roll(); err != nil {
		e.t.Fatal(err)
	}
	if err := e.flush(); err != nil {
		e.t.Fatal(err)
	}
	if err := e.dir.Checkpoint(nil); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) compact() Compacted {
	e.t.Helper()
	out, err := e.log.Compact(CompactOptions{HighWatermark: e.log.FlushedOffset(), Now: e.now, MapBytes: 1 << 20})
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

// content is what is in the log, "offset k=v".
func (e *env) content() []string {
	e.t.Helper()
	var out []string
	m := &compactModel{}
	err := m.readCommitted(e.log, e.log.LastStableOffset(e.log.FlushedOffset()), func(r *record.Record) error {
		s := fmt.Sprintf("%d %s", r.Offset, r.Key)
		if r.Value != nil {
			s += "=" + string(r.Value)
		}
		out = append(out, s)
		return nil
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

func (e *env) wantContent(want ...string) {
	e.t.Helper()
	if d := cmp.Diff(want, e.content()); d != "" {
		e.t.Fatal(d)
	}
}

func compactEnv(t *testing.T) *env {
	c := DefaultConfig()
	c.Delete, c.Compact, c.DeleteRetention = false, true, time.Hour
	e := newEnv(t, vfs.NewMem(), c).mustStart()
	t.Cleanup(func() { e.kill() })
	return e
}

// A tombstone stays for delete.retention.ms after the compaction that first met it (KAFKA-4529), however old it is.
func TestCompactTombstones(t *testing.T) {
	e := compactEnv(t)
	e.keyed("a=1", "b=1", "c=1")
	e.keyed("a", "b=2")
	e.seal()
	e.now = e.now.Add(24 * time.Hour)
	e.compact()
	e.wantContent("2 c=1", "3 a", "4 b=2")
	e.now = e.now.Add(59 * time.Minute)
	e.keyed("d=1")
	e.seal()
	e.compact()
	e.wantContent("2 c=1", "3 a", "4 b=2", "5 d=1")
	e.now = e.now.Add(2 * time.Minute)
	e.keyed("e=1")
	e.seal()
	e.compact()
	e.wantContent("2 c=1", "4 b=2", "5 d=1", "6 e=1")
	if n := len(*e.log.segs.Load()); n != 2 {
		t.Fatalf("%d segments: small ones are not merged", n)
	}
	if out := e.compact(); out.BytesRead != 0 {
		t.Fatalf("nothing is dirty, but it compacted %v", out)
	}
}

// A reader that holds a slice of a segment reads on in the old file while and after the segment is replaced, and lets it go
// with the slice.
func TestCompactUnderReader(t *testing.T) {
	e := compactEnv(t)
	e.keyed("a=1", "b=1")
	e.keyed("a=2")
	e.seal()
	s, err := e.log.Read(0, 1<<20, e.log.EndOffset(), true)
	if err != nil {
		t.Fatal(err)
	}
	old := (*e.log.segs.Load())[0]
	if !old.retain() { // a reader that has not opened the file yet
		t.Fatal("segment is gone")
	}
	e.compact()
	b := make([]byte, s.Length)
	if err := s.ReadAll(b); err != nil {
		t.Fatal(err)
	}
	s.Release()
	n := 0
	if err := old.walk(0, func(h *record.Header, _ int64) error { n += int(h.NumRecords); return nil }); err != nil || n != 3 {
		t.Fatalf("%d records in the old segment, %v", n, err)
	}
	name := old.name(suffixLog)
	if err := old.release(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.fs.Stat(name); !vfs.IsNotExist(err) {
		t.Fatalf("old file is still there: %v", err)
	}
	e.wantContent("1 b=1", "2 a=2")
}

// KAFKA-9133: DeleteRecords past what was compacted, then compaction and a restart.
func TestCompactAfterDeleteRecords(t *testing.T) {
	e := compactEnv(t)
	for i := range 10 {
		e.keyed(fmt.Sprintf("a=%d", i), fmt.Sprintf("b%d=%d", i, i))
		e.seal()
	}
	e.keyed("c=1", "a=last")
	if err := e.flush(); err != nil {
		t.Fatal(err)
	}
	for _, start := range []int64{7, 21} { // in the middle, and above the base of the active segment
		if err := e.log.AdvanceStart(start); err != nil {
			t.Fatal(err)
		}
		e.compact()
		e.stop()
		e.mustStart()
		if e.log.StartOffset() != start {
			t.Fatalf("start %d, want %d", e.log.StartOffset(), start)
		}
		e.compact()
	}
	if got := e.content(); got[len(got)-1] != "21 a=last" {
		t.Fatal(got)
	}
}

// KAFKA-8764: a log with holes between its batches is compacted once and is clean then.
func TestCompactWithHoles(t *testing.T) {
	e := compactEnv(t)
	for _, base := range []int64{5, 100, 3 << 31} {
		b := record.NewBuilder(record.BuilderOptions{})
		b.Append(e.now.UnixMilli(), []byte("k"), []byte(fmt.Sprint(base)), nil)
		if _, err := e.log.AppendReplica(b.Batch(base)); err != nil {
			t.Fatal(err)
		}
	}
	e.seal()
	e.compact()
	e.wantContent(fmt.Sprint(int64(3<<31), " k=", int64(3<<31)))
	if c, err := e.log.Cleanable(e.now, e.log.FlushedOffset()); err != nil || c.DirtyBytes != 0 || c.FirstDirty != e.log.EndOffset() {
		t.Fatalf("%+v, %v", c, err)
	}
	e.stop()
	e.mustStart()
	if c, err := e.log.Cleanable(e.now, e.log.FlushedOffset()); err != nil || c.DirtyBytes != 0 {
		t.Fatalf("after a restart: %+v, %v", c, err)
	}
}

// What is younger than min.compaction.lag.ms stays; past max.compaction.lag.ms a log is due whatever its ratio.
func TestCompactionLags(t *testing.T) {
	e := compactEnv(t)
	e.cfg.MinCompactionLag, e.cfg.MaxCompactionLag = time.Hour, 3*time.Hour
	if err := e.log.SetConfig(e.cfg); err != nil {
		t.Fatal(err)
	}
	e.keyed("a=1", "a=2")
	e.seal()
	e.now = e.now.Add(2 * time.Hour)
	e.keyed("a=3", "a=4")
	e.seal()
	c, err := e.log.Cleanable(e.now, e.log.FlushedOffset())
	if err != nil || c.FirstDirty != 0 || c.End != 2 || c.Due || c.Ratio() != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
	if c, err = e.log.Cleanable(e.now.Add(61*time.Minute), e.log.FlushedOffset()); err != nil || c.End != 4 || !c.Due {
		t.Fatalf("%+v, %v", c, err)
	}
	e.compact()
	e.wantContent("1 a=2", "2 a=3", "3 a=4")
}

// A batch that decompresses to more than the limit is not compacted, and the log stays as it is.
func TestCompactDecompressionLimit(t *testing.T) {
	e := compactEnv(t)
	b := record.NewBuilder(record.BuilderOptions{Codec: record.Zstd})
	b.Append(e.now.UnixMilli(), []byte("k"), make([]byte, 1<<20), nil)
	if _, err := e.log.Append(b.Batch(0), 0); err != nil {
		t.Fatal(err)
	}
	e.seal()
	e.cfg.DecompressLimit = 1 << 19
	if err := e.log.SetConfig(e.cfg); err != nil {
		t.Fatal(err)
	}
	_, err := e.log.Compact(CompactOptions{HighWatermark: e.log.FlushedOffset(), Now: e.now, MapBytes: 1 << 20})
	wantErr(t, err, record.ErrLimit)
	if e.log.Failed() != nil {
		t.Fatal(e.log.Failed())
	}
}

// After the topic was emptied of a key the timestamps and indexes of what is left still lead to it.
func TestCompactTimestampLookup(t *testing.T) {
	e := compactEnv(t)
	start := e.now
	for i := range 200 {
		e.now = e.now.Add(time.Second)
		e.keyed(fmt.Sprintf("k%d=%d", i%10, i))
	}
	e.seal()
	e.compact()
	off, ts, _, found, err := e.log.OffsetForTimestamp(start.Add(50 * time.Second).UnixMilli())
	if err != nil || !found || off != 190 || ts != start.Add(191*time.Second).UnixMilli() {
		t.Fatalf("offset %d, time %d, %v, %v", off, ts, found, err)
	}
	e.stop()
	e.mustStart()
	if off, _, _, found, err = e.log.OffsetForTimestamp(start.Add(195 * time.Second).UnixMilli()); err != nil || !found || off != 194 {
		t.Fatalf("offset %d, %v, %v", off, found, err)
	}
	f, err := e.log.OpenSegment(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkCompact(b *testing.B) {
	for _, keys := range []int{1000, 100_000} {
		b.Run(fmt.Sprint("keys=", keys), func(b *testing.B) { benchCompact(b, keys) })
	}
}

func benchCompact(b *testing.B, keys int) {
	const batches, perBatch, size = 2000, 50, 1000
	c := DefaultConfig()
	c.SegmentBytes, c.Compact = 32<<20, true
	n := 0
	for b.Loop() {
		b.StopTimer()
		e := newEnv(b, vfs.OS(), c)
		e.dir, e.log = nil, nil
		root := b.TempDir()
		d, err := OpenDir(DirEnv{FS: vfs.OS(), ClusterID: "c", NodeID: 1}, root)
		if err != nil {
			b.Fatal(err)
		}
		l, err := d.OpenLog(testTP, testID, c, Hooks{})
		if err != nil {
			b.Fatal(err)
		}
		value := make([]byte, size)
		for range batches {
			bb := record.NewBuilder(record.BuilderOptions{})
			for range perBatch {
				bb.Append(e.now.UnixMilli(), fmt.Appendf(nil, "key-%d", n%keys), value, nil)
				n += 7919
			}
			if _, err := l.Append(bb.Batch(0), 0); err != nil {
				b.Fatal(err)
			}
		}
		if err := l.Roll(); err != nil {
			b.Fatal(err)
		}
		if err := d.Checkpoint(nil); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(l.Size())
		b.StartTimer()
		if _, err := l.Compact(CompactOptions{HighWatermark: l.EndOffset(), Now: e.now, MapBytes: 128 << 20}); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := d.Close(nil); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
