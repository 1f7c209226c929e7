package tiering_test

import (
	"errors"
	"testing"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/mem"
	"github.com/varvehq/varve/internal/record"
	. "github.com/varvehq/varve/tiering"
	"github.com/varvehq/varve/tiering/manifest"
	"github.com/varvehq/varve/tiering/tieringtest"
)

var testID = PartitionID{Topic: "orders", TopicID: kafka.UUID{0x42, 1, 2, 3, 15: 9}, Partition: 3}

// testConfig has small sizes, so that little data has many blocks and pages.
func testConfig() Config {
	cfg := DefaultConfig()
	cfg.CacheBytes, cfg.BlockBytes, cfg.ReadAhead, cfg.Downloads, cfg.PageSegments = 8<<20, manifest.ChunkSize, 2, 4, 10
	return cfg
}

func openStore(t *testing.T, b objstore.Bucket, c *tieringtest.Clock, edit func(*Env)) *Store {
	t.Helper()
	env := Env{Bucket: b, ClusterID: "cluster-a", BrokerID: 1, Config: testConfig(), Clock: c.Now}
	if edit != nil {
		edit(&env)
	}
	s, err := Open(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// log is a local log with checks that end the test.
type log struct{ *tieringtest.Log }

func newLog(first int64) log { return log{tieringtest.NewLog(first)} }

func (l log) add(epoch int32, batches, records, size int) log {
	l.Add(epoch, batches, records, size)
	return l
}

func (l log) checkRead(t *testing.T, p *Partition, from, to int64, maxBytes int) {
	t.Helper()
	if err := l.Compare(t.Context(), p, from, to, maxBytes); err != nil {
		t.Fatal(err)
	}
}

func mustOpen(t *testing.T, p *Partition, epoch int32, l log) {
	t.Helper()
	if err := p.Open(t.Context(), epoch, l.Epochs); err != nil {
		t.Fatal(err)
	}
}

func mustCopy(t *testing.T, p *Partition, s Segment) {
	t.Helper()
	if err := p.Copy(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// countKeys counts objects by folder of the partition.
func countKeys(t *testing.T, b objstore.Bucket, folder string) int {
	t.Helper()
	n := 0
	dir := manifest.PartitionDir(testID.Topic, testID.TopicID, testID.Partition)
	if err := b.List(t.Context(), dir+folder, objstore.ListOptions{}, func(objstore.Info) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

// setup opens a store on a bucket in memory, with the partition opened as writer in epoch 0.
func setup(t *testing.T) (*mem.Bucket, *tieringtest.Clock, *Store, *Partition) {
	t.Helper()
	c := tieringtest.NewClock()
	b := mem.New(c.Now)
	s := openStore(t, b, c, nil)
	p := s.Partition(testID, 0)
	mustOpen(t, p, 0, newLog(0))
	return b, c, s, p
}

// lastOffset is that of the last batch.
func lastOffset(t testing.TB, batches []byte) int64 {
	t.Helper()
	last := int64(-1)
	it := record.NewBatchIterator(batches)
	for h, _, ok := it.Next(); ok; h, _, ok = it.Next() {
		last = h.LastOffset()
	}
	if it.Err() != nil {
		t.Fatal(it.Err())
	}
	return last
}
