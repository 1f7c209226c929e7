package group

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/broker/group/assignor"
	"github.com/varvehq/varve/internal/kafka"
)

// ConsumerHeartbeatRequest joins, keeps a membership alive, changes it or ends it. What is nil is as before.
type ConsumerHeartbeatRequest struct {
	Group                string
	MemberID             string
	Epoch                int32 // the member's, or JoinEpoch, LeaveEpoch, StaticLeaveEpoch
	InstanceID, RackID   *string
	ClientID, ClientHost string
	RebalanceTimeout     time.Duration // negative for as before
	Topics               []string
	Regex                *string
	Assignor             *string
	Owned                assignor.Set // what the member has, or nil
}

// full reports whether the request tells everything, so that the answer has to.
func (r *ConsumerHeartbeatRequest) full() bool {
	return r.Epoch == JoinEpoch || r.RebalanceTimeout >= 0 && (r.Topics != nil || r.Regex != nil) && r.Owned != nil
}

// textSize is about what the member's subscription takes in the log.
func (r *ConsumerHeartbeatRequest) textSize() int {
	n := len(r.Group) + len(r.MemberID) + len(r.ClientID) + len(r.ClientHost)
	for _, s := range [...]*string{r.InstanceID, r.RackID, r.Regex, r.Assignor} {
		if s != nil {
			n += len(*s)
		}
	}
	for _, t := range r.Topics {
		n += len(t) + 3
	}
	return n
}

// ConsumerHeartbeatResponse answers a ConsumerHeartbeatRequest. Assigned is nil where nothing has changed.
type ConsumerHeartbeatResponse struct {
	Err      error
	MemberID string
	Epoch    int32
	Interval time.Duration
	Assigned assignor.Set
}

func (c *Coordinator) onConsumerHeartbeat(e ConsumerHeartbeat) {
	refuse := func(err error) { c.reply(e.To, ConsumerHeartbeatResponse{Err: err}) }
	if c.closed != nil {
		refuse(c.closed)
		return
	}
	err := c.checkAssignor(e.Assignor)
	switch {
	case err != nil:
	case e.Epoch < JoinEpoch:
		err = c.leaveConsumer(e)
	default:
		err = c.consumerHeartbeat(e)
	}
	if err != nil {
		refuse(err)
	}
	if g := c.groups[e.Group]; g != nil {
		c.reap(g)
	}
}

func (c *Coordinator) checkAssignor(name *string) error {
	if name == nil || slices.Contains(c.cfg.Consumer.Assignors, *name) {
		return nil
	}
	return fmt.Errorf("%w: ServerAssignor %s is not supported. Supported assignors: %v", ErrUnsupportedAssignor, *name, c.cfg.Consumer.Assignors)
}

// consumerHeartbeat returns why the request is refused; otherwise it is or will be answered.
func (c *Coordinator) consumerHeartbeat(e ConsumerHeartbeat) error {
	var pattern *regexp.Regexp
	if e.Regex != nil && *e.Regex != "" {
		_, err := regexp.Compile(*e.Regex) // alone: what it does not close must not close what is around it
		if err == nil {
			pattern, err = regexp.Compile(`\A(?:` + *e.Regex + `)\z`)
		}
		if err != nil {
			return fmt.Errorf("%w: SubscribedTopicRegex `%s` is not a valid regular expression: %w", ErrInvalidRegex, *e.Regex, err)
		}
	}
	if size := e.textSize(); size > c.cfg.MaxBatchBytes/2 {
		return fmt.Errorf("%w: a subscription of %d bytes", coordinator.ErrRecordTooLarge, size)
	}
	s, err := c.openConsumer(e.Group, e.Epoch == JoinEpoch)
	if err != nil {
		return err
	}
	cg := s.cg
	m, err := cg.committedMember(e)
	if err != nil {
		return err
	}
	s.enter()
	next := cg.subscribe(m, e)
	before := current{}
	if m != nil && m.id != e.MemberID {
		s.replaceStatic(m, e.MemberID)
		m = cg.members[e.MemberID]
	}
	if m != nil {
		before = m.current
	}
	m = s.advance(m, e.MemberID, next, pattern, e.Owned)
	cg.touch(m)
	r := cg.answer(m, e, before)
	s.commit(func(err error) {
		if err != nil {
			r = ConsumerHeartbeatResponse{Err: err}
		}
		c.reply(e.To, r)
	})
	return nil
}

