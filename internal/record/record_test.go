package record_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/snappy"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/internal/record"
)

var codecs = []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd}

type rec struct {
	Offset, Timestamp int64
	Key, Value        string
	KeyNil, ValueNil  bool
	Headers           string
}

func collect(t testing.TB, batch []byte, limit int) ([]rec, error) {
	t.Helper()
	var out []rec
	err := record.ForEachRecord(batch, limit, func(r *record.Record) error {
		h := ""
		for _, x := range r.Headers {
			h += fmt.Sprintf("%s=%s(%v) ", x.Key, x.Value, x.Value == nil)
		}
		out = append(out, rec{r.Offset, r.Timestamp, string(r.Key), string(r.Value), r.Key == nil, r.Value == nil, h})
		return nil
	})
	return out, err
}

func sample(c record.Codec, level, n int) []byte {
	b := record.NewBuilder(record.BuilderOptions{Codec: c, Level: level})
	for i := range n {
		var key []byte
		if i%3 != 0 {
			key = fmt.Appendf(nil, "key-%d", i)
		}
		value := bytes.Repeat([]byte{byte('a' + i%7)}, i*37%900)
		if i%5 == 4 {
			value = nil
		}
		var hs []record.RecordHeader
		if i%4 == 0 {
			hs = []record.RecordHeader{{Key: []byte("h"), Value: []byte("v")}, {Key: []byte("null")}}
		}
		b.Append(1700000000000+int64(i*7%13), key, value, hs)
	}
	return b.Batch(1000)
}

func TestRoundTripAllCodecs(t *testing.T) {
	want, err := collect(t, sample(record.None, 0, 500), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if len(want) != 500 || want[499].Offset != 1499 || !want[0].KeyNil || !want[4].ValueNil || want[0].Headers != "h=v(false) null=(true) " {
		t.Fatalf("uncompressed records are wrong: %+v", want[:5])
	}
	for _, c := range codecs {
		for _, level := range []int{0, 1, 9, 22} {
			batch := sample(c, level, 500)
			if err := record.VerifyBatch(batch); err != nil {
				t.Fatalf("%v: %v", c, err)
			}
			got, err := collect(t, batch, 1<<20)
			if err != nil {
				t.Fatalf("%v level %d: %v", c, level, err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("%v level %d: %s", c, level, d)
			}
		}
	}
}

// TestHeaderMatchesKmsg compares our bytes with an independent codec.
func TestHeaderMatchesKmsg(t *testing.T) {
	b := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: 7, Epoch: 3, BaseSequence: 11}, Transactional: true, LeaderEpoch: 5})
	b.Append(100, []byte("k"), []byte("v"), nil)
	b.Append(90, nil, []byte("w"), nil)
	batch := b.Batch(42)
	var k kmsg.RecordBatch
	if err := k.ReadFrom(batch); err != nil {
		t.Fatal(err)
	}
	h, err := record.ParseHeader(batch)
	if err != nil {
		t.Fatal(err)
	}
	got := record.Header{
		BaseOffset: k.FirstOffset, BatchLength: k.Length, LeaderEpoch: k.PartitionLeaderEpoch, Magic: k.Magic, CRC: uint32(k.CRC),
		Attributes: k.Attributes, LastOffsetDelta: k.LastOffsetDelta, BaseTimestamp: k.FirstTimestamp, MaxTimestamp: k.MaxTimestamp,
		ProducerID: k.ProducerID, ProducerEpoch: k.ProducerEpoch, BaseSequence: k.FirstSequence, NumRecords: k.NumRecords,
	}
	if d := cmp.Diff(got, h); d != "" {
		t.Fatal(d)
	}
	if !h.Transactional() || h.Control() || h.LastSequence() != 12 || h.NextOffset() != 44 || h.MaxTimestamp != 100 || h.BaseTimestamp != 100 {
		t.Fatalf("header %+v", h)
	}
	if !bytes.Equal(k.AppendTo(nil), batch) {
		t.Fatal("kmsg writes other bytes")
	}
}

func TestLogAppendTime(t *testing.T) {
	batch := sample(record.Zstd, 0, 10)
	record.SetBaseOffset(batch, 77)
	record.SetLeaderEpoch(batch, 9)
	if err := record.VerifyBatch(batch); err != nil {
		t.Fatal("the CRC covers offset or epoch:", err)
	}
	record.SetLogAppendTime(batch, 5)
	if err := record.VerifyBatch(batch); err != nil {
		t.Fatal(err)
	}
	got, err := collect(t, batch, 1<<20)
	if err != nil || got[0].Timestamp != 5 || got[9].Timestamp != 5 || got[9].Offset != 86 {
		t.Fatalf("%v %+v", err, got)
	}
}

