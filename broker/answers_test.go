package broker_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tests/harness"
)

// direct sends a request as it is: the client would make requests of its own out of some.
func direct[R kmsg.Response](t *testing.T, n *harness.Node, version int16, req kmsg.Request) R {
	t.Helper()
	resp := req.ResponseKind()
	dial(t, n.Bootstrap()).call(req, resp, version)
	return resp.(R)
}

// TestAnswersToWhatCannotBe holds answers that clients see where a request is wrong in several ways at once, or in a way of
// which Kafka makes something of its own.
func TestAnswersToWhatCannotBe(t *testing.T) {
	n := harness.Start(t)
	c := n.Client()
	createTopic(t, c, "topic", 2)
	code := func(what string, got int16, want *kerr.Error) {
		t.Helper()
		if got != want.Code {
			t.Errorf("%s: %v, want %v", what, kerr.ErrorForCode(got), want)
		}
	}

	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorType, find.CoordinatorKeys = 1, []string{"id"}
	for range 1000 { // until the coordinator's topic is there
		resp := request[*kmsg.FindCoordinatorResponse](t, c, find).Coordinators[0]
		if resp.ErrorCode == 0 {
			if resp.ErrorMessage == nil || *resp.ErrorMessage != "NONE" {
				t.Errorf("the text of a found coordinator: %v, want NONE", resp.ErrorMessage)
			}
			break
		}
	}

	make1 := kmsg.NewPtrCreateTopicsRequest()
	twice := kmsg.NewCreateTopicsRequestTopic()
	twice.Topic, twice.NumPartitions, twice.ReplicationFactor = "topic", -1, -1
	gap := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	gap.Partition, gap.Replicas = 1, []int32{0}
	twice.ReplicaAssignment = append(twice.ReplicaAssignment, gap)
	make1.Topics, make1.TimeoutMillis = append(make1.Topics, twice), 10_000
	code("a topic that exists, with an assignment that cannot be", request[*kmsg.CreateTopicsResponse](t, c, make1).Topics[0].ErrorCode, kerr.TopicAlreadyExists)
	make1.Topics[0].Topic = "other"
	code("a topic with an assignment that cannot be", request[*kmsg.CreateTopicsResponse](t, c, make1).Topics[0].ErrorCode, kerr.InvalidReplicaAssignment)

	init := kmsg.NewPtrInitProducerIDRequest()
	init.ProducerID, init.ProducerEpoch = -5, -1
	code("a producer id without an epoch", request[*kmsg.InitProducerIDResponse](t, c, init).ErrorCode, kerr.InvalidRequest)

	p := &txnClient{t: t, c: c, id: "id", topic: "topic"}
	p.init(time.Minute)
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = p.id, p.pid, p.epoch
	for _, name := range []string{"__transaction_state", "topic"} {
		rt := kmsg.NewAddPartitionsToTxnRequestTopic()
		rt.Topic, rt.Partitions = name, []int32{0}
		add.Topics = append(add.Topics, rt)
	}
	added := direct[*kmsg.AddPartitionsToTxnResponse](t, n, 3, add)
	code("an internal topic in a transaction", added.Topics[0].Partitions[0].ErrorCode, kerr.TopicAuthorizationFailed)
	code("a topic beside it", added.Topics[1].Partitions[0].ErrorCode, kerr.OperationNotAttempted)

	verify := kmsg.NewAddPartitionsToTxnRequestTransaction()
	verify.TransactionalID, verify.ProducerID, verify.ProducerEpoch, verify.VerifyOnly = p.id, p.pid, p.epoch, true
	for _, name := range []string{"missing", "topic"} {
		rt := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
		rt.Topic, rt.Partitions = name, []int32{0}
		verify.Topics = append(verify.Topics, rt)
	}
	add.Topics, add.Transactions = nil, append(add.Transactions, verify)
	verified := direct[*kmsg.AddPartitionsToTxnResponse](t, n, 5, add).Transactions[0]
	code("a missing topic in a verification", verified.Topics[0].Partitions[0].ErrorCode, kerr.UnknownTopicOrPartition)
	code("a topic beside it", verified.Topics[1].Partitions[0].ErrorCode, kerr.OperationNotAttempted)

	producers := kmsg.NewPtrDescribeProducersRequest()
	rt := kmsg.NewDescribeProducersRequestTopic()
	rt.Topic, rt.Partitions = "..", []int32{0}
	producers.Topics = append(producers.Topics, rt)
	code("producers of a name that cannot be", direct[*kmsg.DescribeProducersResponse](t, n, 0, producers).Topics[0].Partitions[0].ErrorCode, kerr.InvalidTopicException)

	list := kmsg.NewPtrListTransactionsRequest()
	list.DurationFilterMillis = 1000
	if states := direct[*kmsg.ListTransactionsResponse](t, n, 1, list).TransactionStates; len(states) != 1 {
		t.Errorf("transactions that last long: %v, want the one that never began", states)
	}
}

// TestProduceAnswersAsAWhole holds what a Produce request gets that is no matter of one batch.
func TestProduceAnswersAsAWhole(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "topic", 2)
	produce := func(transaction *string, batches ...[]byte) []kmsg.ProduceResponseTopicPartition {
		t.Helper()
		req := kmsg.NewPtrProduceRequest()
		req.TransactionID, req.Acks, req.TimeoutMillis = transaction, -1, 0
		rt := kmsg.NewProduceRequestTopic()
		rt.Topic = "topic"
		for i, b := range batches {
			rp := kmsg.NewProduceRequestTopicPartition()
			rp.Partition, rp.Records = int32(i), b
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
		return direct[*kmsg.ProduceResponse](t, n, 9, req).Topics[0].Partitions
	}
	plain := record.NewBuilder(record.BuilderOptions{})
	plain.Append(time.Now().UnixMilli(), nil, []byte("value"), nil)
	for range 20 {
		if got := produce(nil, plain.Batch(0))[0]; got.ErrorCode != 0 {
			t.Fatalf("no time to wait for replicas, of which there are none: code %d", got.ErrorCode)
		}
	}
	id := "id"
	one, two := &txnClient{pid: 1}, &txnClient{pid: 2}
	for i, got := range produce(&id, one.batch(false), two.batch(false)) {
		if got.ErrorCode != kerr.InvalidProducerIDMapping.Code {
			t.Errorf("partition %d of a request of two producers: %v", i, kerr.ErrorForCode(got.ErrorCode))
		}
	}
}
