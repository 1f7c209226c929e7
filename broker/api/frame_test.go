package api

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// frameOf encodes a request as it stands on the wire, without its size.
func frameOf(req kmsg.Request, version int16) []byte {
	req.SetVersion(version)
	b := binary.BigEndian.AppendUint16(nil, uint16(req.Key()))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, 7)
	b = binary.BigEndian.AppendUint16(b, 3)
	b = append(b, "abc"...)
	if req.IsFlexible() {
		b = append(b, 0)
	}
	return req.AppendTo(b)
}

func TestParseHeader(t *testing.T) {
	tab := New(Env{}).Table()
	for i := range tab.Entries() {
		e := &tab.Entries()[i]
		for v := e.Accept; v <= e.Max; v++ {
			req := kmsg.RequestForKey(e.Key)
			h, body, err := tab.ParseHeader(frameOf(req, v))
			if err != nil || h.Key != e.Key || h.Version != v || h.CorrelationID != 7 || h.ClientID == nil || *h.ClientID != "abc" {
				t.Fatalf("key %d v%d: header %+v, %v", e.Key, v, h, err)
			}
			if want := req.AppendTo(nil); !bytes.Equal(body, want) {
				t.Fatalf("key %d v%d: body %x, want %x", e.Key, v, body, want)
			}
		}
	}
}

func TestDispatchRefuses(t *testing.T) {
	h := New(Env{})
	for name, tc := range map[string]struct {
		frame []byte
		want  error
	}{
		"empty":             {nil, ErrMalformed},
		"unknown key":       {frameOf(kmsg.NewPtrControlledShutdownRequest(), 0), ErrUnsupported},
		"old Produce":       {frameOf(kmsg.NewPtrProduceRequest(), 2), ErrUnsupported},
		"old Fetch":         {frameOf(kmsg.NewPtrFetchRequest(), 3), ErrUnsupported},
		"cut":               {frameOf(kmsg.NewPtrFetchRequest(), 12)[:20], ErrMalformed},
		"client id too far": {append(frameOf(kmsg.NewPtrFetchRequest(), 4)[:8], 0x7f, 0xff, 'a'), ErrMalformed},
	} {
		_, err := h.Dispatch(t.Context(), &ConnInfo{}, tc.frame, time.Now())
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

func TestApiVersions(t *testing.T) {
	h := New(Env{})
	call := func(v int16, software string) *kmsg.ApiVersionsResponse {
		t.Helper()
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = software, "1.0"
		conn := &ConnInfo{}
		c, err := h.Dispatch(t.Context(), conn, frameOf(req, v), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return c.Response.(*kmsg.ApiVersionsResponse)
	}
	for v := int16(0); v <= 5; v++ {
		resp := call(v, "test-client")
		if resp.ErrorCode != 0 || len(resp.ApiKeys) != len(h.Table().Entries()) || resp.Version != v {
			t.Fatalf("v%d: %+v", v, resp)
		}
		if resp.ApiKeys[0].ApiKey != 0 || resp.ApiKeys[0].MinVersion != 0 || resp.ApiKeys[0].MaxVersion != 13 {
			t.Fatalf("v%d: Produce is told as %+v; librdkafka needs 0", v, resp.ApiKeys[0])
		}
	}
	if resp := call(3, "bad name!"); resp.ErrorCode != 42 {
		t.Fatalf("software with a blank: %d, want INVALID_REQUEST", resp.ErrorCode)
	}
	unknown := binary.BigEndian.AppendUint16(nil, 18)
	unknown = binary.BigEndian.AppendUint16(unknown, 99)
	unknown = append(unknown, 0, 0, 0, 9, 0xff)
	c, err := h.Dispatch(t.Context(), &ConnInfo{}, unknown, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	resp := c.Response.(*kmsg.ApiVersionsResponse)
	if resp.ErrorCode != 35 || resp.Version != 0 || len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != 18 || resp.ApiKeys[0].MaxVersion != 5 {
		t.Fatalf("unknown version: %+v", resp)
	}
}

// TestProtocolPage compares docs/protocol.md with the table.
func TestProtocolPage(t *testing.T) {
	got, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != New(Env{}).Table().Markdown() {
		t.Fatal("docs/protocol.md is not what the table says: go run ./broker/api/gen > docs/protocol.md")
	}
}

// TestDecodeAllocatesInProportion feeds every decoder with frames whose array lengths promise the most that a frame can.
func TestDecodeAllocatesInProportion(t *testing.T) {
	tab := New(Env{}).Table()
	const size = 256 << 10
	for i := range tab.Entries() {
		e := &tab.Entries()[i]
		for v := e.Accept; v <= e.Max; v++ {
			for _, fill := range []byte{0x00, 0x01, 0x02, 0x7f} {
				body := bytes.Repeat([]byte{fill}, size)
				for _, at := range []int{0, 1, 2, 4, 6, 8} { // an array length early on
					binary.BigEndian.PutUint32(body[at:], size-64)
				}
				if got := allocated(func() { _, _ = decode(e.Key, v, body) }); got > 64*size {
					t.Errorf("%s v%d: %d bytes of 0x%02x decode to %d bytes, %d times as much", e.Name, v, size, fill, got, got/size)
				}
			}
		}
	}
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestCheckProduceFrame(t *testing.T) {
	req := kmsg.NewPtrProduceRequest()
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "t"
	for i := range int32(3000) {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = i, make([]byte, 500)
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	for v := int16(3); v <= 13; v++ {
		req.Version = v
		if err := checkProduceFrame(v, req.AppendTo(nil)); err != nil {
			t.Fatalf("v%d: an honest request is refused: %v", v, err)
		}
	}
	for i := range req.Topics[0].Partitions {
		req.Topics[0].Partitions[i].Records = nil
	}
	for len(req.Topics[0].Partitions) < 1<<18 {
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, req.Topics[0].Partitions[0])
	}
	for v := int16(3); v <= 13; v++ {
		req.Version = v
		if err := checkProduceFrame(v, req.AppendTo(nil)); !errors.Is(err, ErrMalformed) {
			t.Fatalf("v%d: a quarter of a million empty partitions: %v", v, err)
		}
	}
}

// FuzzDecode runs every request decoder over arbitrary bytes: no panic, and what decodes encodes again.
func FuzzDecode(f *testing.F) {
	h := New(Env{})
	for i := range h.table.entries {
		e := &h.table.entries[i]
		f.Add(frameOf(kmsg.RequestForKey(e.Key), e.Accept))
		f.Add(frameOf(kmsg.RequestForKey(e.Key), e.Max))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		hdr, body, err := h.table.ParseHeader(frame)
		if err != nil {
			return
		}
		e := h.table.Lookup(hdr.Key)
		if e == nil || !e.serves(hdr.Version) {
			return
		}
		if e.CheckFrame != nil && e.CheckFrame(hdr.Version, body) != nil {
			return
		}
		req, err := decode(hdr.Key, hdr.Version, body)
		if err != nil {
			return
		}
		req.AppendTo(nil)
	})
}
