package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/api"
	"github.com/varvehq/varve/broker/internal/buffer"
	"github.com/varvehq/varve/internal/vfs"
)

// copyStep is how much of a file the buffered path holds at a time.
const copyStep = 256 << 10

// coalesce is how much encoded response may wait for the next one of the same connection.
const coalesce = 64 << 10

// responseWriter encodes responses and writes them to one connection. Small ones that follow each other closely share a
// write. File parts go by sendfile where the connection is bare TCP and the part is large, and through a pooled buffer
// otherwise.
type responseWriter struct {
	s     *server
	nc    net.Conn
	tcp   *sendfiler // nil where sendfile cannot be used
	buf   *buffer.Buffer
	parts []api.Part
}

func newResponseWriter(s *server, nc net.Conn) responseWriter {
	w := responseWriter{s: s, nc: nc}
	if t, ok := nc.(*net.TCPConn); ok {
		w.tcp = newSendfiler(t)
	}
	return w
}

// close releases the writer's buffer.
func (w *responseWriter) close() {
	w.buf.Release()
	w.buf = nil
}

// write encodes resp. With more=true the caller promises that another write or flush follows at once.
func (w *responseWriter) write(h api.Header, resp kmsg.Response, more bool) error {
	if w.buf == nil {
		w.buf = buffer.Get(coalesce / 16)
	}
	st, streamed := resp.(api.Streamed)
	if streamed {
		defer st.Release()
		st.Check(w)
	}
	at := len(w.buf.B)
	b := append(w.buf.B, 0, 0, 0, 0)
	b = api.AppendResponseHeader(b, resp, h.CorrelationID)
	w.parts = w.parts[:0]
	if streamed {
		b, w.parts = st.AppendParts(b, w.parts)
	} else {
		b = resp.AppendTo(b)
	}
	size := len(b) - at - 4
	for i := range w.parts {
		size += w.parts[i].Size()
	}
	if size > 1<<31-1 {
		return fmt.Errorf("broker: a response of %d bytes is too large", size)
	}
	binary.BigEndian.PutUint32(b[at:], uint32(size))
	w.s.metrics.request(h.Key).responseBytes.Add(float64(size))
	w.buf.B = b
	if len(w.parts) > 0 {
		err := w.writeParts()
		clear(w.parts)
		return err
	}
	if more && len(w.buf.B) < coalesce {
		return nil
	}
	return w.flush()
}

// Direct reports whether a part of a file goes by sendfile.
func (w *responseWriter) Direct(file vfs.File, length int) bool {
	if w.tcp == nil || length < w.s.cfg.SendfileMin {
		return false
	}
	_, ok := file.Fd()
	return ok
}

// flush writes what is encoded.
func (w *responseWriter) flush() error {
	if w.buf == nil || len(w.buf.B) == 0 {
		return nil
	}
	err := w.send(w.buf.B, false)
	w.reset()
	return err
}

func (w *responseWriter) reset() {
	if cap(w.buf.B) > coalesce { // do not keep a large buffer for an idle connection
		w.buf.Release()
		w.buf = nil
		return
	}
	w.buf.B = w.buf.B[:0]
}

// writeParts writes the encoded form with the parts between.
func (w *responseWriter) writeParts() error {
	defer w.reset()
	from := 0
	small := buffer.Get(0) // encoded pieces and small parts, until they are worth a write
	defer func() { small.Release() }()
	for i := range w.parts {
		p := &w.parts[i]
		small.B = append(small.B, w.buf.B[from:p.At]...)
		from = p.At
		if p.File != nil && p.Len >= w.s.cfg.SendfileMin && w.tcp != nil {
			if fd, ok := p.File.Fd(); ok {
				if err := w.send(small.B, true); err != nil {
					return err
				}
				small.B = small.B[:0]
				if err := w.sendfile(fd, p); err != nil {
					return err
				}
				continue
			}
		}
		var err error
		if small, err = w.copyPart(small, p); err != nil {
			return err
		}
	}
	small.B = append(small.B, w.buf.B[from:]...)
	return w.send(small.B, false)
}

// copyPart writes a part through the buffer b, which it returns with what is still to be written.
func (w *responseWriter) copyPart(b *buffer.Buffer, p *api.Part) (*buffer.Buffer, error) {
	w.s.metrics.fetchBuffered.Add(float64(p.Size()))
	if p.File == nil {
		if len(p.Data) < copyStep/4 {
			b.B = append(b.B, p.Data...)
			return b, nil
		}
		if err := w.send(b.B, true); err != nil {
			return b, err
		}
		b.B = b.B[:0]
		return b, w.send(p.Data, true)
	}
	for done := 0; done < p.Len; {
		n := min(copyStep, p.Len-done)
		b = b.Grow(len(b.B) + n)
		at := len(b.B)
		b.B = b.B[:at+n]
		if _, err := p.File.ReadAt(b.B[at:], p.Pos+int64(done)); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return b, fmt.Errorf("broker: read %s at %d: %w", p.File.Name(), p.Pos+int64(done), err)
		}
		done += n
		if len(b.B) >= copyStep {
			if err := w.send(b.B, true); err != nil {
				return b, err
			}
			b.B = b.B[:0]
		}
	}
	return b, nil
}

// sendfile sends a part from its file.
func (w *responseWriter) sendfile(fd uintptr, p *api.Part) error {
	if w.tcp.cold(fd, p.Pos, p.Len) {
		w.s.metrics.coldReads.Inc()
		select {
		case w.s.cold <- struct{}{}:
			defer func() { <-w.s.cold }()
		case <-w.s.ctx.Done():
			return w.s.ctx.Err()
		}
	}
	for done := 0; done < p.Len; {
		if err := w.nc.SetWriteDeadline(time.Now().Add(w.s.cfg.FrameTimeout)); err != nil {
			return err
		}
		n, err := w.tcp.send(fd, p.Pos+int64(done), p.Len-done)
		w.s.metrics.fetchSendfile.Add(float64(n))
		done += n
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF // the file is shorter than its owner said
		}
		if err != nil {
			return fmt.Errorf("broker: sendfile %s at %d: %w", p.File.Name(), p.Pos+int64(done), err)
		}
	}
	return nil
}

// send writes b whole; more says that further bytes of the same response follow.
func (w *responseWriter) send(b []byte, more bool) error {
	if len(b) == 0 {
		return nil
	}
	if err := w.nc.SetWriteDeadline(time.Now().Add(w.s.cfg.FrameTimeout)); err != nil {
		return err
	}
	if more && w.tcp != nil {
		return w.tcp.writeMore(b)
	}
	_, err := w.nc.Write(b)
	return err
}
