// Package vfs is the only way Varve touches data files. It owns the file system interface, its three twins (OS, an
// in-memory one whose crash clone drops what was not synced, and an error-injecting decorator) and atomic replacement of
// files. It never interprets what a file holds.
package vfs

import (
	"io"
	"io/fs"
	"time"
)

// FS is a file system. Names are slash-separated and cleaned; they are relative to nothing: the OS twin takes them as the
// operating system does. All methods may be called concurrently. Errors satisfy errors.Is with fs.ErrNotExist,
// fs.ErrExist and syscall.ENOSPC where they apply.
type FS interface {
	// Create makes or truncates a file, open for reading and writing.
	Create(name string) (File, error)
	// Open opens an existing file for reading.
	Open(name string) (File, error)
	// OpenReadWrite opens an existing file for reading and writing, and makes an empty one where there is none.
	OpenReadWrite(name string) (File, error)
	// Remove removes a file or an empty folder.
	Remove(name string) error
	// RemoveAll removes a file or a folder with all that is in it; it is no error where there is none.
	RemoveAll(name string) error
	// Rename replaces newname by oldname atomically. It is durable after SyncDir of the parents.
	Rename(oldname, newname string) error
	// Link gives the file oldname a second name, atomically, and fails with fs.ErrExist where newname is taken. It is
	// durable after SyncDir of newname's parent.
	Link(oldname, newname string) error
	// MkdirAll makes a folder and its parents.
	MkdirAll(dir string) error
	// ReadDir lists a folder in order of name.
	ReadDir(dir string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the entries of a folder (creations, removals, renames) durable.
	SyncDir(dir string) error
	// SyncFS makes everything written to the file system that holds dir durable, in one call (Linux syncfs).
	SyncFS(dir string) error
	// Lock takes an exclusive advisory lock on name, making it where there is none, and fails at once where another
	// holds it. The lock ends with Close or with the process.
	Lock(name string) (io.Closer, error)
	// Free tells the bytes that can still be written, and the total, on the file system that holds dir.
	Free(dir string) (free, total uint64, err error)
}

// File is an open file. ReadAt and WriteAt may be called concurrently; the others need the caller's care.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Name() string
	Size() (int64, error)
	// Truncate cuts or extends (with zeros) the file.
	Truncate(size int64) error
	// Sync makes the content and what is needed to find it durable (fdatasync). A failed Sync may have lost pages for
	// good: never retry it, latch the owner instead.
	Sync() error
	// Preallocate reserves blocks for [offset, offset+length) without changing the size (fallocate KEEP_SIZE). It is
	// a hint: a file system that cannot answers nil.
	Preallocate(offset, length int64) error
	// Fd is the descriptor for sendfile, or ok=false where there is none (memory files, injected faults).
	Fd() (fd uintptr, ok bool)
	// SetModTime sets the modification time, for retention of files without timestamps of their own.
	SetModTime(t time.Time) error
}
