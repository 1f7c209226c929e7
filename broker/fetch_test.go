package broker_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/objstore/mem"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tests/harness"
)

func topicID(t testing.TB, n *harness.Node, topic string) kafka.UUID {
	t.Helper()
	p, err := n.Partitions().Get(topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	return p.TopicID()
}

func TestTopicIDs(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 1)
	id := topicID(t, n, "t")
	r := dial(t, n.Bootstrap())
	pr := produceReq("", 0, -1, batchOf("by id"))
	pr.Topics[0].TopicID = id
	presp := kmsg.NewPtrProduceResponse()
	r.call(pr, presp, 13)
	if got := presp.Topics[0]; got.TopicID != id || got.Partitions[0].ErrorCode != 0 {
		t.Fatalf("%+v", got)
	}
	pr.Topics[0].TopicID = kafka.NewUUID()
	pr.Topics[0].Partitions[0].Records = batchOf("nowhere")
	r.call(pr, presp, 13)
	if code := presp.Topics[0].Partitions[0].ErrorCode; code != kerr.UnknownTopicID.Code {
		t.Fatalf("produce to an unknown id: code %d", code)
	}
	for v := int16(13); v <= 18; v++ {
		fr := fetchReq("", 0, 0, 0, 1)
		fr.Topics[0].TopicID = id
		fresp := kmsg.NewPtrFetchResponse()
		r.call(fr, fresp, v)
		if got := fresp.Topics[0]; got.TopicID != id || !bytes.Contains(got.Partitions[0].RecordBatches, []byte("by id")) {
			t.Fatalf("v%d: %+v", v, got)
		}
		fr.Topics[0].TopicID = kafka.NewUUID()
		r.call(fr, fresp, v)
		if code := fresp.Topics[0].Partitions[0].ErrorCode; code != kerr.UnknownTopicID.Code {
			t.Fatalf("v%d: fetch of an unknown id: code %d", v, code)
		}
	}
}

// TestSessionOverTheWire: only news is answered, and a topic made again under its name is found again.
func TestSessionOverTheWire(t *testing.T) {
	n := harness.Start(t)
	c := n.Client()
	createTopic(t, c, "t", 3)
	r, w := dial(t, n.Bootstrap()), dial(t, n.Bootstrap())
	first := fetchReq("t", 0, 0, 0, 1)
	first.SessionEpoch = 0
	for i := int32(1); i < 3; i++ {
		p := first.Topics[0].Partitions[0]
		p.Partition = i
		first.Topics[0].Partitions = append(first.Topics[0].Partitions, p)
	}
	resp := kmsg.NewPtrFetchResponse()
	r.call(first, resp, 12)
	if resp.ErrorCode != 0 || resp.SessionID == 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 3 {
		t.Fatalf("%+v", resp)
	}
	id := resp.SessionID
	next := func(epoch int32, wait time.Duration) *kmsg.FetchRequest {
		req := fetchReq("t", 0, 0, wait, 1)
		req.Topics = nil
		req.SessionID, req.SessionEpoch = id, epoch
		return req
	}
	r.call(next(1, 0), resp, 12)
	if resp.ErrorCode != 0 || len(resp.Topics) != 0 {
		t.Fatalf("nothing new, and the answer is %+v", resp)
	}
	r.send(next(2, time.Hour), 12) // an empty request parks on all partitions of the session
	w.call(produceReq("t", 2, -1, batchOf("news")), kmsg.NewPtrProduceResponse(), 9)
	r.recv(3, resp, 12)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Partition != 2 ||
		!bytes.Contains(resp.Topics[0].Partitions[0].RecordBatches, []byte("news")) {
		t.Fatalf("%+v", resp)
	}
	r.call(next(9, 0), resp, 12)
	if resp.ErrorCode != kerr.InvalidFetchSessionEpoch.Code {
		t.Fatalf("a wrong epoch got code %d", resp.ErrorCode)
	}
	// The topic is deleted and made again: a session by name goes on with the new topic.
	if _, err := kadm.NewClient(c).DeleteTopic(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	r.call(next(3, 0), resp, 12)
	if len(resp.Topics[0].Partitions) != 3 || resp.Topics[0].Partitions[0].ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Fatalf("after the deletion: %+v", resp)
	}
	createTopic(t, c, "t", 3)
	r.call(next(4, 0), resp, 12)
	if len(resp.Topics[0].Partitions) != 3 || resp.Topics[0].Partitions[0].ErrorCode != 0 || resp.Topics[0].Partitions[0].HighWatermark != 0 {
		t.Fatalf("after it was made again: %+v", resp)
	}
}