// advance takes over what a member asks for, m being nil for a new one, and moves it on. pattern is its regular expression, or nil.
func (s *step) advance(m *consumerMember, id string, next memberSubscription, pattern *regexp.Regexp, owned assignor.Set) *consumerMember {
	changed := len(next.topics) > 0 || next.regex != ""
	if m != nil {
		changed = !slices.Equal(m.topics, next.topics) || m.regex != next.regex
	}
	changed = changed || s.unsettled
	preferred := s.cg.assignorName()
	if m == nil || !m.memberSubscription.equal(&next) {
		old := ""
		if m != nil {
			old = m.regex
		}
		s.do(memberChange{id: id, memberSubscription: next})
		s.dropRegex(old)
	}
	m = s.cg.members[id]
	changed = s.resolve(m.regex, pattern) || changed || s.cg.assignorName() != preferred
	s.bump(changed)
	s.assign()
	s.reconcile(m, owned)
	return m
}

// answer tells a member where it stands.
func (cg *consumerGroup) answer(m *consumerMember, e ConsumerHeartbeat, before current) ConsumerHeartbeatResponse {
	r := ConsumerHeartbeatResponse{MemberID: m.id, Epoch: m.epoch}
	_, r.Interval = cg.settings()
	if e.full() || !sameSet(before.assigned, m.assigned) {
		if r.Assigned = m.assigned; r.Assigned == nil {
			r.Assigned = assignor.Set{}
		}
	}
	return r
}

// committedMember finds the member that a heartbeat is of, nil for a new one. A static member that comes back is the one of
// before, with its old id.
func (cg *consumerGroup) committedMember(e ConsumerHeartbeat) (*consumerMember, error) {
	m := cg.members[e.MemberID]
	if e.Epoch == JoinEpoch {
		if err := cg.checkRoom(e.MemberID, e.InstanceID); err != nil {
			return nil, err
		}
	}
	if e.InstanceID != nil {
		var err error
		if m, err = cg.staticMember(e); err != nil || m == nil || m.id != e.MemberID {
			return m, err
		}
	}
	switch {
	case e.Epoch == JoinEpoch:
		return m, nil
	case m == nil:
		return nil, fmt.Errorf("%w: Member %s is not a member of group %s.", ErrUnknownMember, e.MemberID, e.Group) //nolint:staticcheck // Kafka's text
	}
	return m, m.fence(e)
}

// checkRoom refuses a new member of a full group.
func (cg *consumerGroup) checkRoom(member string, instance *string) error {
	limit := cg.g.c.cfg.Consumer.MaxSize
	if cg.members[member] != nil || len(cg.members) < limit || instance != nil && cg.static[*instance] != "" {
		return nil
	}
	return fmt.Errorf("%w: The consumer group has reached its maximum capacity of %d members.", ErrGroupFull, limit) //nolint:staticcheck // Kafka's text
}

// staticMember is the member that has the instance id of a heartbeat.
func (cg *consumerGroup) staticMember(e ConsumerHeartbeat) (*consumerMember, error) {
	m := cg.members[cg.static[*e.InstanceID]]
	switch {
	case e.Epoch != JoinEpoch && m == nil:
		return nil, fmt.Errorf("%w: Instance id %s is unknown.", ErrUnknownMember, *e.InstanceID) //nolint:staticcheck // Kafka's text
	case e.Epoch != JoinEpoch && m.id != e.MemberID:
		return nil, fmt.Errorf("%w: Static member %s with instance id %s was fenced by member %s.", ErrFenced, e.MemberID, *e.InstanceID, m.id) //nolint:staticcheck // Kafka's text
	case m != nil && e.Epoch == JoinEpoch && m.epoch != StaticLeaveEpoch && m.classic == nil:
		return nil, fmt.Errorf("%w: Static member %s with instance id %s cannot join the group because the instance id is owned by %s member.", //nolint:staticcheck // Kafka's text
			ErrUnreleasedInstance, e.MemberID, *e.InstanceID, m.id)
	}
	return m, nil
}

