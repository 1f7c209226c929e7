package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// quorumTopic is the name under which Kafka's tools ask for the metadata's log.
const quorumTopic = "__cluster_metadata"

// DescribeQuorum, v0–v2 (KIP-595, KIP-836, KIP-853).
//
// The voters of the metadata as Kafka tells those of its own: the leader, Raft's term as its epoch, the index after the last
// committed entry as high watermark. Any partition but the one of __cluster_metadata, or more than that one in a request, is
// UNKNOWN_TOPIC_OR_PARTITION for all. From v2 on the nodes' endpoints: those of the voters' brokers, since Varve has no
// listener for controllers alone.

func (h *Handlers) describeQuorum(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DescribeQuorumRequest)
	resp := kmsg.NewPtrDescribeQuorumResponse()
	resp.Version = req.Version
	none := ""
	resp.ErrorMessage = &none
	valid := len(req.Topics) == 1 && req.Topics[0].Topic == quorumTopic &&
		len(req.Topics[0].Partitions) == 1 && req.Topics[0].Partitions[0].Partition == 0
	for i := range req.Topics {
		t := kmsg.NewDescribeQuorumResponseTopic()
		t.Topic = req.Topics[i].Topic
		for _, ask := range req.Topics[i].Partitions {
			p := kmsg.NewDescribeQuorumResponseTopicPartition()
			p.Partition, p.ErrorMessage = ask.Partition, &none
			if valid {
				h.describeVoters(&p)
			} else {
				setError(&p.ErrorCode, &p.ErrorMessage, &explained{kerr.UnknownTopicOrPartition, "This server does not host this topic-partition."})
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	if valid {
		resp.Nodes = h.voterNodes()
	}
	return resp, nil
}

func (h *Handlers) describeVoters(p *kmsg.DescribeQuorumResponseTopicPartition) {
	q := h.Admin.Quorum()
	now := h.Clock().UnixMilli()
	p.LeaderID, p.LeaderEpoch, p.HighWatermark = q.Leader, q.Epoch, q.End
	for _, id := range q.Voters {
		s := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
		s.ReplicaID, s.LogEndOffset = id, -1
		if id == q.Leader {
			s.LogEndOffset, s.LastFetchTimestamp, s.LastCaughtUpTimestamp = q.End, now, now
		}
		p.CurrentVoters = append(p.CurrentVoters, s)
	}
}

func (h *Handlers) voterNodes() []kmsg.DescribeQuorumResponseNode {
	var nodes []kmsg.DescribeQuorumResponseNode
	im := h.Controller.Image()
	for _, id := range h.Admin.Quorum().Voters {
		n := kmsg.NewDescribeQuorumResponseNode()
		n.NodeID = id
		if b := im.Brokers[id]; b != nil {
			for _, l := range b.Listeners {
				n.Listeners = append(n.Listeners, kmsg.DescribeQuorumResponseNodeListener{Name: l.Name, Host: l.Host, Port: uint16(l.Port)})
			}
		}
		nodes = append(nodes, n)
	}
	return nodes
}
