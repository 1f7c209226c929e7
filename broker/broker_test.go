package broker_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/varvehq/varve/broker"
	"github.com/varvehq/varve/broker/internal/buffer"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tests/harness"
)

func TestMain(m *testing.M) {
	buffer.SetPoison(true)
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(goleak.IgnoreTopFunction("github.com/klauspost/compress/zstd.(*blockDec).startDecoder")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func createTopic(t testing.TB, c *kgo.Client, name string, partitions int32, configs ...string) {
	t.Helper()
	cfg := map[string]*string{}
	for i := 0; i+1 < len(configs); i += 2 {
		cfg[configs[i]] = kadm.StringPtr(configs[i+1])
	}
	if _, err := kadm.NewClient(c).CreateTopic(t.Context(), partitions, 1, cfg, name); err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
}

func produceN(t testing.TB, c *kgo.Client, topic string, from, n int) {
	t.Helper()
	var recs []*kgo.Record
	for i := range n {
		recs = append(recs, &kgo.Record{Topic: topic, Partition: 0, Key: fmt.Appendf(nil, "k%d", from+i), Value: value(from + i)})
	}
	if err := c.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatalf("produce to %s: %v", topic, err)
	}
}

func value(i int) []byte { return fmt.Appendf(nil, "value-%06d-%s", i, strings.Repeat("x", i%100)) }

func consumeN(t testing.TB, c *kgo.Client, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out []*kgo.Record
	for len(out) < n {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", len(out), n, err)
		}
		out = append(out, f.Records()...)
	}
	return out
}

func consumerOf(topic string, partition int32, at kgo.Offset) kgo.Opt {
	return kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: at}})
}

func TestProduceConsumeAllCodecs(t *testing.T) {
	n := harness.Start(t)
	for name, codec := range map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()} {
		for _, acks := range []kgo.Acks{kgo.AllISRAcks(), kgo.LeaderAck()} {
			topic := fmt.Sprintf("%s-%v", name, acks)
			opts := []kgo.Opt{kgo.ProducerBatchCompression(codec), kgo.RequiredAcks(acks), kgo.RecordPartitioner(kgo.ManualPartitioner())}
			if acks != kgo.AllISRAcks() {
				opts = append(opts, kgo.DisableIdempotentWrite())
			}
			topic = strings.Map(func(r rune) rune {
				if r == '{' || r == '}' || r == ' ' {
					return '.'
				}
				return r
			}, topic)
			c := n.Client(opts...)
			createTopic(t, c, topic, 1)
			produceN(t, c, topic, 0, 1000)
			for i, r := range consumeN(t, n.Client(consumerOf(topic, 0, kgo.NewOffset().AtStart())), 1000) {
				if r.Offset != int64(i) || !bytes.Equal(r.Value, value(i)) || string(r.Key) != fmt.Sprintf("k%d", i) {
					t.Fatalf("%s: record %d came as offset %d, %q", topic, i, r.Offset, r.Value)
				}
			}
		}
	}
}

func TestRestartKeepsData(t *testing.T) {
	n := harness.Start(t)
	c := n.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	createTopic(t, c, "kept", 3)
	produceN(t, c, "kept", 0, 500)
	for range 2 {
		n.Restart()
	}
	produceN(t, c, "kept", 500, 500)
	for i, r := range consumeN(t, n.Client(consumerOf("kept", 0, kgo.NewOffset().AtStart())), 1000) {
		if r.Offset != int64(i) || !bytes.Equal(r.Value, value(i)) {
			t.Fatalf("record %d came as offset %d, %q", i, r.Offset, r.Value)
		}
	}
}

