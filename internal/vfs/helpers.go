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

// removeStep is how much of a file RemoveInSteps takes away at once.
const removeStep = 2 << 20

// RemoveInSteps removes a file of which nothing is needed any more, not even after a crash. It cuts it down piece by piece: a file
// system that frees all of a large file at once (ext4) keeps every sync of other files waiting meanwhile.
func RemoveInSteps(fsys FS, name string) error {
	info, err := fsys.Stat(name)
	if err != nil {
		return err
	}
	return errors.Join(shrink(fsys, name, info.Size()), fsys.Remove(name))
}

func shrink(fsys FS, name string, size int64) error {
	if size <= removeStep {
		return nil
	}
	f, err := fsys.OpenReadWrite(name)
	if err != nil {
		return err
	}
	for err == nil && size > removeStep {
		size -= removeStep
		err = f.Truncate(size)
	}
	return errors.Join(err, f.Close())
}

func ignoreMissing(err error) error {
	if IsNotExist(err) {
		return nil
	}
	return err
}
