package broker_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tests/harness"
)

// The benchmarks send requests that were encoded once, so that what is measured is mostly the broker. CPU time includes the
// sending side.

func benchBatch(size int) []byte {
	b := record.NewBuilder(record.BuilderOptions{})
	for b.Size()+1024 <= size {
		b.Append(time.Now().UnixMilli(), nil, make([]byte, 1000), nil)
	}
	return b.Batch(0)
}

func encode(req kmsg.Request, version int16) []byte {
	req.SetVersion(version)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, req, 1)
}

// exchange sends a frame n times, with up to window answers outstanding, and passes over the answers.
func exchange(b *testing.B, conn net.Conn, frame []byte, n, window int) {
	b.Helper()
	slots := make(chan struct{}, window)
	done := make(chan error, 1)
	go func() {
		var head [4]byte
		for range n {
			if _, err := io.ReadFull(conn, head[:]); err != nil {
				done <- err
				return
			}
			if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(head[:]))); err != nil {
				done <- err
				return
			}
			<-slots
		}
		done <- nil
	}()
	for range n {
		slots <- struct{}{}
		if _, err := conn.Write(frame); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

func BenchmarkProduce(b *testing.B) {
	for _, policy := range []string{"os", "fsync"} {
		for _, size := range []int{16 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%s/%dKiB", policy, size>>10), func(b *testing.B) {
				n := harness.Start(b, harness.WithLog(slog.New(slog.DiscardHandler)))
				createTopic(b, n.Client(), "t", 1, "flush.policy", policy, "max.message.bytes", "2000000")
				conn, err := net.Dial("tcp", n.Bootstrap())
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				frame := encode(produceReq("t", 0, -1, benchBatch(size)), 9)
				b.SetBytes(int64(len(frame)))
				b.ReportAllocs()
				b.ResetTimer()
				exchange(b, conn, frame, b.N, 16)
			})
		}
	}
}

func BenchmarkFetch(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			n := harness.Start(b, harness.WithLog(slog.New(slog.DiscardHandler)))
			createTopic(b, n.Client(), "t", 1)
			conn, err := net.Dial("tcp", n.Bootstrap())
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			exchange(b, conn, encode(produceReq("t", 0, -1, benchBatch(64<<10)), 9), 64, 8)
			req := fetchReq("t", 0, 0, 0, 1)
			req.Topics[0].Partitions[0].PartitionMaxBytes = int32(size)
			frame := encode(req, 12)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			exchange(b, conn, frame, b.N, 4)
		})
	}
}