func TestAutoCreateAndGroups(t *testing.T) {
	n := harness.Start(t)
	c := n.Client(kgo.AllowAutoTopicCreation())
	produceN(t, c, "made-by-asking", 0, 100)
	g := n.Client(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("made-by-asking"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit())
	if got := consumeN(t, g, 100); len(got) != 100 {
		t.Fatalf("%d records", len(got))
	}
	if err := g.CommitUncommittedOffsets(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.Close()
	n.Restart()
	produceN(t, c, "made-by-asking", 100, 10)
	g = n.Client(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("made-by-asking"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if got := consumeN(t, g, 10); !bytes.Equal(got[0].Value, value(100)) {
		t.Fatalf("after the restart the group goes on at %q", got[0].Value)
	}
	topics, err := kadm.NewClient(c).ListTopicsWithInternal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := len(topics["__consumer_offsets"].Partitions); got != 50 {
		t.Fatalf("__consumer_offsets has %d partitions, want 50", got)
	}
}

// raw is a connection that sends and reads whole frames.
type raw struct {
	t testing.TB
	net.Conn
	corr int32
}

func dial(t testing.TB, addr string) *raw {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &raw{t: t, Conn: c}
}

func (r *raw) send(req kmsg.Request, version int16) {
	r.t.Helper()
	req.SetVersion(version)
	r.corr++
	id := "raw"
	b := kmsg.NewRequestFormatter(kmsg.FormatterClientID(id)).AppendRequest(nil, req, r.corr)
	if _, err := r.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

// recv reads the answer to the request with a correlation id.
func (r *raw) recv(corr int32, resp kmsg.Response, version int16) {
	r.t.Helper()
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		r.t.Fatalf("answer %d: %v", corr, err)
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		r.t.Fatalf("answer %d: %v", corr, err)
	}
	if got := int32(binary.BigEndian.Uint32(b)); got != corr {
		r.t.Fatalf("answer to %d where that to %d is due", got, corr)
	}
	b = b[4:]
	resp.SetVersion(version)
	if resp.IsFlexible() && resp.Key() != 18 {
		b = b[1:]
	}
	if err := resp.ReadFrom(b); err != nil {
		r.t.Fatalf("answer %d does not decode: %v", corr, err)
	}
}

func (r *raw) call(req kmsg.Request, resp kmsg.Response, version int16) {
	r.t.Helper()
	r.send(req, version)
	r.recv(r.corr, resp, version)
}

func batchOf(values ...string) []byte {
	b := record.NewBuilder(record.BuilderOptions{})
	for _, v := range values {
		b.Append(time.Now().UnixMilli(), nil, []byte(v), nil)
	}
	return b.Batch(0)
}

func produceReq(topic string, partition int32, acks int16, batch []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 10000
	tp := kmsg.NewProduceRequestTopic()
	tp.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, batch
	tp.Partitions = append(tp.Partitions, p)
	req.Topics = append(req.Topics, tp)
	return req
}

func TestProduceErrors(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 1, "max.message.bytes", "2000")
	createTopic(t, n.Client(), "two", 1, "min.insync.replicas", "2")
	r := dial(t, n.Bootstrap())
	corrupt := batchOf("a")
	corrupt[len(corrupt)-1] ^= 1
	old := batchOf("a")
	old[16] = 1
	control := batchOf("a")
	control[22] |= 0x20
	zstd := record.NewBuilder(record.BuilderOptions{Codec: record.Zstd})
	zstd.Append(1, nil, []byte("v"), nil)
	for name, tc := range map[string]struct {
		topic     string
		partition int32
		acks      int16
		batch     []byte
		version   int16
		want      *kerr.Error
	}{
		"unknown topic":     {"none", 0, 1, batchOf("a"), 9, kerr.UnknownTopicOrPartition},
		"unknown partition": {"t", 1, 1, batchOf("a"), 9, kerr.UnknownTopicOrPartition},
		"acks 2":            {"t", 0, 2, batchOf("a"), 9, kerr.InvalidRequiredAcks},
		"corrupt":           {"t", 0, 1, corrupt, 9, kerr.CorruptMessage},
		"magic 1":           {"t", 0, 1, old, 9, kerr.InvalidRecord},
		"no batch":          {"t", 0, 1, nil, 9, kerr.InvalidRecord},
		"two batches":       {"t", 0, 1, append(batchOf("a"), batchOf("b")...), 9, kerr.InvalidRecord},
		"cut batch":         {"t", 0, 1, batchOf("abcdef")[:65], 9, kerr.InvalidRecord},
		"control":           {"t", 0, 1, control, 9, kerr.InvalidRecord},
		"too large":         {"t", 0, 1, batchOf(strings.Repeat("x", 3000)), 9, kerr.MessageTooLarge},
		"early zstd":        {"t", 0, 1, zstd.Batch(0), 6, kerr.UnsupportedCompressionType},
		"internal":          {"__consumer_offsets", 0, 1, batchOf("a"), 9, kerr.UnknownTopicOrPartition},
		"replicas":          {"two", 0, -1, batchOf("a"), 9, kerr.NotEnoughReplicas},
	} {
		resp := kmsg.NewPtrProduceResponse()
		r.call(produceReq(tc.topic, tc.partition, tc.acks, tc.batch), resp, tc.version)
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode != tc.want.Code || p.BaseOffset != -1 {
			t.Errorf("%s: code %d (%v), base offset %d, want %v", name, p.ErrorCode, kerr.ErrorForCode(p.ErrorCode), p.BaseOffset, tc.want)
		}
	}
	// The connection still serves, and nothing of all that is in the log.
	resp := kmsg.NewPtrProduceResponse()
	r.call(produceReq("t", 0, -1, batchOf("good")), resp, 9)
	if p := resp.Topics[0].Partitions[0]; p.ErrorCode != 0 || p.BaseOffset != 0 {
		t.Fatalf("a good batch: code %d offset %d", p.ErrorCode, p.BaseOffset)
	}
}

// A compacted topic refuses records without a key, each by its index, whatever the codec (KIP-467).
func TestCompactedTopicNeedsKeys(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "c", 1, "cleanup.policy", "compact")
	r := dial(t, n.Bootstrap())
	for codec := record.None; codec <= record.Zstd; codec++ {
		b := record.NewBuilder(record.BuilderOptions{Codec: codec})
		b.Append(1, []byte("k"), []byte("v"), nil)
		b.Append(1, nil, []byte("v"), nil)
		b.Append(1, []byte{}, nil, nil)
		b.Append(1, nil, nil, nil)
		resp := kmsg.NewPtrProduceResponse()
		r.call(produceReq("c", 0, -1, b.Batch(0)), resp, 9)
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode != kerr.InvalidRecord.Code || len(p.ErrorRecords) != 2 || p.ErrorRecords[0].RelativeOffset != 1 ||
			p.ErrorRecords[1].RelativeOffset != 3 || p.ErrorMessage == nil {
			t.Fatalf("%v: %+v", codec, p)
		}
		if want := "Compacted topic cannot accept message without key in topic partition c-0."; *p.ErrorRecords[0].ErrorMessage != want {
			t.Fatalf("message %q", *p.ErrorRecords[0].ErrorMessage)
		}
	}
	b := record.NewBuilder(record.BuilderOptions{})
	b.Append(1, []byte("k"), nil, nil)
	resp := kmsg.NewPtrProduceResponse()
	r.call(produceReq("c", 0, -1, b.Batch(0)), resp, 9)
	if p := resp.Topics[0].Partitions[0]; p.ErrorCode != 0 || p.BaseOffset != 0 {
		t.Fatalf("%+v", p)
	}
}

func TestDeleteRecords(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 1)
	createTopic(t, n.Client(), "c", 1, "cleanup.policy", "compact")
	produceN(t, n.Client(), "t", 0, 10)
	r := dial(t, n.Bootstrap())
	ask := func(topic string, partition int32, offset int64) (int16, int64) {
		t.Helper()
		req := kmsg.NewPtrDeleteRecordsRequest()
		rt := kmsg.NewDeleteRecordsRequestTopic()
		rt.Topic = topic
		rt.Partitions = []kmsg.DeleteRecordsRequestTopicPartition{{Partition: partition, Offset: offset}}
		req.Topics = append(req.Topics, rt)
		resp := kmsg.NewPtrDeleteRecordsResponse()
		r.call(req, resp, 2)
		p := resp.Topics[0].Partitions[0]
		return p.ErrorCode, p.LowWatermark
	}
	for _, tc := range []struct {
		topic     string
		partition int32
		offset    int64
		code      int16
		low       int64
	}{
		{"none", 0, 1, kerr.UnknownTopicOrPartition.Code, -1},
		{"t", 1, 1, kerr.UnknownTopicOrPartition.Code, -1},
		{"c", 0, 0, kerr.PolicyViolation.Code, -1},
		{"t", 0, 11, kerr.OffsetOutOfRange.Code, -1},
		{"t", 0, -2, kerr.OffsetOutOfRange.Code, -1},
		{"t", 0, 4, 0, 4},
		{"t", 0, 2, 0, 4},
		{"t", 0, -1, 0, 10},
	} {
		if code, low := ask(tc.topic, tc.partition, tc.offset); code != tc.code || low != tc.low {
			t.Errorf("%s-%d to %d: code %d, low watermark %d, want %d and %d", tc.topic, tc.partition, tc.offset, code, low, tc.code, tc.low)
		}
	}
}

func TestAcksZero(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 1)
	r := dial(t, n.Bootstrap())
	r.send(produceReq("t", 0, 0, batchOf("a", "b")), 9) // no answer
	resp := kmsg.NewPtrProduceResponse()
	r.call(produceReq("t", 0, 1, batchOf("c")), resp, 9)
	if off := resp.Topics[0].Partitions[0].BaseOffset; off != 2 {
		t.Fatalf("the record after two with acks=0 got offset %d", off)
	}
	r.send(produceReq("none", 0, 0, batchOf("a")), 9) // an error can only be told by closing
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("the connection goes on: %v", err)
	}
}

