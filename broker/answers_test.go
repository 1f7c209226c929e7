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

// TestAnswersOfLeaderEpochs: a partition has its leader epoch before its first record, an epoch below all ends where the log
// begins, and −1 alone stands for none.
func TestAnswersOfLeaderEpochs(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "t", 1)
	for _, written := range []bool{false, true} {
		if written {
			dial(t, n.Bootstrap()).call(produceReq("t", 0, -1, batchOf("a", "b")), kmsg.NewPtrProduceResponse(), 9)
		}
		end := int64(0)
		if written {
			end = 2
		}
		for _, c := range []struct {
			current, asked int32
			code           *kerr.Error
			epoch          int32
			end            int64
		}{
			{-1, 0, nil, 0, end},
			{-1, -2, nil, -2, 0},
			{-1, -1, nil, -1, -1},
			{-1, 5, nil, -1, -1},
			{-2, 0, kerr.FencedLeaderEpoch, -1, -1},
			{3, 0, kerr.UnknownLeaderEpoch, -1, -1},
		} {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			tp, p := kmsg.NewOffsetForLeaderEpochRequestTopic(), kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			tp.Topic, p.CurrentLeaderEpoch, p.LeaderEpoch = "t", c.current, c.asked
			tp.Partitions = append(tp.Partitions, p)
			req.Topics = append(req.Topics, tp)
			got := direct[*kmsg.OffsetForLeaderEpochResponse](t, n, 4, req).Topics[0].Partitions[0]
			want := int16(0)
			if c.code != nil {
				want = c.code.Code
			}
			if got.ErrorCode != want || got.LeaderEpoch != c.epoch || got.EndOffset != c.end {
				t.Errorf("written: %v, current epoch %d, epoch %d: %+v, want code %d, epoch %d, end %d", written, c.current, c.asked, got, want, c.epoch, c.end)
			}
		}
		req := fetchReq("t", 0, 9, 0, 1)
		req.Topics[0].Partitions[0].LastFetchedEpoch = 0
		got := direct[*kmsg.FetchResponse](t, n, 12, req).Topics[0].Partitions[0]
		if got.ErrorCode != 0 || got.DivergingEpoch.Epoch != 0 || got.DivergingEpoch.EndOffset != end {
			t.Errorf("written: %v, a log that is longer: %+v, want that it diverges at %d", written, got, end)
		}
		req = fetchReq("t", 0, 0, 0, 0)
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = -2 // in a fetch this is none too
		if got := direct[*kmsg.FetchResponse](t, n, 12, req).Topics[0].Partitions[0]; got.ErrorCode != 0 {
			t.Errorf("written: %v, a fetch in epoch -2: %+v", written, got)
		}
	}
}

// TestAnswersOfOrder: of several things that are wrong the answer names what Kafka's names.
func TestAnswersOfOrder(t *testing.T) {
	n := harness.Start(t)
	createTopic(t, n.Client(), "topic", 1)

	batch := batchOf("a")
	record.SetBaseOffset(batch, 7)
	produced := direct[*kmsg.ProduceResponse](t, n, 9, produceReq("topic", 0, -1, batch)).Topics[0].Partitions[0]
	if produced.ErrorCode != kerr.InvalidRecord.Code {
		t.Errorf("a batch that begins at offset 7: %+v, want INVALID_RECORD", produced)
	}

	made := kmsg.NewPtrCreateTopicsRequest()
	topic, conf := kmsg.NewCreateTopicsRequestTopic(), kmsg.NewCreateTopicsRequestTopicConfig()
	conf.Name, conf.Value = "no.such", kmsg.StringPtr("1")
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor, topic.Configs = "new", 1, 0, append(topic.Configs, conf)
	made.TimeoutMillis, made.Topics = 10_000, append(made.Topics, topic)
	if got := direct[*kmsg.CreateTopicsResponse](t, n, 7, made).Topics[0]; got.ErrorCode != kerr.InvalidConfig.Code {
		t.Errorf("a topic of no replicas and of an unknown config: %+v, want INVALID_CONFIG", got)
	}

	for name, want := range map[string]*kerr.Error{"": kerr.InvalidRequest, "no/name": kerr.InvalidTopicException, "none": kerr.InvalidConfig} {
		alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
		res, c := kmsg.NewIncrementalAlterConfigsRequestResource(), kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = "no.such", kmsg.StringPtr("1")
		res.ResourceType, res.ResourceName, res.Configs = kmsg.ConfigResourceTypeTopic, name, append(res.Configs, c)
		alter.Resources = append(alter.Resources, res)
		if got := direct[*kmsg.IncrementalAlterConfigsResponse](t, n, 1, alter).Resources[0]; got.ErrorCode != want.Code {
			t.Errorf("an unknown config of topic %q: %+v, want %v", name, got, want)
		}
	}

	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res, c := kmsg.NewIncrementalAlterConfigsRequestResource(), kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value, c.Op = "segment.ms", kmsg.StringPtr("1"), kmsg.IncrementalAlterConfigOpAppend
	res.ResourceType, res.ResourceName, res.Configs = kmsg.ConfigResourceTypeTopic, "topic", append(res.Configs, c, c)
	alter.Resources = append(alter.Resources, res)
	if got := direct[*kmsg.IncrementalAlterConfigsResponse](t, n, 1, alter).Resources[0]; got.ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("a change that cannot be, twice: %+v, want INVALID_REQUEST", got)
	}

	open := fetchReq("topic", 0, 0, 0, 0)
	open.SessionID, open.SessionEpoch = 0, 0
	session := direct[*kmsg.FetchResponse](t, n, 12, open).SessionID
	for epoch, want := range map[int32]*kerr.Error{7: kerr.InvalidFetchSessionEpoch, 1: kerr.FetchSessionTopicIDError} {
		next := kmsg.NewPtrFetchRequest()
		next.SessionID, next.SessionEpoch = session, epoch
		if got := direct[*kmsg.FetchResponse](t, n, 13, next); session == 0 || got.ErrorCode != want.Code {
			t.Errorf("epoch %d of session %d of names, in a version of ids: code %d, want %v", epoch, session, got.ErrorCode, want)
		}
	}

	tell := kmsg.NewPtrDescribeTopicPartitionsRequest()
	tell.ResponsePartitionLimit = 1
	for _, name := range []string{"topic", "unknown"} {
		tell.Topics = append(tell.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
	}
	told := direct[*kmsg.DescribeTopicPartitionsResponse](t, n, 0, tell)
	if len(told.Topics) != 1 || told.NextCursor == nil || told.NextCursor.Topic != "unknown" {
		t.Errorf("a page that is full before an unknown topic: %+v, want that the next begins there", told)
	}
}
