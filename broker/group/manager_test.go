package group_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/broker/coordinator/coordinatortest"
	"github.com/varvehq/varve/broker/group"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// config is Kafka's, with room for quick tests.
func config() group.Config {
	c := group.DefaultConfig()
	c.InitialRebalanceDelay = 0
	return c
}

// start runs a manager over a log until the test ends.
func start(t *testing.T, l coordinator.Log, cfg group.Config) *group.Manager {
	t.Helper()
	m, err := group.NewManager(group.Env{OffsetsLog: l}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	m.Refresh()
	synctest.Wait()
	return m
}

func stop(t *testing.T, m *group.Manager) {
	t.Helper()
	if err := m.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func wait[T any](t *testing.T, p *group.Pending[T]) T {
	t.Helper()
	r, err := p.Wait(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func joinRequest(g, member string) group.JoinRequest {
	return group.JoinRequest{
		Group: g, MemberID: member, ClientID: "c", ClientHost: "/127.0.0.1",
		SessionTimeout: 10 * time.Second, RebalanceTimeout: time.Minute,
		ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}},
	}
}

// settle makes a group of one member.
func settle(t *testing.T, m *group.Manager, g string) (member string, generation int32) {
	t.Helper()
	j := wait(t, m.Join(joinRequest(g, "")))
	if j.Err != nil {
		t.Fatal(j.Err)
	}
	s := wait(t, m.Sync(group.SyncRequest{Group: g, MemberID: j.MemberID, Generation: j.Generation,
		Assignments: map[string][]byte{j.MemberID: []byte("all")}}))
	if s.Err != nil || string(s.Assignment) != "all" {
		t.Fatalf("sync: %+v", s)
	}
	return j.MemberID, j.Generation
}

func commit(m *group.Manager, g, member string, generation int32, offset int64) *group.Pending[group.CommitResponse] {
	return m.OffsetCommit(group.CommitRequest{Group: g, MemberID: member, Generation: generation, Retention: -1,
		Items: []group.CommitItem{{Topic: "t", Partition: 0, Offset: offset, LeaderEpoch: -1}}})
}

func committed(t *testing.T, m *group.Manager, g string) int64 {
	t.Helper()
	o, ok, err := m.Offsets(context.Background(), g, []group.FetchItem{{Topic: "t"}}, true)
	if err != nil {
		t.Fatal(err)
	}
	if !ok[0] {
		return -1
	}
	return o[0].Offset
}

func TestRequestsWaitForTheTopicAndTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := coordinatortest.NewMemLog(0)
		m, err := group.NewManager(group.Env{OffsetsLog: l}, config())
		if err != nil {
			t.Fatal(err)
		}
		defer stop(t, m)
		if r := wait(t, commit(m, "g", "", -1, 1)); !errors.Is(r.Err, coordinator.ErrUnavailable) {
			t.Fatalf("commit without a topic: %v", r.Err)
		}
		l.SetPartitions(3)
		if r := wait(t, commit(m, "g", "", -1, 1)); !errors.Is(r.Err, coordinator.ErrLoading) {
			t.Fatalf("commit before the load: %v", r.Err)
		}
		if err := m.Heartbeat(group.HeartbeatRequest{Group: "g", MemberID: "x"}); err != nil && !errors.Is(err, group.ErrUnknownMember) {
			t.Fatalf("heartbeat while loading: %v", err)
		}
		synctest.Wait()
		if r := wait(t, commit(m, "g", "", -1, 1)); r.Err != nil {
			t.Fatalf("commit after the load: %v", r.Err)
		}
		p, _ := m.PartitionFor("g")
		l.SetLeader(p, 1, false)
		if r := wait(t, commit(m, "g", "", -1, 2)); !errors.Is(r.Err, coordinator.ErrNotCoordinator) {
			t.Fatalf("commit to a partition of another node: %v", r.Err)
		}
		l.SetLeader(p, 2, true)
		m.Refresh()
		synctest.Wait()
		if got := committed(t, m, "g"); got != 1 {
			t.Fatalf("after the partition came back the offset is %d", got)
		}
	})
}

func TestRestartKeepsStableGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := coordinatortest.NewMemLog(5)
		m := start(t, l, config())
		type member struct {
			id  string
			gen int32
		}
		members := map[string]member{}
		for i := range 20 {
			g := fmt.Sprintf("group-%d", i)
			id, gen := settle(t, m, g)
			members[g] = member{id, gen}
			if r := wait(t, commit(m, g, id, gen, int64(i))); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		after := start(t, l.Clone(), config()) // as after kill -9: the first one was not closed
		defer stop(t, after)
		for g, mb := range members {
			if err := after.Heartbeat(group.HeartbeatRequest{Group: g, MemberID: mb.id, Generation: mb.gen}); err != nil {
				t.Errorf("%s: heartbeat after the restart: %v", g, err)
			}
			if got := fmt.Sprintf("group-%d", committed(t, after, g)); got != g {
				t.Errorf("%s has the offset of %s", g, got)
			}
		}
		list, err := after.List(nil)
		if err != nil || len(list) != 20 {
			t.Fatalf("List: %d groups, %v", len(list), err)
		}
		stop(t, m)
		time.Sleep(11 * time.Second) // of the bubble's clock: the sessions end
		synctest.Wait()
		for g := range members {
			if d, err := after.Describe(g); err != nil || d.State != group.Empty {
				t.Errorf("%s is %v, %v after its session", g, d.State, err)
			}
		}
	})
}

// TestAppendsAreGathered holds the first append back while a hundred groups commit: theirs go in one batch.
func TestAppendsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := coordinatortest.NewMemLog(1)
		gate := make(chan struct{})
		var appends atomic.Int32
		l.BeforeAppend = func(int32, []byte) error {
			if appends.Add(1) == 1 {
				<-gate
			}
			return nil
		}
		m := start(t, l, config())
		defer stop(t, m)
		var pending []*group.Pending[group.CommitResponse]
		for i := range 101 {
			pending = append(pending, commit(m, fmt.Sprintf("g%d", i), "", -1, int64(i)))
			synctest.Wait()
		}
		for i, p := range pending {
			select {
			case <-p.Done():
				t.Fatalf("commit %d is answered before it is durable", i)
			default:
			}
		}
		o, _, err := m.Offsets(context.Background(), "g5", []group.FetchItem{{Topic: "t"}}, false)
		if err != nil || o[0].Offset != 0 {
			t.Fatalf("an offset is seen before it is durable: %v %v", o, err)
		}
		close(gate)
		for _, p := range pending {
			if r := wait(t, p); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if n := appends.Load(); n != 2 {
			t.Errorf("%d appends for 101 commits, want 2", n)
		}
	})
}

// TestLargeWritesAreSplit deletes a group with more offsets than one batch holds.
func TestLargeWritesAreSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := coordinatortest.NewMemLog(1)
		cfg := config()
		cfg.MaxBatchBytes, l.MaxBatch = 4096, 4096
		m := start(t, l, cfg)
		defer stop(t, m)
		for p := range int32(500) {
			r := wait(t, m.OffsetCommit(group.CommitRequest{Group: "g", Generation: -1, Retention: -1,
				Items: []group.CommitItem{{Topic: "topic", Partition: p, Offset: int64(p)}}}))
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if errs := m.Delete(context.Background(), []string{"g", "no-such"}); errs[0] != nil || !errors.Is(errs[1], group.ErrGroupNotFound) {
			t.Fatalf("Delete: %v", errs)
		}
		after := start(t, l.Clone(), cfg)
		defer stop(t, after)
		if list, err := after.List(nil); err != nil || len(list) != 0 {
			t.Fatalf("after the restart there is %v, %v", list, err)
		}
		big := group.CommitRequest{Group: "g", Generation: -1, Retention: -1,
			Items: []group.CommitItem{{Topic: "t", Metadata: string(make([]byte, 4000)), Offset: 1}}}
		big.Items[0].Topic = string(make([]byte, 200))
		if r := wait(t, m.OffsetCommit(big)); !errors.Is(r.Err, coordinator.ErrRecordTooLarge) {
			t.Fatalf("a record over the topic's limit: %v", r.Err)
		}
	})
}

// TestNthAppendFails lets every append of a story fail once, in each of the ways an append can. Whatever fails, nobody is
// told of success that the log does not have, and the story can go on.
func TestNthAppendFails(t *testing.T) {
	for _, kind := range []struct {
		name   string
		err    error
		stored bool // the batch is in the log all the same
	}{
		{"refused", fmt.Errorf("%w: no space", coordinator.ErrNotWritten), false},
		{"unknown and lost", errors.New("fsync failed"), false},
		{"unknown and stored", errors.New("fsync failed"), true},
	} {
		t.Run(kind.name, func(t *testing.T) {
			for n := int32(1); n <= 8; n++ {
				synctest.Test(t, func(t *testing.T) { nthAppendFails(t, n, kind.err, kind.stored) })
			}
		})
	}
}