// TestPipelinedInOrder sends many kinds of requests at once and wants the answers in their order.
func TestPipelinedInOrder(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 1)
	r := dial(t, n.Bootstrap())
	const rounds = 100
	var wg sync.WaitGroup
	wg.Go(func() {
		for range rounds {
			r.send(produceReq("t", 0, -1, batchOf("a")), 9)
			r.send(kmsg.NewPtrApiVersionsRequest(), 2)
			r.send(fetchReq("t", 0, 0, 0, 1), 12)
		}
	})
	for i := range int32(rounds) {
		p := kmsg.NewPtrProduceResponse()
		r.recv(3*i+1, p, 9)
		if got := p.Topics[0].Partitions[0]; got.ErrorCode != 0 || got.BaseOffset != int64(i) {
			t.Fatalf("produce %d: %+v", i, got)
		}
		r.recv(3*i+2, kmsg.NewPtrApiVersionsResponse(), 2)
		f := kmsg.NewPtrFetchResponse()
		r.recv(3*i+3, f, 12)
		if got := f.Topics[0].Partitions[0]; got.ErrorCode != 0 || got.HighWatermark <= int64(i) {
			t.Fatalf("fetch %d after its produce was acknowledged: %+v", i, got)
		}
	}
	wg.Wait()
}

