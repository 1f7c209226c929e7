package tiering_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/mem"
	"github.com/varvehq/varve/internal/record"
	. "github.com/varvehq/varve/tiering"
	"github.com/varvehq/varve/tiering/manifest"
	"github.com/varvehq/varve/tiering/tieringtest"
)

var noOptions objstore.PutOptions

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCopyAndRead(t *testing.T) {
	b, c, _, p := setup(t)
	l := newLog(100).add(0, 400, 5, 900).add(1, 3, 1, 700_000) // batches larger than two blocks at the end
	if p.EndOffset() != 0 || p.Manifest() != 0 {
		t.Fatalf("an empty partition has end %d, manifest %d", p.EndOffset(), p.Manifest())
	}
	mustCopy(t, p, l.Segment(t, 100, 1100))
	mustCopy(t, p, l.Segment(t, 1100, 2100))
	mustCopy(t, p, l.Segment(t, 2100, 2103))
	if p.StartOffset() != 100 || p.EndOffset() != 2103 || p.Manifest() != 3 {
		t.Fatalf("start %d, end %d, manifest %d", p.StartOffset(), p.EndOffset(), p.Manifest())
	}
	reader := openStore(t, b, c, func(e *Env) { e.BrokerID = 2 }).Partition(testID, 1)
	for _, from := range []int64{100, 101, 104, 105, 777, 1099, 1100, 1103, 2099, 2100, 2101, 2102} {
		for _, maxBytes := range []int{1, 5000, 300_000, 10 << 20} {
			l.checkRead(t, reader, from, min(from+300, 2103), maxBytes)
		}
	}
	l.checkRead(t, reader, 100, 2103, 1<<20)
	for _, offset := range []int64{0, 99, 2103, 5000} {
		_, _, err := reader.Read(t.Context(), offset, 1000)
		wantErr(t, fmt.Sprintf("read at %d", offset), err, ErrOffsetOutOfRange)
	}
	if got := fmt.Sprint(reader.EpochEntries()); got != "[{0 100} {1 2100}]" {
		t.Errorf("epochs: %s", got)
	}
}

