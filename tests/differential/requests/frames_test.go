//go:build differential

package requests

import (
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"net"
	"sync"
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

// frame is a damaged request.
type frame struct {
	req    kmsg.Request
	damage string
	bytes  []byte
}

// TestFrames sends damaged requests, each on a connection of its own, and compares whether they are answered.
func TestFrames(t *testing.T) {
	r := start(t)
	r.model = newModel(*seed, 0)
	r.prepare()
	todo := make(chan frame)
	go func() {
		defer close(todo)
		for n := 0; n < *frames; {
			if f, ok := r.model.damaged(r.served, int32(n)); ok {
				todo <- f
				n++
			}
		}
	}()
	var mu sync.Mutex
	seen, met := map[string]int{}, make([]int, len(frameRules))
	var wg sync.WaitGroup
	for range inFlight {
		wg.Go(func() {
			for f := range todo {
				k, v := r.outcomes(f.bytes, silence)
				if k != v { // one of them may only be slow
					k, v = r.outcomes(f.bytes, 4*silence)
				}
				mu.Lock()
				seen[f.damage+": "+k]++
				if i := frameRule(f, k, v); k != v && i < 0 {
					t.Errorf("%s v%d, %s: Kafka %s, Varve %s\n  %x", kmsg.NameForKey(f.req.Key()), f.req.GetVersion(), f.damage, k, v, f.bytes)
				} else if k != v {
					met[i]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d frames compared, seed %d: %v", *frames, *seed, seen)
	for i, rule := range frameRules {
		t.Logf("%6d× %s: Kafka %s, Varve %s: %s", met[i], rule.damage, rule.kafka, rule.varve, rule.reason)
		if *frames >= longFrames && met[i] == 0 {
			t.Errorf("nothing meets the rule for %s any more: %s", rule.damage, rule.reason)
		}
	}
}

// inFlight is how many frames are under way at one time, longFrames how many a run has that meets every rule.
const (
	inFlight   = 32
	longFrames = 5000
)

// damaged makes the next frame. What a damaged request does that changes something is nobody's to foresee: there are only reads.
func (m *model) damaged(served map[int16]versions, id int32) (frame, bool) {
	req := m.next(served)
	d := pick(m, damages...)
	b := kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID)).AppendRequest(nil, req, id)
	if !reads[req.Key()] || len(b) < 24 {
		return frame{}, false
	}
	return frame{req, d.name, d.do(m, b)}, true
}

// outcomes sends a frame to both brokers.
func (r *runner) outcomes(frame []byte, patience time.Duration) (k, v string) {
	done := make(chan string)
	go func() { done <- outcome(r.kafka.addr, frame, patience) }()
	v = outcome(r.varve.addr, frame, patience)
	return <-done, v
}

func outcome(addr string, frame []byte, patience time.Duration) string {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
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
var frameRules = []struct {
	damage, kafka, varve string
	when                 func(frame) bool
	reason               string
}{
	{"ones", "closed", "answered", nil, "Kafka refuses a null where a field cannot be null; Varve takes it for nothing"},
	{"version too high", "closed", "answered", func(f frame) bool { return f.req.Key() == 18 }, "Varve answers ApiVersions of an unknown version, whatever follows the client's id"},
}

func frameRule(f frame, k, v string) int {
	for i, r := range frameRules {
		if full(r.damage, f.damage) && full(r.kafka, k) && full(r.varve, v) && (r.when == nil || r.when(f)) {
			return i
		}
	}
	return -1
}
