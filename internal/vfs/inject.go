package vfs

import (
	"errors"
	"io"
	"io/fs"
	"sync/atomic"
	"time"
)

// Op is an operation of FS or File, for error injection.
type Op uint8

// The operations, in the order of the interfaces.
const (
	OpCreate Op = iota
	OpOpen
	OpOpenReadWrite
	OpRemove
	OpRemoveAll
	OpRename
	OpLink
	OpMkdirAll
	OpReadDir
	OpStat
	OpSyncDir
	OpSyncFS
	OpLock
	OpFree
	OpRead
	OpWrite
	OpClose
	OpSize
	OpTruncate
	OpSync
	OpPreallocate
	OpSetModTime
)

var opNames = [...]string{
	"create", "open", "open for writing", "remove", "remove all", "rename", "link", "mkdir", "read dir", "stat", "sync dir",
	"sync fs", "lock", "free", "read", "write", "close", "size", "truncate", "sync", "preallocate", "set mod time",
}

func (o Op) String() string { return opNames[o] }

// Mutates reports whether the operation changes the disk or makes a change durable.
func (o Op) Mutates() bool {
	switch o {
	case OpCreate, OpOpenReadWrite, OpRemove, OpRemoveAll, OpRename, OpLink, OpMkdirAll, OpSyncDir, OpSyncFS, OpWrite, OpTruncate,
		OpSync, OpPreallocate:
		return true
	}
	return false
}

// ErrInjected is the error that NthError injects.
var ErrInjected = errors.New("injected error")

// InjectErrors returns fsys with fail asked before every operation; an error it returns is the operation's outcome. A
// failed write has still written its first half, as a full disk does; every other failed operation has done nothing.
// Files have no descriptor. fail may be called concurrently.
func InjectErrors(fsys FS, fail func(op Op, name string) error) FS {
	return &injectFS{fsys, fail}
}

// NthError fails the n-th (from 0) operation that match accepts, once; nil accepts all. fired reports whether it did.
func NthError(n int, match func(op Op, name string) bool) (fail func(Op, string) error, fired func() bool) {
	var count atomic.Int64
	fail = func(op Op, name string) error {
		if match != nil && !match(op, name) || count.Add(1)-1 != int64(n) {
			return nil
		}
		return &fs.PathError{Op: op.String(), Path: name, Err: ErrInjected}
	}
	return fail, func() bool { return count.Load() > int64(n) }
}

// IsNotExist reports whether err says that a file or folder is not there.
func IsNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

type injectFS struct {
	FS
	fail func(Op, string) error
}

func (i *injectFS) file(op Op, name string, open func(string) (File, error)) (File, error) {
	if err := i.fail(op, name); err != nil {
		return nil, err
	}
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	return &injectFile{f, i.fail}, nil
}

func (i *injectFS) Create(name string) (File, error) { return i.file(OpCreate, name, i.FS.Create) }
func (i *injectFS) Open(name string) (File, error)   { return i.file(OpOpen, name, i.FS.Open) }
func (i *injectFS) OpenReadWrite(name string) (File, error) {
	return i.file(OpOpenReadWrite, name, i.FS.OpenReadWrite)
}

func (i *injectFS) do(op Op, name string, f func(string) error) error {
	if err := i.fail(op, name); err != nil {
		return err
	}
	return f(name)
}

func (i *injectFS) Remove(name string) error    { return i.do(OpRemove, name, i.FS.Remove) }
func (i *injectFS) RemoveAll(name string) error { return i.do(OpRemoveAll, name, i.FS.RemoveAll) }
func (i *injectFS) MkdirAll(dir string) error   { return i.do(OpMkdirAll, dir, i.FS.MkdirAll) }
func (i *injectFS) SyncDir(dir string) error    { return i.do(OpSyncDir, dir, i.FS.SyncDir) }
func (i *injectFS) SyncFS(dir string) error     { return i.do(OpSyncFS, dir, i.FS.SyncFS) }

func (i *injectFS) Rename(oldname, newname string) error {
	if err := i.fail(OpRename, oldname); err != nil {
		return err
	}
	return i.FS.Rename(oldname, newname)
}

func (i *injectFS) Link(oldname, newname string) error {
	if err := i.fail(OpLink, oldname); err != nil {
		return err
	}
	return i.FS.Link(oldname, newname)
}

func (i *injectFS) ReadDir(dir string) ([]fs.DirEntry, error) {
	if err := i.fail(OpReadDir, dir); err != nil {
		return nil, err
	}
	return i.FS.ReadDir(dir)
}

func (i *injectFS) Stat(name string) (fs.FileInfo, error) {
	if err := i.fail(OpStat, name); err != nil {
		return nil, err
	}
	return i.FS.Stat(name)
}

func (i *injectFS) Lock(name string) (io.Closer, error) {
	if err := i.fail(OpLock, name); err != nil {
		return nil, err
	}
	return i.FS.Lock(name)
}

func (i *injectFS) Free(dir string) (free, total uint64, err error) {
	if err := i.fail(OpFree, dir); err != nil {
		return 0, 0, err
	}
	return i.FS.Free(dir)
}

type injectFile struct {
	File
	fail func(Op, string) error
}

func (f *injectFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.fail(OpRead, f.Name()); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, off)
}

func (f *injectFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.fail(OpWrite, f.Name()); err != nil {
		n, werr := f.File.WriteAt(b[:len(b)/2], off)
		if werr != nil {
			err = werr
		}
		return n, err
	}
	return f.File.WriteAt(b, off)
}

// Close closes the file in any case, so that an injected error leaks no descriptor.
func (f *injectFile) Close() error {
	err := f.fail(OpClose, f.Name())
	return errors.Join(err, f.File.Close())
}

func (f *injectFile) Size() (int64, error) {
	if err := f.fail(OpSize, f.Name()); err != nil {
		return 0, err
	}
	return f.File.Size()
}

func (f *injectFile) Truncate(size int64) error {
	if err := f.fail(OpTruncate, f.Name()); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *injectFile) Sync() error {
	if err := f.fail(OpSync, f.Name()); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *injectFile) Preallocate(offset, length int64) error {
	if err := f.fail(OpPreallocate, f.Name()); err != nil {
		return err
	}
	return f.File.Preallocate(offset, length)
}

func (f *injectFile) SetModTime(t time.Time) error {
	if err := f.fail(OpSetModTime, f.Name()); err != nil {
		return err
	}
	return f.File.SetModTime(t)
}

// Fd hides the descriptor: what bypasses the file bypasses the errors too.
func (f *injectFile) Fd() (uintptr, bool) { return 0, false }
