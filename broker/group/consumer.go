package group

import (
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/varvehq/varve/broker/group/assignor"
	"github.com/varvehq/varve/internal/kafka"
)

// Groups of the consumer protocol (KIP-848). The coordinator computes the assignment: a change of a member's subscription or of
// a topic makes a new group epoch, whose target assignment members move to one heartbeat after the other. A member first gives
// up what is not its own any more, and gets what is new to it once nobody else has it.
//
// Changes are values that are applied to the state and encoded into the log by the same step, and applied again when the log is
// loaded. Answers wait until everything that they tell is durable. Where a write of a change fails, the state is ahead of the log,
// and the partition is loaded again.

// Topics is what exists at one time. Its methods may be called concurrently, and always tell the same.
type Topics interface {
	// Topic tells a topic's id and how many partitions it has.
	Topic(name string) (id kafka.UUID, partitions int32, ok bool)
	// Name tells the name of the topic that has an id.
	Name(id kafka.UUID) (string, bool)
	// Names are the names of all topics, in order.
	Names() []string
}

// noTopics is the view of a coordinator that was told of none.
type noTopics struct{}

func (noTopics) Topic(string) (kafka.UUID, int32, bool) { return kafka.UUID{}, 0, false }
func (noTopics) Name(kafka.UUID) (string, bool)         { return "", false }
func (noTopics) Names() []string                        { return nil }

// memberState is where a member stands on its way to the target. The numbers are those of the log.
type memberState int8

const (
	memberStable     memberState = 0
	memberUnrevoked  memberState = 1 // it has to give up partitions
	memberUnreleased memberState = 2 // partitions of its target are with others
)

// The member epochs that mean something of their own.
const (
	JoinEpoch        = 0
	LeaveEpoch       = -1
	StaticLeaveEpoch = -2 // of a static member that comes back
)

// consumerMember is one member. What the log says of it is in three records: subscription, current and target assignment.
type consumerMember struct {
	id    string
	known bool // there is a record of its subscription
	memberSubscription
	current
	target assignor.Set // nil before the first

	deadline time.Time
	session  *timer
	revoking *timer // how long it may take to give up partitions
	// of a member of the classic protocol: how long it may take to join again, and to sync
	rejoining, syncing *timer
}

// subscription is what a member asks for.
type memberSubscription struct {
	instance, rack       *string
	clientID, clientHost string
	topics               []string // in order
	regex                string   // "" for none
	rebalanceTimeout     time.Duration
	assignor             string       // "" for the group's
	classic              *classicSide // nil for a member of the consumer protocol
}

func (s *memberSubscription) equal(o *memberSubscription) bool {
	return sameText(s.instance, o.instance) && sameText(s.rack, o.rack) && s.clientID == o.clientID &&
		s.clientHost == o.clientHost && slices.Equal(s.topics, o.topics) && s.regex == o.regex &&
		s.rebalanceTimeout == o.rebalanceTimeout && s.assignor == o.assignor && s.classic.equal(o.classic)
}

