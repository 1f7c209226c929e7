package tiering_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/mem"
	. "github.com/varvehq/varve/tiering"
	"github.com/varvehq/varve/tiering/tieringtest"
)

// pair opens the partition on two brokers: the old leader in epoch 1 with ten records copied, the new one in epoch 2.
func pair(t *testing.T, oldLog, newerLog log) (b *mem.Bucket, c *tieringtest.Clock, older, newer *Partition) {
	t.Helper()
	c = tieringtest.NewClock()
	b = mem.New(c.Now)
	older = openStore(t, b, c, nil).Partition(testID, 0)
	newer = openStore(t, b, c, func(e *Env) { e.BrokerID = 2 }).Partition(testID, 0)
	mustOpen(t, older, 1, oldLog)
	mustCopy(t, older, oldLog.Segment(t, 0, 10))
	mustOpen(t, newer, 2, newerLog)
	return b, c, older, newer
}

func TestOldLeaderIsFenced(t *testing.T) {
	l := newLog(0).add(1, 40, 1, 50)
	b, _, older, newer := pair(t, l, l)
	mustCopy(t, newer, l.Segment(t, 10, 20))
	wantErr(t, "copy by the old leader", older.Copy(t.Context(), l.Segment(t, 10, 25)), ErrFenced)
	wantErr(t, "again", older.Copy(t.Context(), l.Segment(t, 10, 25)), ErrFenced)
	wantErr(t, "its clean", older.Clean(t.Context()), ErrFenced)
	wantErr(t, "opening in its epoch", older.Open(t.Context(), 1, l.Epochs), ErrFenced)
	l.checkRead(t, older, 0, 20, 100) // it may still read
	mustOpen(t, older, 3, l)
	mustCopy(t, older, l.Segment(t, 10, 30))
	if err := verifyBucket(t, b, 0); err != nil {
		t.Error(err)
	}
}

func TestLateWriterIsAdopted(t *testing.T) {
	l := newLog(0).add(1, 40, 1, 50)
	b, _, older, newer := pair(t, l, l)
	mustCopy(t, older, l.Segment(t, 10, 25)) // after the new leader has opened
	mustCopy(t, newer, l.Segment(t, 10, 40))
	if n := len(newer.Current().Segments); n != 3 || newer.Manifest() != 3 || newer.Current().Segments[2].BaseOffset != 25 {
		t.Errorf("%d segments, manifest %d: %+v", n, newer.Manifest(), newer.Current().Segments)
	}
	l.checkRead(t, newer, 0, 40, 1000)
	if err := verifyBucket(t, b, 0); err != nil {
		t.Error(err)
	}
}

// TestLateWriterOfAnotherHistory: what it archived past the point where the histories part is dropped, and never shown.
func TestLateWriterOfAnotherHistory(t *testing.T) {
	oldLog := newLog(0).add(1, 40, 1, 50)
	newerLog := newLog(0).add(1, 20, 1, 50).add(2, 20, 1, 60)
	b, c, older, newer := pair(t, oldLog, newerLog)
	mustCopy(t, older, oldLog.Segment(t, 10, 15)) // fits
	mustCopy(t, older, oldLog.Segment(t, 15, 30)) // does not
	mustCopy(t, older, oldLog.Segment(t, 30, 40))
	mustCopy(t, newer, newerLog.Segment(t, 10, 35))
	if newer.EndOffset() != 35 || len(newer.Current().Condemned) != 2 {
		t.Errorf("end %d, condemned %v", newer.EndOffset(), newer.Current().Condemned)
	}
	newerLog.checkRead(t, newer, 0, 35, 1000)
	wantErr(t, "copy by the old leader", older.Copy(t.Context(), oldLog.add(1, 5, 1, 50).Segment(t, 40, 45)), ErrFenced)
	c.Advance(time.Hour)
	if err := newer.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := countKeys(t, b, "segments/"); n != 3 {
		t.Errorf("%d objects left", n)
	}
	if err := verifyBucket(t, b, 0); err != nil {
		t.Error(err)
	}
}

// refusing lets puts of manifests fail while on.
type refusing struct {
	objstore.Bucket
	on bool
}

func (r *refusing) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objstore.PutOptions) error {
	if r.on && strings.Contains(key, "/manifest/") {
		return fmt.Errorf("refused")
	}
	return r.Bucket.Put(ctx, key, body, size, opts)
}

