package commitlog

import (
	"fmt"
	"math"
	"testing"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

func TestAppendReadReopen(t *testing.T) {
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("clean=%v", clean), func(t *testing.T) {
			e := newEnv(t, vfs.NewMem(), smallConfig()).mustStart()
			if entries, err := e.fs.ReadDir(testRoot + "/t-0"); err == nil {
				t.Fatalf("folder before the first append: %v", entries)
			}
			want := map[int64]string{}
			for i := range 300 {
				info := e.mustAppend(fmt.Sprintf("value %d", i), fmt.Sprintf("second %d", i))
				if info.FirstOffset != int64(2*i) || info.LastOffset != int64(2*i+1) {
					t.Fatalf("append %d: %+v", i, info)
				}
				want[int64(2*i)], want[int64(2*i+1)] = fmt.Sprintf("value %d", i), fmt.Sprintf("second %d", i)
			}
			if err := e.flush(); err != nil {
				t.Fatal(err)
			}
			check := func() {
				t.Helper()
				if e.log.EndOffset() != 600 || e.log.FlushedOffset() != 600 || e.log.StartOffset() != 0 {
					t.Fatalf("end %d flushed %d start %d", e.log.EndOffset(), e.log.FlushedOffset(), e.log.StartOffset())
				}
				for _, max := range []int64{1, 100, 700, 5000, 1 << 20} {
					got, err := readAll(e.log, 0, 600, max)
					if err != nil {
						t.Fatal(err)
					}
					if len(got) != len(want) {
						t.Fatalf("%d records", len(got))
					}
					for o, v := range want {
						if got[o] != v {
							t.Fatalf("offset %d: %q", o, got[o])
						}
					}
				}
				for from := int64(0); from < 600; from += 7 { // inside batches too
					s, err := e.log.Read(from, 1, 600, true)
					if err != nil || s.BaseOffset > from || s.NextOffset <= from {
						t.Fatalf("read at %d: %+v %v", from, s, err)
					}
					s.Release()
				}
			}
			check()
			if segs, err := e.log.Segments(); err != nil || len(segs) < 5 {
				t.Fatalf("segments %v %v", segs, err)
			}
			for range 3 {
				if clean {
					e.stop()
				} else {
					e.kill()
				}
				e.mustStart()
				if e.dir.WasClean() != clean {
					t.Fatal("clean marker")
				}
				check()
			}
			if info := e.mustAppend("after"); info.FirstOffset != 600 {
				t.Fatalf("%+v", info)
			}
			e.stop()
		})
	}
}

// TestOffsetOverflow: offsets with gaps beyond what an index can express start a new segment, and survive a crash.
func TestOffsetOverflow(t *testing.T) {
	e := newEnv(t, vfs.NewMem(), smallConfig()).mustStart()
	defer func() { e.kill() }()
	want := map[int64]string{}
	offsets := []int64{0, 100, 3_000_000_000, 3_000_000_001, 3_000_000_000 + math.MaxInt32, 3_000_000_001 + math.MaxInt32, 1 << 60}
	for _, o := range offsets {
		b := makeBatch(e.now, fmt.Sprint(o))
		record.SetBaseOffset(b, o)
		if _, err := e.log.AppendReplica(b); err != nil {
			t.Fatal(err)
		}
		want[o] = fmt.Sprint(o)
	}
	b := makeBatch(e.now, "late")
	record.SetBaseOffset(b, 1<<60)
	_, err := e.log.AppendReplica(b)
	wantErr(t, err, ErrInvalidRecord)
	for range 3 {
		segs, err := e.log.Segments()
		if err != nil || len(segs) != 4 {
			t.Fatal(segs, err)
		}
		got := map[int64]string{}
		for off := int64(0); off < e.log.EndOffset(); {
			s, err := e.log.Read(off, 1, e.log.EndOffset(), true)
			if err != nil || s.Length == 0 {
				t.Fatal(off, s, err)
			}
			b := make([]byte, s.Length)
			if err := s.ReadAll(b); err != nil {
				t.Fatal(err)
			}
			got[s.BaseOffset] = fmt.Sprint(s.BaseOffset)
			off = s.NextOffset
			s.Release()
		}
		if len(got) != len(want) || e.log.EndOffset() != 1<<60+1 {
			t.Fatal(got, e.log.EndOffset())
		}
		e.kill()
		e.mustStart()
	}
}

// TestIndexFull: a full index rolls the segment.
func TestIndexFull(t *testing.T) {
	cfg := smallConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes, cfg.SegmentIndexBytes = 1<<20, 0, 80
	e := newEnv(t, vfs.NewMem(), cfg).mustStart()
	defer e.kill()
	for range 100 {
		e.mustAppend("v")
	}
	segs, err := e.log.Segments()
	if err != nil || len(segs) != 10 || segs[0].NextOffset != 11 { // the first batch of a segment has no entry
		t.Fatal(segs, err)
	}
}
