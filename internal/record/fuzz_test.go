package record_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/varvehq/varve/internal/record"
)

const fuzzLimit = 1 << 20

// FuzzBatches: no input makes the walk panic, and whatever is accepted adds up.
func FuzzBatches(f *testing.F) {
	for _, c := range codecs {
		f.Add(sample(c, 0, 20))
	}
	two := append(sample(record.None, 0, 2), sample(record.Snappy, 0, 3)...)
	f.Add(two)
	f.Add(two[:len(two)-5])
	f.Add(record.NewMarkerBatch(record.Marker{Type: record.CommitMarker}, 1, 1, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		it := record.NewBatchIterator(b)
		n := 0
		for h, batch, ok := it.Next(); ok; h, batch, ok = it.Next() {
			n += len(batch)
			if len(batch) != h.Size() || h.Magic != record.Magic {
				t.Fatalf("%d bytes, header %+v", len(batch), h)
			}
			if err := record.VerifyBatch(batch); err != nil && !errors.Is(err, record.ErrCorrupt) {
				t.Fatal(err)
			}
		}
		if n != it.Position() || it.Err() == nil && n != len(b) {
			t.Fatalf("%d of %d bytes, position %d, %v", n, len(b), it.Position(), it.Err())
		}
	})
}

// FuzzRecords: no records, compressed or not, panic or pass the limit; those that decode encode to the same records.
func FuzzRecords(f *testing.F) {
	for _, c := range codecs {
		batch := sample(c, 0, 20)
		h, _ := record.ParseHeader(batch)
		f.Add(h.Attributes, h.NumRecords, batch[record.HeaderSize:])
	}
	f.Add(int16(record.Snappy), int32(1), []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0})
	f.Add(int16(record.Zstd), int32(1), []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa4, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, attributes int16, n int32, body []byte) {
		batch := append(make([]byte, record.HeaderSize), body...)
		record.PutHeader(batch, &record.Header{Attributes: attributes, NumRecords: n, LastOffsetDelta: max(n-1, 0)})
		b := record.NewBuilder(record.BuilderOptions{})
		last, size := int64(-1), 0
		again := true
		err := record.ForEachRecord(batch, fuzzLimit, func(r *record.Record) error {
			size += len(r.Key) + len(r.Value)
			again = again && r.Offset > last && attributes&8 == 0
			if last = r.Offset; again {
				b.AppendAt(int32(r.Offset), r.Timestamp, r.Key, r.Value, r.Headers)
			}
			return nil
		})
		if size > fuzzLimit && record.Codec(attributes&7) != record.None {
			t.Fatalf("%d bytes of keys and values", size)
		}
		if err != nil {
			if !errors.Is(err, record.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if !again || n == 0 {
			return
		}
		want, err1 := collect(t, batch, fuzzLimit)
		got, err2 := collect(t, b.Batch(0), 2*fuzzLimit)
		if err1 != nil || err2 != nil || len(want) != len(got) {
			t.Fatal(err1, err2, len(want), len(got))
		}
		for i := range want {
			if want[i] != got[i] {
				t.Fatalf("record %d: %+v, then %+v", i, want[i], got[i])
			}
		}
	})
}

// FuzzOffsetIndex and the following: no bytes panic; what passes the check is found again.
func FuzzOffsetIndex(f *testing.F) {
	f.Add([]byte{}, int64(0))
	f.Add(record.OffsetIndexEntry{RelOffset: 5, Position: 100}.AppendTo(record.OffsetIndexEntry{RelOffset: 1}.AppendTo(nil)), int64(200))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		x := record.OffsetIndex(b)
		x.Floor(size)
		x.FloorPosition(size)
		if x.Check(size) != nil {
			return
		}
		for i := range x.Len() {
			e := x.At(i)
			if got, ok := x.Floor(int64(e.RelOffset)); !ok || got != e {
				t.Fatal(e, got)
			}
			if got, ok := x.FloorPosition(int64(e.Position)); !ok || got != e {
				t.Fatal(e, got)
			}
		}
	})
}

func FuzzTimeIndex(f *testing.F) {
	f.Add([]byte{}, int64(0))
	f.Add(record.TimeIndexEntry{Timestamp: 50, RelOffset: 9}.AppendTo(record.TimeIndexEntry{Timestamp: 7, RelOffset: 3}.AppendTo(nil)), int64(9))
	f.Fuzz(func(t *testing.T, b []byte, ts int64) {
		x := record.TimeIndex(b)
		x.Floor(ts)
		x.Before(ts)
		x.Last()
		if x.Check() != nil {
			return
		}
		for i := range x.Len() {
			e := x.At(i)
			if got, ok := x.Floor(e.Timestamp); !ok || got != e {
				t.Fatal(e, got)
			}
			if got, ok := x.Before(e.Timestamp); ok != (i > 0) || ok && got != x.At(i-1) {
				t.Fatal(e, got)
			}
		}
	})
}

func FuzzTxnIndex(f *testing.F) {
	f.Add([]byte{})
	f.Add(record.TxnIndexEntry{ProducerID: 1, FirstOffset: 2, LastOffset: 3, LastStableOffset: 4}.AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := record.ParseTxnIndex(b)
		if err != nil {
			return
		}
		var out []byte
		for _, e := range entries {
			out = e.AppendTo(out)
		}
		if !bytes.Equal(out, b) {
			t.Fatalf("% x, then % x", b, out)
		}
	})
}

func FuzzProducerSnapshot(f *testing.F) {
	f.Add(record.AppendProducerSnapshot(nil, nil))
	f.Add(record.AppendProducerSnapshot(nil, []record.ProducerState{{ProducerID: 9, Epoch: 1, LastSequence: 5, LastOffset: 70, OffsetDelta: 2, Timestamp: 3, CoordinatorEpoch: -1, CurrentTxnFirstOffset: -1}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		states, err := record.ParseProducerSnapshot(b)
		if err == nil && !bytes.Equal(record.AppendProducerSnapshot(nil, states), b) {
			t.Fatalf("% x", b)
		}
	})
}

func FuzzEpochCheckpoint(f *testing.F) {
	f.Add([]byte("0\n0\n"))
	f.Add(record.AppendEpochCheckpoint(nil, []record.EpochEntry{{Epoch: 0, StartOffset: 0}, {Epoch: 5, StartOffset: 100}}))
	f.Add([]byte("0\n2\n0 0\n0 0\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := record.ParseEpochCheckpoint(b)
		if err != nil {
			return
		}
		again, err := record.ParseEpochCheckpoint(record.AppendEpochCheckpoint(nil, entries))
		if err != nil || len(again) != len(entries) {
			t.Fatal(err, entries, again)
		}
	})
}
