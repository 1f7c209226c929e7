// Package groups_test runs real kgo consumer groups against a broker in process.
package groups_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/varvehq/varve/broker"
	"github.com/varvehq/varve/internal/vfs"
	"github.com/varvehq/varve/tests/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const partitions = 6

// world is a broker with a topic and an admin client.
type world struct {
	t     *testing.T
	node  *harness.Node
	admin *kadm.Client
	ctx   context.Context
	topic string
	sent  int
}

func newWorld(t *testing.T) *world {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	t.Cleanup(cancel)
	w := &world{t: t, node: harness.Start(t), ctx: ctx, topic: "t"}
	w.admin = kadm.NewClient(w.node.Client())
	if _, err := w.admin.CreateTopic(ctx, partitions, 1, nil, w.topic); err != nil {
		t.Fatal(err)
	}
	return w
}

// produce sends n more records, numbered on.
func (w *world) produce(n int) {
	w.t.Helper()
	c := w.node.Client(kgo.DefaultProduceTopic(w.topic))
	records := make([]*kgo.Record, n)
	for i := range records {
		s := fmt.Sprint(w.sent + i)
		records[i] = &kgo.Record{Key: []byte(s), Value: []byte(s)}
	}
	if err := c.ProduceSync(w.ctx, records...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
	w.sent += n
	c.Close()
}

// seen counts how often each record was consumed.
type seen struct {
	mu     sync.Mutex
	counts map[string]int
	change chan struct{}
}

func newSeen() *seen { return &seen{counts: map[string]int{}, change: make(chan struct{}, 1)} }

func (s *seen) add(r *kgo.Record) {
	s.mu.Lock()
	s.counts[string(r.Value)]++
	s.mu.Unlock()
	select {
	case s.change <- struct{}{}:
	default:
	}
}

// waitFor waits until n different records were consumed.
func (s *seen) waitFor(w *world, n int) {
	w.t.Helper()
	for {
		s.mu.Lock()
		have := len(s.counts)
		s.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-s.change:
		case <-w.ctx.Done():
			w.t.Fatalf("%d of %d records were consumed", have, n)
		}
	}
}

func (s *seen) duplicates() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.counts {
		n += c - 1
	}
	return n
}

// consumer is a member of a group that consumes until it is stopped. It commits what it has handled.
type consumer struct {
	*kgo.Client
	w        *world
	network  *network
	assigned atomic.Int64 // calls that gave partitions
	done     chan struct{}
	cancel   context.CancelFunc
}

func (w *world) consume(s *seen, group string, opts ...kgo.Opt) *consumer {
	w.t.Helper()
	c := &consumer{w: w, network: &network{}, done: make(chan struct{})}
	base := []kgo.Opt{
		kgo.SeedBrokers(w.node.Bootstrap()), kgo.ConsumerGroup(group), kgo.ConsumeTopics(w.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(200 * time.Millisecond), kgo.RebalanceTimeout(10 * time.Second),
		kgo.BlockRebalanceOnPoll(), kgo.Dialer(c.network.dial),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
			if len(m) > 0 {
				c.assigned.Add(1)
			}
		}),
	}
	var err error
	if c.Client, err = kgo.NewClient(append(base, opts...)...); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	c.cancel = cancel
	go c.run(ctx, s)
	w.t.Cleanup(c.stop)
	return c
}

func (c *consumer) run(ctx context.Context, s *seen) {
	defer close(c.done)
	for ctx.Err() == nil {
		f := c.PollRecords(ctx, 100)
		if f.IsClientClosed() || ctx.Err() != nil {
			return
		}
		var records []*kgo.Record
		f.EachRecord(func(r *kgo.Record) { records = append(records, r) })
		for _, r := range records {
			s.add(r)
		}
		if err := c.CommitRecords(ctx, records...); err != nil && ctx.Err() == nil && !errors.Is(err, kgo.ErrClientClosed) {
			c.w.t.Logf("commit: %v", err)
		}
		c.AllowRebalance()
	}
}

// stop ends the consumer; it leaves its group, unless it is a static member.
func (c *consumer) stop() {
	c.cancel()
	<-c.done
	c.CloseAllowingRebalance()
}

// kill cuts the consumer off as a crash would: nobody hears of it any more.
func (c *consumer) kill() {
	c.network.cut()
	c.stop()
}

// network is the way of one client to the broker.
type network struct {
	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

func (n *network) dial(ctx context.Context, proto, addr string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, errors.New("cut off")
	}
	c, err := (&net.Dialer{}).DialContext(ctx, proto, addr)
	if err == nil {
		n.conns = append(n.conns, c)
	}
	return c, err
}

