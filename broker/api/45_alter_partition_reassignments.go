package api

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/controller"
)

// AlterPartitionReassignments, v0–v1 (KIP-455, KIP-860).
//
// Each partition is judged by itself. An assignment to the replicas that the partition has is done at once; assignments that
// cannot be (empty, unknown brokers, a broker twice, a changed replication factor that v1 forbids) are refused as Kafka does.
// Ending a reassignment (null replicas) is NO_REASSIGNMENT_IN_PROGRESS, since none ever lasts.
//
// Not done: moves to other brokers, which are INVALID_REPLICA_ASSIGNMENT.

func (h *Handlers) alterReassignments(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.AlterPartitionAssignmentsRequest)
	resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
	resp.Version = req.Version
	resp.AllowReplicationFactorChange = req.AllowReplicationFactorChange
	mayChange := req.Version < 1 || req.AllowReplicationFactorChange
	im := h.Controller.Image()
	for i := range req.Topics {
		ask := &req.Topics[i]
		t := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		t.Topic = ask.Topic
		for j := range ask.Partitions {
			p := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			p.Partition = ask.Partitions[j].Partition
			err := reassign(im, ask.Topic, &ask.Partitions[j], mayChange)
			if p.ErrorCode = codeOf(err); !errors.Is(err, errNoReassignment) { // Kafka tells no text with this one
				p.ErrorMessage = reasonOf(err)
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp, nil
}

var errNoReassignment error = kerr.NoReassignmentInProgress

func reassign(im *controller.Image, topic string, ask *kmsg.AlterPartitionAssignmentsRequestTopicPartition, changeFactor bool) error {
	if im.Topic(topic) == nil {
		return &explained{kerr.UnknownTopicOrPartition, fmt.Sprintf("Unable to find a topic named %s.", topic)}
	}
	p := im.Partition(topic, ask.Partition)
	if p == nil {
		return &explained{kerr.UnknownTopicOrPartition, fmt.Sprintf("Unable to find partition %s:%d.", topic, ask.Partition)}
	}
	if ask.Replicas == nil {
		return errNoReassignment
	}
	if err := checkAssignment(im, ask.Replicas); err != nil {
		return err
	}
	if !changeFactor && len(ask.Replicas) != len(p.Replicas) {
		return &explained{kerr.InvalidReplicationFactor, fmt.Sprintf("The replication factor is changed from %d to %d", len(p.Replicas), len(ask.Replicas))}
	}
	if !slices.Equal(ask.Replicas, p.Replicas) {
		return &explained{kerr.InvalidReplicaAssignment, "Partitions cannot be moved to other brokers."}
	}
	return nil
}

// checkAssignment checks a manual assignment as Kafka does.
func checkAssignment(im *controller.Image, replicas []int32) error {
	refuse := func(format string, args ...any) error {
		return &explained{kerr.InvalidReplicaAssignment, "The manual partition assignment includes " + fmt.Sprintf(format, args...)}
	}
	if len(replicas) == 0 {
		return refuse("an empty replica list.")
	}
	sorted := slices.Sorted(slices.Values(replicas))
	for i, id := range sorted {
		if im.Brokers[id] == nil {
			return refuse("broker %d, but no such broker is registered.", id)
		}
		if i > 0 && id == sorted[i-1] {
			return refuse("the broker %d more than once.", id)
		}
	}
	return nil
}
