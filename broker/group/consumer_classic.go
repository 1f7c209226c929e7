package group

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/group/assignor"
)

// Members of a consumer group that speak the classic protocol: they join, sync and heartbeat as in a classic group, where the
// member's epoch is its generation, and nobody leads. What they are subscribed to and have is in the form of the clients' own
// protocol, inside of JoinGroup and SyncGroup.

// classicSide is what such a member has beside its subscription.
type classicSide struct {
	session   time.Duration
	protocols []Protocol // in the member's order of preference, at least one
}

func (s *classicSide) equal(o *classicSide) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.session == o.session && slices.EqualFunc(s.protocols, o.protocols, func(a, b Protocol) bool {
		return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata)
	})
}

func (s *classicSide) speaks(protocol string) bool {
	return slices.ContainsFunc(s.protocols, func(p Protocol) bool { return p.Name == protocol })
}

// protocol is the one that the coordinator tells the member to use.
func (s *classicSide) protocol() string { return s.protocols[0].Name }

// size is about what it takes in the log.
func (s *classicSide) size() int {
	n := 0
	for _, p := range s.protocols {
		n += len(p.Name) + len(p.Metadata) + 8
	}
	return n
}

// clientSubscription is what a client tells in its subscription.
type clientSubscription struct {
	topics []string // in order
	owned  []kmsg.ConsumerMemberMetadataOwnedPartition
	rack   *string
}

var errClientProtocol = errors.New("it is not of the consumers' embedded protocol")

// decodeSubscription reads a subscription. Versions above those known begin as the last that is.
func decodeSubscription(b []byte) (s clientSubscription, err error) {
	m := kmsg.NewConsumerMemberMetadata()
	if err := m.ReadFrom(b); err != nil || m.Version < 0 {
		return s, fmt.Errorf("a subscription of %d bytes: %w", len(b), errClientProtocol)
	}
	s.topics = slices.Clone(m.Topics)
	slices.Sort(s.topics)
	s.topics, s.owned, s.rack = slices.Compact(s.topics), m.OwnedPartitions, m.Rack
	return s, nil
}

// errCustomAssignor marks an assignment that has more than partitions.
var errCustomAssignor = errors.New("the assignment has data of an assignor")

// decodeAssignment reads what a leader gave to a member; nothing is an assignment of nothing.
func decodeAssignment(b []byte) ([]kmsg.ConsumerMemberAssignmentTopic, error) {
	if len(b) == 0 {
		return nil, nil
	}
	a := kmsg.NewConsumerMemberAssignment()
	switch err := a.ReadFrom(b); {
	case err != nil || a.Version < 0:
		return nil, fmt.Errorf("an assignment of %d bytes: %w", len(b), errClientProtocol)
	case len(a.UserData) > 0:
		return nil, errCustomAssignor
	}
	return a.Topics, nil
}

// Versions of the clients' protocol that are known.
const highestClientVersion = 3

// encodeAssignment tells a member of the classic protocol what it has, in the version of its subscription. Topics that do not
// exist any more are left out.
func (c *Coordinator) encodeAssignment(set assignor.Set, subscription []byte) []byte {
	a := kmsg.NewConsumerMemberAssignment()
	if len(subscription) >= 2 {
		a.Version = min(max(int16(subscription[0])<<8|int16(subscription[1]), 0), highestClientVersion)
	}
	for _, id := range sortedTopics(set) {
		name, ok := c.topics.Name(id)
		if ok && len(set[id]) > 0 {
			a.Topics = append(a.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: name, Partitions: set[id]})
		}
	}
	return a.AppendTo(nil)
}

// addPartitions adds partitions of a topic by name to a set. Those of a topic that does not exist are nobody's.
func (c *Coordinator) addPartitions(set assignor.Set, topic string, partitions []int32) {
	id, _, ok := c.topics.Topic(topic)
	if !ok || len(partitions) == 0 {
		return
	}
	ps := append(slices.Clone(set[id]), partitions...)
	slices.Sort(ps)
	set[id] = slices.Compact(ps)
}

func (c *Coordinator) ownedSet(owned []kmsg.ConsumerMemberMetadataOwnedPartition) assignor.Set {
	set := assignor.Set{}
	for _, t := range owned {
		c.addPartitions(set, t.Topic, t.Partitions)
	}
	return set
}
