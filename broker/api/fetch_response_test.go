package api

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/internal/kafka"
)

// TestFetchResponseEqualsKmsg compares the encoder with kmsg's at every version, for answers with every kind of field.
func TestFetchResponseEqualsKmsg(t *testing.T) {
	for v := int16(4); v <= 18; v++ {
		for seed := range uint64(50) {
			t.Run(fmt.Sprintf("v%d/%d", v, seed), func(t *testing.T) {
				ours, theirs := randomFetchResponse(rand.New(rand.NewPCG(seed, uint64(v))), v)
				want := theirs.AppendTo([]byte("before"))
				got := ours.AppendTo([]byte("before"))
				if !bytes.Equal(got, want) {
					t.Fatalf("encodings differ\n got %x\nwant %x", got, want)
				}
			})
		}
	}
}

func randomFetchResponse(r *rand.Rand, v int16) (*fetchResponse, *kmsg.FetchResponse) {
	theirs := kmsg.NewPtrFetchResponse()
	ours := &fetchResponse{}
	theirs.Version, ours.Version = v, v
	if v >= 7 {
		theirs.ErrorCode, theirs.SessionID = int16(r.IntN(3)), r.Int32()
		ours.ErrorCode, ours.SessionID = theirs.ErrorCode, theirs.SessionID
	}
	theirs.ThrottleMillis = r.Int32N(5)
	ours.ThrottleMillis = theirs.ThrottleMillis
	for i := range r.IntN(4) {
		t := kmsg.NewFetchResponseTopic()
		var id kafka.UUID
		if v >= 13 {
			id[0], id[15] = byte(i+1), byte(r.IntN(256))
			t.TopicID = id
		} else {
			t.Topic = fmt.Sprintf("topic-%d", i)
		}
		for j := range 1 + r.IntN(200) {
			op, tp := randomFetchPart(r, v, int32(j))
			op.topic, op.topicID = t.Topic, id
			ours.parts = append(ours.parts, op)
			t.Partitions = append(t.Partitions, tp)
		}
		theirs.Topics = append(theirs.Topics, t)
	}
	for range r.IntN(3) {
		if v < 16 {
			break
		}
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host, b.Port = r.Int32N(9), "host", r.Int32N(60000)
		l := leaderEndpoint{id: b.NodeID, host: b.Host, port: b.Port}
		if r.IntN(2) == 0 {
			rack := "rack-1"
			b.Rack, l.rack = &rack, &rack
		}
		theirs.Brokers = append(theirs.Brokers, b)
		ours.leaders = append(ours.leaders, l)
	}
	return ours, theirs
}

func randomFetchPart(r *rand.Rand, v int16, index int32) (fetchPart, kmsg.FetchResponseTopicPartition) {
	t := kmsg.NewFetchResponseTopicPartition()
	t.Partition, t.ErrorCode = index, int16(r.IntN(100))
	t.HighWatermark, t.LastStableOffset = r.Int64(), r.Int64()
	o := fetchPart{partition: index, code: t.ErrorCode, hw: t.HighWatermark, lso: t.LastStableOffset, logStart: -1,
		diverging: partition.EpochEnd{Epoch: -1, End: -1}, leader: leaderEndpoint{id: -1, epoch: -1}}
	if v >= 5 {
		t.LogStartOffset = r.Int64()
		o.logStart = t.LogStartOffset
	}
	if r.IntN(2) == 0 {
		o.committed = true
		t.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
		for range r.IntN(3) {
			a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
			a.ProducerID, a.FirstOffset = r.Int64(), r.Int64()
			t.AbortedTransactions = append(t.AbortedTransactions, a)
			o.aborted = append(o.aborted, partition.AbortedTxn{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset})
		}
	}
	t.RecordBatches = make([]byte, r.IntN(300))
	for i := range t.RecordBatches {
		t.RecordBatches[i] = byte(r.IntN(256))
	}
	o.records = partition.Records{Data: t.RecordBatches}
	if v >= 12 && r.IntN(3) == 0 {
		t.DivergingEpoch.Epoch, t.DivergingEpoch.EndOffset = r.Int32(), r.Int64()
		o.diverging = partition.EpochEnd{Epoch: t.DivergingEpoch.Epoch, End: t.DivergingEpoch.EndOffset}
	}
	if v >= 12 && r.IntN(3) == 0 {
		t.CurrentLeader.LeaderID, t.CurrentLeader.LeaderEpoch = r.Int32(), r.Int32()
		o.leader.id, o.leader.epoch = t.CurrentLeader.LeaderID, t.CurrentLeader.LeaderEpoch
	}
	return o, t
}
