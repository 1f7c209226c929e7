package groups_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// story takes a group through its life, and through every mistake a client can make, and returns the answers.
func (p *peer) story(t *testing.T, version int16) []string {
	s := &teller{peer: p, test: t, version: version, members: map[string]string{}}
	g := fmt.Sprintf("g%d-%s", version, p.suffix)
	s.beforeTheGroup(g)
	a := s.oneMember(g)
	s.twoMembers(g, a)
	s.afterTheMembers(g)
	if version >= 5 {
		s.staticMembers(fmt.Sprintf("s%d-%s", version, p.suffix))
	}
	// Ids of topics are the broker's own.
	for i := range s.lines {
		for name, id := range p.ids {
			b := fmt.Sprint(id)
			s.lines[i] = strings.ReplaceAll(s.lines[i], strings.ReplaceAll(b, " ", ","), name)
		}
	}
	return s.lines
}

func (s *teller) join(what, g, member string, instance *string, change func(*kmsg.JoinGroupRequest)) *kmsg.JoinGroupResponse {
	s.test.Helper()
	return ask[*kmsg.JoinGroupResponse](s, what, s.version, s.joinRequest(g, member, instance, change))
}

func (s *teller) joinRequest(g, member string, instance *string, change func(*kmsg.JoinGroupRequest)) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Group, r.MemberID, r.InstanceID, r.ProtocolType = g, member, instance, "consumer"
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 20_000, 60_000
	m := kmsg.NewConsumerMemberMetadata()
	m.Topics = []string{s.t}
	pr := kmsg.NewJoinGroupRequestProtocol()
	pr.Name, pr.Metadata = "range", m.AppendTo(nil)
	r.Protocols = append(r.Protocols, pr)
	if change != nil {
		change(r)
	}
	return r
}

func (s *teller) syncRequest(g string, j *kmsg.JoinGroupResponse, generation int32, instance *string, assignments map[string]string) *kmsg.SyncGroupRequest {
	r := kmsg.NewPtrSyncGroupRequest()
	r.Group, r.MemberID, r.Generation, r.InstanceID = g, j.MemberID, generation, instance
	r.ProtocolType, r.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	for id, a := range assignments {
		ra := kmsg.NewSyncGroupRequestGroupAssignment()
		ra.MemberID, ra.MemberAssignment = id, []byte(a)
		r.GroupAssignment = append(r.GroupAssignment, ra)
	}
	return r
}

func (s *teller) sync(what, g string, j *kmsg.JoinGroupResponse, instance *string, assignments map[string]string) {
	s.test.Helper()
	ask[*kmsg.SyncGroupResponse](s, what, s.version, s.syncRequest(g, j, j.Generation, instance, assignments))
}

func (s *teller) heartbeat(what, g, member string, generation int32, instance *string) {
	s.test.Helper()
	r := kmsg.NewPtrHeartbeatRequest()
	r.Group, r.MemberID, r.Generation, r.InstanceID = g, member, generation, instance
	ask[*kmsg.HeartbeatResponse](s, what, s.version, r)
}

type leaver struct {
	id       string
	instance *string
}

func (s *teller) leave(what, g string, members ...leaver) {
	s.test.Helper()
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Group, r.MemberID = g, members[0].id
	for _, m := range members {
		rm := kmsg.NewLeaveGroupRequestMember()
		rm.MemberID, rm.InstanceID = m.id, m.instance
		r.Members = append(r.Members, rm)
	}
	ask[*kmsg.LeaveGroupResponse](s, what, s.version, r)
}

// commit commits items of the form topic/partition:metadata, where the topic is t, u or one that does not exist.
func (s *teller) commit(what, g, member string, generation int32, instance *string, items ...string) {
	s.test.Helper()
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Group, r.MemberID, r.Generation, r.InstanceID = g, member, generation, instance
	for _, item := range items {
		place, metadata, noted := strings.Cut(item, ":")
		name, index, _ := strings.Cut(place, "/")
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic, rt.TopicID = s.topic(name)
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		_, _ = fmt.Sscan(index, &rp.Partition)
		rp.Offset, rp.LeaderEpoch = 40+int64(rp.Partition), 1
		if noted {
			rp.Metadata = &metadata
		}
		rt.Partitions = append(rt.Partitions, rp)
		r.Topics = append(r.Topics, rt)
	}
	ask[*kmsg.OffsetCommitResponse](s, what, max(s.version, 2), r)
}

func (s *teller) topic(name string) (string, [16]byte) {
	switch name {
	case "t":
		return s.t, s.ids[s.t]
	case "u":
		return s.u, s.ids[s.u]
	}
	return name, [16]byte{9, 9}
}

