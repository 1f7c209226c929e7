package broker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"github.com/varvehq/varve/broker/api"
	"github.com/varvehq/varve/broker/internal/buffer"
)

func testFrames(r io.Reader, memory int64) (*frameReader, *buffer.Budget) {
	b := buffer.NewBudget(memory)
	return &frameReader{r: bufio.NewReaderSize(r, readBuffer), budget: b, wait: time.Millisecond,
		limit: func(key int16) int {
			if key == 0 {
				return api.MaxFrameLimit
			}
			return 1 << 20
		}}, b
}

func wireFrame(key int16, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(api.MinHeader+len(body)))
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	return append(append(b, 0, 3, 0, 0, 0, 1), body...)
}

func TestFrameReader(t *testing.T) {
	var stream []byte
	var bodies [][]byte
	for i, n := range []int{0, 1, 100, readBuffer, frameStep - 8, frameStep, 3*frameStep + 5, 2 << 20} {
		body := bytes.Repeat([]byte{byte(i + 1)}, n)
		bodies = append(bodies, body)
		stream = append(stream, wireFrame(0, body)...)
	}
	for name, r := range map[string]io.Reader{"whole": bytes.NewReader(stream), "half": iotest.HalfReader(bytes.NewReader(stream))} {
		fr, budget := testFrames(r, 100<<20)
		for i, body := range bodies {
			f, err := fr.next(t.Context())
			if err != nil {
				t.Fatalf("%s: frame %d: %v", name, i, err)
			}
			if !bytes.Equal(f.bytes()[api.MinHeader:], body) {
				t.Fatalf("%s: frame %d differs", name, i)
			}
			f.release()
		}
		if _, err := fr.next(t.Context()); !errors.Is(err, io.EOF) {
			t.Fatalf("%s: end: %v", name, err)
		}
		if budget.Used() != 0 {
			t.Fatalf("%s: %d bytes of the budget are lost", name, budget.Used())
		}
	}
}

func TestFrameReaderRefuses(t *testing.T) {
	header := func(size uint32, key int16) []byte {
		b := binary.BigEndian.AppendUint32(nil, size)
		b = binary.BigEndian.AppendUint16(b, uint16(key))
		return append(b, 0, 3, 0, 0, 0, 1)
	}
	for name, tc := range map[string]struct {
		in   []byte
		want error
	}{
		"2 GiB":               {header(1<<31-1, 0), errFrameSize},
		"negative":            {header(1<<31+5, 0), errFrameSize},
		"shorter than header": {header(7, 0), errFrameSize},
		"over the key's":      {header(2<<20, 1), errFrameSize},
		"TLS hello":           {[]byte{0x16, 0x03, 0x01, 0x02, 0x00, 1, 0, 1, 0xfc, 3, 3, 1}, errFrameSize},
		"HTTP":                {[]byte("GET / HTTP/1.1\r\n\r\n"), errFrameSize},
		"cut":                 {header(100, 0), io.ErrUnexpectedEOF},
	} {
		fr, budget := testFrames(bytes.NewReader(tc.in), 100<<20)
		if _, err := fr.next(t.Context()); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		if budget.Used() != 0 {
			t.Errorf("%s: %d bytes of the budget are lost", name, budget.Used())
		}
	}
}

// TestFrameBufferFollowsTheBytes: a peer that announces much and sends little holds little.
func TestFrameBufferFollowsTheBytes(t *testing.T) {
	r, w := io.Pipe()
	fr, budget := testFrames(r, 100<<20)
	done := make(chan error, 1)
	go func() {
		_, err := fr.next(t.Context())
		done <- err
	}()
	head := binary.BigEndian.AppendUint32(nil, 90<<20)
	head = append(head, 0, 0, 0, 3, 0, 0, 0, 1)
	if _, err := w.Write(head); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 1000)); err != nil { // returns when it is read: the buffer is made
		t.Fatal(err)
	}
	if got := budget.Used(); got > frameStep {
		t.Fatalf("%d bytes held for 1,000", got)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if budget.Used() != 0 {
		t.Fatalf("%d bytes of the budget are lost", budget.Used())
	}
}

func TestFrameWaitsForMemoryOnlySoLong(t *testing.T) {
	fr, budget := testFrames(bytes.NewReader(wireFrame(0, make([]byte, 1000))), 100<<20)
	if _, err := budget.Acquire(t.Context(), time.Second, budget.Size()); err != nil {
		t.Fatal(err)
	}
	if _, err := fr.next(t.Context()); err == nil {
		t.Fatal("a frame was read without memory for it")
	}
}

// FuzzFrameReader: whatever comes, frames are what the stream says, and no memory is lost.
func FuzzFrameReader(f *testing.F) {
	f.Add(wireFrame(0, []byte("hello")))
	f.Add(append(wireFrame(0, nil), wireFrame(1, make([]byte, 5000))...))
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		fr, budget := testFrames(bytes.NewReader(in), 100<<20)
		at := 0
		for {
			fra, err := fr.next(t.Context())
			if err != nil {
				break
			}
			n := int(binary.BigEndian.Uint32(in[at:]))
			if !bytes.Equal(fra.bytes(), in[at+4:at+4+n]) {
				t.Fatal("a frame's bytes differ from the stream's")
			}
			at += 4 + n
			fra.release()
		}
		if budget.Used() != 0 {
			t.Fatalf("%d bytes of the budget are lost", budget.Used())
		}
	})
}
