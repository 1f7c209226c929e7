//go:build differential

package requests

import (
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var frames = flag.Int("frames", 500, "how many damaged frames are sent")

// silence is how long a broker is given to answer or to close.
const silence = 3 * time.Second

// damage makes a frame (with its size) wrong and names how.
type damage struct {
	name string
	do   func(m *model, frame []byte) []byte
}

var damages = []damage{
	{"cut", func(m *model, f []byte) []byte { return resized(f[:8+m.IntN(len(f)-8)]) }},
	{"cut in the body", func(m *model, f []byte) []byte { return resized(f[:len(f)-1-m.IntN(min(8, len(f)-12))]) }},
	{"longer", func(m *model, f []byte) []byte { return resized(append(f, make([]byte, 1+m.IntN(9))...)) }},
	{"unknown key", func(m *model, f []byte) []byte { return with16(f, 4, pick[int16](m, -1, 4, 5, 52, 95, 500, 32767)) }},
	{"version too high", func(m *model, f []byte) []byte { return with16(f, 6, pick[int16](m, 60, 32767)) }},
	{"negative version", func(m *model, f []byte) []byte { return with16(f, 6, pick[int16](m, -1, -32768)) }},
	{"client id too long", func(m *model, f []byte) []byte { return with16(f, 12, pick[int16](m, 32767, 5000)) }},
	{"negative client id", func(m *model, f []byte) []byte { return with16(f, 12, pick[int16](m, -2, -32768)) }},
	{"negative size", func(m *model, f []byte) []byte { return with32(f, 0, pick[int32](m, -1, -1<<31)) }},
	{"size too large", func(m *model, f []byte) []byte { return with32(f, 0, 1<<31-1) }},
	{"size of nothing", func(m *model, f []byte) []byte { return with32(f, 0, 0) }},
	{"flipped bit", func(m *model, f []byte) []byte { f[14+m.IntN(len(f)-14)] ^= 1 << m.IntN(8); return f }},
	{"ones", func(m *model, f []byte) []byte { return with32(f, 14+m.IntN(max(len(f)-18, 1)), -1) }},
}

func resized(f []byte) []byte { return with32(f, 0, int32(len(f)-4)) }

func with16(f []byte, at int, v int16) []byte {
	if at+2 <= len(f) {
		binary.BigEndian.PutUint16(f[at:], uint16(v))
	}
	return f
}

func with32(f []byte, at int, v int32) []byte {
	if at+4 <= len(f) {
		binary.BigEndian.PutUint32(f[at:], uint32(v))
	}
	return f
}

// TestFrames sends damaged requests, each on a connection of its own, and compares whether they are answered.
func TestFrames(t *testing.T) {
	r := start(t)
	r.model = newModel(*seed, 0)
	r.prepare()
	seen := map[string]int{}
	for i := range *frames {
		req := r.model.next(r.served)
		if !reads[req.Key()] { // what a damaged request of another key does is nobody's to foresee
			continue
		}
		d := pick(r.model, damages...)
		frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID)).AppendRequest(nil, req, int32(i))
		if len(frame) < 24 {
			continue
		}
		frame = d.do(r.model, frame)
		k, v := outcome(r.kafka.addr, frame), outcome(r.varve.addr, frame)
		seen[d.name+": "+k]++
		if k != v && !listedFrame(d.name, req, k, v) {
			t.Errorf("%s v%d, %s: Kafka %s, Varve %s\n  %x", kmsg.NameForKey(req.Key()), req.GetVersion(), d.name, k, v, frame)
		}
	}
	t.Logf("%d frames with seed %d: %v", *frames, *seed, seen)
}

func outcome(addr string, frame []byte) string {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(silence))
	if _, err := c.Write(frame); err != nil {
		return "closed"
	}
	var head [4]byte
	switch _, err := io.ReadFull(c, head[:]); {
	case err == nil:
		return "answered"
	case errors.Is(closed(err), io.EOF):
		return "closed"
	default:
		return "silent"
	}
}

// frameRules list what differs of damaged frames.
var frameRules = []struct{ damage, kafka, varve, reason string }{}

func listedFrame(damage string, _ kmsg.Request, k, v string) bool {
	for _, r := range frameRules {
		if full(r.damage, damage) && full(r.kafka, k) && full(r.varve, v) {
			return true
		}
	}
	return false
}
