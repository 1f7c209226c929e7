//go:build differential

package requests

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// clientID is how the generator calls itself.
const clientID = "differential"

// answerTimeout bounds the wait for an answer that has to come.
const answerTimeout = 8 * time.Second

var errUnreadable = errors.New("the answer does not decode")

// peer is one of the two brokers, with the connections that are free.
type peer struct {
	addr string
	idle []net.Conn
	next int32
}

func (p *peer) conn() (net.Conn, error) {
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return c, nil
	}
	return net.Dial("tcp", p.addr)
}

func (p *peer) close() {
	for _, c := range p.idle {
		_ = c.Close()
	}
	p.idle = nil
}

// answer is what came back: a response, or err (io.EOF where the broker closed the connection).
type answer struct {
	resp kmsg.Response
	err  error
}

// asked is a request on its way.
type asked struct {
	conn net.Conn
	done chan answer
	got  *answer
}

// ask sends a request. A Produce request with acks=0 has no answer: a ListTransactions behind it tells whether the
// connection lives, and its answer counts as an empty one.
func (p *peer) ask(req kmsg.Request) *asked {
	a := &asked{done: make(chan answer, 1)}
	var err error
	if a.conn, err = p.conn(); err != nil {
		a.done <- answer{err: err}
		return a
	}
	p.next++
	id, silent := p.next, false
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID)).AppendRequest(nil, req, id)
	if r, ok := req.(*kmsg.ProduceRequest); ok && r.Acks == 0 {
		silent = true
		probe := kmsg.NewPtrListTransactionsRequest()
		frame = append(frame, kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID)).AppendRequest(nil, probe, id)...)
	}
	conn := a.conn
	go func() {
		_ = conn.SetDeadline(time.Now().Add(10 * time.Minute))
		if _, err := conn.Write(frame); err != nil {
			a.done <- answer{err: io.EOF}
			return
		}
		body, err := readFrame(conn, id)
		if err != nil || silent {
			a.done <- answer{err: err}
			return
		}
		resp := req.ResponseKind()
		resp.SetVersion(req.GetVersion())
		a.done <- answer{resp: resp, err: decode(resp, body)}
	}()
	return a
}

// readFrame reads an answer and returns what follows its correlation id.
func readFrame(c net.Conn, id int32) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, closed(err)
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n < 4 || n > 100<<20 {
		return nil, fmt.Errorf("%w: a size of %d bytes", errUnreadable, n)
	}
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != id {
		return nil, fmt.Errorf("%w: correlation id %d, want %d", errUnreadable, got, id)
	}
	body := make([]byte, n-4)
	_, err := io.ReadFull(c, body)
	return body, closed(err)
}

// closed makes one error of the ways in which a connection ends.
func closed(err error) error {
	var timeout net.Error
	if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		return err
	}
	return io.EOF
}

// decode reads the whole body of an answer: bytes that are left over are an error too.
func decode(resp kmsg.Response, body []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errUnreadable, p)
		}
	}()
	if resp.IsFlexible() && resp.Key() != 18 {
		if len(body) == 0 || body[0] != 0 {
			return fmt.Errorf("%w: no response header", errUnreadable)
		}
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return nil
}

// wait waits up to d and reports whether the answer is there.
func (p *peer) wait(a *asked, d time.Duration) bool {
	if a.got != nil {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case got := <-a.done:
		a.got = &got
		if got.err == nil {
			p.idle = append(p.idle, a.conn)
		} else if a.conn != nil {
			_ = a.conn.Close()
		}
		return true
	case <-timer.C:
		return false
	}
}

// drop gives up an answer.
func (p *peer) drop(a *asked) {
	if a.got == nil && a.conn != nil {
		_ = a.conn.Close()
	}
}