// TestObjectIsKafkaSegment: an object cut at log_bytes is the local segment.
func TestObjectIsKafkaSegment(t *testing.T) {
	b, _, _, p := setup(t)
	l := newLog(0).add(0, 100, 3, 500)
	mustCopy(t, p, l.Segment(t, 0, 300))
	err := p.Segments(t.Context(), 0, func(s SegmentInfo) error {
		o, err := OpenObject(t.Context(), b, p.Dir()+s.Key(), s)
		if err != nil {
			return err
		}
		log, err := o.Log(t.Context(), 0, int64(s.LogBytes))
		if err != nil || !bytes.Equal(log, l.Bytes(0, 300)) {
			return fmt.Errorf("log part has %d other bytes, %w", len(log), err)
		}
		snapshot, err := o.Section(t.Context(), manifest.SectionProducerSnapshot)
		if string(snapshot) != "snapshot" || s.Records != 300 || s.MaxTimestamp != l.Time {
			t.Errorf("snapshot %q, records %d, max timestamp %d", snapshot, s.Records, s.MaxTimestamp)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCopyChecksTheSegment(t *testing.T) {
	b, _, _, p := setup(t)
	l := newLog(0).add(0, 20, 2, 100)
	flip := func(at int64) Segment {
		s := l.Segment(t, 0, 40)
		log := l.Bytes(0, 40)
		log[at] ^= 1
		s.Log = bytes.NewReader(log)
		return s
	}
	short := l.Segment(t, 0, 40)
	short.LastOffset++
	cut := l.Segment(t, 0, 40)
	cut.LogBytes -= 5
	hole := l.Segment(t, 0, 20)
	rest := l.Bytes(22, 40)
	hole.Log, hole.LogBytes, hole.LastOffset = bytes.NewReader(append(l.Bytes(0, 20), rest...)), hole.LogBytes+int64(len(rest)), 39
	txn := l.Segment(t, 0, 40)
	txn.TxnIndex = []byte("no transaction index")
	for _, c := range []struct {
		what string
		seg  Segment
		want error
	}{
		{"bit flipped in records", flip(150), ErrCorrupt},
		{"bit flipped in a base offset", flip(7), ErrGap},
		{"ends early", short, ErrCorrupt},
		{"partial batch at the end", cut, ErrCorrupt},
		{"offsets missing inside", hole, ErrGap},
		{"bad transaction index", txn, ErrCorrupt},
	} {
		wantErr(t, c.what, p.Copy(t.Context(), c.seg), c.want)
	}
	if n := countKeys(t, b, ""); n != 0 || p.EndOffset() != 0 {
		t.Errorf("%d objects, end %d after refused copies", n, p.EndOffset())
	}
	// Corrupt indexes are built anew, not copied.
	s := l.Segment(t, 0, 40)
	s.OffsetIndex, s.TimeIndex = []byte("12345678"), bytes.Repeat([]byte{7}, 24)
	mustCopy(t, p, s)
	l.checkRead(t, p, 13, 40, 1)
}

func TestCopyLeavesOutWhatIsThere(t *testing.T) {
	_, _, _, p := setup(t)
	l := newLog(0).add(0, 100, 2, 3000)
	mustCopy(t, p, l.Segment(t, 0, 60))
	mustCopy(t, p, l.Segment(t, 20, 60)) // nothing new
	if p.Manifest() != 1 {
		t.Errorf("manifest %d", p.Manifest())
	}
	mustCopy(t, p, l.Segment(t, 20, 120)) // another cut of the same log
	if p.EndOffset() != 120 {
		t.Errorf("end %d", p.EndOffset())
	}
	wantErr(t, "copy above the end", p.Copy(t.Context(), l.Segment(t, 130, 200)), ErrGap)
	l.checkRead(t, p, 0, 120, 20_000)
	l.checkRead(t, p, 61, 120, 1)
	found, at, err := p.OffsetForTimestamp(t.Context(), 1_700_000_000_000+10*101)
	if err != nil || !found || at.Offset != 100 {
		t.Errorf("timestamp lookup in a trimmed segment: %v %+v %v", found, at, err)
	}
}

func TestCopyRefusesAnotherHistory(t *testing.T) {
	_, _, _, p := setup(t)
	a := newLog(0).add(0, 10, 1, 10).add(1, 10, 1, 10)
	mustCopy(t, p, a.Segment(t, 0, 20))
	b := newLog(0).add(0, 5, 1, 10).add(2, 25, 1, 10)
	wantErr(t, "copy of a log with other epochs", p.Copy(t.Context(), b.Segment(t, 5, 30)), ErrCorrupt)
}

// TestCopyBearsAForgottenBeginning: after a power loss a log may know epochs again that were cut at a log start, and the other way
// round. That is no other history.
func TestCopyBearsAForgottenBeginning(t *testing.T) {
	for _, first := range [][2]int64{{0, 2}, {2, 0}} {
		_, _, _, p := setup(t)
		l := newLog(0).add(0, 30, 1, 100)
		for i, from := range []int64{0, 10} {
			s := l.Segment(t, from, from+10)
			s.Epochs = []record.EpochEntry{{Epoch: 0, StartOffset: first[i]}}
			mustCopy(t, p, s)
		}
		l.checkRead(t, p, 0, 20, 500)
	}
}

func TestTimestamps(t *testing.T) {
	_, _, _, p := setup(t)
	l := newLog(50).add(0, 600, 3, 200)
	for from := int64(50); from < 1850; from += 300 {
		mustCopy(t, p, l.Segment(t, from, from+300))
	}
	first := int64(1_700_000_000_010)
	for _, c := range []struct{ ts, offset, time int64 }{
		{0, 50, first}, {first, 50, first}, {first + 1, 51, first + 10}, {first + 10*299, 349, first + 10*299},
		{first + 10*299 + 1, 350, first + 10*300}, {first + 10*1000 - 9, 1050, first + 10*1000}, {l.Time, 1849, l.Time},
	} {
		found, at, err := p.OffsetForTimestamp(t.Context(), c.ts)
		if err != nil || !found || at.Offset != c.offset || at.Timestamp != c.time || at.LeaderEpoch != 0 {
			t.Errorf("timestamp %d: %v %+v %v, want offset %d", c.ts, found, at, err, c.offset)
		}
	}
	if found, at, err := p.OffsetForTimestamp(t.Context(), l.Time+1); found || err != nil {
		t.Errorf("beyond the last: %v %+v %v", found, at, err)
	}
	if found, at, err := p.MaxTimestamp(t.Context()); !found || err != nil || at.Offset != 1849 {
		t.Errorf("largest: %v %+v %v", found, at, err)
	}
	if err := p.AdvanceStart(t.Context(), 701); err != nil {
		t.Fatal(err)
	}
	if found, at, err := p.OffsetForTimestamp(t.Context(), 0); !found || err != nil || at.Offset != 701 {
		t.Errorf("after the log start moved into a batch: %v %+v %v", found, at, err)
	}
}

// TestTimestampsPassOverControlBatches: a marker's timestamp is no answer.
func TestTimestampsPassOverControlBatches(t *testing.T) {
	_, _, _, p := setup(t)
	l := newLog(0).add(0, 4, 1, 10)
	marker := record.NewMarkerBatch(record.Marker{Type: record.CommitMarker}, 7, 0, l.Time+1000)
	l.AddBatch(marker)
	l.add(0, 4, 1, 10)
	mustCopy(t, p, l.Segment(t, 0, 9))
	if found, at, err := p.OffsetForTimestamp(t.Context(), l.Time-35); !found || err != nil || at.Offset != 5 {
		t.Errorf("%v %+v %v", found, at, err)
	}
	if found, at, err := p.OffsetForTimestamp(t.Context(), l.Time+500); found || err != nil {
		t.Errorf("only a marker is that late: %v %+v %v", found, at, err)
	}
}

func TestAbortedTxns(t *testing.T) {
	_, _, _, p := setup(t)
	l := newLog(0).add(0, 100, 1, 10)
	index := func(entries ...record.TxnIndexEntry) (b []byte) {
		for _, e := range entries {
			b = e.AppendTo(b)
		}
		return b
	}
	for i, x := range [][]byte{
		index(record.TxnIndexEntry{ProducerID: 1, FirstOffset: 2, LastOffset: 8, LastStableOffset: 9}),
		nil,
		index(record.TxnIndexEntry{ProducerID: 2, FirstOffset: 5, LastOffset: 25, LastStableOffset: 20},
			record.TxnIndexEntry{ProducerID: 3, FirstOffset: 26, LastOffset: 29, LastStableOffset: 30}),
		nil,
	} {
		s := l.Segment(t, int64(i)*10, int64(i+1)*10)
		s.TxnIndex = x
		mustCopy(t, p, s)
	}
	for _, c := range []struct {
		from, to int64
		want     string
		complete bool
	}{
		{0, 5, "[{1 2 8 9}]", true},
		{0, 10, "[{1 2 8 9} {2 5 25 20}]", true},
		{9, 10, "[{2 5 25 20}]", true},
		{12, 15, "[{2 5 25 20}]", true},
		{25, 28, "[{2 5 25 20} {3 26 29 30}]", true},
		{32, 35, "[]", false},
	} {
		txns, complete, err := p.AbortedTxns(t.Context(), c.from, c.to)
		if err != nil || fmt.Sprint(txns) != c.want || complete != c.complete {
			t.Errorf("[%d, %d): %v, complete %v, %v; want %s", c.from, c.to, txns, complete, err, c.want)
		}
	}
}

func TestRetention(t *testing.T) {
	b, c, _, p := setup(t)
	l := newLog(0).add(0, 300, 1, 100)
	for from := int64(0); from < 300; from += 10 { // 30 segments: three pages of eight and six in the list
		mustCopy(t, p, l.Segment(t, from, from+10))
	}
	cur := p.Current()
	if len(cur.Pages) != 3 || len(cur.Segments) != 6 {
		t.Fatalf("%d pages, %d segments", len(cur.Pages), len(cur.Segments))
	}
	now := time.UnixMilli(l.Time)
	if start, err := p.Expire(t.Context(), now, 10*100, -1, 0); err != nil || start != 190 {
		t.Errorf("by time: %d, %v", start, err)
	}
	one := p.Bytes() / 30
	if start, err := p.Expire(t.Context(), now, -1, one*20, 0); err != nil || start < 90 || start > 110 {
		t.Errorf("by bytes: %d, %v", start, err)
	}
	if start, err := p.Expire(t.Context(), now, -1, one*20, one*5); err != nil || start < 140 || start > 160 {
		t.Errorf("by bytes with local ones: %d, %v", start, err)
	}
	if start, err := p.Expire(t.Context(), now, -1, -1, 0); err != nil || start != 0 {
		t.Errorf("without limits: %d, %v", start, err)
	}
	if n, err := p.BytesBefore(t.Context(), 115); err != nil || n < one*12-100 || n > one*12+100 {
		t.Errorf("bytes before 115: %d, %v; a segment has %d", n, err, one)
	}
	if err := p.AdvanceStart(t.Context(), 115); err != nil {
		t.Fatal(err)
	}
	_, _, err := p.Read(t.Context(), 114, 1)
	wantErr(t, "read below the log start", err, ErrOffsetOutOfRange)
	l.checkRead(t, p, 115, 300, 1)
	if n := countKeys(t, b, "segments/"); n != 30 {
		t.Errorf("%d objects before the grace has passed", n)
	}
	if err := p.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := countKeys(t, b, "segments/"); n != 30 {
		t.Errorf("%d objects before the grace has passed", n)
	}
	c.Advance(11 * time.Minute)
	if err := p.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, pages := countKeys(t, b, "segments/"), countKeys(t, b, "pages/"); n != 19 || pages != 2 {
		t.Errorf("%d segments, %d pages after the grace", n, pages)
	}
	if n := len(p.Current().Condemned); n != 0 {
		t.Errorf("%d condemned entries left", n)
	}
	l.checkRead(t, p, 115, 300, 1000)
	testEverythingExpires(t, p, c, b, l)
}

// testEverythingExpires: all segments go, and copying goes on where the log starts.
func testEverythingExpires(t *testing.T, p *Partition, c *tieringtest.Clock, b *mem.Bucket, l log) {
	if err := p.AdvanceStart(t.Context(), 345); err != nil {
		t.Fatal(err)
	}
	c.Advance(11 * time.Minute)
	if err := p.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := countKeys(t, b, "segments/") + countKeys(t, b, "pages/"); n != 0 || p.EndOffset() != 345 {
		t.Errorf("%d objects, end %d after all has expired", n, p.EndOffset())
	}
	l.add(0, 100, 1, 10)
	mustCopy(t, p, l.Segment(t, 340, 400))
	if p.StartOffset() != 345 || p.EndOffset() != 400 {
		t.Errorf("start %d, end %d", p.StartOffset(), p.EndOffset())
	}
	l.checkRead(t, p, 345, 400, 1000)
}

func TestManifestsAreDeleted(t *testing.T) {
	b, c, _, p := setup(t)
	l := newLog(0).add(0, 100, 1, 10)
	for i := range int64(40) {
		mustCopy(t, p, l.Segment(t, i, i+1))
	}
	if err := p.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := countKeys(t, b, "manifest/"); n != 40 {
		t.Errorf("%d young manifests left", n)
	}
	c.Advance(25 * time.Hour)
	for i := int64(40); i < 60; i++ {
		mustCopy(t, p, l.Segment(t, i, i+1))
	}
	if err := p.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := countKeys(t, b, "manifest/"); n != 20 {
		t.Errorf("%d manifests left, want the 20 young ones", n)
	}
	c.Advance(25 * time.Hour)
	mustOpen(t, p, 1, l)
	if err := p.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A reader that knows a number that is gone finds the tail.
	reader := openStore(t, b, c, nil).Partition(testID, 7)
	l.checkRead(t, reader, 0, 60, 100)
}

func TestCollect(t *testing.T) {
	b, c, _, p := setup(t)
	l := newLog(0).add(0, 20, 1, 10)
	mustCopy(t, p, l.Segment(t, 0, 10))
	orphan := p.Dir() + manifest.SegmentName(10, 0, 77)
	if err := b.Put(t.Context(), orphan, strings.NewReader("left by a crash"), 15, noOptions); err != nil {
		t.Fatal(err)
	}
	if found, err := p.Collect(t.Context(), false); err != nil || len(found) != 0 {
		t.Errorf("young orphans: %v, %v", found, err)
	}
	c.Advance(25 * time.Hour)
	for _, dry := range []bool{true, false} {
		found, err := p.Collect(t.Context(), dry)
		if err != nil || len(found) != 1 || found[0].Key != orphan || found[0].Bytes != 15 {
			t.Errorf("dry %v: %v, %v", dry, found, err)
		}
	}
	if n := countKeys(t, b, "segments/"); n != 1 {
		t.Errorf("%d segments left", n)
	}
	l.checkRead(t, p, 0, 10, 100)
}

func TestDeleteTopic(t *testing.T) {
	b, _, s, p := setup(t)
	l := newLog(0).add(0, 20, 1, 10)
	mustCopy(t, p, l.Segment(t, 0, 10))
	if err := s.DeleteTopic(t.Context(), testID.Topic, testID.TopicID); err != nil {
		t.Fatal(err)
	}
	if n := countKeys(t, b, ""); n != 0 {
		t.Errorf("%d objects left", n)
	}
	again := s.Partition(testID, 0)
	mustOpen(t, again, 0, newLog(0))
	if again.EndOffset() != 0 {
		t.Errorf("a new topic of the same id starts with end %d", again.EndOffset())
	}
}

func TestCorruptObject(t *testing.T) {
	for _, c := range []struct {
		what string
		at   func(s SegmentInfo) int64
		want string
	}{
		{"log", func(SegmentInfo) int64 { return 300_000 }, "log bytes 262144"},
		{"tail", func(s SegmentInfo) int64 { return int64(s.Bytes) - 1 }, "VARVESEG"},
		{"table", func(s SegmentInfo) int64 { return int64(s.Bytes) - 50 }, "section table"},
		{"checksums", func(s SegmentInfo) int64 { return int64(s.Bytes) - 40 - 5*24 - 3 }, "checksum"},
	} {
		t.Run(c.what, func(t *testing.T) {
			b, _, _, p := setup(t)
			l := newLog(0).add(0, 100, 1, 10_000)
			mustCopy(t, p, l.Segment(t, 0, 100))
			seg := p.Current().Segments[0]
			if err := b.Corrupt(p.Dir()+seg.Key(), c.at(seg)); err != nil {
				t.Fatal(err)
			}
			_, _, err := p.Read(t.Context(), 40, 1<<20)
			wantErr(t, "read", err, ErrCorrupt)
			if err == nil || !strings.Contains(err.Error(), seg.Key()) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error does not name the object and the place: %v", err)
			}
		})
	}
}

// TestSegmentGoneUnderReader: a reader with an old list finds the new one.
func TestSegmentGoneUnderReader(t *testing.T) {
	b, c, _, p := setup(t)
	l := newLog(0).add(0, 40, 1, 100)
	mustCopy(t, p, l.Segment(t, 0, 20))
	reader := openStore(t, b, c, func(e *Env) { e.BrokerID = 2 }).Partition(testID, 0)
	if err := reader.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustCopy(t, p, l.Segment(t, 20, 40))
	if err := p.AdvanceStart(t.Context(), 20); err != nil {
		t.Fatal(err)
	}
	c.Advance(time.Hour)
	if err := p.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _, err := reader.Read(t.Context(), 5, 100)
	wantErr(t, "read of what is deleted", err, ErrOffsetOutOfRange)
	l.checkRead(t, reader, 20, 40, 100)
	// An object that is missing for good is corruption, and named.
	if err := b.Delete(t.Context(), p.Dir()+p.Current().Segments[0].Key()); err != nil {
		t.Fatal(err)
	}
	fresh := openStore(t, b, c, nil).Partition(testID, 0)
	_, _, err = fresh.Read(t.Context(), 25, 100)
	wantErr(t, "read of a missing object", err, ErrCorrupt)
}

func TestGapIsNamed(t *testing.T) {
	b, c, _, p := setup(t)
	l := newLog(0).add(0, 30, 1, 100)
	for i := range int64(3) {
		mustCopy(t, p, l.Segment(t, i*10, i*10+10))
	}
	m := *p.Current()
	m.Number, m.Previous = 4, &manifest.Previous{Number: 3}
	m.Segments = append(m.Segments[:1:1], m.Segments[2])
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Put(t.Context(), p.Dir()+manifest.ManifestName(4), bytes.NewReader(data), int64(len(data)), noOptions); err != nil {
		t.Fatal(err)
	}
	reader := openStore(t, b, c, nil).Partition(testID, 0)
	_, _, err = reader.Read(t.Context(), 12, 100)
	wantErr(t, "read in a gap", err, ErrGap)
	if !strings.Contains(err.Error(), "offsets 12 to 19") {
		t.Errorf("the gap is not named: %v", err)
	}
	l.checkRead(t, reader, 20, 30, 100)
}

func TestUnknownFlags(t *testing.T) {
	b, c, _, p := setup(t)
	l := newLog(0).add(0, 10, 1, 100)
	mustCopy(t, p, l.Segment(t, 0, 10))
	key := p.Dir() + manifest.ManifestName(1)
	m := *p.Current()
	m.Segments = append([]manifest.Segment(nil), m.Segments...)
	m.Segments[0].Flags = 0x80
	enc, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Put(t.Context(), key, bytes.NewReader(enc), int64(len(enc)), noOptions); err != nil {
		t.Fatal(err)
	}
	reader := openStore(t, b, c, nil).Partition(testID, 0)
	_, _, err = reader.Read(t.Context(), 2, 100)
	wantErr(t, "segment with unknown flags", err, ErrUnsupported)
}

func TestReadIsCanceled(t *testing.T) {
	_, _, _, p := setup(t)
	l := newLog(0).add(0, 10, 1, 100)
	mustCopy(t, p, l.Segment(t, 0, 10))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := p.Read(ctx, 2, 100)
	wantErr(t, "canceled read", err, context.Canceled)
	l.checkRead(t, p, 0, 10, 100)
}