// fence checks a member's epoch: the current one, or the one before where the answer to the last request was lost.
func (m *consumerMember) fence(e ConsumerHeartbeat) error {
	lost := e.Epoch == m.previous && e.Owned != nil && within(e.Owned, m.assigned)
	switch {
	case e.Epoch > m.epoch:
		return fmt.Errorf("%w: The consumer group member has a greater member epoch (%d) than the one known by the group coordinator (%d). The member must abandon all its partitions and rejoin.", //nolint:staticcheck // Kafka's text
			ErrFencedEpoch, e.Epoch, m.epoch)
	case e.Epoch < m.epoch && !lost:
		return fmt.Errorf("%w: The consumer group member has a smaller member epoch (%d) than the one known by the group coordinator (%d). The member must abandon all its partitions and rejoin.", //nolint:staticcheck // Kafka's text
			ErrFencedEpoch, e.Epoch, m.epoch)
	}
	return nil
}

// within reports whether a is part of b.
func within(a, b assignor.Set) bool {
	for t, ps := range a {
		for _, p := range ps {
			if !slices.Contains(b[t], p) {
				return false
			}
		}
	}
	return true
}

// subscribe is what a member asks for with a heartbeat on top of what it had.
func (cg *consumerGroup) subscribe(m *consumerMember, e ConsumerHeartbeat) memberSubscription {
	var s memberSubscription
	if m != nil {
		s = m.memberSubscription
	}
	s.clientID, s.clientHost, s.classic = e.ClientID, e.ClientHost, nil
	if e.InstanceID != nil {
		s.instance = e.InstanceID
	}
	if e.RackID != nil {
		s.rack = e.RackID
	}
	if e.RebalanceTimeout >= 0 {
		s.rebalanceTimeout = e.RebalanceTimeout
	}
	if e.Topics != nil {
		s.topics = slices.Clone(e.Topics)
		slices.Sort(s.topics)
		s.topics = slices.Compact(s.topics)
	}
	if e.Regex != nil {
		s.regex = *e.Regex
	}
	if e.Assignor != nil {
		s.assignor = *e.Assignor
	}
	return s
}

// replaceStatic puts a static member that comes back, with a new id, in the place of its former self.
func (s *step) replaceStatic(old *consumerMember, id string) {
	sub, now, target := old.memberSubscription, old.current, old.target
	now.epoch = JoinEpoch
	s.forget(old)
	s.do(memberChange{id: id, memberSubscription: sub})
	s.do(targetChange{id: id, set: target})
	s.do(currentChange{id: id, current: now})
}

// forget removes a member.
func (s *step) forget(m *consumerMember) {
	s.do(currentChange{id: m.id, gone: true})
	s.do(targetChange{id: m.id, gone: true})
	s.do(memberChange{id: m.id, gone: true})
}

// resolve finds the topics of a member's regular expression, where they are not known or topics have changed.
func (s *step) resolve(regex string, pattern *regexp.Regexp) (changed bool) {
	r := s.cg.regexes[regex]
	if regex == "" || r != nil && !r.stale {
		return false
	}
	if pattern == nil {
		pattern = regexp.MustCompile(`\A(?:` + regex + `)\z`) // it was compiled when the member came with it
	}
	next := resolved{version: 1, timestamp: s.cg.g.c.millis()}
	for _, name := range s.cg.g.c.topics.Names() {
		if pattern.MatchString(name) {
			next.topics = append(next.topics, name)
		}
	}
	if r != nil {
		if r.stale = false; slices.Equal(r.topics, next.topics) {
			return false
		}
		next.version = r.version + 1
	}
	s.do(regexChange{regex: regex, resolved: next})
	return true
}