func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = true
	for _, c := range n.conns {
		_ = c.Close()
	}
}

// waitForMembers waits until the group is stable with n members, and returns it.
func (w *world) waitForMembers(group string, n int) kadm.DescribedGroup {
	w.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ds, err := w.admin.DescribeGroups(w.ctx, group)
		if err == nil && ds[group].State == "Stable" && len(ds[group].Members) == n {
			return ds[group]
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("the group has not come to %d members: %+v %v", n, ds[group], err)
		}
	}
}

// checkAssignment checks that the members share all partitions, each once.
func (w *world) checkAssignment(d kadm.DescribedGroup) {
	w.t.Helper()
	owners := map[int32]int{}
	for _, m := range d.Members {
		a, ok := m.Assigned.AsConsumer()
		if !ok {
			w.t.Fatalf("%s has no assignment", m.MemberID)
		}
		for _, t := range a.Topics {
			for _, p := range t.Partitions {
				owners[p]++
			}
		}
	}
	for p := range int32(partitions) {
		if owners[p] != 1 {
			w.t.Fatalf("partition %d has %d owners", p, owners[p])
		}
	}
}

// checkCommitted waits until the group has committed the end of every partition.
func (w *world) checkCommitted(group string) {
	w.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		lag, err := w.admin.Lag(w.ctx, group)
		l := lag[group]
		if err == nil && l.Error() == nil && l.Lag.Total() == 0 && len(l.Lag[w.topic]) == partitions {
			return
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("lag of %s: %+v %v", group, lag[group].Lag, err)
		}
	}
}

// TestBalancers runs a group under every balancer: members join, one leaves, one is killed, and every record is consumed.
func TestBalancers(t *testing.T) {
	for name, balancer := range map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
		"sticky": kgo.StickyBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.produce(1000)
			s := newSeen()
			opt := kgo.Balancers(balancer)
			a := w.consume(s, "g", opt)
			b := w.consume(s, "g", opt)
			c := w.consume(s, "g", opt)
			w.checkAssignment(w.waitForMembers("g", 3))
			s.waitFor(w, 1000)
			w.produce(1000)
			b.stop()
			w.checkAssignment(w.waitForMembers("g", 2))
			s.waitFor(w, 2000)
			c.kill()
			w.produce(1000)
			d := w.waitForMembers("g", 1)
			w.checkAssignment(d)
			if d.Protocol != balancer.ProtocolName() {
				t.Errorf("the protocol is %s", d.Protocol)
			}
			s.waitFor(w, 3000)
			w.checkCommitted("g")
			a.stop()

			// Who comes later finds everything committed.
			later := newSeen()
			w.produce(10)
			w.consume(later, "g", opt)
			later.waitFor(w, 10)
			w.checkCommitted("g")
			if n := len(later.counts); n != 10 {
				t.Errorf("the next consumer saw %d records, want 10", n)
			}
		})
	}
}

// TestStaticMemberRestarts restarts a static member within its session: the other one notices nothing.
func TestStaticMemberRestarts(t *testing.T) {
	w := newWorld(t)
	w.produce(100)
	s := newSeen()
	a := w.consume(s, "g", kgo.InstanceID("a"))
	b := w.consume(s, "g", kgo.InstanceID("b"))
	w.checkAssignment(w.waitForMembers("g", 2))
	s.waitFor(w, 100)
	w.checkCommitted("g")
	_, before := a.GroupMetadata()
	calls := a.assigned.Load()
	b.stop()
	b = w.consume(s, "g", kgo.InstanceID("b"))
	w.produce(100)
	s.waitFor(w, 200)
	w.checkCommitted("g")
	if _, after := a.GroupMetadata(); after != before || a.assigned.Load() != calls {
		t.Errorf("generation %d became %d", before, after)
	}
	if _, g := b.GroupMetadata(); g != before {
		t.Errorf("the restarted member is in generation %d, not %d", g, before)
	}
	if n := s.duplicates(); n != 0 {
		t.Errorf("%d records were consumed again", n)
	}
	w.checkAssignment(w.waitForMembers("g", 2))
}

