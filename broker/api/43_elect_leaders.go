package api

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/controller"
)

// ElectLeaders, v0–v2 (KIP-183, KIP-460).
//
// A partition whose preferred replica leads (unclean: that has a leader) is ELECTION_NOT_NEEDED; one without leader has no other
// replica to elect: PREFERRED_LEADER_NOT_AVAILABLE, unclean ELIGIBLE_LEADERS_NOT_AVAILABLE. Asked for all partitions (null),
// the answer names every topic, but only the partitions where something is wrong. Before v1 every election is of the preferred.

func (h *Handlers) electLeaders(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.ElectLeadersRequest)
	resp := kmsg.NewPtrElectLeadersResponse()
	resp.Version = req.Version
	im := h.Controller.Image()
	var failed error
	if req.Topics != nil && len(req.Topics) == 0 {
		return resp, nil
	}
	if req.ElectionType != 0 && req.ElectionType != 1 {
		failed = &explained{kerr.InvalidRequest, fmt.Sprint("Unknown election type ", req.ElectionType)}
		resp.ErrorCode = codeOf(failed)
	}
	asked, all := req.Topics, req.Topics == nil
	if all && failed == nil {
		for _, name := range im.TopicNames() {
			asked = append(asked, kmsg.ElectLeadersRequestTopic{Topic: name, Partitions: partitionIndexes(im.Topic(name))})
		}
	}
	for _, ask := range asked {
		t := kmsg.NewElectLeadersResponseTopic()
		t.Topic = ask.Topic
		for _, n := range ask.Partitions {
			err := failed
			if err == nil {
				err = electLeader(im, ask.Topic, n, req.ElectionType == 1)
			}
			p := kmsg.NewElectLeadersResponseTopicPartition()
			p.Partition = n
			setError(&p.ErrorCode, &p.ErrorMessage, err)
			if !all || p.ErrorCode != kerr.ElectionNotNeeded.Code {
				t.Partitions = append(t.Partitions, p)
			}
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp, nil
}

func electLeader(im *controller.Image, topic string, n int32, unclean bool) error {
	if im.Topic(topic) == nil {
		return &explained{kerr.UnknownTopicOrPartition, "No such topic as " + topic}
	}
	p := im.Partition(topic, n)
	switch {
	case p == nil:
		return &explained{kerr.UnknownTopicOrPartition, fmt.Sprintf("No such partition as %s-%d", topic, n)}
	case unclean && p.Leader != controller.NoLeader, !unclean && slices.Index(p.Replicas, p.Leader) == 0:
		return &explained{kerr.ElectionNotNeeded, "Leader election not needed for topic partition."}
	case unclean:
		return &explained{kerr.EligibleLeadersNotAvailable, "Eligible topic partition leaders are not available."}
	}
	return &explained{kerr.PreferredLeaderNotAvailable, "The preferred leader was not available."}
}
