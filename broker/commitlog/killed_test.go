package commitlog

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/varvehq/varve/internal/vfs"
)

// startBoot starts on a run of the operating system of its own name.
func (e *env) startBoot(boot string) error {
	e.bootID = boot
	return e.start()
}

// TestKilledProcessLosesNothing: what a power loss explains is damage where only the process was killed. Everything that was
// written is still there then, so what is not there was taken away.
func TestKilledProcessLosesNothing(t *testing.T) {
	const batches = 16
	batch := int64(len(makeBatch(newEnv(t, nil, smallConfig()).now, strings.Repeat("x", 604))))
	segment := func(e *env, i int) string {
		segs := *e.log.segs.Load()
		return segs[(i+len(segs))%len(segs)].name(suffixLog)
	}
	for _, c := range []struct {
		name         string
		harm         func(e *env) func() // what to break, found while the log is open
		power        int64               // the end after a power loss, -1: refused
		killed       int64               // the end after a kill, -1: refused
		checkpointed bool
	}{
		{name: "nothing", harm: func(*env) func() { return func() {} }, power: batches, killed: batches},
		{name: "middle segment removed", harm: func(e *env) func() {
			name := segment(e, 1)
			return func() { mustDo(e, e.fs.Remove(name)) }
		}, power: 6, killed: -1},
		{name: "first segment removed", harm: func(e *env) func() {
			name := segment(e, 0)
			return func() { mustDo(e, e.fs.Remove(name)) }
		}, power: -1, killed: -1},
		{name: "first segment removed below the recovery point", checkpointed: true, harm: func(e *env) func() {
			name := segment(e, 0)
			return func() { mustDo(e, e.fs.Remove(name)) }
		}, power: -1, killed: -1},
		{name: "middle segment cut short", harm: func(e *env) func() {
			name := segment(e, 1)
			return func() { mustDo(e, truncateFile(e.fs, name, 3*batch-50)) }
		}, power: 8, killed: -1},
		{name: "sector of zeros", harm: func(e *env) func() {
			name := segment(e, -1)
			return func() {
				for off := int64(1024); off < 1536; off += 64 {
					patch(e.t, e.fs, name, off, func(b []byte) { clear(b) })
				}
			}
		}, power: 13, killed: -1},
		{name: "bit flipped in the last batch", harm: func(e *env) func() {
			name := segment(e, -1)
			return func() { patch(e.t, e.fs, name, 3*batch+200, flip) }
		}, power: batches - 1, killed: -1},
		{name: "last batch torn", harm: func(e *env) func() {
			name := segment(e, -1)
			return func() { mustDo(e, truncateFile(e.fs, name, 4*batch-100)) }
		}, power: batches - 1, killed: batches - 1},
	} {
		for boot, want := range map[string]int64{"boot-1": c.killed, "boot-2": c.power, "": c.power} {
			t.Run(c.name+"/"+boot, func(t *testing.T) {
				e := newEnv(t, vfs.NewMem(), smallConfig())
				mustDo(e, e.startBoot("boot-1"))
				for i := range batches {
					e.mustAppend(fmt.Sprintf("%04d%s", i, strings.Repeat("x", 600)))
				}
				mustDo(e, e.flush())
				if c.checkpointed {
					mustDo(e, e.dir.Checkpoint(nil))
				}
				harm := c.harm(e)
				e.kill()
				harm()
				err := e.startBoot(boot)
				defer e.kill()
				if want < 0 {
					var ce *CorruptError
					if !errors.As(err, &ce) || ce.File == "" {
						t.Fatalf("opened, error %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if e.log.EndOffset() != want {
					t.Fatalf("the log ends at %d, want %d", e.log.EndOffset(), want)
				}
			})
		}
	}
}

// TestFailedDiskIsNoMereKill: once a sync has failed, what was written may be gone though the machine stayed up.
func TestFailedDiskIsNoMereKill(t *testing.T) {
	e := newEnv(t, vfs.NewMem(), smallConfig())
	mustDo(e, e.startBoot("boot-1"))
	e.mustAppend("a")
	e.log.latch(errors.New("the disk said no"))
	if err := e.flush(); err == nil {
		t.Fatal("flushed")
	}
	e.kill()
	mustDo(e, e.startBoot("boot-1"))
	defer e.kill()
	if e.dir.WasComplete() {
		t.Fatal("taken for a kill of the process")
	}
}

// TestDeletedSegmentsAreNotMissed: what retention and DeleteRecords delete is not taken for missing after a kill, wherever it
// falls.
func TestDeletedSegmentsAreNotMissed(t *testing.T) {
	for name, run := range map[string]func(e *env){
		"delete records": func(e *env) { mustDo(e, e.log.AdvanceStart(9)) },
		"retention": func(e *env) {
			_, err := e.log.DeleteSegmentsBefore(12)
			mustDo(e, err)
		},
		"both": func(e *env) {
			mustDo(e, e.log.AdvanceStart(9))
			_, err := e.log.DeleteSegmentsBefore(9)
			mustDo(e, err)
		},
		"reset": func(e *env) { mustDo(e, e.log.TruncateFullyAndStartAt(100)) },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, vfs.NewMem(), smallConfig())
			mustDo(e, e.startBoot("boot-1"))
			for i := range 16 {
				e.mustAppend(fmt.Sprintf("%04d%s", i, strings.Repeat("x", 600)))
			}
			mustDo(e, e.flush())
			run(e)
			start, end := e.log.StartOffset(), e.log.EndOffset()
			e.kill()
			mustDo(e, e.startBoot("boot-1"))
			defer e.kill()
			if e.log.StartOffset() != start || e.log.EndOffset() != end {
				t.Fatalf("[%d, %d), want [%d, %d)", e.log.StartOffset(), e.log.EndOffset(), start, end)
			}
		})
	}
}