func fetchReq(topic string, partition int32, offset int64, wait time.Duration, minBytes int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(wait.Milliseconds()), minBytes, 50<<20
	tp := kmsg.NewFetchRequestTopic()
	tp.Topic = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 1<<20
	tp.Partitions = append(tp.Partitions, p)
	req.Topics = append(req.Topics, tp)
	return req
}

func TestLongPollWakesAndTimesOut(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 1)
	waiting, writing := dial(t, n.Bootstrap()), dial(t, n.Bootstrap())

	start := time.Now()
	resp := kmsg.NewPtrFetchResponse()
	waiting.call(fetchReq("t", 0, 0, 200*time.Millisecond, 1), resp, 12)
	if took := time.Since(start); took < 200*time.Millisecond {
		t.Fatalf("an empty fetch answered after %v, before its max wait", took)
	}
	if got := len(resp.Topics[0].Partitions[0].RecordBatches); got != 0 {
		t.Fatalf("%d bytes from an empty topic", got)
	}

	waiting.send(fetchReq("t", 0, 0, time.Hour, 1), 12)
	writing.call(produceReq("t", 0, -1, batchOf("wake")), kmsg.NewPtrProduceResponse(), 9)
	waiting.recv(2, resp, 12)
	if !bytes.Contains(resp.Topics[0].Partitions[0].RecordBatches, []byte("wake")) {
		t.Fatal("the parked fetch woke without the record")
	}

	// min.bytes: two small records are not enough, the large one is.
	waiting.send(fetchReq("t", 0, 1, time.Hour, 5000), 12)
	for _, v := range []string{"small", "small", strings.Repeat("large", 2000)} {
		writing.call(produceReq("t", 0, -1, batchOf(v)), kmsg.NewPtrProduceResponse(), 9)
	}
	waiting.recv(3, resp, 12)
	if got := len(resp.Topics[0].Partitions[0].RecordBatches); got < 5000 {
		t.Fatalf("woken with %d of 5000 bytes", got)
	}
}

