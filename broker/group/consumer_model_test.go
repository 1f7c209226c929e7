package group

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/broker/group/assignor"
	"github.com/varvehq/varve/internal/kafka"
)

// fixedTopics are topics of a test, by name.
type fixedTopics map[string]int32

func fixedID(name string) (id kafka.UUID) {
	copy(id[:], name)
	return id
}

func (f fixedTopics) Topic(name string) (kafka.UUID, int32, bool) {
	n, ok := f[name]
	return fixedID(name), n, ok
}
func (f fixedTopics) Name(id kafka.UUID) (string, bool) {
	for name := range f {
		if fixedID(name) == id {
			return name, true
		}
	}
	return "", false
}
func (f fixedTopics) Names() []string { return slices.Sorted(maps.Keys(f)) }

// fleet is a group of clients that keep to the protocol, and a coordinator whose log may lose its last writes with a crash.
type fleet struct {
	t       *testing.T
	r       *rand.Rand
	now     time.Time
	cfg     Config
	co      *Coordinator
	log     []Record // durable
	held    []Write  // not yet
	topics  fixedTopics
	clients map[string]*client
	next    int
	epochs  map[string]int32 // the last epoch of each member that was told
	group   int32
	mixed   mixedFleet
}

// client is one consumer: what it was told to own, it owns until it says that it does not.
type client struct {
	id       string
	instance *string
	epoch    int32
	topics   []string
	regex    *string
	owned    assignor.Set
	told     assignor.Set // nil once it has what it was told to have
	waits    bool
	heard    time.Time     // when it was last heard
	whole    bool          // the next request tells everything, as after an error
	classic  *classicState // nil for a client of the consumer protocol
}

func newFleet(t *testing.T, seed uint64) *fleet {
	f := &fleet{t: t, r: rand.New(rand.NewPCG(seed, 848)), now: time.UnixMilli(1_000_000), cfg: DefaultConfig(),
		topics: fixedTopics{"a": 4, "b": 3, "ab": 2}, clients: map[string]*client{}, epochs: map[string]int32{},
		mixed: mixedFleet{acked: map[topicIDPartition]int64{}, types: map[string]int{}}}
	f.load()
	return f
}

