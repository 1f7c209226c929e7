package group

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/broker/group/assignor"
	"github.com/varvehq/varve/internal/kafka"
)

// TestRandomHistories runs random histories of requests, time, lost connections, failed appends and restarts, and checks
// after every step what must always hold.
func TestRandomHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"join":       w.join,
			"consumer":   w.consumer,
			"sync":       w.sync,
			"heartbeat":  w.heartbeat,
			"leave":      w.leave,
			"commit":     w.commit,
			"delete":     w.delete,
			"topic":      w.topic,
			"disconnect": w.disconnect,
			"wait":       w.wait,
			"written":    w.written,
			"restart":    w.restart,
			"":           w.check,
		})
		w.finish()
	})
}

// token is one waiting request.
type token struct {
	n         int
	kind      string
	group     string
	answered  int
	abandoned bool
}

func (k *token) String() string { return fmt.Sprintf("%s%d", k.kind, k.n) }

type leadership struct {
	g          *group
	life       int
	generation int32
}

type world struct {
	t      *rapid.T
	cfg    Config
	now    time.Time
	co     *Coordinator
	n      int
	log    []Record
	held   []Write
	tokens []*token
	// known are member ids that were told, by group.
	known   map[string][]string
	leaders map[leadership]string
	highest map[leadership]int32 // by a group's life
	reload  bool
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, cfg: DefaultConfig(), now: time.Unix(1_700_000_000, 0), known: map[string][]string{},
		leaders: map[leadership]string{}, highest: map[leadership]int32{}}
	w.cfg.InitialRebalanceDelay = time.Duration(rapid.IntRange(0, 2).Draw(t, "delay")) * time.Second
	w.cfg.MaxSize = rapid.IntRange(1, 6).Draw(t, "max size")
	w.cfg.OffsetsRetention = time.Hour
	w.co = NewCoordinator(&w.cfg, w.now, w.memberID)
	w.step(TopicsChanged{fixedTopics{"t": 4, "u": 2}})
	return w
}

func (w *world) memberID(prefix string) string {
	w.n++
	return fmt.Sprintf("%s-%d", prefix, w.n)
}

func (w *world) token(kind, group string) *token {
	w.n++
	k := &token{n: w.n, kind: kind, group: group}
	w.tokens = append(w.tokens, k)
	return k
}

func (w *world) step(e Event) {
	before := maps.Clone(w.co.groups)
	w.effects(w.co.Step(w.now, e), before)
	if w.reload {
		w.reload = false
		w.again()
	}
}

func (w *world) effects(eff Effects, before map[string]*group) {
	w.held = append(w.held, eff.Writes...)
	w.reload = w.reload || eff.Reload
	for _, r := range eff.Replies {
		k := r.To.(*token)
		if k.answered++; k.answered > 1 {
			w.t.Fatalf("%v is answered %d times", k, k.answered)
		}
		j, ok := r.Body.(JoinResponse)
		if !ok {
			continue
		}
		if j.MemberID != "" && !slices.Contains(w.known[k.group], j.MemberID) {
			w.known[k.group] = append(w.known[k.group], j.MemberID)
		}
		if j.Err == nil {
			g := w.co.groups[k.group]
			if g == nil {
				g = before[k.group]
			}
			w.joined(g, j)
		}
	}
}

// joined checks a successful join: generations only rise, and have one leader.
func (w *world) joined(g *group, j JoinResponse) {
	if j.Leader == "" {
		return // in a consumer group, where every member has a generation of its own
	}
	life := leadership{g: g, life: g.life}
	if j.Generation < w.highest[life] {
		w.t.Fatalf("group %s: %s joined generation %d after %d", g.id, j.MemberID, j.Generation, w.highest[life])
	}
	w.highest[life] = j.Generation
	if j.Leader != j.MemberID || j.SkipAssignment {
		return
	}
	key := leadership{g, g.life, j.Generation}
	if other, ok := w.leaders[key]; ok && other != j.MemberID {
		w.t.Fatalf("group %s: %s and %s both lead generation %d", g.id, other, j.MemberID, j.Generation)
	}
	w.leaders[key] = j.MemberID
}

