package group

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/broker/group/assignor"
)

// mixedFleet is what a fleet with clients of the classic protocol has beside.
type mixedFleet struct {
	on     bool
	ids    int
	asked  []*asked // not answered yet
	acked  map[topicIDPartition]int64
	offset int64
	types  map[string]int // how often the group was seen as what
	last   string
}

// asked is one request of the classic protocol, or a commit.
type asked struct {
	client   *client
	kind     string
	at       topicIDPartition // of a commit
	offset   int64
	answered bool
}

// classicState is where a client of the classic protocol stands.
type classicState struct {
	id         string // "" before it has one
	generation int32
	phase      string // join, sync or member
	eager      bool   // it gives everything up before it joins
	led        fixedTopics
	group      []JoinMember // of a leader
}

func (c *client) member() string {
	if c.classic != nil {
		return c.classic.id
	}
	return c.id
}

// request makes a token that is answered once.
func (f *fleet) request(c *client, kind string) *asked {
	k := &asked{client: c, kind: kind}
	f.mixed.asked = append(f.mixed.asked, k)
	return k
}

// unload answers everything that waits, as the end of a coordinator does. Where everything was durable, the next one knows the
// same of the group.
func (m *mixedFleet) unload(f *fleet, ahead bool) {
	was, _ := f.co.DescribeConsumer("g")
	classic, _ := f.co.Describe("g")
	durable := len(f.held) == 0 && !ahead
	f.effects(f.co.Unload(f.now, coordinator.ErrUnavailable))
	for _, k := range m.asked {
		if !k.answered {
			f.t.Fatalf("a %s of %s is never answered", k.kind, k.client.id)
		}
	}
	m.asked = nil
	if !durable {
		return
	}
	held, cfg := f.held, f.cfg
	f.load()
	f.held, f.cfg = held, cfg
	is, _ := f.co.DescribeConsumer("g")
	if d := cmp.Diff(was, is, cmpopts.EquateEmpty()); d != "" {
		f.t.Fatalf("a load changes a group: %s", d)
	}
	loaded, _ := f.co.Describe("g")
	if d := cmp.Diff(classic, loaded, cmpopts.EquateEmpty()); d != "" && classic.State == Stable {
		f.t.Fatalf("a load changes a classic group: %s", d)
	}
}

func (f *fleet) joinClassic() {
	f.join()
	c := f.clients[fmt.Sprint("m", f.next)]
	if c == nil {
		return
	}
	if c.instance != nil || *c.regex != "" { // a classic group does not rebalance for a static member that comes back with other topics
		c.topics = []string{"a", "b"}
	}
	c.regex, c.classic = nil, &classicState{phase: "join", eager: f.r.IntN(2) == 0}
}

// actClassic makes the next request of a client.
func (f *fleet) actClassic(c *client) {
	s := c.classic
	c.waits, c.heard = true, f.now
	switch s.phase {
	case "join":
		if s.eager {
			c.owned = assignor.Set{}
		}
		f.step(Join{f.request(c, "join"), JoinRequest{Group: "g", MemberID: s.id, InstanceID: c.instance, ClientID: c.id, SessionTimeout: 45 * time.Second,
			RebalanceTimeout: time.Minute, ProtocolType: consumerProtocol, Protocols: f.subscription(c), NeedsMemberID: true, CanSkipAssignment: true}})
	case "sync":
		f.step(Sync{f.request(c, "sync"), SyncRequest{Group: "g", MemberID: s.id, InstanceID: c.instance, Generation: s.generation, Assignments: f.lead(s)}})
	default:
		if s.led != nil && !maps.Equal(s.led, f.topics) { // a leader watches the topics
			s.phase, s.led, c.waits = "join", nil, false
			return
		}
		f.step(Heartbeat{f.request(c, "heartbeat"), HeartbeatRequest{Group: "g", MemberID: s.id, InstanceID: c.instance, Generation: s.generation}})
	}
}

func (f *fleet) subscription(c *client) []Protocol {
	m := kmsg.NewConsumerMemberMetadata()
	m.Version, m.Topics, m.Generation = 3, c.topics, c.classic.generation
	for _, t := range sortedTopics(c.owned) {
		m.OwnedPartitions = append(m.OwnedPartitions, kmsg.ConsumerMemberMetadataOwnedPartition{Topic: nameOf(t), Partitions: c.owned[t]})
	}
	return []Protocol{{Name: "p", Metadata: m.AppendTo(nil)}}
}