func (f *fleet) load() {
	l := NewLoader()
	if len(f.log) > 0 {
		if err := l.Add(coordinator.BatchOf(f.log, 1, 0, nil)); err != nil {
			f.t.Fatal(err)
		}
	}
	co, eff, err := l.Coordinator(&f.cfg, f.now, func(p string) string {
		f.mixed.ids++
		return fmt.Sprint(p, "-", f.mixed.ids)
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.co, f.held = co, nil
	f.effects(eff)
	f.step(TopicsChanged{f.topics})
}

func (f *fleet) step(e Event) { f.effects(f.co.Step(f.now, e)) }

func (f *fleet) effects(eff Effects) {
	f.held = append(f.held, eff.Writes...)
	for _, r := range eff.Replies {
		switch to := r.To.(type) {
		case string:
			f.told(to, r.Body.(ConsumerHeartbeatResponse))
		case *asked:
			f.toldClassic(to, r.Body)
		}
	}
	if eff.Reload {
		f.crash(true)
	}
}

// crash loses what is not durable; every request that waits is answered with an error. ahead says that a write was refused, so that
// the coordinator is not what is in the log.
func (f *fleet) crash(ahead bool) {
	f.mixed.unload(f, ahead)
	f.load()
	for _, c := range f.clients {
		c.waits, c.whole = false, true
	}
}

func (f *fleet) join() {
	f.next++
	c := &client{id: fmt.Sprint("m", f.next), whole: true, owned: assignor.Set{}}
	if f.r.IntN(3) == 0 {
		i := fmt.Sprint("i", f.r.IntN(3))
		for _, o := range f.clients {
			if o.instance != nil && *o.instance == i {
				return
			}
		}
		c.instance = &i
	}
	f.choose(c)
	f.clients[c.id] = c
}

func (f *fleet) choose(c *client) {
	c.topics, c.regex, c.whole = []string{}, nil, true
	if f.r.IntN(4) == 0 {
		re := []string{"a.*", ".*b", "c"}[f.r.IntN(3)]
		c.regex = &re
		return
	}
	none := ""
	c.regex = &none
	for _, t := range []string{"a", "b", "ab", "c"} {
		if f.r.IntN(2) == 0 {
			c.topics = append(c.topics, t)
		}
	}
}

func (f *fleet) heartbeat(c *client) {
	if c.waits {
		return
	}
	if c.classic != nil {
		f.actClassic(c)
		return
	}
	c.heard = f.now
	r := ConsumerHeartbeatRequest{Group: "g", MemberID: c.id, Epoch: c.epoch, InstanceID: c.instance, RebalanceTimeout: -1}
	switch {
	case c.told != nil: // it takes over what it was told, and says so
		c.owned, c.told = c.told, nil
		r.Owned = c.owned
	case c.whole || c.epoch == JoinEpoch:
		r.Owned = c.owned
	}
	if c.whole || c.epoch == JoinEpoch {
		r.Topics, r.Regex, r.RebalanceTimeout = c.topics, c.regex, time.Minute
		c.whole = false
	}
	c.waits = true
	f.step(ConsumerHeartbeat{c.id, r})
}

func (f *fleet) leave(c *client) {
	if c.classic != nil {
		f.leaveClassic(c)
		return
	}
	r := ConsumerHeartbeatRequest{Group: "g", MemberID: c.id, Epoch: LeaveEpoch, InstanceID: c.instance, RebalanceTimeout: -1}
	if c.instance != nil && f.r.IntN(2) == 0 {
		r.Epoch = StaticLeaveEpoch
	}
	delete(f.clients, c.id)
	f.step(ConsumerHeartbeat{c.id, r})
}

// told takes an answer.
func (f *fleet) told(id string, r ConsumerHeartbeatResponse) {
	c := f.clients[id]
	if c == nil {
		return
	}
	c.waits = false
	if r.Err != nil { // it gives everything up and joins anew
		c.epoch, c.owned, c.told, c.whole = JoinEpoch, assignor.Set{}, nil, true
		delete(f.epochs, id)
		return
	}
	if r.Epoch < f.epochs[id] {
		f.t.Errorf("%s is told epoch %d after %d", id, r.Epoch, f.epochs[id])
	}
	c.epoch, f.epochs[id] = r.Epoch, r.Epoch
	if r.Assigned != nil {
		// What is gone from the assignment is given up at once, what is new is taken with it.
		c.told = maps.Clone(r.Assigned)
		for t, ps := range c.owned {
			c.owned[t] = slices.DeleteFunc(slices.Clone(ps), func(p int32) bool { return !slices.Contains(r.Assigned[t], p) })
		}
	}
}

// write makes the next write durable, or refuses it.
func (f *fleet) write(fail bool) {
	if len(f.held) == 0 {
		return
	}
	w := f.held[0]
	f.held = f.held[1:]
	var err error
	if fail {
		err = coordinator.ErrUnavailable
	} else {
		f.log = append(f.log, w.Records...)
	}
	f.step(Written{w.ID, err})
}

// check holds the coordinator against what must always be.
func (f *fleet) check() {
	owner := map[topicIDPartition]string{}
	for _, c := range f.clients {
		if f.forgotten(c) {
			continue
		}
		for _, set := range []assignor.Set{c.owned, c.told} {
			for t, ps := range set {
				for _, p := range ps {
					at := topicIDPartition{t, p}
					if o := owner[at]; o != "" && o != c.id {
						f.t.Fatalf("%v is read by %s and by %s", at, o, c.id)
					}
					owner[at] = c.id
				}
			}
		}
	}
	f.checkOffsets()
	g := f.co.groups["g"]
	if g == nil || g.consumer == nil {
		f.group = 0
		return
	}
	cg := g.consumer
	if cg.epoch < f.group {
		f.t.Fatalf("the group's epoch went from %d to %d", f.group, cg.epoch)
	}
	if len(f.held) == 0 {
		f.group = cg.epoch // others may be lost in a crash
	}
	seen := map[topicIDPartition]string{}
	for _, m := range cg.sorted() {
		for _, set := range []assignor.Set{m.assigned, m.revoke} {
			for t, ps := range set {
				for _, p := range ps {
					at := topicIDPartition{t, p}
					if seen[at] != "" || cg.owners[at] != m.id {
						f.t.Fatalf("%v is %s's and %s's, and the coordinator says %s's", at, seen[at], m.id, cg.owners[at])
					}
					seen[at] = m.id
				}
			}
		}
	}
	if len(seen) != len(cg.owners) {
		f.t.Fatalf("%d partitions have an owner, and %d are with members", len(cg.owners), len(seen))
	}
}

// settle lets everyone heartbeat until nothing changes, and holds the result against the subscriptions.
func (f *fleet) settle() {
	drain := func() {
		for len(f.held) > 0 {
			f.write(false)
		}
		f.check()
	}
	for range 40 {
		for _, id := range slices.Sorted(maps.Keys(f.clients)) {
			f.heartbeat(f.clients[id])
			drain()
		}
		f.now = f.now.Add(5 * time.Second) // members that left for a while are given up
		f.step(Tick{})
		drain()
	}
	if len(f.clients) == 0 {
		return
	}
	g := f.co.groups["g"]
	if g != nil && g.consumer == nil && f.mixed.on {
		f.settledClassic(g)
		return
	}
	if g == nil || g.consumer.state() != "Stable" {
		f.t.Fatalf("the group does not come to rest: %s", g.consumer.state())
	}
	read := 0
	for _, c := range f.clients {
		m := g.consumer.members[c.member()]
		if m == nil || !sameSet(m.assigned, m.target) || !sameSet(c.owned, m.target) {
			f.t.Fatalf("%s reads %v, and is to read %+v", c.id, c.owned, m)
		}
		for _, ps := range c.owned {
			read += len(ps)
		}
	}
	want := 0
	for name, n := range f.topics {
		if g.consumer.subscribedTo(name) {
			want += int(n)
		}
	}
	if read != want {
		f.t.Fatalf("%d of %d partitions are read", read, want)
	}
}

// Whatever members, topics and the log do, no partition has two readers, epochs do not go back, and the group comes to rest with
// every partition read. A coordinator that was loaded again knows the same.
func TestConsumerGroupModel(t *testing.T) {
	for seed := range uint64(300) {
		f := newFleet(t, seed)
		for range 250 {
			ids := slices.Sorted(maps.Keys(f.clients))
			switch n := f.r.IntN(100); {
			case n < 6 && len(ids) < 6:
				f.join()
			case n < 8 && len(ids) > 0:
				f.leave(f.clients[ids[f.r.IntN(len(ids))]])
			case n < 11 && len(ids) > 0:
				f.choose(f.clients[ids[f.r.IntN(len(ids))]])
			case n < 13:
				f.topics = maps.Clone(f.topics)
				if name := []string{"a", "c"}[f.r.IntN(2)]; f.topics[name] > 0 && f.r.IntN(2) == 0 {
					delete(f.topics, name)
				} else {
					f.topics[name]++
				}
				f.step(TopicsChanged{f.topics})
			case n < 14:
				f.crash(false)
			case n < 15:
				f.write(true)
			case n < 40:
				f.write(false)
			case n < 45:
				f.now = f.now.Add(time.Duration(f.r.IntN(8)) * time.Second)
				f.step(Tick{})
			case len(ids) > 0:
				f.heartbeat(f.clients[ids[f.r.IntN(len(ids))]])
			}
			f.check()
		}
		f.settle()
		f.sameAfterLoad()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// sameAfterLoad holds a group against what the log has of it.
func (f *fleet) sameAfterLoad() {
	before, err := f.co.DescribeConsumer("g")
	classic, _ := f.co.Describe("g")
	f.load()
	after, again := f.co.DescribeConsumer("g")
	if d := cmp.Diff(before, after, cmpopts.EquateEmpty()); d != "" || (err == nil) != (again == nil) {
		f.t.Fatalf("a load changes a group: %v, %v\n%s", err, again, d)
	}
	loaded, _ := f.co.Describe("g")
	if d := cmp.Diff(classic, loaded, cmpopts.EquateEmpty()); d != "" {
		f.t.Fatalf("a load changes a classic group: %s", d)
	}
	for _, id := range slices.Sorted(maps.Keys(f.clients)) {
		f.heartbeat(f.clients[id])
	}
	if len(f.held) > 0 {
		f.t.Fatal("a load makes a group rebalance")
	}
}