// TestDamagedLogStartCheckpoint: the directory opens, the logs begin with their first segment, and the file is kept.
func TestDamagedLogStartCheckpoint(t *testing.T) {
	e := newEnv(t, vfs.NewMem(), smallConfig())
	mustDo(e, e.startBoot("boot-1"))
	for i := range 16 {
		e.mustAppend(fmt.Sprintf("%04d%s", i, strings.Repeat("x", 600)))
	}
	mustDo(e, e.flush())
	mustDo(e, e.log.AdvanceStart(9))
	if _, err := e.log.DeleteSegmentsBefore(9); err != nil {
		t.Fatal(err)
	}
	e.stop()
	mustDo(e, vfs.WriteFileAtomic(e.fs, testRoot+"/"+startFile, []byte("0\n1\nt 0")))
	mustDo(e, e.startBoot("boot-1"))
	if e.log.StartOffset() != 6 || e.log.EndOffset() != 16 {
		t.Fatalf("[%d, %d), want [6, 16)", e.log.StartOffset(), e.log.EndOffset())
	}
	kept := 0
	entries, err := e.fs.ReadDir(testRoot)
	mustDo(e, err)
	for _, x := range entries {
		if strings.HasPrefix(x.Name(), startFile+".damaged-") {
			kept++
		}
	}
	if kept != 1 {
		t.Fatalf("%d damaged files are kept", kept)
	}
	e.stop()
	mustDo(e, e.startBoot("boot-1")) // and the checkpoint is sound again
	defer e.kill()
	if e.log.StartOffset() != 6 {
		t.Fatalf("start %d after another stop", e.log.StartOffset())
	}
}

// TestResetTakesWhatRetentionLeft: a segment that retention could not remove is not removed later under a name that a new
// segment has meanwhile.
func TestResetTakesWhatRetentionLeft(t *testing.T) {
	refuse := false
	e := newEnv(t, vfs.InjectErrors(vfs.NewMem(), func(op vfs.Op, name string) error {
		if refuse && op == vfs.OpRename && strings.HasSuffix(name, suffixLog) {
			return vfs.ErrInjected
		}
		return nil
	}), smallConfig())
	e.mustStart()
	defer e.kill()
	for i := range 16 {
		e.mustAppend(fmt.Sprintf("%04d%s", i, strings.Repeat("x", 600)))
	}
	mustDo(e, e.flush())
	refuse = true
	if _, err := e.log.DeleteSegmentsBefore(12); !errors.Is(err, vfs.ErrInjected) {
		t.Fatal(err)
	}
	refuse = false
	mustDo(e, e.log.TruncateFullyAndStartAt(0))
	for i := range 16 {
		e.mustAppend(fmt.Sprintf("%04d%s", i, strings.Repeat("y", 600)))
	}
	mustDo(e, e.flush())
	if _, err := e.log.DeleteSegmentsBefore(0); err != nil {
		t.Fatal(err)
	}
	e.stop()
	e.mustStart()
	if got, err := readAll(e.log, 0, 16, 1<<20); err != nil || len(got) != 16 {
		t.Fatalf("%d records, %v", len(got), err)
	}
}