// TestDroppedSegmentsAreNotShown: between finding a late writer's manifest and writing the next one, the end does not
// cover what is going to be dropped.
func TestDroppedSegmentsAreNotShown(t *testing.T) {
	oldLog := newLog(0).add(1, 40, 1, 50)
	newerLog := newLog(0).add(1, 20, 1, 50).add(2, 20, 1, 60)
	c := tieringtest.NewClock()
	b := mem.New(c.Now)
	r := &refusing{Bucket: b}
	older := openStore(t, b, c, nil).Partition(testID, 0)
	newer := openStore(t, r, c, func(e *Env) { e.BrokerID = 2 }).Partition(testID, 0)
	mustOpen(t, older, 1, oldLog)
	mustCopy(t, older, oldLog.Segment(t, 0, 10))
	mustOpen(t, newer, 2, newerLog)
	mustCopy(t, older, oldLog.Segment(t, 10, 30))
	r.on = true
	if err := newer.Copy(t.Context(), newerLog.Segment(t, 10, 35)); err == nil {
		t.Fatal("the copy worked")
	}
	if err := newer.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if newer.EndOffset() != 10 {
		t.Errorf("end %d covers a segment that is going to be dropped", newer.EndOffset())
	}
	_, _, err := newer.Read(t.Context(), 12, 100)
	wantErr(t, "read of it", err, ErrOffsetOutOfRange)
	r.on = false
	mustCopy(t, newer, newerLog.Segment(t, 10, 35))
	newerLog.checkRead(t, newer, 0, 35, 1000)
}

func TestIncarnations(t *testing.T) {
	c := tieringtest.NewClock()
	b := mem.New(c.Now)
	l := newLog(0).add(40, 40, 1, 50)
	first := openStore(t, b, c, nil)
	p := first.Partition(testID, 0)
	mustOpen(t, p, 40, l)
	mustCopy(t, p, l.Segment(t, 0, 10))
	if err := first.PutCatalog(t.Context(), []CatalogTopic{{Name: "orders", ID: testID.TopicID, Partitions: 4}}); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Env{Bucket: b, ClusterID: "cluster-b", Config: testConfig(), Clock: c.Now})
	wantErr(t, "another cluster", err, ErrForeignCluster)
	second := openStore(t, b, c, func(e *Env) { e.ClusterID, e.TakeOver = "cluster-b", true })
	if second.Incarnation() != 1 {
		t.Errorf("incarnation %d", second.Incarnation())
	}
	q := second.Partition(testID, 0)
	mustOpen(t, q, 0, l) // epoch 0 of the new cluster ranks above epoch 40 of the old
	mustCopy(t, q, l.Segment(t, 10, 20))
	wantErr(t, "copy by the old cluster", p.Copy(t.Context(), l.Segment(t, 10, 20)), ErrFenced)
	wantErr(t, "catalog by the old cluster", first.PutCatalog(t.Context(), nil), ErrFenced)
	_, err = Open(t.Context(), Env{Bucket: b, ClusterID: "cluster-a", Config: testConfig(), Clock: c.Now})
	wantErr(t, "the old cluster opens again", err, ErrForeignCluster)
	cat, err := second.Catalog(t.Context())
	if err != nil || cat.Number != 2 || len(cat.Topics) != 1 || cat.ClusterID != "cluster-b" {
		t.Errorf("catalog %+v, %v", cat, err)
	}
}

// TestSleepingWriterReopens: a writer that has not read the tail for long does so before it writes.
func TestSleepingWriterReopens(t *testing.T) {
	l := newLog(0).add(1, 60, 1, 50)
	b, c, older, newer := pair(t, l, l)
	for i := int64(10); i < 40; i++ {
		mustCopy(t, newer, l.Segment(t, i, i+1))
	}
	c.Advance(50 * time.Hour)
	mustCopy(t, newer, l.Segment(t, 40, 41))
	if err := newer.Clean(t.Context()); err != nil { // deletes manifest 2, which the old leader would write
		t.Fatal(err)
	}
	wantErr(t, "copy after a long sleep", older.Copy(t.Context(), l.Segment(t, 10, 20)), ErrFenced)
	if err := verifyBucket(t, b, 0); err != nil {
		t.Error(err)
	}
}

func TestCatalogs(t *testing.T) {
	c := tieringtest.NewClock()
	b := mem.New(c.Now)
	s := openStore(t, b, c, nil)
	if cat, err := s.Catalog(t.Context()); cat != nil || err != nil {
		t.Errorf("catalog of a new bucket: %+v, %v", cat, err)
	}
	count := func() (n int) {
		if err := b.List(t.Context(), "catalog/", objstore.ListOptions{}, func(objstore.Info) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	other := openStore(t, b, c, func(e *Env) { e.BrokerID = 2 })
	for i := range int32(20) { // by turns, each behind the other's numbers
		if err := s.PutCatalog(t.Context(), []CatalogTopic{{Name: "t", ID: testID.TopicID, Partitions: i}}); err != nil {
			t.Fatal(err)
		}
		if err := other.PutCatalog(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(); n != 40 {
		t.Errorf("%d catalogs", n)
	}
	c.Advance(48 * time.Hour)
	for range 20 {
		if err := s.PutCatalog(t.Context(), []CatalogTopic{{Name: "t", ID: testID.TopicID, Partitions: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(); n != 60-32 {
		t.Errorf("%d catalogs after the old ones went", n)
	}
	if err := other.PutCatalog(t.Context(), nil); err != nil { // it slept, and its next number is gone
		t.Fatal(err)
	}
	cat, err := s.Catalog(t.Context())
	if err != nil || cat.Number != 61 {
		t.Errorf("%+v, %v", cat, err)
	}
}
