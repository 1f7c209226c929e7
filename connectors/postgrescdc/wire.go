package postgrescdc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// wire is a connection to the server below the driver: its messages are read in place from one buffer. Reading belongs to
// one goroutine; writing is safe from any.
type wire struct {
	conn net.Conn
	buf  []byte
	r, w int
	// wake is how long a read waits at most before it returns errWake, so that timers get their turn.
	wake     time.Duration
	deadline time.Time
	silent   time.Duration // how long reads have waited in vain
	quick    int           // reads in a row that did not have to wait long

	gathering bool
	got       int // bytes of the last read while gathering

	write struct {
		sync.Mutex
		buf []byte
	}
}

// errWake is a read that ended without data, for timers.
var errWake = errors.New("nothing to read")

const (
	wireBuffer    = 256 << 10
	maxMessage    = 1<<30 + 1<<20 // the server's own limit of a value, and room for the rest
	writeDeadline = 5 * time.Second
)

func newWire(conn net.Conn) *wire {
	return &wire{conn: conn, buf: make([]byte, wireBuffer), wake: time.Second}
}

// ready reports whether a whole message is in the buffer.
func (w *wire) ready() bool {
	n := w.w - w.r
	if n < 5 {
		return false
	}
	return n-1 >= int(binary.BigEndian.Uint32(w.buf[w.r+1:]))
}

// next returns the next message, which is in place until the next call. It reads where the buffer has none.
func (w *wire) next() (typ byte, body []byte, err error) {
	for !w.ready() {
		if err := w.fill(); err != nil {
			return 0, nil, err
		}
	}
	size := int(binary.BigEndian.Uint32(w.buf[w.r+1:]))
	typ = w.buf[w.r]
	body = w.buf[w.r+5 : w.r+1+size : w.r+1+size]
	w.r += 1 + size
	return typ, body, nil
}

// A server that writes each change by itself is always just ahead of a reader that is faster than it: every read would
// bring one change, at the cost of a system call and a wake-up on both sides. After gatherAfter reads in a row that had
// to wait for less than gatherIdle, each next one first sleeps for gatherWait, and the socket is told not to wake us for
// less than gatherBytes meanwhile. The first changes after a quiet time are read at once.
const (
	gatherAfter = 8
	gatherBytes = 48 << 10
	gatherWait  = time.Millisecond
	gatherIdle  = 5 * time.Millisecond
)

// fill reads once from the connection, after it has made room for the message that has begun.
func (w *wire) fill() error {
	if w.r == w.w {
		w.r, w.w = 0, 0
		if len(w.buf) > 16*wireBuffer {
			w.buf = make([]byte, wireBuffer)
		}
	}
	if w.w-w.r >= 5 {
		size := int(binary.BigEndian.Uint32(w.buf[w.r+1:]))
		if size < 4 || size > maxMessage {
			return fmt.Errorf("message of %d bytes: not PostgreSQL's protocol", size)
		}
		if w.r+1+size > len(w.buf) {
			w.makeRoom(1 + size)
		}
	}
	if w.w == len(w.buf) {
		w.makeRoom(len(w.buf))
	}
	n, err := w.read()
	w.w += n
	if n > 0 {
		w.silent = 0
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.deadline = time.Time{}
		w.silent += w.wake
		return errWake
	}
	return err
}

// read reads what is there, gathering it first where much comes in small pieces.
func (w *wire) read() (int, error) {
	if w.gathering {
		if w.got < gatherBytes {
			time.Sleep(gatherWait)
		}
		w.deadline = time.Time{}
		if err := w.conn.SetReadDeadline(time.Now().Add(gatherIdle)); err != nil {
			return 0, err
		}
		n, err := w.conn.Read(w.buf[w.w:])
		if w.got = n; n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		w.gathering, w.quick = false, 0
		setLowWater(w.conn, 1)
	}
	now := time.Now()
	if w.deadline.Sub(now) < w.wake/2 {
		w.deadline = now.Add(w.wake)
		if err := w.conn.SetReadDeadline(w.deadline); err != nil {
			return 0, err
		}
	}
	n, err := w.conn.Read(w.buf[w.w:])
	if w.quick++; time.Since(now) >= gatherIdle {
		w.quick = 0
	}
	if w.quick >= gatherAfter {
		w.gathering, w.got = true, n
		setLowWater(w.conn, gatherBytes)
	}
	return n, err
}

// setLowWater sets how many bytes must be there before the socket counts as readable. Where that cannot be set, nothing
// but efficiency is lost.
func setLowWater(conn net.Conn, n int) {
	if c, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = c.NetConn()
	}
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, n) })
}

// makeRoom moves what is in the buffer to its start and makes it at least size long.
func (w *wire) makeRoom(size int) {
	dst := w.buf
	if size > len(w.buf) {
		dst = make([]byte, max(size, 2*len(w.buf)))
	}
	w.w = copy(dst, w.buf[w.r:w.w])
	w.r = 0
	w.buf = dst
}

// send writes one message of the frontend.
func (w *wire) send(typ byte, body []byte) error {
	w.write.Lock()
	defer w.write.Unlock()
	b := append(w.write.buf[:0], typ)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)+4))
	b = append(b, body...)
	w.write.buf = b
	if err := w.conn.SetWriteDeadline(time.Now().Add(writeDeadline)); err != nil {
		return err
	}
	_, err := w.conn.Write(b)
	return err
}

// query sends a simple query.
func (w *wire) query(sql string) error { return w.send('Q', append([]byte(sql), 0)) }

// close says goodbye and closes.
func (w *wire) close() {
	_ = w.send('X', nil)
	_ = w.conn.Close()
}

// serverError reads an ErrorResponse.
func serverError(body []byte) error {
	e := &pgconn.PgError{}
	for len(body) > 1 {
		typ := body[0]
		end := 1
		for end < len(body) && body[end] != 0 {
			end++
		}
		text := string(body[1:end])
		body = body[min(end+1, len(body)):]
		switch typ {
		case 'V':
			e.Severity = text
		case 'C':
			e.Code = text
		case 'M':
			e.Message = text
		case 'D':
			e.Detail = text
		case 'H':
			e.Hint = text
		}
	}
	return e
}
