package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/internal/objstore/mem"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tests/harness"
)

// txnVersions are the two transaction protocols: with all keys, and with those of Kafka 3.8, which knows no epoch bumps.
var txnVersions = map[string][]kgo.Opt{"v2": nil, "v1": {kgo.MaxVersions(kversion.V3_8_0())}}

func TestTransactionCommitAndAbort(t *testing.T) {
	for name, opts := range txnVersions {
		t.Run(name, func(t *testing.T) {
			n := harness.Start(t)
			c := n.Client(append(opts, kgo.TransactionalID("id"), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
			createTopic(t, c, "topic", 2)
			var want []string
			for i := range 20 {
				if err := c.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
				for p := range int32(2) {
					v := fmt.Sprintf("%d-%d", i, p)
					if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: "topic", Partition: p, Value: []byte(v)}).FirstErr(); err != nil {
						t.Fatal(err)
					}
					if i%3 != 0 {
						want = append(want, v)
					}
				}
				if err := c.EndTransaction(t.Context(), kgo.TransactionEndTry(i%3 != 0)); err != nil {
					t.Fatal(err)
				}
				if i == 10 {
					n.Restart()
				}
			}
			r := n.Client(kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeTopics("topic"))
			var got []string
			for _, rec := range consumeN(t, r, len(want)) {
				got = append(got, string(rec.Value))
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("read committed\n%v, want\n%v", got, want)
			}
			all := n.Client(kgo.ConsumeTopics("topic"))
			if got := consumeN(t, all, 40); len(got) != 40 {
				t.Fatalf("read uncommitted: %d records, want 40", len(got))
			}
		})
	}
}

