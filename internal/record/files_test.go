package record_test

import (
	"encoding/hex"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvehq/varve/internal/record"
)

// TestFileBytes pins the formats byte by byte, as Kafka writes them.
func TestFileBytes(t *testing.T) {
	states := []record.ProducerState{{ProducerID: 5, Epoch: 1, LastSequence: 3989, LastOffset: 12078, OffsetDelta: 2, Timestamp: 0x1a2305ee1c4, CoordinatorEpoch: 1, CurrentTxnFirstOffset: 12023}}
	cases := map[string]struct {
		got  []byte
		want string
	}{
		"offset index": {record.OffsetIndexEntry{RelOffset: 0x01020304, Position: 0x05060708}.AppendTo(nil), "0102030405060708"},
		"time index":   {record.TimeIndexEntry{Timestamp: 0x0102030405060708, RelOffset: 9}.AppendTo(nil), "010203040506070800000009"},
		"txn index": {record.TxnIndexEntry{ProducerID: 1, FirstOffset: 2, LastOffset: 3, LastStableOffset: 4}.AppendTo(nil),
			"0000" + "0000000000000001" + "0000000000000002" + "0000000000000003" + "0000000000000004"},
		"epochs": {record.AppendEpochCheckpoint(nil, []record.EpochEntry{{Epoch: 1, StartOffset: 2}, {Epoch: 3, StartOffset: 40}}),
			hex.EncodeToString([]byte("0\n2\n1 2\n3 40\n"))},
		"empty snapshot": {record.AppendProducerSnapshot(nil, nil), "0001" + "48674bc7" + "00000000"},
	}
	for name, c := range cases {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	b := record.AppendProducerSnapshot([]byte("prefix"), states)[6:]
	if want := "0000000000000005" + "0001" + "00000f95" + "0000000000002f2e" + "00000002" + "000001a2305ee1c4" + "00000001" + "0000000000002ef7"; hex.EncodeToString(b[10:]) != want {
		t.Errorf("snapshot %x", b)
	}
	got, err := record.ParseProducerSnapshot(b)
	if d := cmp.Diff(states, got); err != nil || d != "" {
		t.Fatal(err, d)
	}
	for i := range b {
		b[i] ^= 4
		if _, err := record.ParseProducerSnapshot(b); !errors.Is(err, record.ErrCorrupt) {
			t.Fatalf("flip in byte %d: %v", i, err)
		}
		b[i] ^= 4
	}
}

func TestCorruptFiles(t *testing.T) {
	for _, text := range []string{"", "0", "0\n", "1\n0\n", "0\n1\n", "0\n1\n1 2", "0\n1\n1\n", "0\n1\nx 2\n", "0\n2\n3 1\n1 2\n", "0\n2\n1 5\n2 4\n", "0\n1\n-1 4\n", "0\n-1\n"} {
		if _, err := record.ParseEpochCheckpoint([]byte(text)); !errors.Is(err, record.ErrCorrupt) {
			t.Errorf("%q: %v", text, err)
		}
	}
	good := record.TxnIndexEntry{ProducerID: 1, FirstOffset: 2, LastOffset: 3}.AppendTo(nil)
	for name, b := range map[string][]byte{"cut": good[:33], "repeated": append(append([]byte{}, good...), good...), "version": append([]byte{1}, good[1:]...)} {
		if _, err := record.ParseTxnIndex(b); !errors.Is(err, record.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	a, z := record.OffsetIndexEntry{RelOffset: 1, Position: 10}, record.OffsetIndexEntry{RelOffset: 1, Position: 20}
	if err := record.OffsetIndex(z.AppendTo(a.AppendTo(nil))).Check(100); !errors.Is(err, record.ErrCorrupt) {
		t.Error(err)
	}
	if err := record.OffsetIndex(a.AppendTo(nil)).Check(10); !errors.Is(err, record.ErrCorrupt) {
		t.Error(err)
	}
}
