package broker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/tests/harness"
)

// setQuota sets one quota for all client ids that have none of their own, on a connection of its own.
func setQuota(t *testing.T, n *harness.Node, key string, value float64) {
	t.Helper()
	req := kmsg.NewPtrAlterClientQuotasRequest()
	req.Entries = []kmsg.AlterClientQuotasRequestEntry{{
		Entity: []kmsg.AlterClientQuotasRequestEntryEntity{{Type: "client-id"}},
		Ops:    []kmsg.AlterClientQuotasRequestEntryOp{{Key: key, Value: value}},
	}}
	resp := kmsg.NewPtrAlterClientQuotasResponse()
	dial(t, n.Bootstrap()).call(req, resp, 1)
	if resp.Entries[0].ErrorCode != 0 {
		t.Fatalf("%+v", resp.Entries[0])
	}
}

// A producer above its rate is told how long to wait, its records are kept, and its connection is not read meanwhile.
func TestAProducerAboveItsQuotaIsThrottled(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 1)
	setQuota(t, n, "producer_byte_rate", 1000)
	r := dial(t, n.Bootstrap())
	resp := kmsg.NewPtrProduceResponse()
	sent := time.Now()
	r.call(produceReq("t", 0, -1, batchOf(strings.Repeat("x", 10_100))), resp, 12)
	if resp.Topics[0].Partitions[0].ErrorCode != 0 || resp.ThrottleMillis < 100 || resp.ThrottleMillis > 5000 {
		t.Fatalf("code %d, throttled for %d ms", resp.Topics[0].Partitions[0].ErrorCode, resp.ThrottleMillis)
	}
	told := sent.Add(time.Duration(resp.ThrottleMillis) * time.Millisecond)
	r.call(kmsg.NewPtrMetadataRequest(), kmsg.NewPtrMetadataResponse(), 9)
	if now := time.Now(); now.Before(told) {
		t.Errorf("the next request was answered %v too soon", told.Sub(now))
	}
}

// A consumer above its rate gets an empty answer and the time to wait; others get their records.
func TestAConsumerAboveItsQuotaIsThrottled(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 1)
	r := dial(t, n.Bootstrap())
	for range 2 {
		r.call(produceReq("t", 0, -1, batchOf(strings.Repeat("x", 6000))), kmsg.NewPtrProduceResponse(), 12)
	}
	setQuota(t, n, "consumer_byte_rate", 1000)
	resp := kmsg.NewPtrFetchResponse()
	r.call(fetchReq("t", 0, 0, 0, 1), resp, 12)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions[0].RecordBatches) < 6000 || resp.ThrottleMillis != 0 {
		t.Fatalf("first fetch: %d topics, throttled for %d ms", len(resp.Topics), resp.ThrottleMillis)
	}
	*resp = kmsg.NewFetchResponse()
	r.call(fetchReq("t", 0, 1, 0, 1), resp, 12)
	if len(resp.Topics) != 0 || resp.ThrottleMillis < 100 {
		t.Fatalf("second fetch: %d topics, throttled for %d ms", len(resp.Topics), resp.ThrottleMillis)
	}
}

func TestLogDirsHaveSizes(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 2)
	r := dial(t, n.Bootstrap())
	r.call(produceReq("t", 0, -1, batchOf("some record")), kmsg.NewPtrProduceResponse(), 12)
	for v := int16(1); v <= 5; v++ {
		resp := kmsg.NewPtrDescribeLogDirsResponse()
		r.call(kmsg.NewPtrDescribeLogDirsRequest(), resp, v)
		d := resp.Dirs[0]
		if !strings.HasPrefix(d.Dir, "/") || len(d.Topics) != 1 || len(d.Topics[0].Partitions) != 2 || d.Topics[0].Partitions[0].Size < 61 ||
			d.Topics[0].Partitions[1].Size != 0 || v >= 4 && (d.TotalBytes < d.UsableBytes || d.UsableBytes <= 0) {
			t.Errorf("v%d: %+v", v, d)
		}
		move := kmsg.NewPtrAlterReplicaLogDirsRequest()
		move.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: d.Dir, Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: "t", Partitions: []int32{0}}}},
			{Dir: "/elsewhere", Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: "t", Partitions: []int32{1}}}}}
		moved := kmsg.NewPtrAlterReplicaLogDirsResponse()
		r.call(move, moved, min(v, 2))
		if p := moved.Topics[0].Partitions; p[0].ErrorCode != 0 || p[1].ErrorCode != 57 {
			t.Errorf("moves: %+v", p)
		}
	}
}