// TestExactlyOnceAcrossRestarts moves records from one topic to another in transactions while the broker is restarted again and
// again: every record arrives once, in order.
func TestExactlyOnceAcrossRestarts(t *testing.T) {
	for name, opts := range txnVersions {
		t.Run(name, func(t *testing.T) {
			const records = 1500
			n := harness.Start(t)
			src := n.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
			createTopic(t, src, "in", 1)
			createTopic(t, src, "out", 1)
			produceN(t, src, "in", 0, records)
			s, err := kgo.NewGroupTransactSession(append(opts, kgo.SeedBrokers(n.Bootstrap()), kgo.TransactionalID("mover"), kgo.ConsumerGroup("movers"),
				kgo.ConsumeTopics("in"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DefaultProduceTopic("out"), kgo.FetchMaxPartitionBytes(8<<10))...)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
			defer cancel()
			moved, rounds := 0, 0
			for moved < records && ctx.Err() == nil {
				poll, done := context.WithTimeout(ctx, 5*time.Second)
				fs := s.PollRecords(poll, 100)
				done()
				recs := fs.Records()
				if len(recs) == 0 {
					continue
				}
				if err := s.Begin(); err != nil {
					t.Fatal(err)
				}
				p := kgo.AbortingFirstErrPromise(s.Client())
				for _, r := range recs {
					s.Produce(ctx, &kgo.Record{Key: r.Key, Value: r.Value}, p.Promise())
				}
				rounds++
				if rounds%5 == 0 {
					n.Restart()
				}
				committed, err := s.End(ctx, kgo.TransactionEndTry(p.Err() == nil && rounds%7 != 0))
				if err != nil {
					t.Fatalf("end after %d records: %v", moved, err)
				}
				if committed {
					moved += len(recs)
				}
			}
			out := n.Client(kgo.ConsumeTopics("out"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
			for i, r := range consumeN(t, out, records) {
				if string(r.Value) != string(value(i)) {
					t.Fatalf("record %d is %q, want %q", i, r.Value, value(i))
				}
			}
			more, done := context.WithTimeout(ctx, 300*time.Millisecond)
			defer done()
			if extra := out.PollFetches(more).Records(); len(extra) > 0 {
				t.Fatalf("%d records more than were put in", len(extra))
			}
		})
	}
}

// txnClient is a producer that speaks single requests.
type txnClient struct {
	t     *testing.T
	c     *kgo.Client
	topic string
	id    string
	pid   int64
	epoch int16
	seq   int32
}

func request[R kmsg.Response](t *testing.T, c *kgo.Client, req kmsg.Request) R {
	t.Helper()
	resp, err := c.Request(t.Context(), req)
	if err != nil {
		t.Fatalf("%T: %v", req, err)
	}
	return resp.(R)
}

func (r *txnClient) init(timeout time.Duration) {
	r.t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &r.id, int32(timeout.Milliseconds())
	for {
		resp := request[*kmsg.InitProducerIDResponse](r.t, r.c, req)
		err := kerr.ErrorForCode(resp.ErrorCode)
		if err == nil {
			r.pid, r.epoch, r.seq = resp.ProducerID, resp.ProducerEpoch, 0
			return
		}
		if !errors.Is(err, kerr.ConcurrentTransactions) {
			r.t.Fatal(err)
		}
	}
}

func (r *txnClient) add() error {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = r.id, r.pid, r.epoch
	rt := kmsg.NewAddPartitionsToTxnRequestTopic()
	rt.Topic, rt.Partitions = r.topic, []int32{0}
	req.Topics = append(req.Topics, rt)
	resp := request[*kmsg.AddPartitionsToTxnResponse](r.t, r.c, req)
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

func (r *txnClient) batch(control bool) []byte {
	b := record.NewBuilder(record.BuilderOptions{Transactional: true, Control: control,
		Producer: &record.Producer{ID: r.pid, Epoch: r.epoch, BaseSequence: r.seq}})
	b.Append(time.Now().UnixMilli(), []byte("key"), []byte("value"), nil)
	return b.Batch(0)
}

func (r *txnClient) produce(batch []byte) error {
	req := kmsg.NewPtrProduceRequest()
	req.TransactionID, req.Acks, req.TimeoutMillis = &r.id, -1, 10000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = r.topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = batch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp := request[*kmsg.ProduceResponse](r.t, r.c, req)
	err := kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	if err == nil {
		r.seq++
	}
	return err
}

func (r *txnClient) end(commit bool) error {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = r.id, r.pid, r.epoch, commit
	return kerr.ErrorForCode(request[*kmsg.EndTxnResponse](r.t, r.c, req).ErrorCode)
}

func TestProduceOutsideOfTransactionIsRefused(t *testing.T) {
	n := harness.Start(t)
	old := kversion.V3_6_0()
	c := n.Client(kgo.MaxVersions(old))
	createTopic(t, c, "topic", 1)
	r := &txnClient{t: t, c: c, topic: "topic", id: "id"}
	r.init(time.Minute)
	if err := r.produce(r.batch(false)); !errors.Is(err, kerr.InvalidTxnState) {
		t.Fatalf("partition not added: %v", err)
	}
	if err := r.add(); err != nil {
		t.Fatal(err)
	}
	if err := r.produce(r.batch(false)); err != nil {
		t.Fatal(err)
	}
	if err := r.produce(r.batch(true)); !errors.Is(err, kerr.InvalidRecord) {
		t.Fatalf("control batch of a client: %v", err)
	}
	if err := r.end(true); err != nil {
		t.Fatal(err)
	}
	if err := r.produce(r.batch(false)); !errors.Is(err, kerr.InvalidTxnState) && !errors.Is(err, kerr.NotEnoughReplicas) {
		t.Fatalf("after the commit: %v", err)
	}
	fenced := *r
	r.init(time.Minute)
	if err := fenced.add(); !errors.Is(err, kerr.ProducerFenced) {
		t.Fatalf("fenced producer adds: %v", err)
	}
	if err := fenced.produce(fenced.batch(false)); !errors.Is(err, kerr.InvalidProducerEpoch) {
		t.Fatalf("fenced producer writes: %v", err)
	}
}

// KIP-890: a transaction's first batch that was refused must not be left out by those sent behind it.
func TestTransactionBeginsWithItsFirstBatch(t *testing.T) {
	n := harness.Start(t)
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(0, 12) // the last that names topics
	c := n.Client(kgo.MaxVersions(versions))
	createTopic(t, c, "topic", 1)
	r := &txnClient{t: t, c: c, topic: "topic", id: "id"}
	r.init(time.Minute)
	r.seq = 1
	if err := r.produce(r.batch(false)); !errors.Is(err, kerr.OutOfOrderSequenceNumber) {
		t.Fatalf("second batch before the first: %v", err)
	}
	r.seq = 0
	for range 3 {
		if err := r.produce(r.batch(false)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.end(true); err != nil {
		t.Fatal(err)
	}
}

func TestTransactionTimeoutAbortsAndFences(t *testing.T) {
	n := harness.Start(t, harness.WithKafka("transaction.abort.timed.out.transaction.cleanup.interval.ms", "20"))
	c := n.Client(kgo.MaxVersions(kversion.V3_6_0()))
	createTopic(t, c, "topic", 1)
	r := &txnClient{t: t, c: c, topic: "topic", id: "id"}
	r.init(10 * time.Millisecond)
	if err := r.add(); err != nil {
		t.Fatal(err)
	}
	adm := kadm.NewClient(c)
	for {
		d, err := adm.DescribeTransactions(t.Context(), "id")
		if err != nil {
			t.Fatal(err)
		}
		if d["id"].State == "CompleteAbort" {
			break
		}
	}
	if err := r.end(true); !errors.Is(err, kerr.ProducerFenced) {
		t.Fatalf("commit after the timeout: %v", err)
	}
	if err := r.produce(r.batch(false)); !errors.Is(err, kerr.InvalidProducerEpoch) {
		t.Fatalf("write after the timeout: %v", err)
	}
	r.init(time.Minute)
	if err := r.add(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.produce(r.batch(false)), r.end(true)); err != nil {
		t.Fatal(err)
	}
}

func TestListAndDescribeTransactions(t *testing.T) {
	n := harness.Start(t)
	c := n.Client(kgo.TransactionalID("id"))
	createTopic(t, c, "topic", 1)
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: "topic", Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	adm := kadm.NewClient(n.Client())
	l, err := adm.ListTransactions(t.Context(), nil, []string{"Ongoing"})
	if err != nil || l["id"].State != "Ongoing" {
		t.Fatalf("listed %v, %v", l, err)
	}
	d, err := adm.DescribeTransactions(t.Context(), "id", "other")
	if err != nil || !d["id"].Topics.Lookup("topic", 0) || !errors.Is(d["other"].Err, kerr.TransactionalIDNotFound) {
		t.Fatalf("described %v, %v", d, err)
	}
	var s kadm.TopicsSet
	s.Add("topic", 0)
	p, err := adm.DescribeProducers(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	p.EachProducer(func(d kadm.DescribedProducer) {
		found = found || d.ProducerID == l["id"].ProducerID && d.CurrentTxnStartOffset == 0
	})
	if !found {
		t.Fatalf("the open transaction is not in %v", p)
	}
}

// TestAbortHangingTransaction ends by an administrator's marker what no coordinator knows of (KIP-664).
func TestAbortHangingTransaction(t *testing.T) {
	n := harness.Start(t)
	c := n.Client()
	createTopic(t, c, "topic", 1)
	p, err := n.Partitions().Get("topic", 0)
	if err != nil {
		t.Fatal(err)
	}
	b := record.NewBuilder(record.BuilderOptions{Transactional: true, Producer: &record.Producer{ID: 77, Epoch: 3}})
	b.Append(time.Now().UnixMilli(), nil, []byte("hanging"), nil)
	a, err := p.Append(b.Batch(0), partition.AppendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.WaitCommitted(t.Context(), a.LastOffset); err != nil {
		t.Fatal(err)
	}
	if lso := p.LastStableOffset(); lso != 0 {
		t.Fatalf("last stable offset %d below a hanging transaction at 0", lso)
	}
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch = 77, 3
	for _, topic := range []string{"topic", "none"} {
		rt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
		rt.Topic, rt.Partitions = topic, []int32{0}
		m.Topics = append(m.Topics, rt)
	}
	req.Markers = append(req.Markers, m)
	resp := kmsg.NewPtrWriteTxnMarkersResponse()
	dial(t, n.Bootstrap()).call(req, resp, 1)
	topics := resp.Markers[0].Topics
	if topics[0].Partitions[0].ErrorCode != 0 || topics[1].Partitions[0].ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Fatalf("%+v", topics)
	}
	if lso := p.LastStableOffset(); lso != 2 {
		t.Fatalf("last stable offset %d, want 2", lso)
	}
}

// TestReadCommittedOverBothTiers aborts every second transaction in a topic whose older segments are in the bucket only.
func TestReadCommittedOverBothTiers(t *testing.T) {
	n := harness.Start(t, harness.WithBucket(mem.New(time.Now)), harness.WithConfig(quietTier))
	c := n.Client(kgo.TransactionalID("id"), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(32<<10))
	createTopic(t, c, "topic", 1, "segment.bytes", "1048576", "local.retention.bytes", "1048576", "remote.storage.enable", "true")
	const transactions, size = 40, 100
	want := 0
	for i := range transactions {
		if err := c.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		commit := i%2 == 0
		var recs []*kgo.Record
		for range size {
			v := tierValue(want)
			if !commit {
				v = append([]byte("aborted "), v...)
			} else {
				want++
			}
			recs = append(recs, &kgo.Record{Topic: "topic", Value: v})
		}
		if err := c.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := c.EndTransaction(t.Context(), kgo.TransactionEndTry(commit)); err != nil {
			t.Fatal(err)
		}
	}
	adm := kadm.NewClient(n.Client())
	for { // the last marker may still be on its way
		d, err := adm.DescribeTransactions(t.Context(), "id")
		if err != nil {
			t.Fatal(err)
		}
		if s := d["id"].State; s == "CompleteAbort" || s == "CompleteCommit" {
			break
		}
	}
	p, err := n.Partitions().Get("topic", 0)
	if err != nil {
		t.Fatal(err)
	}
	runTier(t, n, p)
	r := dial(t, n.Bootstrap())
	if local, _ := listOffset(t, r, "topic", partition.EarliestLocal); local < 1000 {
		t.Fatalf("local from %d on: nothing is in the bucket only", local)
	}
	for i, rec := range consumeN(t, n.Client(consumerOf("topic", 0, kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted())), want) {
		if string(rec.Value) != string(tierValue(i)) {
			t.Fatalf("record %d is %.30q", i, rec.Value)
		}
	}
}
