//go:build unix && !linux

package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

func syncData(f *os.File) error { return f.Sync() }

// syncFS has no error-reporting call outside Linux; sync(2) is the nearest.
func syncFS(f *os.File) error {
	if err := unix.Sync(); err != nil {
		return err
	}
	return f.Sync()
}

func preallocate(*os.File, int64, int64) error { return nil }