func (s *teller) fetch(what string, all bool, groups ...string) {
	s.test.Helper()
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Group = groups[0]
	for _, g := range groups {
		rg := kmsg.NewOffsetFetchRequestGroup()
		rg.Group = g
		r.Groups = append(r.Groups, rg)
	}
	if !all {
		r.Topics = []kmsg.OffsetFetchRequestTopic{}
		for _, name := range []string{"t", "nowhere", "u"} {
			rt := kmsg.NewOffsetFetchRequestTopic()
			gt := kmsg.NewOffsetFetchRequestGroupTopic()
			gt.Topic, gt.TopicID = s.topic(name)
			rt.Topic, rt.Partitions, gt.Partitions = gt.Topic, []int32{0, 1, 8}, []int32{0, 1, 8}
			r.Topics = append(r.Topics, rt)
			for i := range r.Groups {
				r.Groups[i].Topics = append(r.Groups[i].Topics, gt)
			}
		}
	}
	ask[*kmsg.OffsetFetchResponse](s, what, max(s.version, 1), r)
}

func (s *teller) describe(what, g string) {
	s.test.Helper()
	r := kmsg.NewPtrDescribeGroupsRequest()
	r.Groups, r.IncludeAuthorizedOperations = []string{g, "nowhere"}, true
	ask[*kmsg.DescribeGroupsResponse](s, what, s.version, r)
}

func (s *teller) remove(what string, groups ...string) {
	s.test.Helper()
	r := kmsg.NewPtrDeleteGroupsRequest()
	r.Groups = groups
	ask[*kmsg.DeleteGroupsResponse](s, what, s.version, r)
}

func (s *teller) beforeTheGroup(g string) {
	nobody := &kmsg.JoinGroupResponse{MemberID: "x", Generation: 1}
	s.heartbeat("heartbeat to no group", g, "x", 1, nil)
	s.sync("sync to no group", g, nobody, nil, nil)
	s.leave("leave no group", g, leaver{id: "x"})
	s.commit("commit of a generation to no group", g, "x", 1, nil, "t/0")
	s.fetch("fetch of no group", false, g)
	if s.version >= 2 {
		s.fetch("fetch all of no group", true, g)
	}
	s.join("join no group with an id", g, "x", nil, nil)
	for _, ms := range []int32{1, 5_999, 1_800_001} {
		s.join(fmt.Sprintf("join with a session of %d ms", ms), g, "", nil, func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = ms })
	}
	s.join("join without a group", "", "", nil, nil)
	s.join("join without protocols", g+"x", "", nil, func(r *kmsg.JoinGroupRequest) { r.Protocols = nil })
	s.join("join without a type", g+"y", "", nil, func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "" })
	s.heartbeat("heartbeat without a group", "", "x", 1, nil)
	s.sync("sync without a group", "", nobody, nil, nil)
	s.leave("leave without a group", "", leaver{id: "x"})
}

func (s *teller) oneMember(g string) *kmsg.JoinGroupResponse {
	a := s.join("join", g, "", nil, nil)
	if s.version >= 4 {
		s.describe("describe a group of a pending member", g)
		a = s.join("join with the id", g, a.MemberID, nil, nil)
	}
	s.describe("describe a completing group", g)
	s.heartbeat("heartbeat to a completing group", g, a.MemberID, a.Generation, nil)
	s.commit("commit to a completing group", g, a.MemberID, a.Generation, nil, "t/0")
	s.commit("simple commit to a completing group", g, "", -1, nil, "t/0")
	s.join("join a completing group again", g, a.MemberID, nil, nil)
	for _, wrong := range []string{"type", "protocol", "generation"} {
		r := s.syncRequest(g, a, a.Generation, nil, nil)
		switch wrong {
		case "type":
			r.ProtocolType = kmsg.StringPtr("connect")
		case "protocol":
			r.Protocol = nil
		case "generation":
			r.Generation++
		}
		if s.version >= 5 || wrong == "generation" {
			ask[*kmsg.SyncGroupResponse](s, "sync with a wrong "+wrong, s.version, r)
		}
	}
	s.sync("sync", g, a, nil, map[string]string{a.MemberID: "A"})
	s.sync("sync again", g, a, nil, nil)
	s.describe("describe a stable group", g)
	s.heartbeat("heartbeat", g, a.MemberID, a.Generation, nil)
	s.heartbeat("heartbeat of another generation", g, a.MemberID, a.Generation+1, nil)
	s.heartbeat("heartbeat of a stranger", g, "x", a.Generation, nil)
	s.commit("commit", g, a.MemberID, a.Generation, nil, "t/0:note", "u/1", "nowhere/0", "t/9",
		"t/1:"+strings.Repeat("x", 4097), "u/0:"+strings.Repeat("y", 4096))
	s.commit("commit of another generation", g, a.MemberID, a.Generation+1, nil, "t/0")
	s.commit("commit of a stranger", g, "x", a.Generation, nil, "t/0")
	s.commit("simple commit", g, "", -1, nil, "t/0")
	s.commit("commit without a generation", g, a.MemberID, -1, nil, "t/0")
	s.fetch("fetch", false, g, "nowhere")
	other := func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Name = "other" }
	s.join("join with another protocol", g, "", nil, other)
	s.join("join again with another protocol", g, a.MemberID, nil, other)
	s.join("join with another type", g, "", nil, func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" })
	d := kmsg.NewPtrOffsetDeleteRequest()
	d.Group = g
	for _, name := range []string{s.t, s.u, "nowhere"} {
		dt := kmsg.NewOffsetDeleteRequestTopic()
		dt.Topic, dt.Partitions = name, []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}, {Partition: 8}}
		d.Topics = append(d.Topics, dt)
	}
	ask[*kmsg.OffsetDeleteResponse](s, "delete offsets", 0, d)
	return a
}