// TestBrokerRestartKeepsGroups restarts the broker under a group: commits are there, and no rebalance happens.
func TestBrokerRestartKeepsGroups(t *testing.T) {
	w := newWorld(t)
	w.produce(500)
	s := newSeen()
	a := w.consume(s, "g")
	b := w.consume(s, "g")
	w.checkAssignment(w.waitForMembers("g", 2))
	s.waitFor(w, 500)
	w.checkCommitted("g")
	_, generation := a.GroupMetadata()
	w.node.Restart()
	w.produce(500)
	s.waitFor(w, 1000)
	w.checkCommitted("g")
	for _, c := range []*consumer{a, b} {
		if _, g := c.GroupMetadata(); g != generation {
			t.Errorf("generation %d became %d", generation, g)
		}
	}
	if n := s.duplicates(); n != 0 {
		t.Errorf("%d records were consumed again", n)
	}
}

// TestAcknowledgedCommitsSurviveACrash takes what a power loss would leave while commits go on: the offset found there is never
// below the last one that was acknowledged before.
func TestAcknowledgedCommitsSurviveACrash(t *testing.T) {
	fs := vfs.NewMem()
	inMemory := harness.WithConfig(func(c *broker.Config) { c.DataDir = "/data" })
	node := harness.Start(t, harness.WithFS(fs), inMemory)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	admin := kadm.NewClient(node.Client())
	if _, err := admin.CreateTopic(ctx, partitions, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	var acknowledged [2]atomic.Int64
	var committers sync.WaitGroup
	stop, progress := make(chan struct{}), make(chan struct{}, 1)
	for i := range acknowledged {
		committers.Go(func() {
			for at := int64(1); ; at++ {
				select {
				case <-stop:
					return
				default:
				}
				var o kadm.Offsets
				o.Add(kadm.Offset{Topic: "t", Partition: int32(i), At: at, LeaderEpoch: -1})
				if err := admin.CommitAllOffsets(ctx, fmt.Sprint("group-", i), o); err != nil {
					t.Errorf("commit: %v", err)
					return
				}
				acknowledged[i].Store(at)
				select {
				case progress <- struct{}{}:
				default:
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range int64(5) {
		for acknowledged[0].Load() < 20*(round+1) {
			select {
			case <-progress:
			case <-ctx.Done():
				t.Fatal("the commits do not get on")
			}
		}
		var least [2]int64
		for i := range least {
			least[i] = acknowledged[i].Load()
		}
		after := harness.Start(t, harness.WithFS(fs.CrashClone(rng)), inMemory)
		c := kadm.NewClient(after.Client())
		for i := range least {
			fetched, err := c.FetchOffsets(ctx, fmt.Sprint("group-", i))
			o, ok := fetched.Lookup("t", int32(i))
			if err != nil || least[i] > 0 && (!ok || o.At < least[i]) {
				t.Fatalf("round %d: %d was acknowledged, after the crash there is %+v, %v", round, least[i], o.Offset, err)
			}
		}
		after.Stop()
	}
	close(stop)
	committers.Wait()
}

// TestAdministration lists, describes and deletes groups and offsets as tools do.
func TestAdministration(t *testing.T) {
	w := newWorld(t)
	w.produce(60)
	s := newSeen()
	c := w.consume(s, "g")
	s.waitFor(w, 60)
	w.checkCommitted("g")
	if rs, err := w.admin.DeleteGroups(w.ctx, "g"); err != nil || rs["g"].Err == nil {
		t.Fatalf("a group with members was deleted: %v %v", rs, err)
	}
	c.stop()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: w.topic, Partition: 0, At: 3, LeaderEpoch: -1, Metadata: "by hand"})
	if err := w.admin.CommitAllOffsets(w.ctx, "simple", offsets); err != nil {
		t.Fatal(err)
	}
	groups, err := w.admin.ListGroups(w.ctx)
	if err != nil || groups["g"].State != "Empty" || groups["simple"].State != "Empty" || len(groups) != 2 {
		t.Fatalf("%+v %v", groups, err)
	}
	fetched, err := w.admin.FetchOffsets(w.ctx, "simple")
	if o, ok := fetched.Lookup(w.topic, 0); err != nil || !ok || o.At != 3 || o.Metadata != "by hand" {
		t.Fatalf("%+v %v", fetched, err)
	}
	if rs, err := w.admin.DeleteGroups(w.ctx, "g"); err != nil || rs["g"].Err != nil {
		t.Fatalf("%v %v", rs, err)
	}
	if _, err := w.admin.DeleteTopics(w.ctx, w.topic); err != nil {
		t.Fatal(err)
	}
	w.node.Restart()
	if _, err := w.admin.CreateTopic(w.ctx, partitions, 1, nil, w.topic); err != nil {
		t.Fatal(err)
	}
	fetched, err = w.admin.FetchOffsets(w.ctx, "simple")
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := fetched.Lookup(w.topic, 0); ok {
		t.Errorf("the offset of a deleted topic is %d", o.At)
	}
}
