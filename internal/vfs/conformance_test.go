package vfs_test

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varvehq/varve/internal/vfs"
)

// TestConformance runs the contract of FS over every twin.
func TestConformance(t *testing.T) {
	twins := map[string]func(t *testing.T) (vfs.FS, string){
		"OS":  func(t *testing.T) (vfs.FS, string) { return vfs.OS(), filepath.ToSlash(t.TempDir()) },
		"Mem": func(t *testing.T) (vfs.FS, string) { return memAt(t, "/root"), "/root" },
		"InjectErrors": func(t *testing.T) (vfs.FS, string) {
			return vfs.InjectErrors(memAt(t, "/root"), func(vfs.Op, string) error { return nil }), "/root"
		},
	}
	cases := map[string]func(t *testing.T, f vfs.FS, root string){
		"read and write":    testReadWrite,
		"folders":           testFolders,
		"rename and link":   testRenameLink,
		"remove while open": testRemoveOpen,
		"lock":              testLock,
		"helpers":           testHelpers,
		"sync and times":    testSyncTimes,
	}
	for name, twin := range twins {
		for what, run := range cases {
			t.Run(name+"/"+what, func(t *testing.T) {
				f, root := twin(t)
				run(t, f, root)
			})
		}
	}
}

func memAt(t *testing.T, root string) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	must(t, m.MkdirAll(root))
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func content(t *testing.T, f vfs.FS, name string) string {
	t.Helper()
	b, err := vfs.ReadFile(f, name)
	must(t, err)
	return string(b)
}

func put(t *testing.T, f vfs.FS, name, data string) {
	t.Helper()
	file, err := f.Create(name)
	must(t, err)
	_, err = file.WriteAt([]byte(data), 0)
	must(t, err)
	must(t, file.Close())
}

func testReadWrite(t *testing.T, f vfs.FS, root string) {
	name := root + "/a"
	_, err := f.Open(name)
	wantErr(t, err, fs.ErrNotExist)
	file, err := f.OpenReadWrite(name)
	must(t, err)
	if file.Name() != name {
		t.Fatalf("Name %q", file.Name())
	}
	for _, w := range []struct {
		off  int64
		data string
	}{{0, "hello"}, {8, "world"}, {3, "LO"}} {
		n, err := file.WriteAt([]byte(w.data), w.off)
		must(t, err)
		if n != len(w.data) {
			t.Fatalf("wrote %d", n)
		}
	}
	if got := content(t, f, name); got != "helLO\x00\x00\x00world" {
		t.Fatalf("content %q", got)
	}
	b := make([]byte, 8)
	if n, err := file.ReadAt(b, 10); n != 3 || !errors.Is(err, io.EOF) || string(b[:n]) != "rld" {
		t.Fatalf("short read %d %v %q", n, err, b[:n])
	}
	must(t, file.Truncate(2))
	must(t, file.Truncate(4))
	if got := content(t, f, name); got != "he\x00\x00" {
		t.Fatalf("content after truncation %q", got)
	}
	must(t, file.Preallocate(4, 1<<16))
	if size, err := file.Size(); err != nil || size != 4 {
		t.Fatalf("size after preallocation %d %v", size, err)
	}
	must(t, file.Sync())
	must(t, file.Close())
	if _, err := file.ReadAt(b, 0); !errors.Is(err, fs.ErrClosed) {
		t.Fatalf("read after close: %v", err)
	}
	ro, err := f.Open(name)
	must(t, err)
	if _, err := ro.WriteAt(b, 0); err == nil {
		t.Fatal("wrote to a file opened for reading")
	}
	must(t, ro.Close())
	put(t, f, name, "new")
	if got := content(t, f, name); got != "new" {
		t.Fatalf("Create did not truncate: %q", got)
	}
}

func testFolders(t *testing.T, f vfs.FS, root string) {
	must(t, f.MkdirAll(root+"/x/y/z"))
	must(t, f.MkdirAll(root+"/x/y/z"))
	put(t, f, root+"/x/b", "1")
	put(t, f, root+"/x/a", "22")
	entries, err := f.ReadDir(root + "/x")
	must(t, err)
	names := ""
	for _, e := range entries {
		names += e.Name() + " "
		if e.IsDir() != (e.Name() == "y") {
			t.Fatalf("%s: IsDir %v", e.Name(), e.IsDir())
		}
	}
	if names != "a b y " {
		t.Fatalf("entries %q", names)
	}
	st, err := f.Stat(root + "/x/a")
	must(t, err)
	if st.Size() != 2 || st.IsDir() || st.Name() != "a" {
		t.Fatalf("stat %v", st)
	}
	if err := f.Remove(root + "/x"); err == nil {
		t.Fatal("removed a folder that is not empty")
	}
	must(t, f.RemoveAll(root+"/x"))
	must(t, f.RemoveAll(root+"/x"))
	_, err = f.Stat(root + "/x/a")
	wantErr(t, err, fs.ErrNotExist)
	_, err = f.ReadDir(root + "/x")
	wantErr(t, err, fs.ErrNotExist)
	_, err = f.Create(root + "/x/a")
	wantErr(t, err, fs.ErrNotExist)
	wantErr(t, f.Remove(root+"/nothing"), fs.ErrNotExist)
	free, total, err := f.Free(root)
	must(t, err)
	if free > total || total == 0 {
		t.Fatalf("free %d of %d", free, total)
	}
}