// TestReadCommitted writes transactions as a coordinator would and reads them at both isolation levels.
func TestReadCommitted(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 1)
	p, err := n.Partitions().Get("t", 0)
	if err != nil {
		t.Fatal(err)
	}
	put := func(b []byte) int64 {
		t.Helper()
		a, err := p.Append(b, partition.AppendOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.WaitCommitted(t.Context(), a.LastOffset); err != nil {
			t.Fatal(err)
		}
		return a.FirstOffset
	}
	txn := func(pid int64, seq int32, v string) {
		b := record.NewBuilder(record.BuilderOptions{Transactional: true, Producer: &record.Producer{ID: pid, BaseSequence: seq}})
		b.Append(time.Now().UnixMilli(), nil, []byte(v), nil)
		put(b.Batch(0))
	}
	put(batchOf("plain"))                                                                              // 0
	txn(7, 0, "aborted")                                                                               // 1
	txn(8, 0, "committed")                                                                             // 2
	put(record.NewMarkerBatch(record.Marker{Type: record.AbortMarker}, 7, 0, time.Now().UnixMilli()))  // 3
	put(record.NewMarkerBatch(record.Marker{Type: record.CommitMarker}, 8, 0, time.Now().UnixMilli())) // 4
	txn(9, 0, "open")                                                                                  // 5
	put(batchOf("behind"))                                                                             // 6
	r := dial(t, n.Bootstrap())
	for _, committed := range []bool{false, true} {
		req := fetchReq("t", 0, 0, 0, 1)
		if committed {
			req.IsolationLevel = 1
		}
		resp := kmsg.NewPtrFetchResponse()
		r.call(req, resp, 12)
		got := resp.Topics[0].Partitions[0]
		if got.HighWatermark != 7 || got.LastStableOffset != 5 {
			t.Fatalf("high watermark %d, last stable offset %d", got.HighWatermark, got.LastStableOffset)
		}
		if has := bytes.Contains(got.RecordBatches, []byte("behind")); has == committed {
			t.Fatalf("read_committed=%v sees what is behind an open transaction: %v", committed, has)
		}
		if !committed && got.AbortedTransactions != nil {
			t.Fatal("read_uncommitted is told aborted transactions")
		}
		if committed && (len(got.AbortedTransactions) != 1 || got.AbortedTransactions[0].ProducerID != 7 || got.AbortedTransactions[0].FirstOffset != 1) {
			t.Fatalf("aborted: %+v", got.AbortedTransactions)
		}
	}
	var values []string
	for _, rec := range consumeN(t, n.Client(consumerOf("t", 0, kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted())), 2) {
		values = append(values, string(rec.Value))
	}
	if strings.Join(values, ",") != "plain,committed" {
		t.Fatalf("a client reads %v", values)
	}
	if off, _ := listOffset(t, r, "t", partition.Latest); off != 7 {
		t.Fatalf("latest is %d", off)
	}
	// From outside no batch is taken of a transaction that nobody began.
	b := record.NewBuilder(record.BuilderOptions{Transactional: true, Producer: &record.Producer{ID: 10}})
	b.Append(1, nil, []byte("v"), nil)
	resp := kmsg.NewPtrProduceResponse()
	r.call(produceReq("t", 0, -1, b.Batch(0)), resp, 9)
	if code := resp.Topics[0].Partitions[0].ErrorCode; code != kerr.TransactionalIDAuthorizationFailed.Code {
		t.Fatalf("a batch of no transaction: code %d", code)
	}
}

