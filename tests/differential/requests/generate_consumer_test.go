//go:build differential

package requests

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumerGroup is a group of the consumer protocol (KIP-848), as its members know it.
type consumerGroup struct {
	name    string
	members []*consumer
}

type consumer struct {
	id       string
	instance *string
	epoch    int32
	assigned map[[16]byte][]int32 // what it was told last
}

// consumerGroup is one of the round's, seldom one of another protocol or none.
func (m *model) consumerGroup() *consumerGroup {
	if m.chance(5) {
		return &consumerGroup{name: pick(m, "", "no-such-group", m.groups[0].name, m.named("cn"))}
	}
	return pick(m, m.consumers...)
}

// consumer is one of the group, or one that was never there.
func (m *model) consumer(g *consumerGroup) *consumer {
	if len(g.members) == 0 || m.chance(8) {
		return &consumer{id: pick(m, "", "nobody", m.uuid()), epoch: pick[int32](m, 1, 0, 5)}
	}
	return pick(m, g.members...)
}

// uuid is an id as Kafka's consumers make it.
func (m *model) uuid() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], m.Uint64())
	binary.BigEndian.PutUint64(b[8:], m.Uint64())
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func (m *model) consumerHeartbeat() kmsg.Request {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	g := m.consumerGroup()
	r.Group = g.name
	if n := len(g.members); n == 0 || n < 4 && m.chance(25) {
		m.consumerJoin(r)
		return r
	}
	who := m.consumer(g)
	r.MemberID, r.InstanceID, r.MemberEpoch = who.id, who.instance, who.epoch
	switch {
	case m.chance(12):
		r.MemberEpoch = -1
		if who.instance != nil && m.chance(50) {
			r.MemberEpoch = -2
		}
		return r
	case m.chance(8):
		m.consumerJoin(r) // again
		r.MemberID, r.InstanceID = who.id, who.instance
		return r
	case m.chance(10):
		r.MemberEpoch += pick[int32](m, 1, -1, 100, -2)
	case m.chance(4):
		r.InstanceID = pick(m, nil, kmsg.StringPtr("one"), kmsg.StringPtr("three"), kmsg.StringPtr(""))
	}
	if m.chance(60) {
		r.Topics = owned(who.assigned)
	}
	if m.chance(15) {
		r.RebalanceTimeoutMillis = long
		m.subscribe(r)
	}
	return r
}

// consumerJoin is a first heartbeat, with something left out now and then.
func (m *model) consumerJoin(r *kmsg.ConsumerGroupHeartbeatRequest) {
	r.MemberID, r.MemberEpoch, r.RebalanceTimeoutMillis = m.uuid(), 0, long
	r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	m.subscribe(r)
	if m.chance(25) {
		r.InstanceID = kmsg.StringPtr(pick(m, "one", "two"))
	}
	if m.chance(10) {
		r.RackID = kmsg.StringPtr(pick(m, "rack", ""))
	}
	switch {
	case m.chance(4):
		r.RebalanceTimeoutMillis = -1
	case m.chance(4):
		r.SubscribedTopicNames = nil
	case m.chance(4):
		r.Topics = owned(map[[16]byte][]int32{m.topic().id: {0}})
	case m.chance(2):
		r.Topics = nil
	case m.chance(5):
		r.MemberID = ""
	}
}

// subscribe names topics and, now and then, an assignor.
func (m *model) subscribe(r *kmsg.ConsumerGroupHeartbeatRequest) {
	r.SubscribedTopicNames = []string{}
	for _, t := range m.different() {
		r.SubscribedTopicNames = append(r.SubscribedTopicNames, t.name)
	}
	if m.chance(5) {
		r.SubscribedTopicNames = []string{}
	}
	if m.chance(30) {
		r.ServerAssignor = kmsg.StringPtr(pick(m, "uniform", "range", "range", "range", "nonsense", ""))
	}
}