func testRenameLink(t *testing.T, f vfs.FS, root string) {
	put(t, f, root+"/a", "A")
	put(t, f, root+"/b", "B")
	must(t, f.Rename(root+"/a", root+"/b"))
	if got := content(t, f, root+"/b"); got != "A" {
		t.Fatalf("content %q", got)
	}
	wantErr(t, f.Rename(root+"/a", root+"/c"), fs.ErrNotExist)
	must(t, f.MkdirAll(root+"/d"))
	must(t, f.Rename(root+"/b", root+"/d/b"))
	must(t, f.Rename(root+"/d", root+"/e"))
	must(t, f.Link(root+"/e/b", root+"/c"))
	wantErr(t, f.Link(root+"/e/b", root+"/c"), fs.ErrExist)
	wantErr(t, f.Link(root+"/gone", root+"/g"), fs.ErrNotExist)
	must(t, f.Remove(root+"/e/b"))
	if got := content(t, f, root+"/c"); got != "A" {
		t.Fatalf("content of the second name %q", got)
	}
}

func testRemoveOpen(t *testing.T, f vfs.FS, root string) {
	put(t, f, root+"/a", "alive")
	file, err := f.Open(root + "/a")
	must(t, err)
	must(t, f.Rename(root+"/a", root+"/a.deleted"))
	must(t, f.Remove(root+"/a.deleted"))
	b := make([]byte, 5)
	if _, err := file.ReadAt(b, 0); err != nil || string(b) != "alive" {
		t.Fatalf("read %q %v", b, err)
	}
	must(t, file.Close())
}

func testLock(t *testing.T, f vfs.FS, root string) {
	l, err := f.Lock(root + "/.lock")
	must(t, err)
	_, err = f.Lock(root + "/.lock")
	wantErr(t, err, vfs.ErrLocked)
	must(t, l.Close())
	l, err = f.Lock(root + "/.lock")
	must(t, err)
	must(t, l.Close())
}

func testHelpers(t *testing.T, f vfs.FS, root string) {
	for _, data := range []string{"one", "", "three"} {
		must(t, vfs.WriteFileAtomic(f, root+"/file", []byte(data)))
		if got := content(t, f, root+"/file"); got != data {
			t.Fatalf("content %q, want %q", got, data)
		}
	}
	entries, err := f.ReadDir(root)
	must(t, err)
	if len(entries) != 1 {
		t.Fatalf("temporary left: %v", entries)
	}
	_, err = vfs.ReadFile(f, root+"/none")
	wantErr(t, err, fs.ErrNotExist)
	for _, size := range []int{0, 100, 5<<20 + 1} {
		put(t, f, root+"/large", strings.Repeat("x", size))
		must(t, vfs.RemoveInSteps(f, root+"/large"))
		_, err = f.Stat(root + "/large")
		wantErr(t, err, fs.ErrNotExist)
	}
	wantErr(t, vfs.RemoveInSteps(f, root+"/large"), fs.ErrNotExist)
}

// What is cut down is the file that is removed, in pieces that are small, and it goes even where it cannot be cut.
func TestRemoveInSteps(t *testing.T) {
	var cuts int
	var broken error
	f := vfs.InjectErrors(memAt(t, "/root"), func(op vfs.Op, name string) error {
		if op == vfs.OpTruncate {
			cuts++
			return broken
		}
		return nil
	})
	put(t, f, "/root/large", strings.Repeat("x", 64<<20))
	must(t, vfs.RemoveInSteps(f, "/root/large"))
	if cuts != 31 {
		t.Errorf("%d cuts", cuts)
	}
	broken = errors.New("broken")
	put(t, f, "/root/large", strings.Repeat("x", 64<<20))
	wantErr(t, vfs.RemoveInSteps(f, "/root/large"), broken)
	_, err := f.Stat("/root/large")
	wantErr(t, err, fs.ErrNotExist)
}

func testSyncTimes(t *testing.T, f vfs.FS, root string) {
	put(t, f, root+"/a", "x")
	must(t, f.SyncDir(root))
	must(t, f.SyncFS(root))
	file, err := f.OpenReadWrite(root + "/a")
	must(t, err)
	when := time.Unix(1700000000, 0)
	must(t, file.SetModTime(when))
	must(t, file.Close())
	st, err := f.Stat(root + "/a")
	must(t, err)
	if !st.ModTime().Equal(when) {
		t.Fatalf("mod time %v", st.ModTime())
	}
}