func (s *teller) twoMembers(g string, a *kmsg.JoinGroupResponse) {
	second := s.joinRequest(g, "", nil, nil)
	if s.version >= 4 {
		b := s.join("second join", g, "", nil, nil)
		second = s.joinRequest(g, b.MemberID, nil, nil)
	}
	joined := s.send(s.version, second)
	for state := ""; state != "PreparingRebalance"; { // the join is on its way
		r := kmsg.NewPtrDescribeGroupsRequest()
		r.Groups = []string{g}
		state = s.send(0, r)().(*kmsg.DescribeGroupsResponse).Groups[0].State
	}
	s.heartbeat("heartbeat to a preparing group", g, a.MemberID, a.Generation, nil)
	s.sync("sync to a preparing group", g, a, nil, nil)
	s.commit("commit to a preparing group", g, a.MemberID, a.Generation, nil, "t/0")
	s.describe("describe a preparing group", g)
	s.remove("delete a group with members", g, "nowhere", g)
	a = s.join("rejoin", g, a.MemberID, nil, nil)
	resp := joined()
	s.note("second member joined", resp)
	b := resp.(*kmsg.JoinGroupResponse)
	s.leave("the leader leaves", g, leaver{id: a.MemberID}, leaver{id: "x"})
	b = s.join("the follower rejoins", g, b.MemberID, nil, nil)
	s.sync("sync without an assignment for oneself", g, b, nil, map[string]string{"x": "Q"})
	s.leave("the last one leaves", g, leaver{id: b.MemberID})
	s.describe("describe an empty group", g)
	s.heartbeat("heartbeat to an empty group", g, b.MemberID, b.Generation, nil)
	s.sync("sync to an empty group", g, b, nil, nil)
}

func (s *teller) afterTheMembers(g string) {
	s.commit("simple commit to an empty group", g, "", -1, nil, "t/1:note")
	s.commit("commit with a member id to an empty group", g, "m", -1, nil, "t/1:note")
	s.commit("commit of a generation to an empty group", g, "m", 3, nil, "t/1:note")
	if s.version >= 2 {
		s.fetch("fetch all", true, g)
	}
	r := kmsg.NewPtrListGroupsRequest()
	r.StatesFilter, r.TypesFilter = []string{"empty"}, []string{"CLASSIC"}
	for _, l := range s.send(s.version, r)().(*kmsg.ListGroupsResponse).Groups {
		if l.Group == g {
			s.lines = append(s.lines, fmt.Sprintf("listed: %+v", l))
		}
	}
	s.remove("delete", g)
	s.remove("delete again", g)
}

func (s *teller) staticMembers(g string) {
	one, two := kmsg.StringPtr("one"), kmsg.StringPtr("two")
	a := s.join("static join", g, "", one, nil)
	a = s.join("static join with the id", g, a.MemberID, one, nil)
	s.sync("static sync", g, a, one, map[string]string{a.MemberID: "A"})
	a2 := s.join("static leader restarts", g, "", one, nil)
	s.sync("static sync after the restart", g, a2, one, nil)
	s.heartbeat("heartbeat of the former self", g, a.MemberID, a.Generation, one)
	s.heartbeat("heartbeat of the former self without its instance", g, a.MemberID, a.Generation, nil)
	s.sync("sync of the former self", g, a, one, nil)
	s.join("join of the former self", g, a.MemberID, one, nil)
	if s.version >= 7 {
		s.commit("commit of the former self", g, a.MemberID, a.Generation, one, "t/0")
	}
	s.leave("leave of the former self", g, leaver{a.MemberID, one})
	s.heartbeat("heartbeat of an unknown instance", g, a2.MemberID, a2.Generation, two)
	s.describe("describe static members", g)
	s.join("static leader restarts with other protocols", g, "", one, func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Name = "other" })
	s.leave("leave by instance", g, leaver{instance: one}, leaver{instance: two}, leaver{id: a2.MemberID})
	s.describe("describe an empty static group", g)
}