// owned is an assignment as a heartbeat tells it.
func owned(assigned map[[16]byte][]int32) []kmsg.ConsumerGroupHeartbeatRequestTopic {
	out := []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	ids := slices.SortedFunc(maps.Keys(assigned), func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	for _, id := range ids {
		t := kmsg.NewConsumerGroupHeartbeatRequestTopic()
		t.TopicID, t.Partitions = id, assigned[id]
		out = append(out, t)
	}
	return out
}

// consumerByPattern joins a group of its own with a regular expression: what Kafka makes of it is known behind the answer only.
func (m *model) consumerByPattern() kmsg.Request {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	m.patterns++
	r.Group = m.named(fmt.Sprint("p", m.patterns))
	m.consumerJoin(r)
	r.SubscribedTopicRegex = kmsg.StringPtr(pick(m, m.named("t.*"), m.named("ta"), "nothing.*", ".*(", "a{2,1}", "[b", "(?<=a)b", `\p{Greek}+`, ""))
	if m.chance(70) {
		r.SubscribedTopicNames = nil
	}
	return r
}

func (m *model) describeConsumers() kmsg.Request {
	r := kmsg.NewPtrConsumerGroupDescribeRequest()
	r.Groups = sample(m, 2, func() string { return m.consumerGroup().name })
	r.IncludeAuthorizedOperations = m.chance(20)
	return r
}

// consumerCommit commits offsets as a member of such a group.
func (m *model) consumerCommit() kmsg.Request {
	r := m.commit().(*kmsg.OffsetCommitRequest)
	g := m.consumerGroup()
	who := m.consumer(g)
	r.Group, r.MemberID, r.InstanceID, r.Generation = g.name, who.id, who.instance, who.epoch
	if m.chance(15) {
		r.Generation += pick[int32](m, 1, -1, -100)
	}
	if m.chance(10) {
		r.MemberID, r.Generation = "", -1
	}
	return r
}

func (m *model) consumerOffsets() kmsg.Request {
	r := m.offsetFetch().(*kmsg.OffsetFetchRequest)
	g := m.consumerGroup()
	r.Group = g.name
	who := m.consumer(g)
	for i := range r.Groups {
		r.Groups[i].Group = g.name
		if m.chance(60) {
			r.Groups[i].MemberID, r.Groups[i].MemberEpoch = &who.id, who.epoch
			if m.chance(20) {
				r.Groups[i].MemberEpoch += pick[int32](m, 1, -1, -100)
			}
		}
	}
	r.Groups = r.Groups[:1]
	return r
}

// acrossProtocols asks a group of the consumer protocol what groups of the classic one are asked.
func (m *model) acrossProtocols() kmsg.Request {
	g := m.consumerGroup()
	who := m.consumer(g)
	switch m.IntN(6) {
	case 0:
		r := m.join().(*kmsg.JoinGroupRequest)
		r.Group = g.name
		return r
	case 1:
		r := m.heartbeat().(*kmsg.HeartbeatRequest)
		r.Group, r.MemberID, r.InstanceID, r.Generation = g.name, who.id, nil, who.epoch
		return r
	case 2:
		r := m.sync().(*kmsg.SyncGroupRequest)
		r.Group, r.MemberID, r.InstanceID, r.Generation = g.name, who.id, nil, who.epoch
		return r
	case 3:
		r := kmsg.NewPtrDescribeGroupsRequest()
		r.Groups = []string{g.name}
		return r
	case 4:
		r := kmsg.NewPtrDeleteGroupsRequest()
		r.Groups = []string{g.name}
		return r
	default:
		r := m.offsetDelete().(*kmsg.OffsetDeleteRequest)
		r.Group = g.name
		return r
	}
}

// learnConsumer takes over a member's epoch and assignment.
func (m *model) learnConsumer(q *kmsg.ConsumerGroupHeartbeatRequest, r *kmsg.ConsumerGroupHeartbeatResponse) {
	for _, g := range m.consumers {
		if g.name != q.Group {
			continue
		}
		id := q.MemberID
		if r.MemberID != nil {
			id = *r.MemberID
		}
		at := slices.IndexFunc(g.members, func(c *consumer) bool { return c.id == id })
		switch {
		case r.ErrorCode == 25 && at >= 0: // UNKNOWN_MEMBER_ID
			g.members = slices.Delete(g.members, at, at+1)
			return
		case r.ErrorCode != 0:
			return
		case r.MemberEpoch == -1:
			if at >= 0 {
				g.members = slices.Delete(g.members, at, at+1)
			}
			return
		case at < 0:
			if q.InstanceID != nil { // it takes the place of the one that had the name
				g.members = slices.DeleteFunc(g.members, func(c *consumer) bool { return c.instance != nil && *c.instance == *q.InstanceID })
			}
			g.members = append(g.members, &consumer{id: id, instance: q.InstanceID})
			at = len(g.members) - 1
		}
		c := g.members[at]
		c.epoch = r.MemberEpoch
		if r.Assignment != nil {
			c.assigned = map[[16]byte][]int32{}
			for _, t := range r.Assignment.Topics {
				c.assigned[t.TopicID] = t.Partitions
			}
		}
	}
}
