package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvehq/varve/sdk"
)

var row = sdk.StructOf("Row", sdk.Field{Name: "id", Schema: sdk.Of(sdk.Int32)}, sdk.Field{Name: "name", Schema: sdk.OptionalOf(sdk.String)})

func samples() []sdk.Record {
	var a sdk.Appender
	a.Int(7)
	a.Null()
	part := sdk.NewSourcePartition(`{"server":"shop"}`)
	return []sdk.Record{
		{Topic: "a", Partition: -1, Timestamp: 1700000000000, Key: sdk.TextValue("k"), Value: a.Value(row), Source: part, SourceOffset: []byte(`{"lsn":1}`)},
		{Topic: "a", Partition: 3, Timestamp: -5, Value: sdk.JSONValue([]byte(`{}`)), Offset: 1 << 60},
		{Topic: "b", Value: sdk.RawBytes([]byte{}), Source: part},
		{Topic: "", Key: sdk.TextValue(""), Headers: []sdk.Header{{Key: "h", Value: sdk.TextValue("1")}, {Key: "h"}, {Key: "", Value: sdk.RawBytes([]byte("x"))}}},
		{Topic: "b", Value: a.Value(row), Headers: []sdk.Header{{Key: "i", Value: sdk.JSONValue([]byte("2"))}}},
	}
}

