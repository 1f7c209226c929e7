package api

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/coordinator/coordinatortest"
	"github.com/varvehq/varve/broker/group"
	"github.com/varvehq/varve/internal/kafka"
)

// groupWorld is a GroupEnv over a real coordinator with its log in memory.
type groupWorld struct {
	t      *testing.T
	h      *Handlers
	log    *coordinatortest.MemLog
	m      *group.Manager
	topics map[string]GroupTopic
	leads  bool
}

func (w *groupWorld) Coordinator() *group.Manager { return w.m }

func (w *groupWorld) TopicByName(name string) (GroupTopic, bool) {
	t, ok := w.topics[name]
	return t, ok
}

func (w *groupWorld) TopicByID(id kafka.UUID) (GroupTopic, bool) {
	for _, t := range w.topics {
		if t.ID == id {
			return t, true
		}
	}
	return GroupTopic{}, false
}

func (w *groupWorld) EnsureTopic(context.Context) error {
	w.log.SetPartitions(3)
	w.m.Refresh()
	return nil
}

func (w *groupWorld) Leader(_ int32, listener string) (int32, string, int32, bool) {
	return 1, listener + ".example", 9092, w.leads
}

// inGroupWorld runs f in a bubble, with the topics "t" and "u" of two partitions each.
func inGroupWorld(t *testing.T, f func(w *groupWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &groupWorld{t: t, log: coordinatortest.NewMemLog(0), leads: true, topics: map[string]GroupTopic{}}
		for i, name := range []string{"t", "u"} {
			w.topics[name] = GroupTopic{Name: name, ID: kafka.UUID{byte(i + 1)}, Partitions: 2}
		}
		cfg := group.DefaultConfig()
		cfg.InitialRebalanceDelay = 0
		var err error
		if w.m, err = group.NewManager(group.Env{OffsetsLog: w.log}, cfg); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := w.m.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		w.h = New(Env{NodeID: 1, Groups: w})
		f(w)
	})
}

// ready makes the offsets topic and loads it.
func (w *groupWorld) ready() {
	_ = w.EnsureTopic(context.Background())
	synctest.Wait()
}

// begin sends a request as a frame.
func (w *groupWorld) begin(version int16, req kmsg.Request) Call {
	w.t.Helper()
	req.SetVersion(version)
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("client")).AppendRequest(nil, req, 7)
	conn := &ConnInfo{ID: 1, Listener: "plain", RemoteAddr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 4}}
	c, err := w.h.Dispatch(context.Background(), conn, frame[4:], time.Now())
	if err != nil {
		w.t.Fatalf("%T v%d: %v", req, version, err)
	}
	return c
}

// groupEnd waits for the answer, and returns what a client of that version decodes.
func groupEnd[R kmsg.Response](w *groupWorld, c Call) R {
	w.t.Helper()
	resp := c.Response
	if c.Later != nil {
		var err error
		if resp, err = c.Later.Wait(context.Background()); err != nil {
			w.t.Fatal(err)
		}
		resp.SetVersion(c.Header.Version)
	}
	body := resp.AppendTo(nil)
	out := kmsg.ResponseForKey(resp.Key())
	out.SetVersion(c.Header.Version)
	if err := out.ReadFrom(body); err != nil {
		w.t.Fatalf("%T v%d does not decode: %v", resp, c.Header.Version, err)
	}
	return out.(R)
}

func groupCall[R kmsg.Response](w *groupWorld, version int16, req kmsg.Request) R {
	w.t.Helper()
	return groupEnd[R](w, w.begin(version, req))
}

func (w *groupWorld) code(what string, got int16, want *kerr.Error) {
	w.t.Helper()
	var code int16
	if want != nil {
		code = want.Code
	}
	if got != code {
		w.t.Fatalf("%s: %v, want %v", what, kerr.ErrorForCode(got), kerr.ErrorForCode(code))
	}
}

func joinRequest(g, member string, instance *string) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Group, r.MemberID, r.InstanceID, r.ProtocolType = g, member, instance, "consumer"
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 10_000, 60_000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", []byte{0, 0, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 0}
	r.Protocols = append(r.Protocols, p)
	return r
}