// lead assigns as a cooperative leader: who has a partition keeps it.
func (f *fleet) lead(s *classicState) map[string][]byte {
	if s.group == nil {
		return nil
	}
	given := map[string]assignor.Set{}
	taken := map[topicIDPartition]bool{}
	subs := map[string]clientSubscription{}
	for _, m := range s.group {
		sub, err := decodeSubscription(m.Metadata)
		if err != nil {
			f.t.Fatal(err)
		}
		sub.owned = slices.DeleteFunc(sub.owned, func(o kmsg.ConsumerMemberMetadataOwnedPartition) bool { return !slices.Contains(sub.topics, o.Topic) })
		subs[m.MemberID], given[m.MemberID] = sub, take(taken, f.co.ownedSet(sub.owned))
	}
	s.led = maps.Clone(f.topics)
	next := 0
	for _, name := range f.topics.Names() {
		for p := range f.topics[name] {
			at := topicIDPartition{fixedID(name), p}
			for i := 0; i < len(s.group) && !taken[at]; i++ {
				next++
				id := s.group[next%len(s.group)].MemberID
				if slices.Contains(subs[id].topics, name) {
					taken[at] = true
					given[id][at.topic] = append(given[id][at.topic], p)
				}
			}
		}
	}
	out := map[string][]byte{}
	for id, set := range given {
		out[id] = f.co.encodeAssignment(set, []byte{0, 3})
	}
	s.group = nil
	return out
}

// lost is what a client does that is not a member any more.
func (c *client) lost() {
	c.owned = assignor.Set{}
	c.classic.id, c.classic.generation, c.classic.phase = "", 0, "join"
}

// toldClassic takes an answer.
func (f *fleet) toldClassic(k *asked, body any) {
	if k.answered {
		f.t.Fatalf("a %s of %s is answered twice", k.kind, k.client.id)
	}
	k.answered = true
	f.mixed.asked = slices.DeleteFunc(f.mixed.asked, func(o *asked) bool { return o == k })
	c := k.client
	if f.clients[c.id] != c {
		return
	}
	switch r := body.(type) {
	case CommitResponse:
		if r.Err == nil {
			f.mixed.acked[k.at] = max(f.mixed.acked[k.at], k.offset)
		}
		return
	case JoinResponse:
		f.joinedClassic(c, r)
	case SyncResponse:
		if r.Err != nil {
			f.refused(c, r.Err)
			break
		}
		f.assigned(c, r.Assignment)
	case error:
		f.refused(c, r)
	}
	c.waits = false
}

func (f *fleet) joinedClassic(c *client, r JoinResponse) {
	s := c.classic
	switch {
	case errors.Is(r.Err, ErrMemberIDRequired):
		s.id = r.MemberID
	case r.Err != nil:
		f.refused(c, r.Err)
	default:
		s.id, s.generation, s.phase, s.group, s.led = r.MemberID, r.Generation, "sync", nil, nil
		if r.Leader == r.MemberID && !r.SkipAssignment {
			s.group = r.Members
		}
	}
}

// refused goes on after an error as clients do.
func (f *fleet) refused(c *client, err error) {
	switch {
	case errors.Is(err, ErrUnknownMember), errors.Is(err, ErrIllegalGeneration):
		c.lost()
	case errors.Is(err, ErrRebalanceInProgress), c.classic.phase == "sync" && errors.Is(err, coordinator.ErrUnavailable):
		c.classic.phase = "join"
	case errors.Is(err, coordinator.ErrUnavailable):
	case errors.Is(err, ErrFenced):
		delete(f.clients, c.id)
	default:
		f.t.Fatalf("%s is refused: %v", c.id, err)
	}
}

// assigned takes an assignment over. A client that keeps partitions joins again where it had to give some up.
func (f *fleet) assigned(c *client, b []byte) {
	topics, err := decodeAssignment(b)
	if err != nil {
		f.t.Fatal(err)
	}
	set := assignor.Set{}
	for _, t := range topics {
		f.co.addPartitions(set, t.Topic, t.Partitions)
	}
	c.classic.phase = "member"
	if !within(c.owned, set) && !c.classic.eager {
		c.classic.phase = "join"
	}
	c.owned = set
}

func (f *fleet) leaveClassic(c *client) {
	delete(f.clients, c.id)
	if c.instance == nil && c.classic.id != "" { // static members do not tell
		f.step(Leave{f.request(c, "leave"), LeaveRequest{Group: "g", Members: []LeaveMember{{MemberID: c.classic.id}}}})
	}
}

// commit stores an offset of a partition that a client has.
func (f *fleet) commit(c *client) {
	for _, t := range sortedTopics(c.owned) {
		if len(c.owned[t]) == 0 || c.told != nil {
			continue
		}
		f.mixed.offset++
		p := c.owned[t][f.r.IntN(len(c.owned[t]))]
		k := f.request(c, "commit")
		k.at, k.offset = topicIDPartition{t, p}, f.mixed.offset
		r := CommitRequest{Group: "g", MemberID: c.member(), InstanceID: c.instance, Generation: c.epoch, Retention: -1, NotFoundError: true,
			Items: []CommitItem{{Topic: nameOf(t), Partition: p, Offset: k.offset, LeaderEpoch: -1}}}
		if c.classic != nil {
			r.Generation = c.classic.generation
		}
		f.step(Commit{k, r})
		return
	}
}

