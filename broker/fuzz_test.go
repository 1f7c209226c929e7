package broker_test

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/internal/vfs"
	"github.com/varvehq/varve/tests/harness"
)

// FuzzConnection sends arbitrary bytes to a running broker. Whatever they are, it goes on serving, and no connection stays.
func FuzzConnection(f *testing.F) {
	n := harness.Start(f, harness.WithFS(vfs.NewMem()), harness.WithLog(slog.New(slog.DiscardHandler)))
	createTopic(f, n.Client(), "t", 1)
	frame := func(req kmsg.Request, version int16) []byte {
		req.SetVersion(version)
		return kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)
	}
	for key := range int16(76) {
		if req := kmsg.RequestForKey(key); req != nil {
			f.Add(frame(req, req.MaxVersion()))
			f.Add(frame(req, 4))
		}
	}
	f.Add(frame(produceReq("t", 0, -1, batchOf("a")), 9))
	f.Add(frame(produceReq("t", 0, 0, batchOf("a")[:70]), 7))
	f.Add(frame(fetchReq("t", 0, 0, time.Hour, 1), 12))
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := net.Dial("tcp", n.Bootstrap())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(in); err == nil {
			_ = c.(*net.TCPConn).CloseWrite() // the broker may have closed already
			if _, err := io.Copy(io.Discard, c); isTimeout(err) {
				t.Fatal("the connection stays open")
			}
		}
		probe(t, n.Bootstrap())
	})
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// probe asks for the API versions.
func probe(t *testing.T, addr string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 1)); err != nil {
		t.Fatal(err)
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil || binary.BigEndian.Uint32(size[:]) == 0 {
		t.Fatalf("the broker does not answer any more: %v", err)
	}
}