func nthAppendFails(t *testing.T, n int32, failure error, stored bool) {
	l := coordinatortest.NewMemLog(1)
	var count atomic.Int32
	fail := func(int32, []byte) error {
		if count.Add(1) == n {
			return failure
		}
		return nil
	}
	if stored {
		l.AfterAppend = fail
	} else {
		l.BeforeAppend = fail
	}
	m := start(t, l, config())
	defer stop(t, m)
	acked := int64(-1)
	for i := range int64(6) {
		var member string
		var gen int32
		for { // join until it works, as a client does
			j := wait(t, m.Join(joinRequest("g", member)))
			member = j.MemberID
			if j.Err != nil {
				if !errors.Is(j.Err, coordinator.ErrUnavailable) && !errors.Is(j.Err, group.ErrUnknownMember) && !errors.Is(j.Err, coordinator.ErrLoading) {
					t.Fatalf("join: %v", j.Err)
				}
				member = ""
				time.Sleep(time.Second)
				continue
			}
			gen = j.Generation
			s := wait(t, m.Sync(group.SyncRequest{Group: "g", MemberID: member, Generation: gen, Assignments: map[string][]byte{member: []byte("x")}}))
			if s.Err == nil {
				break
			}
			if string(s.Assignment) != "" {
				t.Fatal("an assignment came with an error")
			}
			time.Sleep(time.Second)
		}
		c := wait(t, commit(m, "g", member, gen, i))
		if c.Err == nil {
			acked = i
		} else if !errors.Is(c.Err, coordinator.ErrUnavailable) {
			t.Fatalf("commit: %v", c.Err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		m.Refresh()
		synctest.Wait()
		got := committed(t, m, "g")
		if c.Err == nil && got != i || c.Err != nil && got != acked && (!stored || got != i) {
			t.Fatalf("append %d failed: after commit %d (%v) the offset is %d, acknowledged is %d", n, i, c.Err, got, acked)
		}
		wait(t, m.Leave(group.LeaveRequest{Group: "g", Members: []group.LeaveMember{{MemberID: member}}}))
		time.Sleep(2 * time.Second)
		m.Refresh()
		synctest.Wait()

		other := start(t, l.Clone(), config())
		if reloaded := committed(t, other, "g"); reloaded != got {
			t.Fatalf("append %d failed: the offset is %d, after a restart %d", n, got, reloaded)
		}
		stop(t, other)
	}
}

func TestTopicsDeletedReachAllPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, coordinatortest.NewMemLog(4), config())
		defer stop(t, m)
		id := kafka.NewUUID()
		for i := range 12 {
			r := wait(t, m.OffsetCommit(group.CommitRequest{Group: fmt.Sprint("g", i), Generation: -1, Retention: -1,
				Items: []group.CommitItem{{Topic: "t", TopicID: id, Offset: 5}, {Topic: "u", TopicID: kafka.NewUUID(), Offset: 6}}}))
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if err := m.TopicsDeleted(context.Background(), []group.DeletedTopic{{Name: "t", ID: id}}); err != nil {
			t.Fatal(err)
		}
		for i := range 12 {
			all, err := m.AllOffsets(context.Background(), fmt.Sprint("g", i), false)
			if err != nil || len(all) != 1 || all[0].Topic != "u" {
				t.Fatalf("g%d has %v, %v", i, all, err)
			}
		}
	})
}

// TestTopicsDeletedWhileAway deletes a topic while its offsets are not loaded, and makes another of the same name.
func TestTopicsDeletedWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := coordinatortest.NewMemLog(1)
		m := start(t, l, config())
		old, kept, current := kafka.NewUUID(), kafka.NewUUID(), kafka.NewUUID()
		r := wait(t, m.OffsetCommit(group.CommitRequest{Group: "g", Generation: -1, Retention: -1, Items: []group.CommitItem{
			{Topic: "again", TopicID: old, Offset: 5}, {Topic: "gone", TopicID: old, Offset: 6},
			{Topic: "kept", TopicID: kept, Offset: 7}, {Topic: "no id", Offset: 8}}}))
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		stop(t, m)
		topics := map[string]kafka.UUID{"again": current, "kept": kept}
		m, err := group.NewManager(group.Env{OffsetsLog: l, TopicID: func(name string) (kafka.UUID, bool) {
			id, ok := topics[name]
			return id, ok
		}}, config())
		if err != nil {
			t.Fatal(err)
		}
		defer stop(t, m)
		m.Refresh()
		synctest.Wait()
		names := func() (out []string) {
			all, err := m.AllOffsets(context.Background(), "g", false)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range all {
				out = append(out, o.Topic)
			}
			return out
		}
		if got := names(); !slices.Equal(got, []string{"kept", "no id"}) {
			t.Fatalf("after the restart there are offsets of %q", got)
		}
		m.ForgetTopics([]group.DeletedTopic{{Name: "kept", ID: kept}})
		synctest.Wait()
		if got := names(); !slices.Equal(got, []string{"no id"}) {
			t.Fatalf("after the deletion there are offsets of %q", got)
		}
	})
}

