package vfs

import (
	"errors"
	"io"
	"path"
)

// ErrLocked is returned by Lock where another process or owner holds the lock.
var ErrLocked = errors.New("locked by another process")

// ReadFile reads a whole file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], errors.Join(err, f.Close())
}

// TempSuffix ends the name of the temporary file that WriteFileAtomic leaves after a crash.
const TempSuffix = ".tmp"

// WriteFileAtomic replaces name by a file that holds data, or leaves it as it was: it writes a temporary beside it, syncs
// it, renames it and syncs the folder. When it returns nil the new content survives a power loss.
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	if err := ReplaceFile(fsys, name, data, true); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}

// ReplaceFile is WriteFileAtomic without the sync of the folder, and without that of the file unless sync is set: for
// many files that one SyncFS makes durable, and for files that can be made again.
func ReplaceFile(fsys FS, name string, data []byte, sync bool) error {
	tmp := name + TempSuffix
	f, err := fsys.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = fsys.Rename(tmp, name)
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(fsys.Remove(tmp)))
	}
	return nil
}

func ignoreMissing(err error) error {
	if IsNotExist(err) {
		return nil
	}
	return err
}
