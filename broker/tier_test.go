package broker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker"
	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/mem"
	"github.com/varvehq/varve/internal/vfs"
	"github.com/varvehq/varve/tests/harness"
)

// slowBucket holds reads of segments back while it is shut.
type slowBucket struct {
	objstore.Bucket
	gate  atomic.Pointer[chan struct{}]
	reads atomic.Int64
}

func (b *slowBucket) shut() (open func()) {
	c := make(chan struct{})
	b.gate.Store(&c)
	return func() {
		b.gate.Store(nil)
		close(c)
	}
}

func (b *slowBucket) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if strings.Contains(key, "/segments/") {
		b.reads.Add(1)
		if c := b.gate.Load(); c != nil {
			select {
			case <-*c:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return b.Bucket.Get(ctx, key, offset, length)
}

// quietTier does no background work by itself, so that tests say when.
func quietTier(c *broker.Config) {
	c.Partition.SweepInterval, c.Partition.RetentionInterval = time.Hour, time.Hour
	c.Partition.ScrubInterval = 0
}

// tieredTopic makes a topic of n records of which all but the newest segments are in the bucket only.
func tieredTopic(t *testing.T, n *harness.Node, topic string, records int, base int64) *partition.Partition {
	t.Helper()
	c := n.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(32<<10))
	createTopic(t, c, topic, 1, "segment.bytes", "1048576", "local.retention.bytes", "1048576", "remote.storage.enable", "true")
	for at := 0; at < records; {
		var recs []*kgo.Record
		for ; at < records && len(recs) < 500; at++ {
			recs = append(recs, &kgo.Record{Topic: topic, Value: tierValue(at), Timestamp: time.UnixMilli(base + int64(at))})
		}
		if err := c.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	p, err := n.Partitions().Get(topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	runTier(t, n, p)
	return p
}

func tierValue(i int) []byte {
	return append(fmt.Appendf(nil, "%08d ", i), bytes.Repeat([]byte{'v'}, 991)...)
}

// runTier seals, uploads and deletes all that is due, and returns when it is done.
func runTier(t *testing.T, n *harness.Node, p *partition.Partition) {
	t.Helper()
	n.Partitions().Sweep()
	if err := p.WorkTier(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func listOffset(t *testing.T, r *raw, topic string, ts int64) (offset, timestamp int64) {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	tp := kmsg.NewListOffsetsRequestTopic()
	tp.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = ts
	tp.Partitions = append(tp.Partitions, p)
	req.Topics = append(req.Topics, tp)
	resp := kmsg.NewPtrListOffsetsResponse()
	r.call(req, resp, 11)
	if code := resp.Topics[0].Partitions[0].ErrorCode; code != 0 {
		t.Fatalf("list offsets at %d: code %d", ts, code)
	}
	return resp.Topics[0].Partitions[0].Offset, resp.Topics[0].Partitions[0].Timestamp
}

func TestOneOffsetSpaceOverBothTiers(t *testing.T) {
	bucket := &slowBucket{Bucket: mem.New(time.Now)}
	n := harness.Start(t, harness.WithBucket(bucket), harness.WithConfig(quietTier))
	const records = 6000
	base := time.Now().Add(-time.Hour).UnixMilli()
	p := tieredTopic(t, n, "t", records, base)
	r := dial(t, n.Bootstrap())
	local, _ := listOffset(t, r, "t", partition.EarliestLocal)
	tiered, _ := listOffset(t, r, "t", partition.LatestTiered)
	pending, _ := listOffset(t, r, "t", partition.EarliestPendingUpload)
	if start, _ := listOffset(t, r, "t", partition.Earliest); start != 0 || local < 2000 || tiered < local-1 || pending != tiered+1 {
		t.Fatalf("starts at %d, locally at %d, the bucket ends with %d, the next upload begins at %d", start, local, tiered, pending)
	}
	if p.Size() > 3<<20 {
		t.Fatalf("%d local bytes are left", p.Size())
	}
	for _, restart := range []bool{false, true} {
		if restart {
			n.Restart()
			r = dial(t, n.Bootstrap())
		}
		for i, rec := range consumeN(t, n.Client(consumerOf("t", 0, kgo.NewOffset().AtStart())), records) {
			if rec.Offset != int64(i) || !bytes.Equal(rec.Value, tierValue(i)) {
				t.Fatalf("restart %v: record %d came as offset %d", restart, i, rec.Offset)
			}
		}
		for _, at := range []int64{0, 1, local - 2, local - 1, local, local + 1, tiered, tiered + 1, records - 1} {
			if offset, ts := listOffset(t, r, "t", base+at); offset != at || ts != base+at {
				t.Errorf("restart %v: timestamp of offset %d is answered with offset %d, timestamp %d", restart, at, offset, ts-base)
			}
		}
		if offset, _ := listOffset(t, r, "t", partition.MaxTimestamp); offset != records-1 {
			t.Errorf("the newest record is at %d", offset)
		}
	}
	if bucket.reads.Load() == 0 {
		t.Fatal("nothing was read from the bucket")
	}
}

// TestSlowBucketDelaysNobody: a fetch of local and remote partitions answers with the local ones while the bucket stalls, and
// what the bucket brings later is not lost.
func TestSlowBucketDelaysNobody(t *testing.T) {
	bucket := &slowBucket{Bucket: mem.New(time.Now)}
	n := harness.Start(t, harness.WithBucket(bucket), harness.WithConfig(quietTier))
	tieredTopic(t, n, "cold", 4000, time.Now().UnixMilli())
	createTopic(t, n.Client(), "hot", 1)
	r := dial(t, n.Bootstrap())
	r.call(produceReq("hot", 0, -1, batchOf("hot record")), kmsg.NewPtrProduceResponse(), 9)

	open := bucket.shut()
	both := fetchReq("cold", 0, 0, time.Minute, 1)
	both.Topics = append(both.Topics, fetchReq("hot", 0, 0, 0, 1).Topics[0])
	resp := kmsg.NewPtrFetchResponse()
	r.call(both, resp, 12)
	if got := resp.Topics[0].Partitions[0]; got.ErrorCode != 0 || len(got.RecordBatches) != 0 || got.HighWatermark != 4000 {
		t.Fatalf("the cold partition: code %d, %d bytes, high watermark %d", got.ErrorCode, len(got.RecordBatches), got.HighWatermark)
	}
	if !bytes.Contains(resp.Topics[1].Partitions[0].RecordBatches, []byte("hot record")) {
		t.Fatal("the hot partition's record did not come")
	}

	start := time.Now() // alone and with a short wait, it answers empty
	r.call(fetchReq("cold", 0, 0, 10*time.Millisecond, 1), resp, 12)
	if took := time.Since(start); len(resp.Topics[0].Partitions[0].RecordBatches) != 0 || took > 10*time.Second {
		t.Fatalf("%d bytes from a stalled bucket after %v", len(resp.Topics[0].Partitions[0].RecordBatches), took)
	}

	r.send(fetchReq("cold", 0, 0, time.Minute, 1), 12) // parked until the bucket answers
	open()
	r.recv(3+1, resp, 12)
	if len(resp.Topics[0].Partitions[0].RecordBatches) == 0 {
		t.Fatal("the parked fetch woke without records")
	}
}

func TestTopicDeletionEmptiesTheBucket(t *testing.T) {
	bucket := mem.New(time.Now)
	n := harness.Start(t, harness.WithBucket(bucket), harness.WithConfig(quietTier))
	c := n.Client()
	tieredTopic(t, n, "t", 3000, time.Now().UnixMilli())
	count := func() (k int) {
		if err := bucket.List(t.Context(), "topics/", objstore.ListOptions{}, func(objstore.Info) error { k++; return nil }); err != nil {
			t.Fatal(err)
		}
		return k
	}
	if count() == 0 {
		t.Fatal("nothing was uploaded")
	}
	if _, err := kadm.NewClient(c).DeleteTopic(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	n.Partitions().DeleteBuckets(t.Context())
	if k := count(); k != 0 {
		t.Fatalf("%d objects of the deleted topic are left", k)
	}
}

// TestQuietSegmentIsUploaded: a topic with little traffic reaches the bucket by remote.copy.max.age.ms.
func TestQuietSegmentIsUploaded(t *testing.T) {
	now := atomic.Pointer[time.Time]{}
	start := time.Now()
	now.Store(&start)
	n := harness.Start(t, harness.WithBucket(mem.New(time.Now)), harness.WithConfig(quietTier),
		harness.WithClock(func() time.Time { return *now.Load() }))
	c := n.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	createTopic(t, c, "quiet", 1, "remote.storage.enable", "true")
	produceN(t, c, "quiet", 0, 10)
	p, err := n.Partitions().Get("quiet", 0)
	if err != nil {
		t.Fatal(err)
	}
	r := dial(t, n.Bootstrap())
	runTier(t, n, p)
	if tiered, _ := listOffset(t, r, "quiet", partition.LatestTiered); tiered != -1 {
		t.Fatalf("a young open segment was uploaded up to %d", tiered)
	}
	later := start.Add(61 * time.Minute) // remote.copy.max.age.ms is an hour
	now.Store(&later)
	runTier(t, n, p)
	if tiered, _ := listOffset(t, r, "quiet", partition.LatestTiered); tiered != 9 {
		t.Fatalf("after an hour the bucket ends with %d, want 9", tiered)
	}
}

// TestCopyLag: with remote.copy.lag.bytes the newest sealed segments stay local only.
func TestCopyLag(t *testing.T) {
	n := harness.Start(t, harness.WithBucket(mem.New(time.Now)), harness.WithConfig(quietTier))
	c := n.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	createTopic(t, c, "t", 1, "segment.bytes", "1048576", "remote.storage.enable", "true", "local.retention.bytes", "3145728",
		"remote.copy.lag.bytes", "2097152", "remote.copy.lag.ms", "-1")
	for at := 0; at < 6000; at += 500 {
		var recs []*kgo.Record
		for i := range 500 {
			recs = append(recs, &kgo.Record{Topic: "t", Value: tierValue(at + i)})
		}
		if err := c.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	p, err := n.Partitions().Get("t", 0)
	if err != nil {
		t.Fatal(err)
	}
	runTier(t, n, p)
	tiered, _ := listOffset(t, dial(t, n.Bootstrap()), "t", partition.LatestTiered)
	if tiered < 2000 || tiered > 4000 {
		t.Fatalf("of 6 MB the newest 2 stay local, and the bucket ends with record %d of 6000", tiered)
	}
}

func TestRemoteRetention(t *testing.T) {
	n := harness.Start(t, harness.WithBucket(mem.New(time.Now)), harness.WithConfig(quietTier))
	p := tieredTopic(t, n, "t", 8000, time.Now().UnixMilli())
	adm := kadm.NewClient(n.Client())
	if _, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.bytes",
		Value: kadm.StringPtr("4194304")}}, "t"); err != nil {
		t.Fatal(err)
	}
	runTier(t, n, p)
	start := p.LogStart()
	if start < 3000 || start > 5000 {
		t.Fatalf("of 8 MB 4 may stay, and the log starts at %d of 8000", start)
	}
	got := consumeN(t, n.Client(consumerOf("t", 0, kgo.NewOffset().AtStart())), int(8000-start))
	if got[0].Offset != start {
		t.Fatalf("the first record has offset %d, the log starts at %d", got[0].Offset, start)
	}
}

// absentBucket is one that the store does not have.
type absentBucket struct{ objstore.Bucket }

func (absentBucket) Get(context.Context, string, int64, int64) (io.ReadCloser, error) {
	return nil, objstore.ErrNoBucket
}

func (absentBucket) Put(context.Context, string, io.ReadSeeker, int64, objstore.PutOptions) error {
	return objstore.ErrNoBucket
}

func TestMissingBucketEndsTheStart(t *testing.T) {
	cfg := broker.DefaultConfig()
	cfg.DataDir, cfg.TierStartWait = "/data", time.Minute
	cfg.Listeners = []broker.Listener{{Name: "PLAINTEXT", Address: "127.0.0.1:0"}}
	b, err := broker.Open(t.Context(), cfg, broker.Env{FS: vfs.NewMem(), Bucket: absentBucket{mem.New(time.Now)}, BucketConfigured: true})
	if !errors.Is(err, objstore.ErrNoBucket) {
		t.Fatal(b, err)
	}
}

// TestDeleteRecordsBeforeTheUpload: what is deleted before it was copied leaves no gap that would stop all later copies.
func TestDeleteRecordsBeforeTheUpload(t *testing.T) {
	n := harness.Start(t, harness.WithBucket(mem.New(time.Now)), harness.WithConfig(quietTier))
	p := tieredTopic(t, n, "t", 3000, time.Now().Add(-time.Hour).UnixMilli())
	c := n.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	produce := func(records int) {
		t.Helper()
		for at := range records {
			c.Produce(t.Context(), &kgo.Record{Topic: "t", Value: tierValue(at)}, nil)
		}
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	produce(3000) // seals segments that are not copied yet
	if _, err := p.DeleteRecords(p.HighWatermark() - 10); err != nil {
		t.Fatal(err)
	}
	produce(3000)
	runTier(t, n, p)
	r := dial(t, n.Bootstrap())
	if tiered, _ := listOffset(t, r, "t", partition.LatestTiered); tiered < 6000 {
		t.Errorf("the bucket ends with %d, segments above 6000 are sealed", tiered)
	}
}