func TestBlocks(t *testing.T) {
	e, d := NewEncoder(DefaultMaxRecord), NewDecoder()
	var first, second []byte
	for range 2 {
		for _, r := range samples() {
			if err := e.Add(&r); err != nil {
				t.Fatal(err)
			}
		}
		first, second = second, e.Take()
	}
	if bytes.Contains(second, []byte("Row")) || !bytes.Contains(first, []byte("Row")) {
		t.Error("a schema is announced once, in the first block")
	}
	for i, b := range [][]byte{first, second} {
		got, err := d.Decode(b, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(samples(), got); diff != "" {
			t.Errorf("block %d: %s", i, diff)
		}
	}
	a, _ := d.Decode(second, nil)
	b, _ := d.Decode(second, nil)
	if a[0].Value.Schema != b[0].Value.Schema || a[0].Source != a[2].Source {
		t.Error("schemas and source partitions keep their pointers")
	}
}

func TestEqualSchemasAreAnnouncedOnce(t *testing.T) {
	e := NewEncoder(DefaultMaxRecord)
	for range 1000 {
		s := sdk.StructOf("Row", sdk.Field{Name: "id", Schema: sdk.Of(sdk.Int32)})
		if err := e.Add(&sdk.Record{Topic: "t", Value: sdk.Value{Schema: s, Data: []byte{2}}, Source: sdk.NewSourcePartition("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	if b := e.Take(); len(b) > 1000*14+500 {
		t.Errorf("%d bytes", len(b))
	}
}

func TestSenderForgetsBeforeTheReceiverRefuses(t *testing.T) {
	e, d := NewEncoder(DefaultMaxRecord), NewDecoder()
	for block := range 30 {
		for i := range 5000 {
			r := sdk.Record{Topic: fmt.Sprintf("topic-%d-%d", block, i), Source: sdk.NewSourcePartition(fmt.Sprintf(`{"f":"%d-%d"}`, block, i))}
			if err := e.Add(&r); err != nil {
				t.Fatal(err)
			}
		}
		recs, err := d.Decode(e.Take(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if last := recs[4999]; last.Topic != fmt.Sprintf("topic-%d-4999", block) || string(last.Source.JSON) != fmt.Sprintf(`{"f":"%d-4999"}`, block) {
			t.Fatalf("block %d ends with %+v", block, last)
		}
	}
}

func TestRecordTooLarge(t *testing.T) {
	e := NewEncoder(1000)
	ok := sdk.Record{Topic: "t", Value: sdk.RawBytes(make([]byte, 1000))}
	bad := sdk.Record{Topic: "u", Value: sdk.RawBytes(make([]byte, 1001))}
	for _, r := range []*sdk.Record{&ok, &bad, &ok} {
		if err := e.Add(r); (err != nil) != (r == &bad) || err != nil && !errors.Is(err, ErrRecordTooLarge) {
			t.Errorf("Add: %v", err)
		}
	}
	recs, err := NewDecoder().Decode(e.Take(), nil)
	if len(recs) != 2 || err != nil {
		t.Errorf("%d records, %v", len(recs), err)
	}
}

func TestDroppedRecordsLeaveTheirAnnouncements(t *testing.T) {
	e, d := NewEncoder(DefaultMaxRecord), NewDecoder()
	for range 2 {
		r := samples()[0]
		if err := e.Add(&r); err != nil {
			t.Fatal(err)
		}
		e.Drop()
	}
	r := samples()[0]
	if err := e.Add(&r); err != nil {
		t.Fatal(err)
	}
	recs, err := d.Decode(e.Take(), nil)
	if diff := cmp.Diff(samples()[:1], recs); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestFrames(t *testing.T) {
	for _, n := range []int{0, 1, MaxFrame, MaxFrame + 1, 3*MaxFrame + 17} {
		block := bytes.Repeat([]byte("ab"), (n+1)/2)[:n]
		a := Assembler{Max: 4 * MaxFrame}
		frames := Frames(block, true)
		for i, f := range frames {
			if len(f.Block) > MaxFrame || f.More == (i == len(frames)-1) || f.Last == f.More {
				t.Errorf("%d bytes: frame %d has %d bytes, more %t, last %t", n, i, len(f.Block), f.More, f.Last)
			}
			got, complete, err := a.Add(f.Block, f.More)
			if err != nil || complete == f.More {
				t.Fatal(complete, err)
			}
			if complete && !bytes.Equal(got, block) {
				t.Errorf("%d bytes came back as %d others", n, len(got))
			}
		}
	}
	a := Assembler{Max: 10}
	if _, _, err := a.Add(make([]byte, 6), true); err != nil {
		t.Error(err)
	}
	if _, _, err := a.Add(make([]byte, 5), true); !errors.Is(err, ErrRecordTooLarge) {
		t.Errorf("Add past the limit: %v", err)
	}
	if _, _, err := a.Add(nil, true); !errors.Is(err, ErrBlock) {
		t.Errorf("Add of nothing: %v", err)
	}
}

func TestMalformedBlocks(t *testing.T) {
	for want, block := range map[string]string{
		"truncated number":         "",
		"count past the end":       "\x00\xff\xff\xff\x7f",
		"string 9 was not":         "\x00\x01\x09\x00\x00\x00\x00\x00\x00\x00\x00",
		"announcement of kind 7":   "\x01\x07\x01\x00\x00",
		"schema number 2 is":       "\x01\x03\x02\x05\"int\"\x00",
		"length past the end":      "\x01\x01\x01\x7f",
		"bytes after the last":     "\x00\x00\x00",
		"unknown type nonsense":    "\x01\x03\x04\x0a\"nonsense\"\x00",
		"header count past the en": "\x01\x01\x01\x00\x01\x01\x00\x00\x00\x00\xff\x7f\x00\x00\x00\x00\x00",
	} {
		if _, err := NewDecoder().Decode([]byte(block), nil); !errors.Is(err, ErrBlock) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", block, err)
		}
	}
}

// TestDocumentedBlock is the example of docs/formats/plugin-wire.md.
func TestDocumentedBlock(t *testing.T) {
	e := NewEncoder(DefaultMaxRecord)
	err := e.Add(&sdk.Record{
		Topic: "t", Partition: -1, Value: sdk.TextValue("hi"), Source: sdk.NewSourcePartition("{}"), SourceOffset: []byte(`{"n":1}`),
	})
	want := "02 01 01 01 74 02 01 02 7b 7d 01 01 01 00 00 02 02 68 69 00 01 08 7b 22 6e 22 3a 31 7d 00"
	if got := fmt.Sprintf("% x", e.Take()); got != want || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}

func FuzzDecode(f *testing.F) {
	e := NewEncoder(DefaultMaxRecord)
	for range 2 {
		for _, r := range samples() {
			if err := e.Add(&r); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(e.Take())
	}
	f.Add([]byte("\x00\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := NewDecoder()
		recs, err := d.Decode(b, nil)
		if len(recs) > len(b) {
			t.Fatalf("%d records of %d bytes", len(recs), len(b))
		}
		if err != nil {
			return
		}
		e := NewEncoder(DefaultMaxRecord)
		for i := range recs {
			if err := e.Add(&recs[i]); err != nil {
				t.Fatal(err)
			}
		}
		again, err := NewDecoder().Decode(e.Take(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(recs) == 0 {
			return
		}
		if diff := cmp.Diff(recs, again); diff != "" {
			t.Fatal(diff)
		}
	})
}

func BenchmarkBlock(b *testing.B) {
	recs := samples()
	for i := range recs {
		recs[i].Value = sdk.RawBytes(make([]byte, 1000))
	}
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(1000)
		b.ReportAllocs()
		e := NewEncoder(DefaultMaxRecord)
		for i := range b.N {
			if err := e.Add(&recs[i%len(recs)]); err != nil {
				b.Fatal(err)
			}
			if e.Len() > BlockTarget {
				e.Recycle(e.Take())
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(1000)
		b.ReportAllocs()
		e := NewEncoder(DefaultMaxRecord)
		for i := range 500 {
			if err := e.Add(&recs[i%3]); err != nil {
				b.Fatal(err)
			}
		}
		block := e.Take()
		d := NewDecoder()
		var into []sdk.Record
		var err error
		for n := 0; n < b.N; n += 500 {
			if into, err = d.Decode(block, into[:0]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