// TestLimit: a bomb is refused by every codec with little memory used, and a batch exactly at the limit is read.
func TestLimit(t *testing.T) {
	for _, c := range codecs {
		b := record.NewBuilder(record.BuilderOptions{Codec: c})
		b.Append(0, nil, make([]byte, 32<<20), nil)
		batch := b.Batch(0)
		size := b.Size() - record.HeaderSize
		if _, err := collect(t, batch, size); err != nil {
			t.Errorf("%v at the limit: %v", c, err)
		}
		if _, err := collect(t, batch, size-1); !errors.Is(err, record.ErrLimit) && c != record.None {
			t.Errorf("%v over the limit: %v", c, err)
		}
		if c == record.None {
			continue
		}
		if out, err := record.Decompress(c, nil, batch[record.HeaderSize:], 100<<10); !errors.Is(err, record.ErrLimit) || cap(out) > 8<<20 {
			t.Errorf("%v: %v, %d bytes held", c, err, cap(out))
		}
	}
	// a block that claims 4 GiB in a few bytes
	if _, err := record.Decompress(record.Snappy, nil, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}, 1<<30); !errors.Is(err, record.ErrCorrupt) {
		t.Error("snappy claim:", err)
	}
}

func TestRawSnappy(t *testing.T) {
	want := bytes.Repeat([]byte("snappy"), 1000)
	got, err := record.Decompress(record.Snappy, nil, snappy.Encode(nil, want), 1<<20)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatal(err, len(got))
	}
	framed, err := record.Compress(record.Snappy, 0, nil, want)
	if err != nil || !bytes.HasPrefix(framed, []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}) {
		t.Fatalf("xerial header % x", framed[:16])
	}
}

func TestIterator(t *testing.T) {
	var all []byte
	for i := range 4 {
		b := sample(record.None, 0, 10)
		record.SetBaseOffset(b, int64(i*10))
		all = append(all, b...)
	}
	walk := func(b []byte) (n int, pos int, err error) {
		it := record.NewBatchIterator(b)
		for h, batch, ok := it.Next(); ok; h, batch, ok = it.Next() {
			if h.BaseOffset != int64(n*10) || len(batch) != h.Size() {
				t.Fatalf("batch %d: %+v", n, h)
			}
			n++
		}
		return n, it.Position(), it.Err()
	}
	if n, pos, err := walk(all); n != 4 || pos != len(all) || err != nil {
		t.Fatal(n, pos, err)
	}
	if n, pos, err := walk(all[:len(all)-1]); n != 3 || pos != len(all)/4*3 || !errors.Is(err, record.ErrPartial) || errors.Is(err, record.ErrCorrupt) {
		t.Fatal(n, pos, err)
	}
	all[len(all)/4+16] = 1
	if n, _, err := walk(all); n != 1 || !errors.Is(err, record.ErrMagic) || !errors.Is(err, record.ErrCorrupt) {
		t.Fatal(n, err)
	}
	if allocs := testing.AllocsPerRun(100, func() {
		it := record.NewBatchIterator(all[:len(all)/4])
		for _, _, ok := it.Next(); ok; _, _, ok = it.Next() {
		}
		_ = record.VerifyBatch(all[:len(all)/4])
	}); allocs != 0 {
		t.Fatalf("%v allocations in a header walk", allocs)
	}
}

// TestBitFlips: a flip of any bit that the CRC covers is found.
func TestBitFlips(t *testing.T) {
	batch := sample(record.LZ4, 0, 5)
	for i := 16 * 8; i < len(batch)*8; i++ {
		batch[i/8] ^= 1 << (i % 8)
		if err := record.VerifyBatch(batch); !errors.Is(err, record.ErrCorrupt) {
			t.Fatalf("bit %d: %v", i, err)
		}
		batch[i/8] ^= 1 << (i % 8)
	}
}

func TestSequenceWrap(t *testing.T) {
	h := record.Header{BaseSequence: 2147483646, LastOffsetDelta: 3}
	if h.LastSequence() != 1 {
		t.Fatal(h.LastSequence())
	}
}

func TestMarkers(t *testing.T) {
	b := record.NewMarkerBatch(record.Marker{Type: record.AbortMarker, CoordinatorEpoch: 12}, 5, 2, 1000)
	h, err := record.ParseHeader(b)
	if err != nil || !h.Control() || !h.Transactional() || h.LastSequence() != record.NoSequence || h.NumRecords != 1 {
		t.Fatalf("%v %+v", err, h)
	}
	for r, err := range record.Records(b, 100) {
		if err != nil {
			t.Fatal(err)
		}
		if m, err := record.ParseMarker(r); err != nil || m != (record.Marker{Type: record.AbortMarker, CoordinatorEpoch: 12}) {
			t.Fatal(m, err)
		}
	}
}