// dropRegex forgets a regular expression that no member has any more.
func (s *step) dropRegex(regex string) {
	if regex == "" || s.cg.regexes[regex] == nil {
		return
	}
	for _, m := range s.cg.members {
		if m.regex == regex {
			return
		}
	}
	s.do(regexChange{regex: regex, gone: true})
}

// bump begins a new group epoch where the members' subscriptions or their topics have changed.
func (s *step) bump(changed bool) {
	cg := s.cg
	if !changed && !cg.stale {
		return
	}
	for _, m := range cg.sorted() {
		if m.regex != "" {
			changed = s.resolve(m.regex, nil) || changed
		}
	}
	cg.stale = false
	if hash := cg.metadataHash(); changed || hash != cg.hash {
		s.do(epochChange{epoch: cg.epoch + 1, hash: hash})
	}
}

// assign makes the target assignment of the group's epoch.
func (s *step) assign() {
	cg := s.cg
	if cg.epoch <= cg.targetEpoch {
		return
	}
	members := cg.sorted()
	counts := map[kafka.UUID]int32{}
	in := make([]assignor.Member, len(members))
	for i, m := range members {
		in[i] = assignor.Member{ID: m.id, Target: m.target}
		if m.instance != nil {
			in[i].Instance = *m.instance
		}
		for _, name := range cg.names(m) {
			if id, n, ok := cg.g.c.topics.Topic(name); ok {
				counts[id] = n
				in[i].Topics = append(in[i].Topics, id)
			}
		}
		slices.SortFunc(in[i].Topics, assignor.Compare)
	}
	out := assignor.ByName[cg.assignorName()](in, func(t kafka.UUID) int32 { return counts[t] })
	for i, m := range members {
		if m.target == nil || !sameSet(m.target, out[i]) {
			s.do(targetChange{id: m.id, set: out[i]})
		}
	}
	s.do(targetEpochChange{epoch: int64(cg.epoch), timestamp: cg.g.c.millis()})
	cg.g.note(Note{What: "consumer group assigned"})
}

// leaveConsumer ends a membership. A static member that comes back keeps its place until its session ends.
func (c *Coordinator) leaveConsumer(e ConsumerHeartbeat) error {
	g := c.groups[e.Group]
	switch {
	case g != nil && g.state == Dead:
		return coordinator.ErrUnavailable
	case g == nil || g.consumer == nil:
		return fmt.Errorf("%w: Group %s not found", ErrGroupNotFound, e.Group)
	}
	s := &step{cg: g.consumer}
	m := s.cg.members[e.MemberID]
	if e.InstanceID != nil {
		var err error
		if m, err = s.cg.staticMember(e); err != nil {
			return err
		}
	}
	if m == nil {
		return fmt.Errorf("%w: Member %s is not a member of group %s.", ErrUnknownMember, e.MemberID, e.Group) //nolint:staticcheck // Kafka's text
	}
	if e.Epoch == StaticLeaveEpoch && m.instance != nil {
		now := m.current
		now.epoch = StaticLeaveEpoch
		s.do(currentChange{id: m.id, current: now})
		c.stopTimer(&m.revoking)
	} else {
		s.fence(m)
	}
	r := ConsumerHeartbeatResponse{MemberID: e.MemberID, Epoch: e.Epoch}
	s.commit(func(err error) {
		if err != nil {
			r = ConsumerHeartbeatResponse{Err: err}
		}
		c.reply(e.To, r)
	})
	return nil
}

// fence removes members; the others take their partitions over. Where those are all of the classic protocol, they may go on as a
// classic group.
func (s *step) fence(gone ...*consumerMember) {
	if s.downgrade(gone, nil) {
		return
	}
	for _, m := range gone {
		s.forget(m)
		s.dropRegex(m.regex)
	}
	s.bump(true)
	if len(s.cg.members) == 0 { // which has its assignment at once
		s.do(targetEpochChange{epoch: int64(s.cg.epoch)})
	}
}