func (w *world) group(t *rapid.T) string {
	return rapid.SampledFrom([]string{"g", "h"}).Draw(t, "group")
}

func (w *world) member(t *rapid.T, group string) string {
	return rapid.SampledFrom(append([]string{""}, w.known[group]...)).Draw(t, "member")
}

// pick draws a member id, mostly of a current member, with its generation and instance id.
func (w *world) pick(t *rapid.T, group string) (id string, generation int32, instance *string) {
	g := w.co.groups[group]
	if g != nil && g.consumer != nil && len(g.consumer.members) > 0 {
		m := rapid.SampledFrom(g.consumer.sorted()).Draw(t, "consumer member")
		return m.id, m.epoch + int32(rapid.IntRange(0, 4).Draw(t, "wrong")/4), m.instance
	}
	if g == nil || len(g.order) == 0 || rapid.IntRange(0, 9).Draw(t, "stranger") == 0 {
		return w.member(t, group), int32(rapid.IntRange(-1, 3).Draw(t, "generation")), nil
	}
	m := rapid.SampledFrom(g.order).Draw(t, "current member")
	return m.id, g.generation, m.instance
}

func (w *world) join(t *rapid.T) {
	g := w.group(t)
	id := w.member(t, g)
	var instance *string
	if gr := w.co.groups[g]; gr != nil && gr.members[id] != nil {
		instance = gr.members[id].instance
	} else if id == "" && rapid.IntRange(0, 2).Draw(t, "static") == 0 {
		s := rapid.SampledFrom([]string{"i1", "i2"}).Draw(t, "instance")
		instance = &s
	}
	protocols := rapid.SampledFrom([][]Protocol{
		{{"range", subscription("t")}}, {{"range", subscription("t", "u")}},
		{{"sticky", subscription("t")}, {"range", subscription("t")}},
	}).Draw(t, "protocols")
	w.step(Join{w.token("join", g), JoinRequest{Group: g, MemberID: id, InstanceID: instance, ClientID: "c",
		SessionTimeout: 10 * time.Second, RebalanceTimeout: time.Duration(rapid.SampledFrom([]int{0, 5, 60}).Draw(t, "rebalance timeout")) * time.Second,
		ProtocolType: "consumer", Protocols: protocols,
		NeedsMemberID: rapid.Bool().Draw(t, "needs id"), CanSkipAssignment: rapid.Bool().Draw(t, "can skip")}})
}

// consumer is a heartbeat of the consumer protocol: a join, a membership, the end of one, or nonsense.
func (w *world) consumer(t *rapid.T) {
	g := w.group(t)
	r := ConsumerHeartbeatRequest{Group: g, RebalanceTimeout: time.Minute, Topics: []string{"t"}, Owned: assignor.Set{}, ClientID: "c"}
	r.MemberID, r.Epoch, r.InstanceID = w.pick(t, g)
	if r.MemberID == "" || rapid.Bool().Draw(t, "new") {
		r.MemberID, r.Epoch, r.InstanceID = rapid.SampledFrom([]string{"x", "y"}).Draw(t, "new member"), JoinEpoch, nil
		if rapid.IntRange(0, 2).Draw(t, "static") == 0 {
			r.InstanceID = &[]string{"i1"}[0]
		}
	}
	r.Epoch = rapid.SampledFrom([]int32{r.Epoch, r.Epoch, r.Epoch, LeaveEpoch, StaticLeaveEpoch}).Draw(t, "epoch")
	w.step(ConsumerHeartbeat{w.token("consumer", g), r})
}

func (w *world) sync(t *rapid.T) {
	g := w.group(t)
	id, gen, instance := w.pick(t, g)
	assignments := map[string][]byte{}
	if gr := w.co.groups[g]; gr != nil {
		for _, m := range gr.order {
			a := kmsg.NewConsumerMemberAssignment()
			a.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: "t", Partitions: []int32{int32(len(assignments))}}}
			assignments[m.id] = a.AppendTo(nil)
		}
	}
	w.step(Sync{w.token("sync", g), SyncRequest{Group: g, MemberID: id, InstanceID: instance, Generation: gen, Assignments: assignments}})
}

