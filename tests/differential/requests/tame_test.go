//go:build differential

package requests

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// long is a time in milliseconds that outlasts a round.
const long = 600_000

// tame takes out of a request what would make the run depend on clocks (short timeouts that end in the middle of another
// request), make Kafka fail with an internal error in a way that says nothing of Varve, end the test itself (throttles of its own client, a broker whose settings are changed under it), or cost minutes.
func tame(req kmsg.Request) {
	switch r := req.(type) {
	case *kmsg.ProduceRequest: // Kafka does not answer where there are no records at all
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				if p := &r.Topics[i].Partitions[j]; p.Records == nil {
					p.Records = []byte{}
				}
			}
		}
	case *kmsg.FetchRequest:
		r.MaxWaitMillis = min(r.MaxWaitMillis, 10)
		// A follower's fetches move its own high watermark.
		r.ReplicaID, r.ReplicaState = -1, kmsg.NewFetchRequestReplicaState()
		for i := range r.Topics { // Kafka closes the connection where a tagged field is not of the version
			for j := range r.Topics[i].Partitions {
				def := kmsg.NewFetchRequestTopicPartition()
				r.Topics[i].Partitions[j].HighWatermark, r.Topics[i].Partitions[j].ReplicaDirectoryID = def.HighWatermark, def.ReplicaDirectoryID
			}
		}
	case *kmsg.JoinGroupRequest:
		if r.SessionTimeoutMillis >= 6000 {
			r.SessionTimeoutMillis = max(r.SessionTimeoutMillis, long)
		}
		r.RebalanceTimeoutMillis = max(r.RebalanceTimeoutMillis, long)
	case *kmsg.ConsumerGroupHeartbeatRequest:
		if r.RebalanceTimeoutMillis != -1 { // others are times
			r.RebalanceTimeoutMillis = max(r.RebalanceTimeoutMillis, long)
		}
	case *kmsg.InitProducerIDRequest:
		if r.TransactionTimeoutMillis > 0 {
			r.TransactionTimeoutMillis = max(r.TransactionTimeoutMillis, long)
		}
	case *kmsg.CreateTopicsRequest:
		r.TimeoutMillis = max(r.TimeoutMillis, 30_000)
		for i := range r.Topics {
			r.Topics[i].Topic = ours(r.Topics[i].Topic)
			r.Topics[i].NumPartitions = few(r.Topics[i].NumPartitions)
		}
	case *kmsg.CreatePartitionsRequest:
		r.TimeoutMillis = max(r.TimeoutMillis, 30_000)
		for i := range r.Topics {
			r.Topics[i].Topic = ours(r.Topics[i].Topic)
			r.Topics[i].Count = few(r.Topics[i].Count)
		}
	case *kmsg.DeleteTopicsRequest:
		r.TimeoutMillis = max(r.TimeoutMillis, 30_000)
		for i := range r.TopicNames {
			r.TopicNames[i] = ours(r.TopicNames[i])
		}
		for i := range r.Topics {
			if t := r.Topics[i].Topic; t != nil {
				r.Topics[i].Topic = kmsg.StringPtr(ours(*t))
			}
		}
	case *kmsg.DeleteRecordsRequest:
		r.TimeoutMillis = max(r.TimeoutMillis, 30_000)
		for i := range r.Topics {
			r.Topics[i].Topic = ours(r.Topics[i].Topic)
		}
	case *kmsg.WriteTxnMarkersRequest:
		for i := range r.Markers {
			for j := range r.Markers[i].Topics {
				r.Markers[i].Topics[j].Topic = ours(r.Markers[i].Topics[j].Topic)
			}
		}
	case *kmsg.DescribeTopicPartitionsRequest:
		if r.Cursor != nil && r.Cursor.Partition > 1<<30 { // Kafka adds to it
			r.Cursor.Partition = 7
		}
	case *kmsg.ListOffsetsRequest:
		r.TimeoutMillis = max(r.TimeoutMillis, 30_000)
	case *kmsg.ListTransactionsRequest:
		if r.DurationFilterMillis >= 0 && r.DurationFilterMillis < 1<<30 {
			r.DurationFilterMillis = -1
		}
	default:
		tameAdmin(req)
	}
}

func tameAdmin(req kmsg.Request) {
	switch r := req.(type) {
	case *kmsg.AlterConfigsRequest:
		for i := range r.Resources {
			r.Resources[i].ResourceName = ours(r.Resources[i].ResourceName)
			r.ValidateOnly = r.ValidateOnly || r.Resources[i].ResourceType != kmsg.ConfigResourceTypeTopic
		}
	case *kmsg.IncrementalAlterConfigsRequest:
		for i := range r.Resources {
			r.Resources[i].ResourceName = ours(r.Resources[i].ResourceName)
			r.ValidateOnly = r.ValidateOnly || r.Resources[i].ResourceType != kmsg.ConfigResourceTypeTopic
			for j := range r.Resources[i].Configs { // Kafka fails the whole request where it does not know the operation
				r.Resources[i].Configs[j].Op &= 3
			}
		}
	case *kmsg.AlterClientQuotasRequest:
		for _, e := range r.Entries {
			for _, n := range e.Entity {
				r.ValidateOnly = r.ValidateOnly || n.Name == nil || n.Type == "ip"
			}
		}
	case *kmsg.UpdateFeaturesRequest:
		r.TimeoutMillis = max(r.TimeoutMillis, 30_000)
		r.SetVersion(max(r.GetVersion(), 1)) // v0 cannot only validate
		r.ValidateOnly = true
	case *kmsg.ElectLeadersRequest:
		r.TimeoutMillis = max(r.TimeoutMillis, 30_000)
	case *kmsg.AlterPartitionAssignmentsRequest:
		r.TimeoutMillis = max(r.TimeoutMillis, 30_000)
		for i := range r.Topics {
			r.Topics[i].Topic = ours(r.Topics[i].Topic)
		}
	case *kmsg.ListPartitionReassignmentsRequest:
		r.TimeoutMillis = max(r.TimeoutMillis, 30_000)
	}
}

// ours is a topic's name that is no internal topic's.
func ours(name string) string {
	if strings.HasPrefix(name, "__") {
		return strings.TrimLeft(name, "_")
	}
	return name
}

// few keeps a number of partitions small, but for numbers that no broker makes.
func few(n int32) int32 {
	if n > 4 && n < 1<<20 {
		return 4
	}
	return n
}
