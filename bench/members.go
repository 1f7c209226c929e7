package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// membersLimit bounds the time a group has to become stable.
const membersLimit = 2 * time.Minute

var errNotStable = errors.New("the group is not stable")

// group makes the topic, lets all members join at once and measures until they are stable.
func (c *crowd) group(ctx context.Context, topic string, join func(ctx context.Context, cl *client, a *assignments, i int) error) (map[string]float64, error) {
	admin, err := dial(c.b.addr)
	if err != nil {
		return nil, err
	}
	defer admin.close()
	if err := admin.createTopic(topic, groupPartitions, nil); err != nil {
		return nil, err
	}
	if err := c.coordinatorReady(ctx, admin, topic); err != nil {
		return nil, err
	}
	clients := make([]*client, groupMembers)
	defer func() {
		for _, cl := range clients {
			if cl != nil {
				cl.close()
			}
		}
	}()
	for i := range clients { // one after the other: Kafka drops what comes at once, see the figures for connections
		if clients[i], err = dialSized(c.b.addr, 4<<10); err != nil {
			return nil, err
		}
		if _, err = clients[i].call(kmsg.NewPtrApiVersionsRequest(), 2); err != nil {
			return nil, err
		}
	}
	before, err := c.settled(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, membersLimit, errNotStable)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	a := &assignments{of: make([][]int32, groupMembers), generation: make([]int32, groupMembers), stable: make(chan struct{})}
	cpu, began := c.b.proc.cpu(), time.Now()
	err = all(groupMembers, func(i int) error {
		err := join(ctx, clients[i], a, i)
		if err != nil {
			giveUp(fmt.Errorf("member %d: %w", i, err)) // without it the others will not become stable
		}
		return err
	})
	took, used := time.Since(began), c.b.proc.cpu()-cpu
	if errors.Is(err, errNotStable) {
		return map[string]float64{"stable after, s": membersLimit.Seconds()}, nil
	}
	if err != nil {
		return nil, err
	}
	after, err := c.settled(ctx)
	return map[string]float64{
		"stable after, s":    took.Seconds(),
		"broker CPU, s":      used.Seconds(),
		"RSS per member, kB": perUnit(before, after, groupMembers),
	}, err
}

// coordinatorReady asks until the coordinators are there: the first to ask has their topic made.
func (c *crowd) coordinatorReady(ctx context.Context, cl *client, topic string) error {
	return c.b.proc.await(ctx, time.Minute, 20*time.Millisecond, "the coordinator", func() error {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey = topic
		resp, err := cl.call(req, 2)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(resp.(*kmsg.FindCoordinatorResponse).ErrorCode); err != nil {
			return err
		}
		return cl.commit("first-"+topic, topic, 0)
	})
}

// assignments are what the members hold. Stable is closed when all hold a part of one generation and the parts are the
// whole topic.
type assignments struct {
	mu         sync.Mutex
	of         [][]int32
	generation []int32
	stable     chan struct{}
	done       bool
}

// set notes what a member holds and reports whether the group is stable.
func (a *assignments) set(member int, generation int32, partitions []int32) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of[member], a.generation[member] = partitions, generation
	if !a.done && a.whole() {
		a.done = true
		close(a.stable)
	}
	return a.done
}

func (a *assignments) whole() bool {
	var held [groupPartitions]bool
	n := 0
	for i, parts := range a.of {
		if a.generation[i] == 0 || a.generation[i] != a.generation[0] {
			return false
		}
		for _, p := range parts {
			if held[p] {
				return false
			}
			held[p] = true
			n++
		}
	}
	return n == groupPartitions
}

func (a *assignments) wait(ctx context.Context, d time.Duration) (stable bool) {
	select {
	case <-a.stable:
		return true
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return false
	}
}

// The consumer protocol's subscription and assignment hold one topic; their form is the clients', not the broker's.
func (c *crowd) classicGroup(ctx context.Context) (map[string]float64, error) {
	const topic = "classic"
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = []string{topic}
	subscription := meta.AppendTo(nil)
	return c.group(ctx, topic, func(ctx context.Context, cl *client, a *assignments, i int) error {
		m := &classicMember{c: cl, group: topic, topic: topic, subscription: subscription}
		for ctx.Err() == nil {
			partitions, err := m.join()
			if err == nil {
				a.set(i, m.generation, partitions)
			}
			for err == nil && ctx.Err() == nil {
				if a.wait(ctx, 500*time.Millisecond) {
					return nil
				}
				err = m.heartbeat()
			}
			switch { // as clients do
			case err == nil, errors.Is(err, kerr.RebalanceInProgress), errors.Is(err, kerr.IllegalGeneration):
			case errors.Is(err, kerr.UnknownMemberID):
				m.id = ""
			default:
				return err
			}
		}
		return context.Cause(ctx)
	})
}