// TestLeaderEpochs: every start of the broker leads in a new epoch, and clients find where their log and this one agree.
func TestLeaderEpochs(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 1)
	var ends []int64
	var epochs []int32
	for range 3 {
		r := dial(t, n.Bootstrap())
		r.call(produceReq("t", 0, -1, batchOf("a", "b")), kmsg.NewPtrProduceResponse(), 9)
		p, err := n.Partitions().Get("t", 0)
		if err != nil {
			t.Fatal(err)
		}
		_, epoch := p.Leader()
		epochs, ends = append(epochs, epoch), append(ends, p.EndOffset())
		n.Restart()
	}
	if epochs[1] <= epochs[0] || epochs[2] <= epochs[1] {
		t.Fatalf("leader epochs %v over restarts", epochs)
	}
	r := dial(t, n.Bootstrap())
	for i, epoch := range epochs {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		tp := kmsg.NewOffsetForLeaderEpochRequestTopic()
		tp.Topic = "t"
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.CurrentLeaderEpoch, p.LeaderEpoch = -1, epoch
		tp.Partitions = append(tp.Partitions, p)
		req.Topics = append(req.Topics, tp)
		resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
		r.call(req, resp, 4)
		if got := resp.Topics[0].Partitions[0]; got.ErrorCode != 0 || got.LeaderEpoch != epoch || got.EndOffset != ends[i] {
			t.Fatalf("epoch %d: %+v, want the end %d", epoch, got, ends[i])
		}
	}
	// A client whose log of the first epoch is longer than it was is told where to cut.
	req := fetchReq("t", 0, 5, 0, 1)
	req.Topics[0].Partitions[0].LastFetchedEpoch = epochs[0]
	resp := kmsg.NewPtrFetchResponse()
	r.call(req, resp, 12)
	if got := resp.Topics[0].Partitions[0]; got.DivergingEpoch.Epoch != epochs[0] || got.DivergingEpoch.EndOffset != ends[0] || len(got.RecordBatches) != 0 {
		t.Fatalf("diverging epoch %+v, want %d at %d", got.DivergingEpoch, epochs[0], ends[0])
	}
	// The epoch of an earlier life is fenced.
	req = fetchReq("t", 0, 0, 0, 1)
	req.Topics[0].Partitions[0].CurrentLeaderEpoch = epochs[0]
	r.call(req, resp, 12)
	if code := resp.Topics[0].Partitions[0].ErrorCode; code != kerr.FencedLeaderEpoch.Code {
		t.Fatalf("an old leader epoch: code %d", code)
	}
}

// TestFetchLimits: partition.max.bytes, max.bytes, and one batch in any case.
func TestFetchLimits(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 2)
	r := dial(t, n.Bootstrap())
	batch := len(batchOf(strings.Repeat("x", 1000)))
	for i := range 20 {
		r.call(produceReq("t", int32(i%2), -1, batchOf(strings.Repeat("x", 1000))), kmsg.NewPtrProduceResponse(), 9)
	}
	for name, tc := range map[string]struct{ max, partition, first, second int }{
		"all":                   {1 << 20, 1 << 20, 10, 10},
		"per partition":         {1 << 20, 3*batch + 5, 3, 3},
		"the whole":             {4*batch + 1, 1 << 20, 4, 0},
		"split":                 {5 * batch, 3 * batch, 3, 2},
		"smaller than a batch":  {10, 10, 1, 0},
		"nothing but one batch": {0, 0, 1, 0},
	} {
		req := fetchReq("t", 0, 0, 0, 1)
		req.MaxBytes = int32(tc.max)
		req.Topics[0].Partitions[0].PartitionMaxBytes = int32(tc.partition)
		second := req.Topics[0].Partitions[0]
		second.Partition = 1
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, second)
		resp := kmsg.NewPtrFetchResponse()
		r.call(req, resp, 12)
		for i, want := range []int{tc.first, tc.second} {
			if got := len(resp.Topics[0].Partitions[i].RecordBatches); got != want*batch {
				t.Errorf("%s: partition %d gave %d bytes, want %d batches of %d", name, i, got, want, batch)
			}
		}
	}
}