// TestThousandMembers lets a thousand members join one group, sync and leave.
func TestThousandMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		cfg := group.DefaultConfig()
		cfg.MaxBatchBytes = 4 << 20
		m := start(t, coordinatortest.NewMemLog(1), cfg)
		defer stop(t, m)
		joins := make([]*group.Pending[group.JoinResponse], n)
		for i := range joins {
			joins[i] = m.Join(joinRequest("g", ""))
		}
		ids := map[string][]byte{}
		leaders, generation := 0, int32(0)
		for i, p := range joins {
			j := wait(t, p)
			if j.Err != nil {
				t.Fatal(j.Err)
			}
			if j.Leader == j.MemberID {
				leaders++
				if len(j.Members) != n {
					t.Fatalf("the leader sees %d members", len(j.Members))
				}
			}
			ids[j.MemberID], generation = []byte(fmt.Sprint(i)), j.Generation
		}
		if leaders != 1 || generation != 1 || len(ids) != n {
			t.Fatalf("%d leaders, generation %d, %d ids", leaders, generation, len(ids))
		}
		var wg sync.WaitGroup
		for id, want := range ids {
			wg.Add(1)
			go func() {
				defer wg.Done()
				s, err := m.Sync(group.SyncRequest{Group: "g", MemberID: id, Generation: 1, Assignments: ids}).Wait(context.Background())
				if err != nil || s.Err != nil || string(s.Assignment) != string(want) {
					t.Errorf("sync: %v %v %q, want %q", err, s.Err, s.Assignment, want)
				}
			}()
		}
		wg.Wait()
		var leave group.LeaveRequest
		leave.Group = "g"
		for id := range ids {
			leave.Members = append(leave.Members, group.LeaveMember{MemberID: id})
		}
		if r := wait(t, m.Leave(leave)); r.Err != nil {
			t.Fatal(r.Err)
		}
		if d, err := m.Describe("g"); err != nil || d.State != group.Empty || d.Generation != 2 {
			t.Fatalf("%+v, %v", d, err)
		}
	})
}

func TestCloseAnswersWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := coordinatortest.NewMemLog(1)
		m := start(t, l, group.DefaultConfig())
		join := m.Join(joinRequest("g", ""))
		abandoned := m.Join(joinRequest("h", ""))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := abandoned.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if list, err := m.List(nil); err != nil || len(list) != 1 {
			t.Fatalf("the first join of a lost connection leaves a group: %v %v", list, err)
		}
		stop(t, m)
		if r := wait(t, join); !errors.Is(r.Err, coordinator.ErrUnavailable) {
			t.Fatal(r.Err)
		}
		if r := wait(t, m.Join(joinRequest("g", ""))); !errors.Is(r.Err, coordinator.ErrUnavailable) {
			t.Fatal(r.Err)
		}
		stop(t, m)
	})
}

// TestCloseIsBounded closes while an append does not return.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &stuckLog{MemLog: coordinatortest.NewMemLog(1)}
		m := start(t, l, config())
		p := commit(m, "g", "", -1, 1)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := m.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Close: %v", err)
		}
		if r := wait(t, p); !errors.Is(r.Err, coordinator.ErrUnavailable) {
			t.Fatal(r.Err)
		}
	})
}

type stuckLog struct{ *coordinatortest.MemLog }

func (l *stuckLog) Append(ctx context.Context, _, _ int32, _ []byte) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestCorruptPartitionIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := coordinatortest.NewMemLog(1)
		b := record.NewBuilder(record.BuilderOptions{})
		b.Append(0, []byte{0, 1, 0, 9, 'x'}, []byte("value"), nil)
		if err := l.Append(context.Background(), 0, 0, b.Batch(0)); err != nil {
			t.Fatal(err)
		}
		m := start(t, l, config())
		defer stop(t, m)
		for range 3 {
			r := wait(t, commit(m, "g", "", -1, 1))
			if !errors.Is(r.Err, coordinator.ErrUnavailable) && !errors.Is(r.Err, coordinator.ErrLoading) {
				t.Fatalf("commit: %v", r.Err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
	})
}

func TestConfigValidate(t *testing.T) {
	if err := group.DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	if err := (group.Config{MaxSessionTimeout: -1}).Validate(); err == nil {
		t.Fatal("an empty config is valid")
	}
}
