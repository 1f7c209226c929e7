package host

import (
	"os"
	"path/filepath"
	"sync"
)

const (
	socketDirPrefix = "varve-plugin-"
	socketDirLock   = "lock"
)

// sweep runs once a process, before the first folder is made.
var sweep sync.Once

// socketDir makes a folder of mode 0700, with a locked file in it that says that it is in use. Names of unix sockets are
// short, so a long TMPDIR is not used.
func socketDir() (string, *os.File, error) {
	base := os.TempDir()
	if len(base) > 40 {
		base = "/tmp"
	}
	if canLock {
		sweep.Do(func() { sweepSocketDirs(base) })
	}
	dir, lock, err := makeSocketDir(base)
	if err != nil { // another host's sweep may have come between the file and its lock
		dir, lock, err = makeSocketDir(base)
	}
	return dir, lock, err
}

func makeSocketDir(base string) (string, *os.File, error) {
	dir, err := os.MkdirTemp(base, socketDirPrefix)
	if err != nil {
		return "", nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, socketDirLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = lockFile(lock)
	}
	if err != nil {
		removeSocketDir(dir, lock)
		return "", nil, err
	}
	return dir, lock, nil
}

// removeSocketDir removes the folder, then lets go of its lock.
func removeSocketDir(dir string, lock *os.File) {
	_ = os.RemoveAll(dir)
	if lock != nil {
		_ = lock.Close()
	}
}

// sweepSocketDirs removes the folders of hosts that were killed: those whose lock nobody holds. One without a lock file is
// being made.
func sweepSocketDirs(base string) {
	dirs, err := filepath.Glob(filepath.Join(base, socketDirPrefix+"*"))
	if err != nil {
		return // the pattern is at fault, not the folders
	}
	for _, dir := range dirs {
		lock, err := os.OpenFile(filepath.Join(dir, socketDirLock), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if lockFile(lock) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}