func TestStopAnswersParkedFetches(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 1)
	r := dial(t, n.Bootstrap())
	r.call(fetchReq("t", 0, 0, 0, 1), kmsg.NewPtrFetchResponse(), 12)
	before := fetchBytes(n)
	r.send(fetchReq("t", 0, 0, time.Hour, 1), 12)
	awaitFetch(t, n, before)
	start := time.Now()
	n.Stop()
	if took := time.Since(start); took > harness.StopTimeout/2 {
		t.Fatalf("stopping took %v with a fetch parked", took)
	}
	resp := kmsg.NewPtrFetchResponse()
	r.recv(2, resp, 12)
	if resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("the parked fetch got code %d", resp.Topics[0].Partitions[0].ErrorCode)
	}
}

// TestStopAnswersParkedJoin: a member that waits for others does not hold the stop up.
func TestStopAnswersParkedJoin(t *testing.T) {
	n := harness.Start(t, harness.WithKafka("group.initial.rebalance.delay.ms", "600000"))
	r := dial(t, n.Bootstrap())
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKey = "g"
	for found := kmsg.NewPtrFindCoordinatorResponse(); ; {
		if r.call(find, found, 2); found.ErrorCode == 0 {
			break
		}
	}
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = "g", "consumer", 10000, 600000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name = "range"
	join.Protocols = append(join.Protocols, p)
	r.send(join, 3)
	for deadline := time.Now().Add(10 * time.Second); n.Counter("varve_broker_request_bytes_total", "api", "JoinGroup") == 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the join was not read")
		}
	}
	start := time.Now()
	n.Stop()
	if took := time.Since(start); took > harness.StopTimeout/2 {
		t.Fatalf("stopping took %v with a join parked", took)
	}
	resp := kmsg.NewPtrJoinGroupResponse()
	r.recv(r.corr, resp, 3)
	if resp.ErrorCode == 0 {
		t.Fatal("the join succeeded")
	}
}

// awaitFetch returns when the broker has read more bytes of fetches than before.
func awaitFetch(t testing.TB, n *harness.Node, before float64) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); runtime.Gosched() {
		if fetchBytes(n) > before {
			return
		}
	}
	t.Fatal("the fetch was not read")
}

func fetchBytes(n *harness.Node) float64 {
	return n.Counter("varve_broker_request_bytes_total", "api", "Fetch")
}

func TestFetchAtOffsetInsideBatch(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 1)
	r := dial(t, n.Bootstrap())
	r.call(produceReq("t", 0, -1, batchOf("a", "b", "c", "d")), kmsg.NewPtrProduceResponse(), 9)
	for v := int16(4); v <= 12; v++ {
		resp := kmsg.NewPtrFetchResponse()
		req := fetchReq("t", 0, 2, 0, 1)
		req.Topics[0].Partitions[0].PartitionMaxBytes = 1 // at least one batch, whole
		r.call(req, resp, v)
		p := resp.Topics[0].Partitions[0]
		h, err := record.ParseHeader(p.RecordBatches)
		if err != nil || h.BaseOffset != 0 || h.Size() != len(p.RecordBatches) || p.HighWatermark != 4 {
			t.Fatalf("v%d: header %+v, %d bytes, %v", v, h, len(p.RecordBatches), err)
		}
	}
	for _, offset := range []int64{-5, 5} {
		resp := kmsg.NewPtrFetchResponse()
		r.call(fetchReq("t", 0, offset, 0, 1), resp, 12)
		if p := resp.Topics[0].Partitions[0]; p.ErrorCode != kerr.OffsetOutOfRange.Code {
			t.Fatalf("offset %d: code %d", offset, p.ErrorCode)
		}
	}
	// Leader epochs.
	for epoch, want := range map[int32]int16{-1: 0, 1000: kerr.UnknownLeaderEpoch.Code} {
		resp := kmsg.NewPtrFetchResponse()
		req := fetchReq("t", 0, 0, 0, 1)
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
		r.call(req, resp, 12)
		if got := resp.Topics[0].Partitions[0].ErrorCode; got != want {
			t.Fatalf("leader epoch %d: code %d, want %d", epoch, got, want)
		}
	}
}