// member joins and syncs the only member of a group, in versions as new as the given.
func (w *groupWorld) member(version int16, g string) (id string, generation int32) {
	w.t.Helper()
	v := min(version, 9)
	resp := groupCall[*kmsg.JoinGroupResponse](w, v, joinRequest(g, "", nil))
	if v >= 4 {
		w.code("first join", resp.ErrorCode, kerr.MemberIDRequired)
		resp = groupCall[*kmsg.JoinGroupResponse](w, v, joinRequest(g, resp.MemberID, nil))
	}
	w.code("join", resp.ErrorCode, nil)
	if resp.LeaderID != resp.MemberID || len(resp.Members) != 1 || resp.Protocol == nil || *resp.Protocol != "range" ||
		v >= 7 && (resp.ProtocolType == nil || *resp.ProtocolType != "consumer") {
		w.t.Fatalf("join v%d: %+v", v, resp)
	}
	s := kmsg.NewPtrSyncGroupRequest()
	s.Group, s.MemberID, s.Generation = g, resp.MemberID, resp.Generation
	s.ProtocolType, s.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	a := kmsg.NewSyncGroupRequestGroupAssignment()
	a.MemberID, a.MemberAssignment = resp.MemberID, []byte("assignment")
	s.GroupAssignment = append(s.GroupAssignment, a)
	sv := min(version, 5)
	sr := groupCall[*kmsg.SyncGroupResponse](w, sv, s)
	w.code("sync", sr.ErrorCode, nil)
	if string(sr.MemberAssignment) != "assignment" || sv >= 5 && (sr.Protocol == nil || *sr.Protocol != "range") {
		w.t.Fatalf("sync v%d: %+v", sv, sr)
	}
	return resp.MemberID, resp.Generation
}

// TestGroupLifeInAllVersions takes a group through its life at every version of every key.
func TestGroupLifeInAllVersions(t *testing.T) {
	for version := int16(0); version <= 10; version++ {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			inGroupWorld(t, func(w *groupWorld) { groupLife(w, version) })
		})
	}
}

func groupLife(w *groupWorld, version int16) {
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKey, find.CoordinatorKeys = "g", []string{"g"}
	fr := groupCall[*kmsg.FindCoordinatorResponse](w, min(version, 6), find)
	if version >= 4 {
		c := fr.Coordinators[0]
		fr.ErrorCode, fr.NodeID, fr.Host, fr.Port = c.ErrorCode, c.NodeID, c.Host, c.Port
	}
	w.code("find", fr.ErrorCode, nil)
	if fr.NodeID != 1 || fr.Host != "plain.example" || fr.Port != 9092 {
		w.t.Fatalf("find: %+v", fr)
	}
	synctest.Wait()

	id, gen := w.member(version, "g")
	hb := kmsg.NewPtrHeartbeatRequest()
	hb.Group, hb.MemberID, hb.Generation = "g", id, gen
	w.code("heartbeat", groupCall[*kmsg.HeartbeatResponse](w, min(version, 4), hb).ErrorCode, nil)
	hb.Generation++
	w.code("heartbeat", groupCall[*kmsg.HeartbeatResponse](w, min(version, 4), hb).ErrorCode, kerr.IllegalGeneration)

	w.commitAndFetch(version, id, gen)
	w.describeAndList(version)

	del := kmsg.NewPtrDeleteGroupsRequest()
	del.Groups = []string{"g", "nowhere", "g"}
	dr := groupCall[*kmsg.DeleteGroupsResponse](w, min(version, 3), del)
	if len(dr.Groups) != 2 {
		w.t.Fatalf("delete: %+v", dr)
	}
	w.code("delete", dr.Groups[0].ErrorCode, kerr.NonEmptyGroup)
	w.code("delete", dr.Groups[1].ErrorCode, kerr.GroupIDNotFound)

	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.MemberID = "g", id
	for _, m := range []string{id, "stranger"} {
		lm := kmsg.NewLeaveGroupRequestMember()
		lm.MemberID = m
		leave.Members = append(leave.Members, lm)
	}
	lr := groupCall[*kmsg.LeaveGroupResponse](w, min(version, 5), leave)
	w.code("leave", lr.ErrorCode, nil)
	if version >= 3 {
		if len(lr.Members) != 2 || lr.Members[0].MemberID != id {
			w.t.Fatalf("leave: %+v", lr)
		}
		w.code("leave", lr.Members[0].ErrorCode, nil)
		w.code("leave", lr.Members[1].ErrorCode, kerr.UnknownMemberID)
	} else {
		w.code("leave again", groupCall[*kmsg.LeaveGroupResponse](w, version, leave).ErrorCode, kerr.UnknownMemberID)
	}
	dr = groupCall[*kmsg.DeleteGroupsResponse](w, min(version, 3), del)
	w.code("delete", dr.Groups[0].ErrorCode, nil)
}

