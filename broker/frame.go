package broker

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/varvehq/varve/broker/api"
	"github.com/varvehq/varve/broker/internal/buffer"
)

// errFrameSize closes connections that announce an impossible frame.
var errFrameSize = errors.New("frame size out of bounds")

// frameStep is how far a frame's buffer runs ahead of the bytes that have arrived.
const frameStep = 64 << 10

// frame is one request in memory. Its owner releases it once.
type frame struct {
	buf    *buffer.Buffer
	budget *buffer.Budget
	held   int64 // bytes taken from the budget
}

func (f *frame) bytes() []byte { return f.buf.B }

// release gives the buffer back to its pool, for frames that nothing refers to.
func (f *frame) release() {
	f.buf.Release()
	f.drop()
}

// drop gives the budget back and leaves the bytes to the garbage collector, for frames whose content lives on.
func (f *frame) drop() {
	f.buf = nil
	f.budget.Release(f.held)
	f.held = 0
}

// frameReader cuts a stream into frames. A frame's buffer grows as its bytes arrive, so that what a peer announces costs
// nothing.
type frameReader struct {
	r      *bufio.Reader
	limit  func(key int16) int
	budget *buffer.Budget
	wait   time.Duration // for the budget
}

// next reads the frame whose size field is the next four bytes.
func (fr *frameReader) next(ctx context.Context) (frame, error) {
	f := frame{budget: fr.budget}
	var head [4 + api.MinHeader]byte
	if _, err := io.ReadFull(fr.r, head[:4]); err != nil {
		return f, err
	}
	n := int64(int32(binary.BigEndian.Uint32(head[:])))
	if n < api.MinHeader || n > api.MaxFrameLimit {
		return f, fmt.Errorf("%w: %d bytes", errFrameSize, n)
	}
	if _, err := io.ReadFull(fr.r, head[4:]); err != nil {
		return f, noEOF(err)
	}
	key := int16(binary.BigEndian.Uint16(head[4:]))
	if limit := fr.limit(key); n > int64(limit) {
		return f, fmt.Errorf("%w: %d bytes for key %d, whose limit is %d", errFrameSize, n, key, limit)
	}
	size := int(n)
	if err := f.reserve(ctx, fr.wait, min(size, frameStep)); err != nil {
		return f, err
	}
	f.buf.B = append(f.buf.B, head[4:]...)
	for len(f.buf.B) < size {
		if len(f.buf.B) == cap(f.buf.B) {
			if err := f.reserve(ctx, fr.wait, min(size, 4*cap(f.buf.B))); err != nil {
				f.release()
				return f, err
			}
		}
		have := len(f.buf.B)
		upTo := min(size, cap(f.buf.B))
		f.buf.B = f.buf.B[:upTo]
		if _, err := io.ReadFull(fr.r, f.buf.B[have:]); err != nil {
			f.release()
			return f, noEOF(err)
		}
	}
	return f, nil
}

// reserve makes room for n bytes, and charges it.
func (f *frame) reserve(ctx context.Context, wait time.Duration, n int) error {
	if more := int64(n) - f.held; more > 0 {
		got, err := f.budget.Acquire(ctx, wait, more)
		if err != nil {
			return fmt.Errorf("no memory for a request of %d bytes: %w", n, err)
		}
		f.held += got
	}
	if f.buf == nil {
		f.buf = buffer.Get(n)
	} else {
		f.buf = f.buf.Grow(n)
	}
	return nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
