package vfs_test

import (
	"bytes"
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/varvehq/varve/internal/vfs"
)

func TestMemFull(t *testing.T) {
	m := vfs.NewMem()
	m.SetCapacity(10)
	f, err := m.Create("/a")
	must(t, err)
	n, err := f.WriteAt(make([]byte, 16), 0)
	if n != 10 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("wrote %d, %v", n, err)
	}
	must(t, f.Truncate(4))
	if free, _, _ := m.Free("/"); free != 6 {
		t.Fatalf("free %d", free)
	}
	must(t, m.Remove("/a"))
	if m.Used() != 0 {
		t.Fatalf("used %d after removal", m.Used())
	}
}

// TestCrashKeepsSynced: what was synced is there after every crash, at every seed.
func TestCrashKeepsSynced(t *testing.T) {
	base := bytes.Repeat([]byte("0123456789abcdef"), 1000)
	for seed := range uint64(300) {
		m := memAt(t, "/d")
		f, err := m.Create("/d/a")
		must(t, err)
		_, err = f.WriteAt(base, 0)
		must(t, err)
		must(t, f.Sync())
		must(t, m.SyncDir("/"))
		must(t, m.SyncDir("/d"))
		_, err = f.WriteAt(base, int64(len(base)))
		must(t, err)
		must(t, m.Rename("/d/a", "/d/b"))
		c := m.Crash(seed)
		a, errA := vfs.ReadFile(c, "/d/a")
		b, errB := vfs.ReadFile(c, "/d/b")
		if (errA == nil) == (errB == nil) {
			t.Fatalf("seed %d: names %v %v", seed, errA, errB)
		}
		got := append(a, b...)
		if !bytes.HasPrefix(got, base) {
			t.Fatalf("seed %d: synced bytes are gone", seed)
		}
		if len(got) > 2*len(base) {
			t.Fatalf("seed %d: %d bytes", seed, len(got))
		}
		if d := content(t, m, "/d/b"); len(d) != 2*len(base) {
			t.Fatal("the crash changed its origin")
		}
	}
}

// TestCrashLoses: over the seeds, each kind of loss happens.
func TestCrashLoses(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(400) {
		m := memAt(t, "/d")
		must(t, m.SyncDir("/"))
		put(t, m, "/d/new", "x")
		must(t, m.SyncDir("/d"))
		f, err := m.OpenReadWrite("/d/new")
		must(t, err)
		_, err = f.WriteAt(bytes.Repeat([]byte{1}, 3*4096), 0)
		must(t, err)
		put(t, m, "/d/unsynced", "")
		c := m.Crash(seed)
		if _, err := c.Stat("/d/unsynced"); errors.Is(err, fs.ErrNotExist) {
			seen["entry lost"]++
		} else {
			seen["entry kept"]++
		}
		b := []byte(content(t, c, "/d/new"))
		switch {
		case len(b) == 3*4096 && bytes.IndexByte(b, 0) < 0:
			seen["all bytes kept"]++
		case bytes.IndexByte(b, 0) >= 0:
			seen["hole"]++
		case len(b)%4096 != 0:
			seen["torn"]++
		default:
			seen["tail lost"]++
		}
	}
	for _, kind := range []string{"entry lost", "entry kept", "all bytes kept", "hole", "torn", "tail lost"} {
		if seen[kind] == 0 {
			t.Errorf("never: %s (%v)", kind, seen)
		}
	}
}

// TestCrashAtomicWrite: WriteFileAtomic leaves the old or the new content, and the new one once it returned.
func TestCrashAtomicWrite(t *testing.T) {
	for n := range 40 {
		for seed := range uint64(20) {
			m := memAt(t, "/d")
			must(t, m.SyncDir("/"))
			must(t, vfs.WriteFileAtomic(m, "/d/f", []byte("old")))
			fail, fired := vfs.NthError(n, func(op vfs.Op, _ string) bool { return op.Mutates() })
			err := vfs.WriteFileAtomic(vfs.InjectErrors(m, fail), "/d/f", []byte("new content"))
			got := content(t, m.Crash(seed), "/d/f")
			if got != "new content" && (err == nil || got != "old") {
				t.Fatalf("n %d seed %d: error %v, content %q", n, seed, err, got)
			}
			if fired() != (err != nil) {
				t.Fatalf("n %d: injected %v, error %v", n, fired(), err)
			}
			if !fired() && n > 10 {
				return
			}
		}
	}
}

func TestSyncFSKeepsAll(t *testing.T) {
	m := memAt(t, "/d")
	put(t, m, "/d/a", "a")
	must(t, m.Rename("/d/a", "/d/b"))
	must(t, m.SyncFS("/d"))
	for seed := range uint64(20) {
		if got := content(t, m.Crash(seed), "/d/b"); got != "a" {
			t.Fatalf("content %q", got)
		}
	}
}