// commitAndFetch checks that both answers mirror the request's topics and partitions.
func (w *groupWorld) commitAndFetch(version int16, id string, gen int32) {
	v := max(version, 2)
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = "g", id, gen
	unknown := kafka.UUID{99}
	for _, name := range []string{"u", "nowhere", "t"} {
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic, rt.TopicID = name, unknown
		if topic, ok := w.topics[name]; ok {
			rt.TopicID = topic.ID
		}
		for _, p := range []int32{1, 7, 0} {
			rp := kmsg.NewOffsetCommitRequestTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = p, 100+int64(p), 3, kmsg.StringPtr("note")
			if name == "u" && p == 0 {
				rp.Metadata = kmsg.StringPtr(string(make([]byte, 5000)))
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	resp := groupCall[*kmsg.OffsetCommitResponse](w, v, req)
	noTopic := kerr.UnknownTopicOrPartition
	if v >= 10 {
		noTopic = kerr.UnknownTopicID
	}
	want := map[string][]*kerr.Error{
		"u":       {nil, kerr.UnknownTopicOrPartition, kerr.OffsetMetadataTooLarge},
		"nowhere": {noTopic, noTopic, noTopic},
		"t":       {nil, kerr.UnknownTopicOrPartition, nil},
	}
	for i, rt := range req.Topics {
		got := resp.Topics[i]
		if v < 10 && got.Topic != rt.Topic || v >= 10 && got.TopicID != rt.TopicID || len(got.Partitions) != 3 {
			w.t.Fatalf("commit: topic %d is %+v", i, got)
		}
		for j, p := range rt.Partitions {
			if got.Partitions[j].Partition != p.Partition {
				w.t.Fatalf("commit: %s partition %d is %+v", rt.Topic, j, got.Partitions[j])
			}
			w.code(fmt.Sprintf("commit %s-%d", rt.Topic, p.Partition), got.Partitions[j].ErrorCode, want[rt.Topic][j])
		}
	}
	w.fetch(max(version, 1))
}

func (w *groupWorld) fetch(v int16) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group, req.RequireStable = "g", true
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = "g"
	for _, name := range []string{"t", "nowhere", "u"} {
		rt := kmsg.NewOffsetFetchRequestTopic()
		rt.Topic, rt.Partitions = name, []int32{0, 7}
		req.Topics = append(req.Topics, rt)
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.TopicID, gt.Partitions = name, kafka.UUID{99}, []int32{0, 7}
		if topic, ok := w.topics[name]; ok {
			gt.TopicID = topic.ID
		}
		g.Topics = append(g.Topics, gt)
	}
	other := kmsg.NewOffsetFetchRequestGroup()
	other.Group = "other"
	other.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	req.Groups = append(req.Groups, g, other)
	topics := w.fetched(v, req)
	for i, name := range []string{"t", "nowhere", "u"} {
		t := topics[i]
		if v < 10 && t.Topic != name || len(t.Partitions) != 2 || t.Partitions[0].Partition != 0 || t.Partitions[1].Partition != 7 {
			w.t.Fatalf("fetch v%d: topic %d is %+v", v, i, t)
		}
		for j, p := range t.Partitions {
			offset, note := int64(-1), ""
			if name == "t" && j == 0 {
				offset, note = 100, "note"
				if v >= 6 && p.LeaderEpoch != 3 { // commits have it from v6 on
					w.t.Fatalf("fetch v%d: leader epoch %d", v, p.LeaderEpoch)
				}
			}
			if p.Offset != offset || p.Metadata == nil || *p.Metadata != note {
				w.t.Fatalf("fetch v%d: %s-%d is %+v", v, name, p.Partition, p)
			}
			if name == "nowhere" && v >= 10 {
				w.code("fetch", p.ErrorCode, kerr.UnknownTopicID)
			} else {
				w.code("fetch", p.ErrorCode, nil)
			}
		}
	}
	if v < 2 {
		return
	}
	req.Topics, req.Groups[0].Topics = nil, nil
	all := w.fetched(v, req)
	var got []string
	for _, t := range all {
		name := t.Topic
		if v >= 10 {
			topic, _ := w.TopicByID(t.TopicID)
			name = topic.Name
		}
		for _, p := range t.Partitions {
			got = append(got, fmt.Sprintf("%s-%d@%d", name, p.Partition, p.Offset))
		}
	}
	if want := []string{"t-0@100", "t-1@101", "u-1@101"}; !slices.Equal(got, want) {
		w.t.Fatalf("fetch v%d of all: %v, want %v", v, got, want)
	}
}

// fetched returns the topics of the first group of an answer in the form of v8 and later.
func (w *groupWorld) fetched(v int16, req *kmsg.OffsetFetchRequest) []kmsg.OffsetFetchResponseGroupTopic {
	w.t.Helper()
	resp := groupCall[*kmsg.OffsetFetchResponse](w, v, req)
	if v >= 8 {
		if len(resp.Groups) != 2 || resp.Groups[0].Group != "g" || resp.Groups[1].Group != "other" || len(resp.Groups[1].Topics) != 0 {
			w.t.Fatalf("fetch v%d: %+v", v, resp.Groups)
		}
		w.code("fetch", resp.Groups[0].ErrorCode, nil)
		return resp.Groups[0].Topics
	}
	w.code("fetch", resp.ErrorCode, nil)
	var out []kmsg.OffsetFetchResponseGroupTopic
	for _, t := range resp.Topics {
		gt := kmsg.OffsetFetchResponseGroupTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			gt.Partitions = append(gt.Partitions, kmsg.OffsetFetchResponseGroupTopicPartition{
				Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode})
		}
		out = append(out, gt)
	}
	return out
}

func (w *groupWorld) describeAndList(version int16) {
	v := min(version, 6)
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups, req.IncludeAuthorizedOperations = []string{"nowhere", "g"}, true
	resp := groupCall[*kmsg.DescribeGroupsResponse](w, v, req)
	if len(resp.Groups) != 2 || resp.Groups[0].Group != "nowhere" || resp.Groups[0].State != "Dead" {
		w.t.Fatalf("describe v%d: %+v", v, resp.Groups)
	}
	if v >= 6 {
		w.code("describe", resp.Groups[0].ErrorCode, kerr.GroupIDNotFound)
	} else {
		w.code("describe", resp.Groups[0].ErrorCode, nil)
	}
	g := resp.Groups[1]
	w.code("describe", g.ErrorCode, nil)
	if g.State != "Stable" || g.ProtocolType != "consumer" || g.Protocol != "range" || len(g.Members) != 1 ||
		string(g.Members[0].MemberAssignment) != "assignment" || g.Members[0].ClientID != "client" || g.Members[0].ClientHost != "/10.0.0.9" ||
		v >= 3 && g.AuthorizedOperations != 3400 {
		w.t.Fatalf("describe v%d: %+v", v, g)
	}

	v = min(version, 5)
	list := kmsg.NewPtrListGroupsRequest()
	lr := groupCall[*kmsg.ListGroupsResponse](w, v, list)
	w.code("list", lr.ErrorCode, nil)
	if len(lr.Groups) != 1 || lr.Groups[0].Group != "g" || lr.Groups[0].ProtocolType != "consumer" ||
		v >= 4 && lr.Groups[0].GroupState != "Stable" || v >= 5 && lr.Groups[0].GroupType != "classic" {
		w.t.Fatalf("list v%d: %+v", v, lr.Groups)
	}
	for _, f := range []struct {
		min           int16
		states, types []string
		groups        int
	}{
		{4, []string{"empty", " STABLE"}, nil, 1}, {4, []string{"Empty"}, nil, 0},
		{5, nil, []string{"Classic"}, 1}, {5, nil, []string{"consumer"}, 0}, {5, []string{"Dead"}, []string{"classic"}, 0},
	} {
		list.StatesFilter, list.TypesFilter = f.states, f.types
		if v < f.min {
			continue
		}
		if n := len(groupCall[*kmsg.ListGroupsResponse](w, v, list).Groups); n != f.groups {
			w.t.Fatalf("list v%d with %v and %v: %d groups", v, f.states, f.types, n)
		}
	}
}

func TestFindCoordinatorRefusesWhatIsNotServed(t *testing.T) {
	inGroupWorld(t, func(w *groupWorld) {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorType, req.CoordinatorKeys, req.CoordinatorKey = 2, []string{"s"}, "s"
		w.code("share", groupCall[*kmsg.FindCoordinatorResponse](w, 6, req).Coordinators[0].ErrorCode, kerr.InvalidRequest)
		w.leads = false
		req.CoordinatorType, req.CoordinatorKeys = 0, []string{"a", "b"}
		resp := groupCall[*kmsg.FindCoordinatorResponse](w, 6, req)
		for i, key := range []string{"a", "b"} {
			c := resp.Coordinators[i]
			if c.Key != key || c.NodeID != -1 || c.Port != -1 || c.Host != "" {
				t.Fatalf("%+v", c)
			}
			w.code("without a leader", c.ErrorCode, kerr.CoordinatorNotAvailable)
		}
	})
}

// TestStaticMemberRestart is what a client of static members sees: the assignment stays, the twin is fenced.
func TestStaticMemberRestart(t *testing.T) {
	for version := int16(5); version <= 9; version++ {
		inGroupWorld(t, func(w *groupWorld) {
			w.ready()
			instance := kmsg.StringPtr("i")
			first := groupCall[*kmsg.JoinGroupResponse](w, version, joinRequest("g", "", instance))
			w.code("join", first.ErrorCode, nil)
			s := kmsg.NewPtrSyncGroupRequest()
			s.Group, s.MemberID, s.InstanceID, s.Generation = "g", first.MemberID, instance, first.Generation
			s.ProtocolType, s.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
			a := kmsg.NewSyncGroupRequestGroupAssignment()
			a.MemberID, a.MemberAssignment = first.MemberID, []byte("assignment")
			s.GroupAssignment = append(s.GroupAssignment, a)
			w.code("sync", groupCall[*kmsg.SyncGroupResponse](w, 5, s).ErrorCode, nil)

			second := groupCall[*kmsg.JoinGroupResponse](w, version, joinRequest("g", "", instance))
			w.code("join again", second.ErrorCode, nil)
			if second.Generation != first.Generation || second.MemberID == first.MemberID || second.SkipAssignment != (version >= 9) ||
				version < 9 && second.LeaderID == second.MemberID {
				t.Fatalf("v%d: %+v", version, second)
			}
			w.code("sync of the former self", groupCall[*kmsg.SyncGroupResponse](w, 5, s).ErrorCode, kerr.FencedInstanceID)
			s.MemberID, s.GroupAssignment = second.MemberID, nil
			if r := groupCall[*kmsg.SyncGroupResponse](w, 5, s); r.ErrorCode != 0 || string(r.MemberAssignment) != "assignment" {
				t.Fatalf("v%d: %+v", version, r)
			}
		})
	}
}

// TestJoinWaitsForAllMembers joins two members on two connections; a lost connection does not hold the other up.
func TestJoinWaitsForAllMembers(t *testing.T) {
	inGroupWorld(t, func(w *groupWorld) {
		w.ready()
		id, _ := w.member(3, "g")
		waiting := w.begin(3, joinRequest("g", "", nil))
		lost := w.begin(3, joinRequest("g", "", nil))
		lost.Later.Abandon()
		hb := kmsg.NewPtrHeartbeatRequest()
		hb.Group, hb.MemberID, hb.Generation = "g", id, 1
		w.code("heartbeat", groupCall[*kmsg.HeartbeatResponse](w, 3, hb).ErrorCode, kerr.RebalanceInProgress)
		leader := groupCall[*kmsg.JoinGroupResponse](w, 3, joinRequest("g", id, nil))
		follower := groupEnd[*kmsg.JoinGroupResponse](w, waiting)
		if leader.Generation != 2 || follower.Generation != 2 || len(leader.Members) != 2 || len(follower.Members) != 0 {
			t.Fatalf("%+v\n%+v", leader, follower)
		}
	})
}

func TestGroupErrorsHaveTheirShape(t *testing.T) {
	inGroupWorld(t, func(w *groupWorld) {
		// Without the topic nothing is served, and every answer says so in its own place.
		fetch := kmsg.NewPtrOffsetFetchRequest()
		fetch.Group = "g"
		ft := kmsg.NewOffsetFetchRequestTopic()
		ft.Topic, ft.Partitions = "t", []int32{0, 1}
		fetch.Topics = append(fetch.Topics, ft)
		v1 := groupCall[*kmsg.OffsetFetchResponse](w, 1, fetch)
		if len(v1.Topics) != 1 || len(v1.Topics[0].Partitions) != 2 || v1.Topics[0].Partitions[1].Offset != -1 {
			t.Fatalf("%+v", v1)
		}
		w.code("fetch v1", v1.Topics[0].Partitions[1].ErrorCode, kerr.CoordinatorNotAvailable)
		v2 := groupCall[*kmsg.OffsetFetchResponse](w, 2, fetch)
		if len(v2.Topics) != 0 {
			t.Fatalf("%+v", v2)
		}
		w.code("fetch v2", v2.ErrorCode, kerr.CoordinatorNotAvailable)
		w.ready()

		for _, v := range []int16{6, 7} {
			r := joinRequest("g", "", nil)
			r.SessionTimeoutMillis = 1
			resp := groupCall[*kmsg.JoinGroupResponse](w, v, r)
			w.code("join", resp.ErrorCode, kerr.InvalidSessionTimeout)
			if v < 7 && (resp.Protocol == nil || *resp.Protocol != "") || v >= 7 && resp.Protocol != nil || resp.Generation != -1 {
				t.Fatalf("join v%d: %+v", v, resp)
			}
		}
		w.code("join", groupCall[*kmsg.JoinGroupResponse](w, 9, joinRequest("", "", nil)).ErrorCode, kerr.InvalidGroupID)
		sync := kmsg.NewPtrSyncGroupRequest()
		sync.Group = "g"
		w.code("sync", groupCall[*kmsg.SyncGroupResponse](w, 5, sync).ErrorCode, kerr.InconsistentGroupProtocol)
		w.code("sync", groupCall[*kmsg.SyncGroupResponse](w, 4, sync).ErrorCode, kerr.UnknownMemberID)
	})
}

// TestOffsetsDoNotOutliveTheirTopic commits, and asks after a topic of the same name and another id.
func TestOffsetsDoNotOutliveTheirTopic(t *testing.T) {
	inGroupWorld(t, func(w *groupWorld) {
		w.ready()
		c := kmsg.NewPtrOffsetCommitRequest()
		c.Group, c.Generation = "g", -1
		ct := kmsg.NewOffsetCommitRequestTopic()
		ct.Topic = "t"
		cp := kmsg.NewOffsetCommitRequestTopicPartition()
		cp.Offset = 5
		ct.Partitions = append(ct.Partitions, cp)
		c.Topics = append(c.Topics, ct)
		w.code("commit", groupCall[*kmsg.OffsetCommitResponse](w, 9, c).Topics[0].Partitions[0].ErrorCode, nil)
		w.topics["t"] = GroupTopic{Name: "t", ID: kafka.UUID{42}, Partitions: 2}

		f := kmsg.NewPtrOffsetFetchRequest()
		f.Group = "g"
		if r := groupCall[*kmsg.OffsetFetchResponse](w, 5, f); len(r.Topics) != 0 {
			t.Fatalf("all offsets: %+v", r.Topics)
		}
		ft := kmsg.NewOffsetFetchRequestTopic()
		ft.Topic, ft.Partitions = "t", []int32{0}
		f.Topics = append(f.Topics, ft)
		if r := groupCall[*kmsg.OffsetFetchResponse](w, 5, f); r.Topics[0].Partitions[0].Offset != -1 {
			t.Fatalf("one offset: %+v", r.Topics)
		}
	})
}

func TestOffsetDelete(t *testing.T) {
	inGroupWorld(t, func(w *groupWorld) {
		w.ready()
		d := kmsg.NewPtrOffsetDeleteRequest()
		d.Group = "g"
		for _, name := range []string{"u", "nowhere", "t"} {
			dt := kmsg.NewOffsetDeleteRequestTopic()
			dt.Topic = name
			for _, p := range []int32{0, 9} {
				dt.Partitions = append(dt.Partitions, kmsg.OffsetDeleteRequestTopicPartition{Partition: p})
			}
			d.Topics = append(d.Topics, dt)
		}
		w.code("no group", groupCall[*kmsg.OffsetDeleteResponse](w, 0, d).ErrorCode, kerr.GroupIDNotFound)
		w.member(9, "g")
		resp := groupCall[*kmsg.OffsetDeleteResponse](w, 0, d)
		w.code("delete", resp.ErrorCode, nil)
		want := [][]*kerr.Error{{nil, kerr.UnknownTopicOrPartition}, {kerr.UnknownTopicOrPartition, kerr.UnknownTopicOrPartition},
			{kerr.GroupSubscribedToTopic, kerr.UnknownTopicOrPartition}}
		for i, rt := range resp.Topics {
			for j, p := range rt.Partitions {
				w.code(fmt.Sprintf("%s-%d", rt.Topic, p.Partition), p.ErrorCode, want[i][j])
			}
		}
	})
}
