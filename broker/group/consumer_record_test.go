package group

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/broker/group/assignor"
)

// desk is a coordinator whose writes are durable at once.
type desk struct {
	t       *testing.T
	co      *Coordinator
	cfg     Config
	now     time.Time
	log     []Record
	answers []any
}

func newDesk(t *testing.T) *desk {
	d := &desk{t: t, cfg: DefaultConfig(), now: time.UnixMilli(1_000_000)}
	d.load()
	return d
}

// load makes a coordinator of what is in the log.
func (d *desk) load() {
	d.t.Helper()
	l := NewLoader()
	if len(d.log) > 0 {
		if err := l.Add(coordinator.BatchOf(d.log, 1, 0, nil)); err != nil {
			d.t.Fatal(err)
		}
	}
	co, eff, err := l.Coordinator(&d.cfg, d.now, func(p string) string { return p })
	if err != nil {
		d.t.Fatal(err)
	}
	d.co = co
	d.effects(eff)
	d.step(TopicsChanged{fixedTopics{"a": 3}})
}

// step gives the last answer to what happens.
func (d *desk) step(e Event) any {
	d.answers = nil
	d.effects(d.co.Step(d.now, e))
	if len(d.answers) == 0 {
		return nil
	}
	return d.answers[len(d.answers)-1]
}

func (d *desk) effects(eff Effects) {
	for _, r := range eff.Replies {
		d.answers = append(d.answers, r.Body)
	}
	for _, w := range eff.Writes {
		d.log = append(d.log, w.Records...)
		d.effects(d.co.Step(d.now, Written{ID: w.ID}))
	}
}

func (d *desk) heartbeat(r ConsumerHeartbeatRequest) ConsumerHeartbeatResponse {
	d.t.Helper()
	r.Group, r.ClientID, r.ClientHost = "g", "c", "/h"
	a, ok := d.step(ConsumerHeartbeat{"to", r}).(ConsumerHeartbeatResponse)
	if !ok || a.Err != nil {
		d.t.Fatalf("heartbeat of %s: %+v", r.MemberID, a)
	}
	return a
}

func (d *desk) join(member string) ConsumerHeartbeatResponse {
	d.t.Helper()
	return d.heartbeat(ConsumerHeartbeatRequest{MemberID: member, RebalanceTimeout: time.Second, Topics: []string{"a"}, Owned: assignor.Set{}})
}

func (d *desk) commit(member string, epoch, partition int32) error {
	r, ok := d.step(Commit{"to", CommitRequest{Group: "g", MemberID: member, Generation: epoch, Retention: -1, NotFoundError: true,
		Items: []CommitItem{{Topic: "a", TopicID: fixedID("a"), Partition: partition}}}}).(CommitResponse)
	if !ok {
		d.t.Fatal("a commit without an answer")
	}
	return r.Err
}

// The records of a group's life, as Apache Kafka 4.4 writes them.
func TestConsumerGroupRecords(t *testing.T) {
	d := newDesk(t)
	if r := d.join("m"); r.Epoch != 2 {
		t.Errorf("the first member's epoch: %d, want 2", r.Epoch)
	}
	d.heartbeat(ConsumerHeartbeatRequest{MemberID: "m", Epoch: LeaveEpoch, RebalanceTimeout: -1})
	var values []string
	for _, r := range d.log {
		v := "null"
		if r.Value != nil {
			v = hex.EncodeToString(r.Value)
		}
		values = append(values, hex.EncodeToString(r.Key[:2])+" "+v)
	}
	topic := hex.EncodeToString(append([]byte("a"), make([]byte, 15)...))
	want := []string{
		// instance, rack, client, host, one topic, no expression, timeout, no assignor, a null classic side
		"0005 0000" + "00" + "00" + "0263" + "032f68" + "02" + "0261" + "01" + "000003e8" + "00" + "01000100",
		"0003 0000" + "00000002" + "010008" + values[1][len(values[1])-16:],
		"0007 0000" + "02" + topic + "04" + "000000000000000100000002" + "00" + "00",
		"0006 0000" + "00000002" + "010008" + "00000000000f4240",
		// epoch, the one before, stable, partitions with the epochs since when they are its own, nothing to give up
		"0008 0000" + "00000002" + "00000000" + "00" + "02" + topic + "04" + "000000000000000100000002" +
			"01000d" + "04" + "000000020000000200000002" + "01" + "00",
		"0008 null", "0007 null", "0005 null",
		"0003 0000" + "00000003" + "00",
		"0006 0000" + "00000003" + "00", // a group without members is assigned at once
	}
	if got, want := strings.Join(values, "\n"), strings.Join(want, "\n"); got != want {
		t.Errorf("the log has\n%s\nwant\n%s", got, want)
	}
}

