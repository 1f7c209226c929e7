package broker_test

import (
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tests/harness"
)

// recordsBatch is one uncompressed batch of n records.
func recordsBatch(n int) []byte {
	b := record.NewBuilder(record.BuilderOptions{})
	for range n {
		b.Append(time.Now().UnixMilli(), []byte("key"), make([]byte, 100), nil)
	}
	return b.Batch(0)
}

// requestAllocs is the number of heap allocations for one request and its answer, over a connection and through the whole
// broker. Neither side of the test allocates.
func requestAllocs(t *testing.T, addr string, frame []byte) float64 {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	answer := make([]byte, 1<<20)
	once := func() {
		if _, err := conn.Write(frame); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, answer[:4]); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, answer[:binary.BigEndian.Uint32(answer)]); err != nil {
			t.Fatal(err)
		}
	}
	for range 50 { // pools are filled, maps grown
		once()
	}
	return testing.AllocsPerRun(500, once)
}

// TestNoAllocationPerRecord compares requests with one record and with a thousand: what a request allocates does not depend on
// the number of its records.
func TestNoAllocationPerRecord(t *testing.T) {
	const records, perRequest = 1000, 60
	n := harness.Start(t, harness.WithLog(slog.New(slog.DiscardHandler)))
	c := n.Client()
	createTopic(t, c, "one", 1, "flush.policy", "os")
	createTopic(t, c, "many", 1, "flush.policy", "os")
	one, many := recordsBatch(1), recordsBatch(records)
	fetch := func(topic string, bytes int) []byte {
		req := fetchReq(topic, 0, 0, 0, 1)
		req.Topics[0].Partitions[0].PartitionMaxBytes = int32(bytes)
		return encode(req, 12)
	}
	for _, tc := range []struct {
		name      string
		one, many []byte
	}{
		{"produce", encode(produceReq("one", 0, -1, one), 9), encode(produceReq("many", 0, -1, many), 9)},
		{"fetch", fetch("one", len(one)), fetch("many", len(many))},
	} {
		few, all := requestAllocs(t, n.Bootstrap(), tc.one), requestAllocs(t, n.Bootstrap(), tc.many)
		t.Logf("%s: %.0f allocations for 1 record, %.0f for %d", tc.name, few, all, records)
		if all-few >= records/100 {
			t.Errorf("%s: %.0f allocations for 1 record, %.0f for %d", tc.name, few, all, records)
		}
		if few > perRequest {
			t.Errorf("%s: %.0f allocations for a request", tc.name, few)
		}
	}
}
