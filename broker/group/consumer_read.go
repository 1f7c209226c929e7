package group

import (
	"time"

	"github.com/varvehq/varve/broker/group/assignor"
)

// ConsumerDescription tells a group of the consumer protocol.
type ConsumerDescription struct {
	State       string
	Epoch       int32
	TargetEpoch int32
	Assignor    string
	Members     []ConsumerMemberDescription // in order of id
}

// ConsumerMemberDescription is one member of a ConsumerDescription.
type ConsumerMemberDescription struct {
	MemberID             string
	InstanceID, RackID   *string
	Epoch                int32
	ClientID, ClientHost string
	Topics               []string
	Regex                string
	RebalanceTimeout     time.Duration
	Assigned             assignor.Set // with what it has to give up
	Target               assignor.Set
	Classic              bool // it speaks the classic protocol
}

// DescribeConsumer tells a group of the consumer protocol, or ErrGroupNotFound.
func (c *Coordinator) DescribeConsumer(id string) (ConsumerDescription, error) {
	g := c.groups[id]
	if g == nil || g.consumer == nil || g.state == Dead {
		return ConsumerDescription{}, ErrGroupNotFound
	}
	cg := g.consumer
	d := ConsumerDescription{State: cg.state(), Epoch: cg.epoch, TargetEpoch: cg.targetEpoch, Assignor: cg.assignorName()}
	for _, m := range cg.sorted() {
		d.Members = append(d.Members, ConsumerMemberDescription{MemberID: m.id, InstanceID: m.instance, RackID: m.rack, Epoch: m.epoch,
			ClientID: m.clientID, ClientHost: m.clientHost, Topics: m.topics, Regex: m.regex, RebalanceTimeout: m.rebalanceTimeout,
			Assigned: m.has(), Target: m.target, Classic: m.classic != nil})
	}
	return d, nil
}