// A member may commit with an epoch that is over, for partitions that were its own already then.
func TestCommitInAnEarlierEpoch(t *testing.T) {
	d := newDesk(t)
	first := d.join("m1")
	if err := d.commit("m1", first.Epoch, 2); err != nil {
		t.Fatal(err)
	}
	d.join("m2") // m1 has to give up a partition
	d.heartbeat(ConsumerHeartbeatRequest{MemberID: "m1", Epoch: first.Epoch, RebalanceTimeout: -1})
	kept := d.co.groups["g"].consumer.members["m1"].assigned[fixedID("a")]
	if told, err := d.co.DescribeConsumer("g"); err != nil || len(told.Members[0].Assigned[fixedID("a")]) != 3 {
		t.Errorf("while it has to give one up the member is told to have %+v, %v, want all three", told.Members[0].Assigned, err)
	}
	now := d.heartbeat(ConsumerHeartbeatRequest{MemberID: "m1", Epoch: first.Epoch, RebalanceTimeout: -1, Owned: assignor.Set{fixedID("a"): kept}})
	second := d.heartbeat(ConsumerHeartbeatRequest{MemberID: "m2", Epoch: now.Epoch, RebalanceTimeout: -1})
	if now.Epoch <= first.Epoch || len(kept) != 2 || len(second.Assigned[fixedID("a")]) != 1 {
		t.Fatalf("after the second join: %+v with %v, %+v", now, kept, second)
	}
	given := second.Assigned[fixedID("a")][0]
	for _, reloaded := range []bool{false, true} {
		if reloaded {
			d.load()
		}
		for _, c := range []struct {
			member           string
			epoch, partition int32
			ok               bool
		}{
			{"m1", now.Epoch, given, true}, // in its own epoch nobody asks
			{"m1", first.Epoch, kept[0], true},
			{"m1", first.Epoch, given, false},
			{"m1", first.Epoch - 1, kept[0], false},
			{"m1", now.Epoch + 1, kept[0], false},
			{"m2", now.Epoch - 1, given, false},
		} {
			err := d.commit(c.member, c.epoch, c.partition)
			if c.ok && err != nil || !c.ok && !errors.Is(err, ErrStaleEpoch) {
				t.Errorf("reloaded: %v, a commit of %s in epoch %d for partition %d: %v", reloaded, c.member, c.epoch, c.partition, err)
			}
		}
	}
}

// Where the members prefer another assignor, the group is assigned anew.
func TestPreferredAssignorBeginsAnEpoch(t *testing.T) {
	d := newDesk(t)
	epoch := d.join("m").Epoch
	assignor := "range"
	if r := d.heartbeat(ConsumerHeartbeatRequest{MemberID: "m", Epoch: epoch, RebalanceTimeout: -1, Assignor: &assignor}); r.Epoch != epoch+1 {
		t.Errorf("the epoch after another assignor: %d, want %d", r.Epoch, epoch+1)
	}
	assignor = "uniform"
	d.heartbeat(ConsumerHeartbeatRequest{MemberID: "m", Epoch: epoch + 1, RebalanceTimeout: -1, Assignor: &assignor})
	if got, err := d.co.DescribeConsumer("g"); err != nil || got.Assignor != "uniform" || got.Epoch != epoch+2 {
		t.Errorf("the group after it went back: %+v, %v", got, err)
	}
}

