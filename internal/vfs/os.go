//go:build unix

package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

type osFS struct {
	mu struct {
		sync.Mutex
		// roots are open folders, one per file system, kept for SyncFS: the kernel tells a write-back error once to
		// every descriptor that was open when it happened, so a fresh one could miss it.
		roots map[uint64]*os.File
	}
}

var theOS = &osFS{}

// OS is the operating system's file system.
func OS() FS { return theOS }

func (*osFS) Create(name string) (File, error) {
	return wrap(os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644))
}

func (*osFS) Open(name string) (File, error) { return wrap(os.Open(name)) }

func (*osFS) OpenReadWrite(name string) (File, error) {
	return wrap(os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644))
}

func (*osFS) Remove(name string) error                  { return os.Remove(name) }
func (*osFS) RemoveAll(name string) error               { return os.RemoveAll(name) }
func (*osFS) Rename(oldname, newname string) error      { return os.Rename(oldname, newname) }
func (*osFS) Link(oldname, newname string) error        { return os.Link(oldname, newname) }
func (*osFS) MkdirAll(dir string) error                 { return os.MkdirAll(dir, 0o755) }
func (*osFS) ReadDir(dir string) ([]fs.DirEntry, error) { return os.ReadDir(dir) }
func (*osFS) Stat(name string) (fs.FileInfo, error)     { return os.Stat(name) }

func (*osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (o *osFS) SyncFS(dir string) error {
	root, err := o.root(dir)
	if err != nil {
		return err
	}
	return syncFS(root)
}

// root returns the kept descriptor of the file system that holds dir.
func (o *osFS) root(dir string) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	dev := uint64(st.Dev) //nolint:unconvert // another type on other systems
	if f := o.mu.roots[dev]; f != nil {
		return f, nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if o.mu.roots == nil {
		o.mu.roots = map[uint64]*os.File{}
	}
	o.mu.roots[dev] = f
	return f, nil
}

func (*osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrLocked
		}
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	return f, nil
}

func (*osFS) Free(dir string) (free, total uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	size := uint64(st.Bsize)
	return uint64(st.Bavail) * size, uint64(st.Blocks) * size, nil //nolint:unconvert // another type on other systems
}

type osFile struct{ *os.File }

func wrap(f *os.File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (f osFile) Sync() error { return syncData(f.File) }

func (f osFile) Preallocate(offset, length int64) error { return preallocate(f.File, offset, length) }

func (f osFile) Fd() (uintptr, bool) { return f.File.Fd(), true }

func (f osFile) SetModTime(t time.Time) error { return os.Chtimes(f.Name(), time.Time{}, t) }
