package archive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/mem"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tiering"
	"github.com/varvehq/varve/tiering/archive"
	"github.com/varvehq/varve/tiering/manifest"
	"github.com/varvehq/varve/tiering/tieringtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var longName = strings.Repeat("long-name.", 20)

// fill writes a bucket: orders with two partitions, and a topic whose name does not fit into a key.
func fill(t *testing.T) (*mem.Bucket, *tieringtest.Log) {
	t.Helper()
	c := tieringtest.NewClock()
	b := mem.New(c.Now)
	cfg := tiering.DefaultConfig()
	cfg.PageSegments = 10
	s, err := tiering.Open(t.Context(), tiering.Env{Bucket: b, ClusterID: "c", Clock: c.Now, Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := tieringtest.NewLog(0).Add(0, 60, 2, 100).Add(1, 60, 2, 100)
	for _, id := range []tiering.PartitionID{
		{Topic: "orders", TopicID: kafka.UUID{1}, Partition: 0}, {Topic: "orders", TopicID: kafka.UUID{1}, Partition: 1},
		{Topic: longName, TopicID: kafka.UUID{2}, Partition: 0},
	} {
		p := s.Partition(id, 0)
		if err := p.Open(t.Context(), 1, l.Epochs); err != nil {
			t.Fatal(err)
		}
		for from := int64(0); from < 240; from += 20 {
			if err := p.Copy(t.Context(), l.Segment(t, from, from+20)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b, l
}

func open(t *testing.T, b objstore.Bucket) *archive.Archive {
	t.Helper()
	a, err := archive.Open(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func TestTopics(t *testing.T) {
	b, _ := fill(t)
	a := open(t, b)
	topics, err := a.Topics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(topics) != 2 || topics[0].Name != longName || topics[1].Name != "orders" || len(topics[1].Partitions) != 2 {
		t.Fatalf("%+v", topics)
	}
	p := topics[1].Partitions[1]
	if p.LogStart != 0 || p.End != 240 || p.Segments != 12 || p.Records != 240 || p.Manifest != 12 || p.MinTimestamp != tieringtest.FirstTimestamp {
		t.Errorf("%+v", p)
	}
	byID, err := a.Find(t.Context(), topics[0].ID.String())
	if err != nil || byID.Name != longName {
		t.Errorf("%s, %v", byID.Name, err)
	}
	if byName, err := a.Find(t.Context(), longName); err != nil || byName.ID != (kafka.UUID{2}) {
		t.Errorf("%s, %v", byName.ID, err)
	}
	if _, err := a.Find(t.Context(), "order"); !errors.Is(err, archive.ErrNoTopic) {
		t.Errorf("part of a name: %v", err)
	}
	if _, err := archive.Open(t.Context(), mem.New(nil)); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("empty bucket: %v", err)
	}
}

func TestCat(t *testing.T) {
	b, _ := fill(t)
	a := open(t, b)
	topic, err := a.Find(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, first, n int64 }{{0, -1, 0, 240}, {31, 77, 31, 46}, {239, -1, 239, 1}, {240, -1, 0, 0}, {500, -1, 0, 0}} {
		next := c.first
		err := a.Cat(t.Context(), topic.Partitions[0], archive.CatOptions{From: c.from, To: c.to}, func(r *record.Record) error {
			if r.Offset != next || string(r.Key) != fmt.Sprintf("key-%d", next) || len(r.Value) != 100 {
				return fmt.Errorf("offset %d, key %s, want %d", r.Offset, r.Key, next)
			}
			next++
			return nil
		})
		if err != nil || next-c.first != c.n {
			t.Errorf("%+v: %d records, %v", c, next-c.first, err)
		}
	}
	stop := errors.New("stop")
	if err := a.Cat(t.Context(), topic.Partitions[0], archive.CatOptions{To: -1}, func(*record.Record) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("stopped: %v", err)
	}
}

func TestCatLeavesOutAborted(t *testing.T) {
	c := tieringtest.NewClock()
	b := mem.New(c.Now)
	s, err := tiering.Open(t.Context(), tiering.Env{Bucket: b, ClusterID: "c", Clock: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := tieringtest.NewLog(0).Add(0, 2, 1, 10)
	txn := func(producer int64, value string) {
		batch := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: producer}, Transactional: true})
		batch.Append(l.Time, nil, []byte(value), nil)
		l.AddBatch(batch.Batch(0))
	}
	txn(7, "aborted")
	txn(8, "committed")
	l.AddBatch(record.NewMarkerBatch(record.Marker{Type: record.AbortMarker}, 7, 0, l.Time))
	txn(7, "later")
	seg := l.Segment(t, 0, l.Next)
	seg.TxnIndex = record.TxnIndexEntry{ProducerID: 7, FirstOffset: 2, LastOffset: 4, LastStableOffset: 6}.AppendTo(nil)
	p := s.Partition(tiering.PartitionID{Topic: "t", TopicID: kafka.UUID{1}}, 0)
	if err := errors.Join(p.Open(t.Context(), 0, l.Epochs), p.Copy(t.Context(), seg)); err != nil {
		t.Fatal(err)
	}
	a := open(t, b)
	topic, err := a.Find(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	for aborted, want := range map[bool]string{false: "[0 1 3 5]", true: "[0 1 2 3 5]"} {
		var got []int64
		err := a.Cat(t.Context(), topic.Partitions[0], archive.CatOptions{To: -1, Aborted: aborted}, func(r *record.Record) error {
			got = append(got, r.Offset)
			return nil
		})
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("aborted %v: %v, %v", aborted, got, err)
		}
	}
}

func verify(t *testing.T, b objstore.Bucket) *archive.Report {
	t.Helper()
	a := open(t, b)
	topics, err := a.Topics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ps []archive.Partition
	for _, topic := range topics {
		ps = append(ps, topic.Partitions...)
	}
	calls := 0
	r, err := a.Verify(t.Context(), ps, func(archive.Progress) { calls++ })
	if err != nil {
		t.Fatal(err)
	}
	if calls != r.Segments {
		t.Errorf("%d calls of progress", calls)
	}
	return r
}

func TestVerify(t *testing.T) {
	b, _ := fill(t)
	r := verify(t, b)
	if r.Partitions != 3 || r.Segments != 36 || r.Records != 720 || r.Batches != 360 || r.Manifests != 36 || len(r.Faults) != 0 || len(r.Orphans) != 0 {
		t.Errorf("%+v", r)
	}
}

// TestVerifyFindsEveryBit flips one bit at a time all over a segment object, its manifest and its page.
func TestVerifyFindsEveryBit(t *testing.T) {
	b, _ := fill(t)
	dir := manifest.PartitionDir("orders", kafka.UUID{1}, 1)
	for _, folder := range []string{manifest.SegmentFolder, manifest.PageFolder, manifest.ManifestFolder} {
		var info objstore.Info
		if err := b.List(t.Context(), dir+folder, objstore.ListOptions{}, func(i objstore.Info) error { info = i; return nil }); err != nil {
			t.Fatal(err)
		}
		step := max(1, info.Size/60)
		if folder == manifest.ManifestFolder {
			// Not every bit of the newest manifest is covered by another object: the one before it is.
			info.Key = dir + manifest.ManifestName(11)
		}
		for at := int64(0); at < info.Size; at += step {
			if err := b.Corrupt(info.Key, at); err != nil {
				break // the other manifest is shorter
			}
			if r := verifyOne(t, b, dir); len(r.Faults) == 0 {
				t.Errorf("bit flipped in %s at %d of %d: no fault found", info.Key, at, info.Size)
			}
			if err := b.Corrupt(info.Key, at); err != nil { // flips it back
				t.Fatal(err)
			}
		}
	}
	if r := verify(t, b); len(r.Faults) > 0 {
		t.Errorf("after all bits are back: %v", r.Faults)
	}
}

func verifyOne(t *testing.T, b objstore.Bucket, _ string) *archive.Report {
	t.Helper()
	a := open(t, b)
	p := archive.Partition{Topic: "orders", TopicID: kafka.UUID{1}, Partition: 1, Manifest: 12}
	r, err := a.Verify(t.Context(), []archive.Partition{p}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVerifyFindsWhatIsMissing(t *testing.T) {
	for _, c := range []struct{ what, folder, want string }{
		{"segment", manifest.SegmentFolder, "the object is missing"},
		{"page", manifest.PageFolder, "not found"},
		{"manifest", manifest.ManifestFolder, "are missing"},
	} {
		b, _ := fill(t)
		dir := manifest.PartitionDir("orders", kafka.UUID{1}, 1)
		var keys []string
		if err := b.List(t.Context(), dir+c.folder, objstore.ListOptions{}, func(i objstore.Info) error { keys = append(keys, i.Key); return nil }); err != nil {
			t.Fatal(err)
		}
		if err := b.Delete(t.Context(), keys[len(keys)/2]); err != nil {
			t.Fatal(err)
		}
		r := verifyOne(t, b, dir)
		if len(r.Faults) == 0 || !strings.Contains(fmt.Sprint(r.Faults), c.want) {
			t.Errorf("%s missing: %v", c.what, r.Faults)
		}
	}
}

func TestVerifyTellsOrphans(t *testing.T) {
	b, _ := fill(t)
	key := manifest.PartitionDir("orders", kafka.UUID{1}, 1) + manifest.SegmentName(999, 1, 5)
	if err := b.Put(t.Context(), key, bytes.NewReader(nil), 0, objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	r := verify(t, b)
	if len(r.Faults) != 0 || len(r.Orphans) != 1 || r.Orphans[0].Key != key {
		t.Errorf("%+v", r)
	}
}

// TestVerifyTellsFailuresFromFaults: a store that does not answer is no fault of the archive.
func TestVerifyTellsFailuresFromFaults(t *testing.T) {
	b, _ := fill(t)
	a := open(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Verify(ctx, []archive.Partition{{Topic: "orders", TopicID: kafka.UUID{1}}}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}