func TestHostileBytes(t *testing.T) {
	n := harness.Start(t)
	for name, in := range map[string][]byte{
		"2 GiB":      {0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 3, 0, 0, 0, 1},
		"HTTP":       []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"TLS":        {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0, 0, 0, 0, 0},
		"zeros":      make([]byte, 1024),
		"huge array": append([]byte{0, 0, 0, 40, 0, 1, 0, 4, 0, 0, 0, 1, 0xff, 0xff}, bytes.Repeat([]byte{0x7f}, 40)...),
	} {
		r := dial(t, n.Bootstrap())
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := r.Write(in); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(make([]byte, 1)); err == nil {
			t.Fatalf("%s: answered", name)
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
			t.Errorf("%s: the broker allocated %d bytes", name, got)
		}
	}
	createTopic(t, n.Client(), "still-serves", 1)
}

func TestSendfileCarriesTheBytes(t *testing.T) {
	n := harness.Start(t)
	c := n.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	createTopic(t, c, "t", 1)
	var recs []*kgo.Record
	for i := range 20000 {
		recs = append(recs, &kgo.Record{Topic: "t", Value: bytes.Repeat([]byte{byte(i)}, 1024)})
	}
	if err := c.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	got := consumeN(t, n.Client(consumerOf("t", 0, kgo.NewOffset().AtStart())), len(recs))
	for i, r := range got {
		if r.Offset != int64(i) || r.Value[0] != byte(i) {
			t.Fatalf("record %d came as offset %d", i, r.Offset)
		}
	}
	sent := n.Counter("varve_broker_fetch_bytes_total", "path", "sendfile")
	buffered := n.Counter("varve_broker_fetch_bytes_total", "path", "buffered")
	if sent+buffered < 20e6 || sent < 0.95*(sent+buffered) {
		t.Fatalf("%.0f bytes by sendfile, %.0f buffered", sent, buffered)
	}
}

func TestListOffsets(t *testing.T) {
	n := harness.Start(t)
	c := n.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	createTopic(t, c, "t", 2)
	base := time.Now().Add(-time.Hour).UnixMilli()
	var recs []*kgo.Record
	for i := range 100 {
		recs = append(recs, &kgo.Record{Topic: "t", Value: value(i), Timestamp: time.UnixMilli(base + int64(10*i))})
	}
	if err := c.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	r := dial(t, n.Bootstrap())
	for _, tc := range []struct {
		partition       int32
		ts              int64
		offset, stamped int64
	}{
		{0, -1, 100, -1}, {0, -2, 0, -1}, {0, -3, 99, base + 990}, {0, -4, 0, -1}, {0, -5, -1, -1}, {0, -6, -1, -1},
		{0, base, 0, base}, {0, base + 1, 1, base + 10}, {0, base + 500, 50, base + 500}, {0, base + 990, 99, base + 990},
		{0, base + 991, -1, -1}, {1, -1, 0, -1}, {1, -2, 0, -1}, {1, base, -1, -1}, {1, -3, -1, -1},
	} {
		req := kmsg.NewPtrListOffsetsRequest()
		tp := kmsg.NewListOffsetsRequestTopic()
		tp.Topic = "t"
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = tc.partition, tc.ts
		tp.Partitions = append(tp.Partitions, p)
		req.Topics = append(req.Topics, tp)
		resp := kmsg.NewPtrListOffsetsResponse()
		r.call(req, resp, 11)
		got := resp.Topics[0].Partitions[0]
		if got.ErrorCode != 0 || got.Offset != tc.offset || got.Timestamp != tc.stamped {
			t.Errorf("partition %d at %d: code %d offset %d timestamp %d, want %d and %d", tc.partition, tc.ts, got.ErrorCode, got.Offset,
				got.Timestamp, tc.offset, tc.stamped)
		}
	}
}