func (w *world) heartbeat(t *rapid.T) {
	g := w.group(t)
	id, gen, instance := w.pick(t, g)
	w.step(Heartbeat{w.token("heartbeat", g), HeartbeatRequest{Group: g, MemberID: id, InstanceID: instance, Generation: gen}})
}

func (w *world) leave(t *rapid.T) {
	g := w.group(t)
	id, _, instance := w.pick(t, g)
	w.step(Leave{w.token("leave", g), LeaveRequest{Group: g, Members: []LeaveMember{{MemberID: id, InstanceID: instance}}}})
}

func (w *world) commit(t *rapid.T) {
	g := w.group(t)
	id, gen, instance := w.pick(t, g)
	if rapid.Bool().Draw(t, "simple") {
		id, gen, instance = "", -1, nil
	}
	w.n++
	w.step(Commit{w.token("commit", g), CommitRequest{Group: g, MemberID: id, InstanceID: instance, Generation: gen, Retention: -1,
		Items: []CommitItem{{Topic: rapid.SampledFrom([]string{"t", "u"}).Draw(t, "topic"), TopicID: kafka.UUID{1},
			Partition: int32(rapid.IntRange(0, 1).Draw(t, "partition")), Offset: int64(w.n), LeaderEpoch: 3, Metadata: "m"}}}})
}

func (w *world) delete(t *rapid.T) {
	g := w.group(t)
	w.step(Delete{w.token("delete", g), g})
}

func (w *world) topic(t *rapid.T) {
	w.step(TopicsDeleted{w.token("topics-deleted", ""), []DeletedTopic{{"u", kafka.UUID{1}}}})
}

func (w *world) disconnect(t *rapid.T) {
	var waiting []*token
	for _, k := range w.tokens {
		if k.answered == 0 && !k.abandoned && (k.kind == "join" || k.kind == "sync") {
			waiting = append(waiting, k)
		}
	}
	if len(waiting) > 0 {
		k := rapid.SampledFrom(waiting).Draw(t, "request")
		k.abandoned = true
		w.step(Disconnected{k.group, k})
	}
}

func (w *world) wait(t *rapid.T) {
	w.now = w.now.Add(time.Duration(rapid.SampledFrom([]int{1, 4, 11, 700}).Draw(t, "seconds")) * time.Second)
	w.step(Tick{})
}

// written makes the oldest writes durable, or lets them fail.
func (w *world) written(t *rapid.T) {
	var err error
	if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
		err = errors.Join(coordinator.ErrUnavailable, coordinator.ErrNotWritten)
	}
	for n := rapid.IntRange(1, 3).Draw(t, "writes"); n > 0 && len(w.held) > 0; n-- {
		w.finishWrite(err)
	}
}

func (w *world) finishWrite(err error) {
	wr := w.held[0]
	w.held = w.held[1:]
	if err == nil {
		w.log = append(w.log, wr.Records...)
	}
	w.step(Written{ID: wr.ID, Err: err})
}

func (w *world) loaded() *Coordinator {
	l := NewLoader()
	if len(w.log) > 0 {
		if err := l.Add(coordinator.BatchOf(w.log, w.now.UnixMilli(), 0, nil)); err != nil {
			w.t.Fatal(err)
		}
	}
	cfg := w.cfg
	cfg.MaxSize = 1 << 30
	c, _, err := l.Coordinator(&cfg, w.now, w.memberID)
	if err != nil {
		w.t.Fatal(err)
	}
	c.Step(w.now, TopicsChanged{fixedTopics{"t": 4, "u": 2}})
	return c
}

// restart loses what is not durable, or some of it.
func (w *world) restart(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "really") != 0 {
		return
	}
	for n := rapid.IntRange(0, len(w.held)).Draw(t, "writes that reached the disk"); n > 0; n-- {
		w.log = append(w.log, w.held[0].Records...)
		w.held = w.held[1:]
	}
	w.again()
}

// again goes on with what is in the log.
func (w *world) again() {
	w.unload()
	w.held, w.reload = nil, false
	w.co = w.loaded()
	w.co.SetConfig(&w.cfg)
}

