package commitlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// patch changes bytes of a file behind the log's back.
func patch(t testing.TB, fs vfs.FS, name string, off int64, change func(b []byte)) {
	t.Helper()
	f, err := fs.OpenReadWrite(name)
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Size()
	if err != nil || off >= size {
		t.Fatalf("%s: size %d, %v", name, size, err)
	}
	b := make([]byte, min(64, size-off))
	if _, err := f.ReadAt(b, off); err != nil {
		t.Fatal(err)
	}
	change(b)
	if _, err := f.WriteAt(b, off); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func flip(b []byte) { b[0] ^= 0x10 }

// filled is a log of several segments whose batches have 600 bytes without a zero.
func filled(t testing.TB, n int) *env {
	e := newEnv(t, vfs.NewMem(), smallConfig()).mustStart()
	for i := range n {
		e.mustAppend(fmt.Sprintf("%04d%s", i, strings.Repeat("x", 600)))
	}
	if err := e.flush(); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestScrubNamesDamage: a flipped bit in a sealed segment is found and named, and nothing is cut.
func TestScrubNamesDamage(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 60 {
		e := filled(t, 20)
		segs, err := e.log.Segments()
		if err != nil || len(segs) < 3 {
			t.Fatal(segs, err)
		}
		if err := e.log.Scrub(context.Background()); err != nil {
			t.Fatal(err)
		}
		victim := segs[rng.IntN(len(segs)-1)]
		batch := victim.Bytes / (victim.NextOffset - victim.BaseOffset)
		pos := rng.Int64N(victim.Bytes)
		if pos%batch >= 12 && pos%batch < 16 { // the leader epoch is covered by nothing but its order
			continue
		}
		patch(t, e.fs, fileName(testRoot+"/t-0", victim.BaseOffset, suffixLog), pos, flip)
		err = e.log.Scrub(context.Background())
		var c *CorruptError
		if !errors.As(err, &c) || !errors.Is(err, ErrCorrupt) {
			t.Fatalf("flip at %d of segment %d: %v", pos, victim.BaseOffset, err)
		}
		if want := victim.BaseOffset + pos/batch; c.Offset != want && c.Offset != want+1 || c.Position/batch != pos/batch && c.Position/batch != pos/batch+1 {
			t.Fatalf("flip at %d of segment %d (batches of %d): %v", pos, victim.BaseOffset, batch, err)
		}
		e.kill()
	}
}

// TestRecoveryPolicy: what recovery does with damage in each place.
func TestRecoveryPolicy(t *testing.T) {
	batch := int64(len(makeBatch(newEnv(t, nil, smallConfig()).now, strings.Repeat("x", 604))))
	last := func(e *env) *segment { return e.log.active() }
	cases := []struct {
		name   string
		damage func(e *env, s *segment)
		checkpoint,
		corrupt bool
		end int64 // relative to the last segment's base
	}{
		{name: "nothing", damage: func(*env, *segment) {}, end: 4},
		{name: "last batch torn", damage: func(e *env, s *segment) {
			if err := truncateFile(e.fs, s.name(suffixLog), 4*batch-100); err != nil {
				t.Fatal(err)
			}
		}, end: 3},
		{name: "garbage after the end", damage: func(e *env, s *segment) {
			f, err := e.fs.OpenReadWrite(s.name(suffixLog))
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt(bytes.Repeat([]byte{7}, 100), 4*batch)
			if err = errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
		}, end: 4},
		{name: "bit flip in the last batch", damage: func(e *env, s *segment) {
			patch(t, e.fs, s.name(suffixLog), 3*batch+200, flip)
		}, end: 3},
		{name: "bit flip in the middle", damage: func(e *env, s *segment) {
			patch(t, e.fs, s.name(suffixLog), batch+200, flip)
		}, corrupt: true},
		{name: "length flipped in the middle", damage: func(e *env, s *segment) {
			patch(t, e.fs, s.name(suffixLog), batch+10, flip)
		}, corrupt: true},
		{name: "sector lost in the middle", damage: func(e *env, s *segment) {
			for off := int64(1024); off < 1536; off += 64 {
				patch(t, e.fs, s.name(suffixLog), off, func(b []byte) { clear(b) })
			}
		}, end: 1},
		{name: "sector lost below the recovery point is not looked at", checkpoint: true, damage: func(e *env, s *segment) {
			for off := int64(1024); off < 1536; off += 64 {
				patch(t, e.fs, s.name(suffixLog), off, func(b []byte) { clear(b) })
			}
		}, corrupt: true}, // found by the walk from the last index entry, and not cut
		{name: "log shorter than the recovery point", checkpoint: true, damage: func(e *env, s *segment) {
			if err := truncateFile(e.fs, s.name(suffixLog), 3*batch); err != nil {
				t.Fatal(err)
			}
		}, corrupt: true},
		{name: "file gone below the recovery point", checkpoint: true, damage: func(e *env, s *segment) {
			if err := e.fs.Remove(s.name(suffixLog)); err != nil {
				t.Fatal(err)
			}
		}, corrupt: true},
		{name: "flip in a segment before the last", damage: func(e *env, s *segment) {
			segs := *e.log.segs.Load()
			patch(t, e.fs, segs[len(segs)-2].name(suffixLog), batch+300, flip)
		}, corrupt: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := filled(t, 16) // six batches of a segment, the last has four
			s := last(e)
			base := s.base
			if got := e.log.EndOffset() - base; got != 4 {
				t.Fatalf("the last segment has %d batches", got)
			}
			if c.checkpoint {
				if err := e.dir.Checkpoint(nil); err != nil {
					t.Fatal(err)
				}
			}
			c.damage(e, s)
			size := e.log.Size()
			e.kill()
			err := e.start()
			defer e.kill()
			if c.corrupt {
				var ce *CorruptError
				if !errors.As(err, &ce) || !errors.Is(err, ErrCorrupt) || ce.File == "" {
					t.Fatalf("error %v", err)
				}
				after := int64(0)
				entries, _ := e.fs.ReadDir(testRoot + "/t-0")
				for _, x := range entries {
					if info, err := x.Info(); err == nil && strings.HasSuffix(x.Name(), suffixLog) {
						after += info.Size()
					}
				}
				if !strings.Contains(c.name, "shorter") && !strings.Contains(c.name, "gone") && after != size {
					t.Fatalf("something was cut: %d bytes, %d before", after, size)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if e.log.EndOffset() != base+c.end {
				t.Fatalf("end %d, want %d", e.log.EndOffset(), base+c.end)
			}
			if _, err := readAll(e.log, 0, e.log.EndOffset(), 1<<20); err != nil {
				t.Fatal(err)
			}
			e.mustAppend("goes on")
		})
	}
}

// TestIndexDamage: indexes that are missing or wrong never lead to wrong reads, and are right for an upload.
func TestIndexDamage(t *testing.T) {
	for _, suffix := range []string{suffixIndex, suffixTime} {
		for _, how := range []string{"missing", "empty", "garbage", "cut", "zeros"} {
			t.Run(how+suffix, func(t *testing.T) {
				e := filled(t, 40)
				want, err := readAll(e.log, 0, 40, 2000)
				if err != nil {
					t.Fatal(err)
				}
				sound, err := e.log.OpenSegment(0)
				if err != nil {
					t.Fatal(err)
				}
				offs, times := bytes.Clone(sound.OffsetIndex), bytes.Clone(sound.TimeIndex)
				if err := sound.Close(); err != nil {
					t.Fatal(err)
				}
				names := []string{fileName(testRoot+"/t-0", 0, suffix), e.log.active().name(suffix)}
				e.stop()
				for _, name := range names {
					b, err := vfs.ReadFile(e.fs, name)
					if err != nil {
						t.Fatal(err)
					}
					switch how {
					case "missing":
						err = e.fs.Remove(name)
					case "empty":
						err = vfs.WriteFileAtomic(e.fs, name, nil)
					case "garbage":
						for i := range b {
							b[i] = byte(i*31 + 7)
						}
						err = vfs.WriteFileAtomic(e.fs, name, b)
					case "cut":
						err = vfs.WriteFileAtomic(e.fs, name, b[:len(b)-3])
					case "zeros":
						err = vfs.WriteFileAtomic(e.fs, name, make([]byte, len(b)))
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				e.mustStart()
				defer e.kill()
				for _, max := range []int64{1, 1500, 1 << 20} {
					got, err := readAll(e.log, 0, 40, max)
					if err != nil {
						t.Fatal(err)
					}
					for o := range want {
						if got[o] != want[o] {
							t.Fatalf("offset %d differs", o)
						}
					}
				}
				if off, _, _, found, err := e.log.OffsetForTimestamp(e.now.UnixMilli()); err != nil || !found || off != 0 {
					t.Fatal(off, found, err)
				}
				f, err := e.log.OpenSegment(0)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(f.OffsetIndex, offs) || !bytes.Equal(f.TimeIndex, times) {
					t.Fatalf("indexes for upload: % x and % x, want % x and % x", f.OffsetIndex, f.TimeIndex, offs, times)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestFullDisk: appends fail with ENOSPC, nothing acknowledged is lost, and the log goes on when there is room.
func TestFullDisk(t *testing.T) {
	for capacity := int64(3000); capacity < 30000; capacity += 731 {
		disk := vfs.NewMem()
		e := newEnv(t, disk, smallConfig()).mustStart()
		disk.SetCapacity(capacity)
		acked := map[int64]string{}
		full := 0
		for i := 0; full < 5; i++ {
			v := fmt.Sprintf("%d %s", i, strings.Repeat("y", i*53%500))
			info, err := e.append(v)
			if err != nil {
				if !errors.Is(err, syscall.ENOSPC) {
					t.Fatalf("capacity %d: %v", capacity, err)
				}
				full++
				continue
			}
			if err := e.flush(); err != nil {
				t.Fatalf("capacity %d: flush: %v", capacity, err)
			}
			acked[info.FirstOffset] = v
		}
		check := func(what string) {
			t.Helper()
			got, err := readAll(e.log, 0, e.log.EndOffset(), 900)
			if err != nil {
				t.Fatalf("capacity %d %s: %v", capacity, what, err)
			}
			for o, v := range acked {
				if got[o] != v {
					t.Fatalf("capacity %d %s: offset %d is %.20q, was %.20q", capacity, what, o, got[o], v)
				}
			}
		}
		check("while full")
		if capacity%2 == 0 { // a crash while full
			after := disk.Crash(uint64(capacity))
			e.kill()
			after.SetCapacity(1 << 20)
			disk, e.fs = after, after
			e.mustStart()
			check("after a crash")
		}
		disk.SetCapacity(1 << 20)
		end := e.log.EndOffset()
		for i := range 20 {
			v := fmt.Sprintf("more %d", i)
			info := e.mustAppend(v)
			if info.FirstOffset != end+int64(i) {
				t.Fatalf("capacity %d: offset %d after %d", capacity, info.FirstOffset, end)
			}
			acked[info.FirstOffset] = v
		}
		check("with room again")
		e.stop()
		e.mustStart()
		check("reopened")
		e.kill()
	}
}

// TestFailedSync: a failed sync latches the log: OnFailed is told, nothing is acknowledged after it, reads go on, and
// the log that is opened again has what was acknowledged.
func TestFailedSync(t *testing.T) {
	fail, fired := vfs.NthError(3, func(op vfs.Op, name string) bool { return op == vfs.OpSync && strings.HasSuffix(name, suffixLog) })
	e := newEnv(t, vfs.InjectErrors(vfs.NewMem(), fail), smallConfig()).mustStart()
	acked := int64(0)
	for !fired() {
		e.mustAppend("v")
		if err := e.flush(); err != nil {
			wantErr(t, err, ErrFailed)
			wantErr(t, err, vfs.ErrInjected)
			break
		}
		acked = e.log.EndOffset()
	}
	if acked != 3 || e.log.FlushedOffset() != 3 || e.log.EndOffset() != 4 {
		t.Fatalf("acked %d, flushed %d, end %d", acked, e.log.FlushedOffset(), e.log.EndOffset())
	}
	_, err := e.append("w")
	wantErr(t, err, ErrFailed)
	wantErr(t, e.log.Roll(), ErrFailed)
	if e.log.Flush(4) {
		t.Fatal("flushed after a failed sync")
	}
	if _, err := readAll(e.log, 0, 3, 1000); err != nil {
		t.Fatal(err)
	}
	if err := e.dir.Close(nil); err == nil {
		t.Fatal("a clean stop of a failed log")
	}
	e.mustStart()
	if e.dir.WasClean() || e.log.EndOffset() < 3 {
		t.Fatal("clean", e.dir.WasClean(), "end", e.log.EndOffset())
	}
	e.stop()
}

func TestRefusedBatches(t *testing.T) {
	e := newEnv(t, vfs.NewMem(), smallConfig()).mustStart()
	defer e.stop()
	good := func() []byte { return makeBatch(e.now, "a", "b") }
	cases := map[string]struct {
		change func(b []byte) []byte
		want   error
	}{
		"nothing":           {func(b []byte) []byte { return nil }, ErrInvalidRecord},
		"cut":               {func(b []byte) []byte { return b[:len(b)-1] }, ErrCorrupt},
		"cut header":        {func(b []byte) []byte { return b[:40] }, ErrCorrupt},
		"trailing byte":     {func(b []byte) []byte { return append(b, 0) }, ErrCorrupt},
		"old magic":         {func(b []byte) []byte { b[16] = 1; return b }, ErrCorrupt},
		"checksum":          {func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, ErrCorrupt},
		"negative length":   {func(b []byte) []byte { b[8] = 0xff; return b }, ErrCorrupt},
		"wrong last offset": {func(b []byte) []byte { return rehash(b, func(h *record.Header) { h.LastOffsetDelta = 5 }) }, ErrInvalidRecord},
		"no records":        {func(b []byte) []byte { return rehash(b, func(h *record.Header) { h.NumRecords = 0 }) }, ErrInvalidRecord},
		"unknown codec":     {func(b []byte) []byte { return rehash(b, func(h *record.Header) { h.Attributes = 7 }) }, ErrInvalidRecord},
		"transaction without producer": {func(b []byte) []byte {
			return rehash(b, func(h *record.Header) { h.Attributes = 0x10 })
		}, ErrInvalidRecord},
		"two batches with a producer": {func(b []byte) []byte {
			p := rehash(b, func(h *record.Header) { h.ProducerID, h.ProducerEpoch, h.BaseSequence = 1, 0, 0 })
			return append(bytes.Clone(p), p...)
		}, ErrInvalidRecord},
	}
	for name, c := range cases {
		if _, err := e.log.Append(c.change(good()), 0); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
	}
	if e.log.EndOffset() != 0 || e.log.Size() != 0 {
		t.Fatalf("end %d, size %d after refused batches", e.log.EndOffset(), e.log.Size())
	}
	if _, err := e.log.Append(append(good(), good()...), 0); err != nil || e.log.EndOffset() != 4 {
		t.Fatal(err, e.log.EndOffset())
	}
}

func rehash(b []byte, change func(h *record.Header)) []byte {
	b = bytes.Clone(b)
	h, err := record.ParseHeader(b)
	if err != nil {
		panic(err)
	}
	change(&h)
	record.PutHeader(b, &h)
	return b
}

// TestHoleIsNamed: reads stop with a named error at a segment that is missing, empty or cut short, and do not go on behind it
// as if there had been nothing.
func TestHoleIsNamed(t *testing.T) {
	for what, harm := range map[string]func(e *env, name string){
		"missing": func(e *env, name string) { mustDo(e, e.fs.Remove(name)) },
		"empty":   func(e *env, name string) { mustDo(e, truncateFile(e.fs, name, 0)) },
		"base offset": func(e *env, name string) {
			patch(e.t, e.fs, name, 3, flip)
		},
	} {
		t.Run(what, func(t *testing.T) {
			e := filled(t, 30)
			segs, err := e.log.Segments()
			if err != nil || len(segs) < 4 {
				t.Fatal(segs, err)
			}
			end := e.log.EndOffset()
			e.stop()
			e.t = t
			harm(e, fileName(testRoot+"/t-0", segs[1].BaseOffset, suffixLog))
			e.mustStart()
			defer e.kill()
			got, err := readAsClient(e.log, end)
			var c *CorruptError
			if !errors.As(err, &c) || c.Offset != segs[1].BaseOffset {
				t.Fatalf("%d records, then %v", len(got), err)
			}
			if int64(len(got)) != segs[1].BaseOffset {
				t.Fatalf("%d records before the hole at %d", len(got), segs[1].BaseOffset)
			}
			if s, err := e.log.Read(segs[2].BaseOffset, 1<<20, end, true); err != nil || s.Length == 0 {
				t.Fatalf("behind the hole: %d bytes, %v", s.Length, err)
			} else {
				s.Release()
			}
		})
	}
}

// readAsClient reads from the start on as a client does, who takes the next offset from the batches it got.
func readAsClient(l *Log, end int64) (offsets []int64, err error) {
	for next := int64(0); next < end; {
		s, err := l.Read(next, 1<<20, end, true)
		if err != nil {
			return offsets, err
		}
		b := make([]byte, s.Length)
		err = s.ReadAll(b)
		s.Release()
		if err != nil {
			return offsets, err
		}
		it := record.NewBatchIterator(b)
		for h, _, ok := it.Next(); ok; h, _, ok = it.Next() {
			for ; next < h.NextOffset(); next++ {
				offsets = append(offsets, next)
			}
		}
	}
	return offsets, nil
}

func mustDo(e *env, err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// TestCutKeepsSegments: segments that recovery takes out of the log are kept beside it.
func TestCutKeepsSegments(t *testing.T) {
	e := filled(t, 30)
	segs, err := e.log.Segments()
	if err != nil || len(segs) < 4 {
		t.Fatal(segs, err)
	}
	e.kill()
	mustDo(e, e.fs.Remove(fileName(testRoot+"/t-0", segs[1].BaseOffset, suffixLog)))
	e.mustStart()
	defer e.kill()
	if end := e.log.EndOffset(); end != segs[1].BaseOffset {
		t.Fatalf("the log ends at %d, the hole begins at %d", end, segs[1].BaseOffset)
	}
	entries, err := e.fs.ReadDir(testRoot + "/t-0")
	mustDo(e, err)
	kept := 0
	for _, f := range entries {
		if strings.Contains(f.Name(), suffixCut) {
			kept++
		}
	}
	if kept != len(segs)-2 {
		t.Fatalf("%d segments kept of %d: %v", kept, len(segs)-2, entries)
	}
}