// checkOffsets holds the offsets against what was acknowledged.
func (f *fleet) checkOffsets() {
	for at, least := range f.mixed.acked {
		if o, _ := f.co.Offset("g", FetchItem{Topic: nameOf(at.topic), Partition: at.partition}); o.Offset < least {
			f.t.Fatalf("%s/%d: %d was acknowledged, and there is %d", nameOf(at.topic), at.partition, least, o.Offset)
		}
	}
}

// forgotten reports whether a client was silent for so long that it is no member any more, and has not heard of it.
func (f *fleet) forgotten(c *client) bool {
	if !f.mixed.on || f.now.Sub(c.heard) < 45*time.Second {
		return false
	}
	g := f.co.groups["g"]
	if g == nil {
		return true
	}
	if g.consumer != nil {
		return g.consumer.members[c.member()] == nil
	}
	return g.members[c.member()] == nil
}

// settledClassic holds a classic group at rest against the subscriptions.
func (f *fleet) settledClassic(g *group) {
	if g.state != Stable || len(g.members) != len(f.clients) {
		f.t.Fatalf("the group does not come to rest: %v with %d members of %d", g.state, len(g.members), len(f.clients))
	}
	want, read := map[topicIDPartition]bool{}, map[topicIDPartition]bool{}
	for _, c := range f.clients {
		for _, name := range c.topics {
			for p := range f.topics[name] {
				want[topicIDPartition{fixedID(name), p}] = true
			}
		}
		take(read, c.owned)
	}
	if !maps.Equal(want, read) {
		f.t.Fatalf("%d of %d partitions are read", len(read), len(want))
	}
}

// Whatever clients of either protocol, time and the log do, no partition has two readers, no offset is lost, every request is
// answered once, and the group comes to rest with every partition read, as what it is to be. A coordinator that was loaded again
// knows the same.
func TestMixedGroupModel(t *testing.T) {
	seen := map[string]int{}
	seed := uint64(0)
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	for ; seed < 300; seed++ {
		f := newFleet(t, seed)
		f.mixed.on, f.mixed.types = true, seen
		f.cfg.InitialRebalanceDelay = time.Duration(f.r.IntN(2)) * 3 * time.Second
		f.cfg.Consumer.Migration.Downgrade = f.r.IntN(4) > 0
		for range 300 {
			f.mixedStep()
			f.check()
			f.note(seen)
		}
		f.settle()
		f.settledType()
		f.sameAfterLoad()
	}
	for _, what := range []string{"classic", "consumer", "mixed", "downgraded", "upgraded"} {
		if seen[what] < 100 {
			t.Errorf("the histories have %d steps of %s groups: %v", seen[what], what, seen)
		}
	}
}

func (f *fleet) mixedStep() {
	ids := slices.Sorted(maps.Keys(f.clients))
	some := func() *client { return f.clients[ids[f.r.IntN(len(ids))]] }
	switch n := f.r.IntN(100); {
	case n < 2 && len(ids) < 6:
		f.join()
	case n < 5 && len(ids) < 6:
		f.joinClassic()
	case n < 8 && len(ids) > 0:
		f.leave(some())
	case n < 9:
		f.topics = maps.Clone(f.topics)
		f.topics[[]string{"a", "c"}[f.r.IntN(2)]]++
		f.step(TopicsChanged{f.topics})
	case n < 10:
		f.crash(false)
	case n < 11:
		f.write(true)
	case n < 16 && len(ids) > 0:
		f.commit(some())
	case n < 40:
		f.write(false)
	case n < 45:
		f.now = f.now.Add(time.Duration(f.r.IntN(6)) * time.Second)
		f.step(Tick{})
	case len(ids) > 0:
		f.heartbeat(some())
	}
}

// note counts what the group is.
func (f *fleet) note(seen map[string]int) {
	g := f.co.groups["g"]
	now := ""
	switch {
	case g == nil:
	case g.consumer == nil:
		now = "classic"
	case slices.ContainsFunc(g.consumer.sorted(), func(m *consumerMember) bool { return m.classic != nil }):
		now = "mixed"
	default:
		now = "consumer"
	}
	seen[now]++
	switch {
	case f.mixed.last == "classic" && now == "mixed":
		seen["upgraded"]++
	case f.mixed.last == "mixed" && now == "classic":
		seen["downgraded"]++
	}
	f.mixed.last = now
}

// settledType holds the group's protocol against its members.
func (f *fleet) settledType() {
	g := f.co.groups["g"]
	if g == nil || len(f.clients) == 0 {
		return
	}
	modern := false
	for _, c := range f.clients {
		modern = modern || c.classic == nil
	}
	if modern && g.consumer == nil || !modern && g.consumer != nil && f.cfg.Consumer.Migration.Downgrade {
		f.t.Fatalf("the group is of the wrong protocol: %v, consumers %v", g.consumer == nil, modern)
	}
}
