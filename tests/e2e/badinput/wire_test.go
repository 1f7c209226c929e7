package badinput

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/varvehq/varve/tests/harness"
)

// peak is the most memory that the process had in RAM, in bytes.
func peak(t *testing.T, p *harness.Process) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Skip("no /proc on this system:", err)
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	var kib int64
	if _, err := fmt.Sscanf(rest, "%d", &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// TestBadBytesOnTheKafkaPort: connections that talk nonsense are closed, memory stays bounded, and others are served.
func TestBadBytesOnTheKafkaPort(t *testing.T) {
	t.Parallel()
	p := harness.StartProcess(t, harness.ProcessOptions{Roles: "broker,controller"})
	must(t, p, "one\n", "produce", "t")
	before := peak(t, p)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 40 {
		junk := make([]byte, 1<<20)
		for j := range junk {
			junk[j] = byte(rng.Uint32())
		}
		switch i % 4 {
		case 0: // a frame of 2 GiB less one
			copy(junk, []byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 9})
		case 1: // a negative one
			copy(junk, []byte{0xff, 0xff, 0xff, 0xfe})
		case 2: // a Metadata request of 1,000,000 topics in 64 bytes
			copy(junk, []byte{0, 0, 0, 60, 0, 3, 0, 1, 0, 0, 0, 1, 0, 1, 'x', 0, 0x0f, 0x42, 0x40})
		}
		closed(t, p.Kafka, junk)
	}
	if grown := peak(t, p) - before; grown > 96<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
	if out := must(t, p, "", "consume", "t", "-e"); out != "one\n" {
		t.Errorf("consumed %q", out)
	}
}

// closed sends bytes and waits until the server has closed the connection.
func closed(t *testing.T, addr string, junk []byte) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write(junk) // it may be closed before all is written
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection stays open")
	}
}