// classicMember speaks JoinGroup, SyncGroup and Heartbeat.
type classicMember struct {
	c            *client
	group, topic string
	subscription []byte
	id           string
	generation   int32
}

// join takes the member through one rebalance and returns its partitions.
func (m *classicMember) join() ([]int32, error) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.ProtocolType = m.group, m.id, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 45000, 60000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", m.subscription
	req.Protocols = append(req.Protocols, p)
	resp, err := m.c.call(req, 5)
	if err != nil {
		return nil, err
	}
	r := resp.(*kmsg.JoinGroupResponse)
	if r.ErrorCode == kerr.MemberIDRequired.Code {
		m.id = r.MemberID
		return m.join()
	}
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		return nil, err
	}
	m.id, m.generation = r.MemberID, r.Generation
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.Generation, sync.MemberID = m.group, m.generation, m.id
	if r.LeaderID == m.id {
		sync.GroupAssignment = m.assign(r.Members)
	}
	if resp, err = m.c.call(sync, 3); err != nil {
		return nil, err
	}
	s := resp.(*kmsg.SyncGroupResponse)
	if err := kerr.ErrorForCode(s.ErrorCode); err != nil {
		return nil, err
	}
	var got kmsg.ConsumerMemberAssignment
	if err := got.ReadFrom(s.MemberAssignment); err != nil {
		return nil, err
	}
	if len(got.Topics) == 0 {
		return nil, nil
	}
	return got.Topics[0].Partitions, nil
}

// assign deals the partitions out in turn.
func (m *classicMember) assign(members []kmsg.JoinGroupResponseMember) []kmsg.SyncGroupRequestGroupAssignment {
	parts := make([][]int32, len(members))
	for p := range int32(groupPartitions) {
		i := int(p) % len(members)
		parts[i] = append(parts[i], p)
	}
	out := make([]kmsg.SyncGroupRequestGroupAssignment, len(members))
	for i, member := range members {
		var a kmsg.ConsumerMemberAssignment
		a.Topics = append(a.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: m.topic, Partitions: parts[i]})
		out[i] = kmsg.SyncGroupRequestGroupAssignment{MemberID: member.MemberID, MemberAssignment: a.AppendTo(nil)}
	}
	return out
}

func (m *classicMember) heartbeat() error {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID = m.group, m.generation, m.id
	resp, err := m.c.call(req, 3)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.HeartbeatResponse).ErrorCode)
}

// consumerGroup lets the members join by ConsumerGroupHeartbeat (KIP-848).
func (c *crowd) consumerGroup(ctx context.Context) (map[string]float64, error) {
	const topic = "consumer"
	return c.group(ctx, topic, func(ctx context.Context, cl *client, a *assignments, i int) error {
		m := &consumerMember{c: cl, group: topic, topic: topic, id: fmt.Sprintf("member-%04d", i)}
		for {
			wait, err := m.heartbeat()
			if err != nil {
				return err
			}
			a.set(i, m.epoch, slices.Clone(m.owned))
			if a.wait(ctx, wait) {
				return nil
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	})
}

// consumerMember follows what the coordinator assigns, and says so at once.
type consumerMember struct {
	c                *client
	group, topic, id string
	epoch            int32
	owned            []int32
	topicID          [16]byte
	acknowledged     bool // the coordinator knows owned
}

// heartbeat sends one heartbeat and returns when the next is due.
func (m *consumerMember) heartbeat() (time.Duration, error) {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = m.group, m.id, m.epoch
	switch {
	case m.epoch == 0:
		req.RebalanceTimeoutMillis, req.SubscribedTopicNames = 60000, []string{m.topic}
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	case !m.acknowledged:
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		if len(m.owned) > 0 {
			req.Topics = append(req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: m.topicID, Partitions: m.owned})
		}
	}
	resp, err := m.c.call(req, 0)
	if err != nil {
		return 0, err
	}
	r := resp.(*kmsg.ConsumerGroupHeartbeatResponse)
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		return 0, err
	}
	m.epoch, m.acknowledged = r.MemberEpoch, true
	if r.Assignment == nil {
		return time.Duration(r.HeartbeatIntervalMillis) * time.Millisecond, nil
	}
	m.owned, m.acknowledged = nil, false
	for _, t := range r.Assignment.Topics {
		m.topicID = t.TopicID
		m.owned = append(m.owned, t.Partitions...)
	}
	return 0, nil
}