func TestIdempotence(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 1)
	r := dial(t, n.Bootstrap())
	id := kmsg.NewPtrInitProducerIDResponse()
	r.call(kmsg.NewPtrInitProducerIDRequest(), id, 5)
	if id.ErrorCode != 0 || id.ProducerID < 0 || id.ProducerEpoch != 0 {
		t.Fatalf("%+v", id)
	}
	txn := kmsg.NewPtrInitProducerIDRequest()
	txn.TransactionalID = kadm.StringPtr("tx")
	refused := kmsg.NewPtrInitProducerIDResponse()
	r.call(txn, refused, 4)
	if refused.ErrorCode == 0 {
		t.Fatal("a transactional id was accepted by a broker that does not coordinate it")
	}
	send := func(seq int32, value string) (int16, int64) {
		b := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: id.ProducerID, Epoch: 0, BaseSequence: seq}})
		b.Append(time.Now().UnixMilli(), nil, []byte(value), nil)
		resp := kmsg.NewPtrProduceResponse()
		r.call(produceReq("t", 0, -1, b.Batch(0)), resp, 9)
		return resp.Topics[0].Partitions[0].ErrorCode, resp.Topics[0].Partitions[0].BaseOffset
	}
	for i := range int32(6) {
		if code, off := send(i, "v"); code != 0 || off != int64(i) {
			t.Fatalf("sequence %d: code %d offset %d", i, code, off)
		}
	}
	for i := int32(1); i < 6; i++ { // the last five are remembered
		if code, off := send(i, "v"); code != 0 || off != int64(i) {
			t.Fatalf("repeated sequence %d: code %d offset %d", i, code, off)
		}
	}
	if code, _ := send(9, "v"); code != kerr.OutOfOrderSequenceNumber.Code {
		t.Fatalf("a gap in the sequence: code %d", code)
	}
}

func TestRetention(t *testing.T) {
	n := harness.Start(t, harness.WithConfig(func(c *broker.Config) { c.Partition.RetentionInterval = 50 * time.Millisecond }))
	c := n.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	createTopic(t, c, "t", 1, "segment.bytes", "1048576", "retention.bytes", "2097152")
	for range 8 {
		var recs []*kgo.Record
		for range 1000 {
			recs = append(recs, &kgo.Record{Topic: "t", Value: make([]byte, 1000)})
		}
		if err := c.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	p, err := n.Partitions().Get("t", 0)
	if err != nil {
		t.Fatal(err)
	}
	n.Partitions().Retain()
	start := p.LogStart()
	if start == 0 || p.Size() > 4<<20 || p.EndOffset() != 8000 {
		t.Fatalf("log start %d, %d bytes, end %d", start, p.Size(), p.EndOffset())
	}
	got := consumeN(t, n.Client(consumerOf("t", 0, kgo.NewOffset().AtStart())), int(8000-start))
	if got[0].Offset != start {
		t.Fatalf("the first record has offset %d, the log starts at %d", got[0].Offset, start)
	}
	n.Restart()
	if p, err = n.Partitions().Get("t", 0); err != nil || p.LogStart() != start {
		t.Fatalf("after the restart the log starts at %d, not %d (%v)", p.LogStart(), start, err)
	}
}

func TestDeleteTopicAndMakeItAgain(t *testing.T) {
	n := harness.Start(t)
	c := n.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for round := range 5 {
		createTopic(t, c, "again", 2)
		r := dial(t, n.Bootstrap())
		resp := kmsg.NewPtrProduceResponse()
		r.call(produceReq("again", 1, -1, batchOf(fmt.Sprintf("round %d", round))), resp, 9)
		if p := resp.Topics[0].Partitions[0]; p.ErrorCode != 0 || p.BaseOffset != 0 {
			t.Fatalf("round %d: code %d offset %d", round, p.ErrorCode, p.BaseOffset)
		}
		f := kmsg.NewPtrFetchResponse()
		r.send(fetchReq("again", 1, 1, time.Hour, 1), 12) // parked when the topic goes
		if _, err := kadm.NewClient(c).DeleteTopic(t.Context(), "again"); err != nil {
			t.Fatal(err)
		}
		r.recv(2, f, 12)
		if code := f.Topics[0].Partitions[0].ErrorCode; code != kerr.UnknownTopicOrPartition.Code {
			t.Fatalf("round %d: a fetch of a deleted topic got code %d", round, code)
		}
	}
}
