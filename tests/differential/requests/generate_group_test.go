//go:build differential

package requests

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func (m *model) join() kmsg.Request {
	r := kmsg.NewPtrJoinGroupRequest()
	g := m.group()
	r.Group, r.ProtocolType = g.name, "consumer"
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = long, long
	if len(g.members) > 0 && m.chance(60) {
		who := m.member(g)
		r.MemberID, r.InstanceID = who.id, who.instance
	} else if m.chance(30) {
		r.InstanceID = kmsg.StringPtr(pick(m, "one", "two"))
	}
	for _, name := range pick(m, []string{"range"}, []string{"range", "sticky"}, []string{"sticky", "range"}, []string{"other"}, nil) {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = name, pick(m, []byte("meta"), []byte{}, subscription(m.topic().name))
		r.Protocols = append(r.Protocols, p)
	}
	if m.chance(5) {
		r.ProtocolType = pick(m, "", "connect")
	}
	return r
}

// subscription is what consumers send.
func subscription(topic string) []byte {
	c := kmsg.NewConsumerMemberMetadata()
	c.Topics = []string{topic}
	return c.AppendTo(nil)
}

func (m *model) sync() kmsg.Request {
	r := kmsg.NewPtrSyncGroupRequest()
	g := m.group()
	who := m.member(g)
	r.Group, r.MemberID, r.InstanceID, r.Generation = g.name, who.id, who.instance, m.generation(g)
	if m.chance(70) {
		r.ProtocolType, r.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr(pick(m, "range", "range", "sticky", ""))
	}
	for _, other := range g.members {
		if m.chance(85) {
			a := kmsg.NewSyncGroupRequestGroupAssignment()
			a.MemberID, a.MemberAssignment = other.id, []byte("assigned")
			r.GroupAssignment = append(r.GroupAssignment, a)
		}
	}
	return r
}

func (m *model) heartbeat() kmsg.Request {
	r := kmsg.NewPtrHeartbeatRequest()
	g := m.group()
	who := m.member(g)
	r.Group, r.MemberID, r.InstanceID, r.Generation = g.name, who.id, who.instance, m.generation(g)
	return r
}

func (m *model) leave() kmsg.Request {
	r := kmsg.NewPtrLeaveGroupRequest()
	g := m.group()
	r.Group = g.name
	for range 1 + m.IntN(2) {
		who := m.member(g)
		r.MemberID = who.id
		l := kmsg.NewLeaveGroupRequestMember()
		l.MemberID, l.InstanceID = who.id, who.instance
		if who.instance != nil && m.chance(30) {
			l.MemberID = ""
		}
		r.Members = append(r.Members, l)
		g.members = slices.DeleteFunc(g.members, func(o *member) bool { return o.id == who.id })
	}
	return r
}

func (m *model) commit() kmsg.Request {
	r := kmsg.NewPtrOffsetCommitRequest()
	g := m.group()
	r.Group = g.name
	switch {
	case len(g.members) > 0 && m.chance(70):
		who := m.member(g)
		r.MemberID, r.InstanceID, r.Generation = who.id, who.instance, m.generation(g)
	default:
		r.Generation = -1
	}
	for _, t := range m.different() {
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic, rt.TopicID = t.name, t.id
		for i := range 1 + m.IntN(2) {
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = int32(i), int64(m.IntN(10)), pick[int32](m, -1, 0), m.metadata()
			if m.chance(5) {
				p.Partition, p.Offset = m.partition(), pick[int64](m, -1, -2, 1<<62)
			}
			rt.Partitions = append(rt.Partitions, p)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

// different are one or two topics, each once.
func (m *model) different() []*topic {
	t := []*topic{m.topic()}
	if u := m.topic(); m.chance(50) && u.name != t[0].name {
		t = append(t, u)
	}
	return t
}

func (m *model) offsetFetch() kmsg.Request {
	r := kmsg.NewPtrOffsetFetchRequest()
	r.RequireStable = m.chance(30)
	r.Group = m.group().name
	for _, t := range m.different() {
		rt := kmsg.NewOffsetFetchRequestTopic()
		rt.Topic, rt.Partitions = t.name, []int32{0, m.partition()}
		r.Topics = append(r.Topics, rt)
	}
	if m.chance(30) {
		r.Topics = nil
	}
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = r.Group
	for _, t := range m.different() {
		rt := kmsg.NewOffsetFetchRequestGroupTopic()
		rt.Topic, rt.TopicID, rt.Partitions = t.name, t.id, []int32{0, m.partition()}
		g.Topics = append(g.Topics, rt)
	}
	if m.chance(30) {
		g.Topics = nil
	}
	r.Groups = append(r.Groups, g)
	if h := m.group(); m.chance(30) && h.name != g.Group {
		o := kmsg.NewOffsetFetchRequestGroup()
		o.Group = h.name
		r.Groups = append(r.Groups, o)
	}
	return r
}

func (m *model) offsetDelete() kmsg.Request {
	r := kmsg.NewPtrOffsetDeleteRequest()
	r.Group = m.group().name
	for _, t := range m.different() {
		rt := kmsg.NewOffsetDeleteRequestTopic()
		rt.Topic = t.name
		for i := range 1 + m.IntN(2) {
			p := kmsg.NewOffsetDeleteRequestTopicPartition()
			p.Partition = int32(i)
			rt.Partitions = append(rt.Partitions, p)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

func (m *model) findCoordinator() kmsg.Request {
	r := kmsg.NewPtrFindCoordinatorRequest()
	r.CoordinatorType = pick[int8](m, 0, 0, 0, 1, 1, 3, -1)
	r.CoordinatorKey = pick(m, m.group().name, m.named("xx"))
	r.CoordinatorKeys = sample(m, 3, func() string { return pick(m, m.group().name, m.named("xx")) })
	return r
}

func (m *model) describeGroups() kmsg.Request {
	r := kmsg.NewPtrDescribeGroupsRequest()
	r.Groups = sample(m, 2, func() string { return m.group().name })
	r.IncludeAuthorizedOperations = m.chance(20)
	return r
}

func (m *model) listGroups() kmsg.Request {
	r := kmsg.NewPtrListGroupsRequest()
	if m.chance(60) {
		r.StatesFilter = sample(m, 2, func() string {
			return pick(m, "Stable", "Empty", "stable", "PreparingRebalance", "CompletingRebalance", "Dead", "nonsense", "")
		})
		r.TypesFilter = sample(m, 2, func() string { return pick(m, "classic", "Classic", "consumer", "nonsense") })
	}
	return r
}

func (m *model) deleteGroups() kmsg.Request {
	r := kmsg.NewPtrDeleteGroupsRequest()
	r.Groups = sample(m, 2, func() string { return m.group().name })
	return r
}
