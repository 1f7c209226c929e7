package vfs

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

func syncData(f *os.File) error {
	return control(f, "fdatasync", unix.Fdatasync)
}

func syncFS(f *os.File) error {
	return control(f, "syncfs", unix.Syncfs)
}

func preallocate(f *os.File, offset, length int64) error {
	err := control(f, "fallocate", func(fd int) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, offset, length)
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

// control runs a system call on f's descriptor, again where a signal interrupted it.
func control(f *os.File, op string, call func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var errno error
	if err := c.Control(func(fd uintptr) {
		errno = call(int(fd))
		for errors.Is(errno, unix.EINTR) {
			errno = call(int(fd))
		}
	}); err != nil {
		return err
	}
	if errno != nil {
		return &fs.PathError{Op: op, Path: f.Name(), Err: errno}
	}
	return nil
}
