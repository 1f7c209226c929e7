package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/internal/record"
)

func TestBatchIsExact(t *testing.T) {
	for _, size := range []int{smallBatch, largeBatch} {
		for _, value := range []int{100, 1024} {
			b := newBatch(size, value)
			h, err := record.ParseHeader(b.bytes)
			if err != nil {
				t.Fatal(err)
			}
			if err := record.VerifyBatch(b.bytes); err != nil {
				t.Fatal(err)
			}
			perRecord := size / b.records
			if len(b.bytes) != size || int(h.NumRecords) != b.records || perRecord < value || perRecord > value*5/4 {
				t.Errorf("%d of %d: %d bytes, %d records, header says %d", size, value, len(b.bytes), b.records, h.NumRecords)
			}
		}
	}
}

// answering returns a client whose peer reads one request and answers it.
func answering(t *testing.T, resp kmsg.Response) *client {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { _ = here.Close() })
	go func() {
		defer func() { _ = there.Close() }()
		var head [4]byte
		for {
			if _, err := io.ReadFull(there, head[:]); err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, there, int64(binary.BigEndian.Uint32(head[:]))); err != nil {
				return
			}
			b := resp.AppendTo([]byte{0, 0, 0, 0, 0, 0, 0, 1, 0})
			binary.BigEndian.PutUint32(b, uint32(len(b)-4))
			if _, err := there.Write(b); err != nil {
				return
			}
		}
	}()
	return &client{nc: here, r: bufio.NewReader(here)}
}

func TestProduceAnswer(t *testing.T) {
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = produceVersion
	rt := kmsg.NewProduceResponseTopic()
	rt.Topic = "some-topic"
	rt.Partitions = append(rt.Partitions, kmsg.NewProduceResponseTopicPartition())
	rt.Partitions[0].Partition = 3
	resp.Topics = append(resp.Topics, rt)
	b := newBatch(smallBatch, 100)
	c := answering(t, resp)
	for range 2 { // the second finds nothing left of the first
		if err := c.produceOne(b, "some-topic", 3); err != nil {
			t.Fatal(err)
		}
	}
	resp.Topics[0].Partitions[0].ErrorCode = kerr.KafkaStorageError.Code
	c = answering(t, resp)
	for range 2 {
		if err := c.produceOne(b, "some-topic", 3); !errors.Is(err, kerr.KafkaStorageError) {
			t.Fatalf("a refused produce: %v", err)
		}
	}
}

func TestFetchCountsWholeBatches(t *testing.T) {
	b := newBatch(smallBatch, 100)
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = fetchVersion
	ft := kmsg.NewFetchResponseTopic()
	ft.Topic = "topic"
	fp := kmsg.NewFetchResponseTopicPartition()
	fp.RecordBatches = append(append(append([]byte(nil), b.bytes...), b.bytes...), b.bytes[:1000]...)
	ft.Partitions = append(ft.Partitions, fp)
	resp.Topics = append(resp.Topics, ft)
	f := newFetcher(answering(t, resp), "topic", 0, b, 1<<20, fetchWait)
	for range 2 {
		if n, err := f.fetch(7); n != 2*smallBatch || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
	var req kmsg.FetchRequest
	req.Version = fetchVersion
	body := f.frame[4+8+2+len("bench")+1:]
	if err := req.ReadFrom(body); err != nil || req.Topics[0].Partitions[0].FetchOffset != 7 {
		t.Fatalf("the request has %+v, %v", req.Topics, err)
	}
	resp.Topics[0].Partitions[0].ErrorCode = kerr.OffsetOutOfRange.Code
	if _, err := newFetcher(answering(t, resp), "topic", 0, b, 1<<20, fetchWait).fetch(7); !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Fatalf("a refused fetch: %v", err)
	}
}

func TestPercentile(t *testing.T) {
	var d []time.Duration
	for i := 100; i > 0; i-- {
		d = append(d, time.Duration(i)*time.Millisecond)
	}
	for p, want := range map[float64]float64{50: 50, 99: 99, 100: 100, 0: 1} {
		if got := percentile(d, p); got != want {
			t.Errorf("p%g is %g, want %g", p, got, want)
		}
	}
}

func TestTicks(t *testing.T) {
	stat := "1 (a b) c) S 1 1 1 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0 5 6 7"
	if got := ticksOf(stat); got != 100 {
		t.Errorf("%d ticks, want 100", got)
	}
}

func TestTreeHasChildren(t *testing.T) {
	p, err := startProcess("sh", t.TempDir()+"/log", nil, "sh", "-c", "sleep 100 & wait")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, pid := range p.tree()[1:] {
			if c, err := os.FindProcess(pid); err == nil {
				_ = c.Kill()
			}
		}
		_ = p.cmd.Process.Kill()
		<-p.done
	}()
	err = p.await(t.Context(), 10*time.Second, time.Millisecond, "a child", func() error {
		if now, peak := p.memory(); len(p.tree()) != 2 || now <= 0 || peak < now {
			return errors.New("no child yet")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTable(t *testing.T) {
	r := &results{Rounds: 3, marks: []mark{
		{scenario: "s", metric: "CPU", bound: 0.5}, {scenario: "s", metric: "rate", bound: 2, atLeast: true}, {scenario: "s", metric: "alone", bound: 5, absolute: true}}}
	for round, v := range []float64{1000, 1, 3, 2} { // the first does not count
		r.add(sample{"s", "varve", round, map[string]float64{"CPU": v, "rate": 10 * v, "alone": v}})
		r.add(sample{"s", "other", round, map[string]float64{"CPU": 5 * v, "rate": 10 * v}})
	}
	got := r.table()
	for _, want := range []string{
		"| s | CPU | 2.00 (1.00–3.00) | 10.0 (5.00–15.0) | 0.20 | ≤ 0.5 × | met |",
		"| s | rate | 20.0 (10.0–30.0) | 20.0 (10.0–30.0) | 1.00 | ≥ 2 × | short |",
		"| s | alone | 2.00 (1.00–3.00) | – | – | ≤ 5 | met |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
}
