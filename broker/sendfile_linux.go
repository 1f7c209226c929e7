package broker

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// sendfiler sends file ranges to one TCP connection without copying them through the process. The file's own offset is
// neither used nor moved, so that any number of connections may send from one descriptor.
type sendfiler struct{ raw syscall.RawConn }

func newSendfiler(c *net.TCPConn) *sendfiler {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return &sendfiler{raw: raw}
}

// send sends up to n bytes of the file from pos. It waits for the socket as long as the write deadline allows, and returns
// what the kernel took in one call.
func (s *sendfiler) send(file uintptr, pos int64, n int) (sent int, err error) {
	werr := s.raw.Write(func(sock uintptr) bool {
		for {
			off := pos
			sent, err = unix.Sendfile(int(sock), int(file), &off, n)
			switch err {
			case unix.EINTR:
				continue
			case unix.EAGAIN:
				sent, err = 0, nil
				return false
			}
			sent = max(sent, 0)
			return true
		}
	})
	if werr != nil {
		return 0, werr
	}
	return sent, err
}

// writeMore writes b and tells the kernel that more follows, so that it need not go out in a packet of its own.
func (s *sendfiler) writeMore(b []byte) error {
	var err error
	werr := s.raw.Write(func(sock uintptr) bool {
		for len(b) > 0 {
			var n int
			n, err = unix.SendmsgN(int(sock), b, nil, nil, unix.MSG_MORE|unix.MSG_NOSIGNAL)
			switch {
			case err == unix.EINTR:
			case err == unix.EAGAIN:
				err = nil
				return false
			case err != nil:
				return true
			default:
				b = b[n:]
			}
		}
		return true
	})
	if werr != nil {
		return werr
	}
	return err
}

// cold reports whether the first or the last byte of a range is not in the page cache, as far as the kernel tells.
func (s *sendfiler) cold(file uintptr, pos int64, n int) bool {
	var b [1]byte
	iov := [][]byte{b[:]}
	for _, at := range [2]int64{pos, pos + int64(n) - 1} {
		if _, err := unix.Preadv2(int(file), iov, at, unix.RWF_NOWAIT); err == unix.EAGAIN {
			return true
		}
	}
	return false
}