// TestParkedFetchesHoldLittle: a thousand waiting consumers have two goroutines each, and all of them wake.
func TestParkedFetchesHoldLittle(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 1)
	const conns = 1000
	before := runtime.NumGoroutine()
	var all []*raw
	for range conns {
		r := dial(t, n.Bootstrap())
		r.send(fetchReq("t", 0, 0, time.Hour, 1), 12)
		all = append(all, r)
	}
	want := fetchBytes(n)
	for deadline := time.Now().Add(20 * time.Second); n.Counter("varve_broker_connections") < conns || fetchBytes(n) < want; {
		if time.Now().After(deadline) {
			t.Fatal("not all connections are served")
		}
		want = fetchBytes(n)
		runtime.Gosched()
	}
	if got := runtime.NumGoroutine() - before; got > 2*conns+20 {
		t.Fatalf("%d goroutines for %d connections", got, conns)
	}
	w := dial(t, n.Bootstrap())
	w.call(produceReq("t", 0, -1, batchOf("wake all")), kmsg.NewPtrProduceResponse(), 9)
	for _, r := range all {
		resp := kmsg.NewPtrFetchResponse()
		r.recv(1, resp, 12)
		if len(resp.Topics[0].Partitions[0].RecordBatches) == 0 {
			t.Fatal("woken without records")
		}
	}
}

func TestConnectionLimit(t *testing.T) {
	n := harness.Start(t, harness.WithKafka("max.connections.per.ip", "2"))
	a, b := dial(t, n.Bootstrap()), dial(t, n.Bootstrap())
	for _, r := range []*raw{a, b} {
		r.call(kmsg.NewPtrApiVersionsRequest(), kmsg.NewPtrApiVersionsResponse(), 2)
	}
	c := dial(t, n.Bootstrap())
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatal("a third connection is served")
	}
	a.call(kmsg.NewPtrApiVersionsRequest(), kmsg.NewPtrApiVersionsResponse(), 2)
}

// TestIdleConnectionsClose: but not one that waits for an answer.
func TestIdleConnectionsClose(t *testing.T) {
	n := harness.Start(t, harness.WithKafka("connections.max.idle.ms", "100"))
	createTopic(t, n.Client(), "t", 1)
	idle, waiting := dial(t, n.Bootstrap()), dial(t, n.Bootstrap())
	waiting.send(fetchReq("t", 0, 0, 500*time.Millisecond, 1), 12)
	if _, err := idle.Read(make([]byte, 1)); err == nil {
		t.Fatal("an idle connection was sent something")
	}
	waiting.recv(1, kmsg.NewPtrFetchResponse(), 12)
}

// TestLostDiskGoesOnBehindTheBucket: with the local log gone, what is in the bucket is read, and no offset is given twice.
func TestLostDiskGoesOnBehindTheBucket(t *testing.T) {
	n := harness.Start(t, harness.WithBucket(mem.New(time.Now)), harness.WithConfig(quietTier))
	tieredTopic(t, n, "t", 3000, time.Now().UnixMilli())
	r := dial(t, n.Bootstrap())
	tiered, _ := listOffset(t, r, "t", partition.LatestTiered)
	n.Stop()
	if err := os.RemoveAll(filepath.Join(n.DataDir(), "logs")); err != nil {
		t.Fatal(err)
	}
	n.Restart()
	r = dial(t, n.Bootstrap())
	resp := kmsg.NewPtrProduceResponse()
	r.call(produceReq("t", 0, -1, batchOf("after the loss")), resp, 9)
	if got := resp.Topics[0].Partitions[0]; got.ErrorCode != 0 || got.BaseOffset != tiered+1 {
		t.Fatalf("the next record got code %d offset %d, the bucket ends with %d", got.ErrorCode, got.BaseOffset, tiered)
	}
	recs := consumeN(t, n.Client(consumerOf("t", 0, kgo.NewOffset().AtStart())), int(tiered)+2)
	for i, rec := range recs[:tiered+1] {
		if rec.Offset != int64(i) || !bytes.Equal(rec.Value, tierValue(i)) {
			t.Fatalf("record %d came as offset %d", i, rec.Offset)
		}
	}
	if last := recs[tiered+1]; string(last.Value) != "after the loss" {
		t.Fatalf("the last record is %q", last.Value)
	}
}