// A member without subscriptions begins no epoch; a static one cannot come again while it is there; of a wrong assignor and a wrong
// expression the assignor is told; a classic group without members gives way although an id was given out.
func TestConsumerJoins(t *testing.T) {
	d := newDesk(t)
	ask := func(r ConsumerHeartbeatRequest) ConsumerHeartbeatResponse {
		r.Group, r.ClientID, r.ClientHost, r.RebalanceTimeout, r.Owned = "g", "c", "/h", time.Second, assignor.Set{}
		return d.step(ConsumerHeartbeat{"to", r}).(ConsumerHeartbeatResponse)
	}
	d.step(Join{"to", JoinRequest{Group: "g", ClientID: "c", ProtocolType: "consumer", NeedsMemberID: true, SessionTimeout: 10 * time.Second,
		RebalanceTimeout: 10 * time.Second, Protocols: []Protocol{{Name: "range"}}}})
	if g := d.co.groups["g"]; g == nil || len(g.pendingJoin) != 1 {
		t.Fatalf("a classic member that was given an id: %+v", g)
	}
	if r := ask(ConsumerHeartbeatRequest{MemberID: "none", Topics: []string{}}); r.Err != nil || r.Epoch != 1 {
		t.Errorf("a member without subscriptions: %+v, want epoch 1", r)
	}
	name, bad, wrong := "i", "nonsense", "("
	if r := ask(ConsumerHeartbeatRequest{MemberID: "m", InstanceID: &name, Topics: []string{"a"}}); r.Err != nil {
		t.Fatal(r.Err)
	}
	if r := ask(ConsumerHeartbeatRequest{MemberID: "m", InstanceID: &name, Topics: []string{"a"}}); !errors.Is(r.Err, ErrUnreleasedInstance) {
		t.Errorf("a static member that joins again: %+v", r)
	}
	if r := ask(ConsumerHeartbeatRequest{MemberID: "o", Assignor: &bad, Regex: &wrong}); !errors.Is(r.Err, ErrUnsupportedAssignor) {
		t.Errorf("a wrong assignor and a wrong expression: %+v", r)
	}
}

// A member's record is what Apache Kafka 4.4 writes, byte by byte, of either protocol.
func TestMemberRecord(t *testing.T) {
	instance := "i"
	m := memberSubscription{instance: &instance, clientID: "c", clientHost: "/h", topics: []string{"t", "u"}, rebalanceTimeout: time.Minute}
	side := m
	side.classic = &classicSide{session: 45 * time.Second, protocols: []Protocol{{"range", []byte{0, 1, 2}}, {"sticky", []byte{0, 3}}}}
	for name, tt := range map[string]struct {
		subscription memberSubscription
		want         string
	}{
		"consumer": {m, "00000269000263032f680302740275010000ea600001000100"},
		"classic":  {side, "00000269000263032f680302740275010000ea600001001d010000afc8030672616e6765040001020007737469636b790300030000"},
	} {
		r := memberChange{id: "m", memberSubscription: tt.subscription}.record("g")
		if got := hex.EncodeToString(r.Value); got != tt.want {
			t.Errorf("%s: %s\nand not %s", name, got, tt.want)
		}
		_, ch, err := decodeConsumer(r.Key, r.Value)
		got, ok := ch.(memberChange)
		if err != nil || !ok || !cmp.Equal(got.memberSubscription, tt.subscription, cmp.AllowUnexported(memberSubscription{}, classicSide{})) {
			t.Errorf("%s became %+v, %v", name, ch, err)
		}
	}
}