func sameText(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

// current is a member's own progress.
type current struct {
	epoch, previous int32
	state           memberState
	assigned        assignor.Set
	revoke          assignor.Set               // what it has to give up
	since           map[topicIDPartition]int32 // the epoch at which it got each of them; never changed in place
}

func (c *current) equal(o *current) bool {
	return c.epoch == o.epoch && c.previous == o.previous && c.state == o.state && sameSet(c.assigned, o.assigned) && sameSet(c.revoke, o.revoke) &&
		maps.Equal(c.since, o.since)
}

// has is all that nobody else may have because of a member: what it is assigned and what it has yet to give up.
func (c *current) has() assignor.Set {
	if len(c.revoke) == 0 {
		return c.assigned
	}
	all := assignor.Set{}
	maps.Copy(all, c.assigned)
	for t, ps := range c.revoke {
		all[t] = slices.Concat(all[t], ps)
		slices.Sort(all[t])
	}
	return all
}

func sameSet(a, b assignor.Set) bool { return maps.EqualFunc(a, b, slices.Equal[[]int32]) }

// resolved is what a regular expression matches.
type resolved struct {
	topics    []string // in order
	version   int64    // counts the resolutions
	timestamp int64    // milliseconds since the epoch
	stale     bool     // topics have changed since
}

type topicIDPartition struct {
	topic     kafka.UUID
	partition int32
}

// consumerGroup is the state of a group of the consumer protocol.
type consumerGroup struct {
	g           *group
	epoch       int32
	hash        int64 // of the subscribed topics, at the group's epoch
	targetEpoch int32
	members     map[string]*consumerMember
	static      map[string]string // instance id to member id
	regexes     map[string]*resolved
	owners      map[topicIDPartition]string // member id of who has it or has yet to give it up
	stale       bool                        // topics have changed since hash
}

// firstEpoch is the epoch of a group that had no members yet.
const firstEpoch = 1

func newConsumerGroup(g *group) *consumerGroup {
	return &consumerGroup{g: g, epoch: firstEpoch, targetEpoch: firstEpoch, members: map[string]*consumerMember{}, static: map[string]string{}, regexes: map[string]*resolved{},
		owners: map[topicIDPartition]string{}}
}

// State is the group's state in Kafka's words.
func (cg *consumerGroup) state() string {
	switch {
	case len(cg.members) == 0:
		return "Empty"
	case cg.epoch > cg.targetEpoch:
		return "Assigning"
	}
	for _, m := range cg.members {
		if !m.reconciled(cg.targetEpoch) {
			return "Reconciling"
		}
	}
	return "Stable"
}

func (m *consumerMember) reconciled(epoch int32) bool {
	return m.state == memberStable && m.epoch == epoch
}

// sorted lists the members in order of id, so that what a step does does not depend on a map.
func (cg *consumerGroup) sorted() []*consumerMember {
	ms := make([]*consumerMember, 0, len(cg.members))
	for _, id := range slices.Sorted(maps.Keys(cg.members)) {
		ms = append(ms, cg.members[id])
	}
	return ms
}

// names are the topics that a member is subscribed to by name or by pattern.
func (cg *consumerGroup) names(m *consumerMember) []string {
	r := cg.regexes[m.regex]
	if m.regex == "" || r == nil {
		return m.topics
	}
	all := slices.Concat(m.topics, r.topics)
	slices.Sort(all)
	return slices.Compact(all)
}

// subscribedTo reports whether a member is subscribed to a topic.
func (cg *consumerGroup) subscribedTo(topic string) bool {
	for _, m := range cg.members {
		if slices.Contains(m.topics, topic) {
			return true
		}
		if r := cg.regexes[m.regex]; r != nil && slices.Contains(r.topics, topic) {
			return true
		}
	}
	return false
}

// metadataHash stands for the subscribed topics that exist, with their ids and partitions: where it changes, the group is
// assigned anew.
func (cg *consumerGroup) metadataHash() int64 {
	set := map[string]struct{}{}
	for _, m := range cg.members {
		for _, t := range cg.names(m) {
			set[t] = struct{}{}
		}
	}
	h := fnv.New64a()
	any := false
	for _, name := range slices.Sorted(maps.Keys(set)) {
		id, n, ok := cg.g.c.topics.Topic(name)
		if !ok {
			continue
		}
		any = true
		_, _ = h.Write([]byte(name))
		_, _ = h.Write(id[:])
		_, _ = h.Write([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	}
	if !any {
		return 0
	}
	return int64(h.Sum64())
}

// assignorName is the assignor that most members prefer, or the broker's first.
func (cg *consumerGroup) assignorName() string {
	votes := map[string]int{}
	for _, m := range cg.members {
		if slices.Contains(cg.g.c.cfg.Consumer.Assignors, m.assignor) {
			votes[m.assignor]++
		}
	}
	best := cg.g.c.cfg.Consumer.Assignors[0]
	for _, name := range slices.Sorted(maps.Keys(votes)) {
		if votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// settings are the session timeout and heartbeat interval of the group's members.
func (cg *consumerGroup) settings() (session, heartbeat time.Duration) {
	c := &cg.g.c.cfg.Consumer
	session, heartbeat = c.SessionTimeout, c.HeartbeatInterval
	if o, ok := c.Groups[cg.g.id]; ok {
		if o.SessionTimeout > 0 {
			session = o.SessionTimeout
		}
		if o.HeartbeatInterval > 0 {
			heartbeat = o.HeartbeatInterval
		}
	}
	return min(max(session, c.MinSessionTimeout), c.MaxSessionTimeout), min(max(heartbeat, c.MinHeartbeatInterval), c.MaxHeartbeatInterval)
}

// topicsChanged makes all groups look at their topics again with the next heartbeat.
func (c *Coordinator) onTopicsChanged(e TopicsChanged) {
	c.topics = e.Topics
	for _, g := range c.groups {
		if g.consumer == nil {
			continue
		}
		g.consumer.stale = true
		for _, r := range g.consumer.regexes {
			r.stale = true
		}
	}
}