func (w *world) unload() {
	before := maps.Clone(w.co.groups)
	w.effects(w.co.Unload(w.now, coordinator.ErrUnavailable), before)
	for _, k := range w.tokens {
		if k.answered == 0 && !k.abandoned {
			w.t.Fatalf("%v is never answered", k)
		}
	}
	w.tokens = nil
}

// check looks at the books that the coordinator keeps.
func (w *world) check(t *rapid.T) {
	for i, tm := range w.co.timers {
		if tm.index != i {
			t.Fatalf("timer %d thinks that it is %d", i, tm.index)
		}
	}
	for id, g := range w.co.groups {
		w.checkGroup(t, g)
		if g.id != id || g.vacant() {
			t.Fatalf("group %s is kept for nothing", id)
		}
	}
}

func (w *world) checkGroup(t *rapid.T, g *group) {
	joining, syncing := 0, 0
	supported := map[string]int{}
	for _, m := range g.order {
		if m.join != nil {
			joining++
		}
		if m.syncing {
			syncing++
		}
		for _, p := range m.protocols {
			supported[p.Name]++
		}
		if g.members[m.id] != m {
			t.Fatalf("group %s: %s is not among its members", g.id, m.id)
		}
		if m.instance != nil && g.static[*m.instance] != m.id {
			t.Fatalf("group %s: instance %s is not of %s", g.id, *m.instance, m.id)
		}
		if m.session == nil && m.join == nil && m.sync == nil {
			t.Fatalf("group %s: nothing ends the session of %s", g.id, m.id)
		}
	}
	switch {
	case joining != g.joining, syncing != g.syncing, len(g.order) != len(g.members), !maps.Equal(supported, g.supported):
		t.Fatalf("group %s: the counts are wrong", g.id)
	case (g.state == Empty || g.state == Dead) != (len(g.order) == 0) && g.state != PreparingRebalance:
		t.Fatalf("group %s is %v with %d members", g.id, g.state, len(g.order))
	case len(g.order) > 0 && g.members[g.leader] == nil:
		t.Fatalf("group %s: the leader %q is no member", g.id, g.leader)
	case g.state == PreparingRebalance && g.joinTimer == nil:
		t.Fatalf("group %s: nothing ends the rebalance", g.id)
	case g.state == CompletingRebalance && g.syncTimer == nil && g.storing != g.generation:
		t.Fatalf("group %s: nothing ends the wait for the leader", g.id)
	}
}

// finish makes everything durable and checks that a restart finds what was there.
func (w *world) finish() {
	for len(w.held) > 0 {
		w.finishWrite(nil)
	}
	l := w.loaded()
	for id, g := range w.co.groups {
		lg := l.groups[id]
		if lg == nil {
			if g.persisted || len(g.offsets) > 0 {
				w.t.Fatalf("group %s is gone after a restart", id)
			}
			continue
		}
		w.same(g, lg)
	}
	for id := range l.groups {
		if w.co.groups[id] == nil {
			w.t.Fatalf("group %s is there after a restart only", id)
		}
	}
	w.unload()
}

func (w *world) same(g, lg *group) {
	if !maps.EqualFunc(g.offsets, lg.offsets, func(a, b map[int32]Offset) bool { return maps.Equal(a, b) }) {
		w.t.Fatalf("group %s: offsets %v, after a restart %v", g.id, g.offsets, lg.offsets)
	}
	if (g.consumer == nil) != (lg.consumer == nil) {
		w.t.Fatalf("group %s: consumer group %v, after a restart %v", g.id, g.consumer != nil, lg.consumer != nil)
	}
	if g.state != Stable {
		return
	}
	if lg.state != Stable || lg.generation != g.generation || lg.protocol != g.protocol || lg.leader != g.leader || len(lg.order) != len(g.order) {
		w.t.Fatalf("group %s: %v generation %d of %d, after a restart %v generation %d of %d",
			g.id, g.state, g.generation, len(g.order), lg.state, lg.generation, len(lg.order))
	}
	for i, m := range g.order {
		if lm := lg.order[i]; lm.id != m.id || string(lm.assignment) != string(m.assignment) || lm.sessionTimeout != m.sessionTimeout {
			w.t.Fatalf("group %s: member %s with %q, after a restart %s with %q", g.id, m.id, m.assignment, lm.id, lm.assignment)
		}
	}
}
