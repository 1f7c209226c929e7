package group

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/broker/group/assignor"
)

// A classic group becomes one of the consumer protocol when a member of that protocol joins it. Its members come along: the
// generation is their epoch, the last assignment is what they have and are to have, and they are called to join again, since the
// group is assigned anew for the member that came. What is committed stays. The state is made beside the classic one, which is
// left as it is where the member is refused.

// openConsumer finds a group of the consumer protocol. Where create is set, it makes one, also out of a classic group; that is
// only done with enter.
func (c *Coordinator) openConsumer(id string, create bool) (*step, error) {
	g := c.groups[id]
	switch {
	case g != nil && g.state == Dead:
		return nil, coordinator.ErrUnavailable
	case g != nil && g.consumer != nil:
		return &step{cg: g.consumer}, nil
	case !create && g == nil:
		return nil, fmt.Errorf("%w: Group %s not found", ErrGroupNotFound, id)
	case !create:
		return nil, fmt.Errorf("%w: Group %s is not a consumer group", ErrGroupNotFound, id)
	}
	g = c.open(id)
	s := &step{cg: newConsumerGroup(g)}
	if g.persisted || g.writes > 0 { // of those under way one may be the first
		s.records = append(s.records, Record{Key: groupKey(id)})
	}
	if len(g.members) == 0 {
		return s, nil
	}
	return s, s.upgrade()
}

// enter makes the group that was opened the group's state.
func (s *step) enter() {
	g := s.cg.g
	if g.consumer == s.cg {
		return
	}
	upgraded := len(g.members)
	for _, m := range slices.Clone(g.order) {
		g.answerJoin(m, JoinResponse{Err: ErrRebalanceInProgress, MemberID: m.id})
		g.answerSync(m, SyncResponse{Err: ErrRebalanceInProgress})
		g.remove(m)
	}
	g.beClassic() // with nothing left of it
	g.consumer = s.cg
	for _, m := range s.cg.members {
		s.cg.touch(m)
	}
	if upgraded > 0 {
		g.c.eff.Notes = append(g.c.eff.Notes, Note{Group: g.id, What: "classic group becomes a consumer group", Generation: s.cg.epoch, Members: upgraded})
	}
}

// upgrade takes the members of the classic group over.
func (s *step) upgrade() error {
	g := s.cg.g
	cfg := &g.c.cfg.Consumer
	refuse := func(why string) error {
		return fmt.Errorf("%w: Cannot upgrade classic group %s to consumer group because %s", ErrGroupNotFound, g.id, why)
	}
	switch {
	case !cfg.Migration.Upgrade:
		return refuse("online upgrade is disabled.")
	case g.protocolType != consumerProtocol:
		return refuse("the group does not use the consumer embedded protocol.")
	case len(g.members) > cfg.MaxSize:
		return refuse("the group size exceeds the consumer group maximum size.")
	}
	members, err := g.upgraded()
	switch {
	case errors.Is(err, errCustomAssignor):
		return refuse("an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor before re-attempting the upgrade.")
	case err != nil:
		return refuse("the embedded consumer protocol is malformed.")
	}
	for _, m := range members {
		s.do(memberChange{id: m.id, memberSubscription: m.memberSubscription})
	}
	s.do(epochChange{epoch: g.generation}) // without a hash, which no topics have
	for _, m := range members {
		s.do(targetChange{id: m.id, set: m.target})
	}
	s.do(targetEpochChange{epoch: int64(g.generation), timestamp: g.c.millis()})
	for _, m := range members {
		s.do(currentChange{id: m.id, current: m.current})
	}
	if (Write{Records: s.records}).Size() > g.c.cfg.MaxBatchBytes {
		return refuse("its state does not fit in one batch.")
	}
	s.seam, s.unsettled = len(s.records), true
	return nil
}

// upgraded is what becomes of the members of a classic group, in order of id. Who waits for its first generation and does not
// know its id yet is not among them: it will come with another.
func (g *group) upgraded() ([]consumerMember, error) {
	protocol := g.protocol
	if protocol == "" { // no generation yet
		protocol = g.selectProtocol()
	}
	order := slices.DeleteFunc(slices.Clone(g.order), func(m *member) bool { return m.isNew && !m.knowsID && m.instance == nil })
	slices.SortFunc(order, func(a, b *member) int { return strings.Compare(a.id, b.id) })
	out := make([]consumerMember, len(order))
	taken := map[topicIDPartition]bool{}
	subs := make([]clientSubscription, len(order))
	for i, m := range order {
		var err error
		if subs[i], err = decodeSubscription(m.metadata(protocol)); err != nil {
			return nil, err
		}
		given, err := decodeAssignment(m.assignment)
		if err != nil {
			return nil, err
		}
		set := assignor.Set{}
		for _, t := range given {
			g.c.addPartitions(set, t.Topic, t.Partitions)
		}
		own, epoch := take(taken, set), g.generation
		if g.state == PreparingRebalance && m.epoch > 0 { // it was in a consumer group, and has not joined since
			epoch = m.epoch
		}
		out[i] = consumerMember{id: m.id, target: own, current: current{epoch: epoch, previous: epoch, assigned: own, revoke: assignor.Set{}},
			memberSubscription: memberSubscription{instance: m.instance, rack: subs[i].rack, clientID: m.clientID, clientHost: m.clientHost,
				topics: subs[i].topics, rebalanceTimeout: m.rebalanceTimeout, classic: &classicSide{session: m.sessionTimeout, protocols: m.protocols}}}
	}
	for i, m := range order {
		// In a rebalance assignments are forgotten, and members say with their joins what they have kept of them.
		if g.state != Stable && m.assignment == nil {
			out[i].assigned = take(taken, g.c.ownedSet(subs[i].owned))
		}
		out[i].since = sinceOf(out[i].assigned, out[i].epoch)
	}
	return out, nil
}

// sinceOf is since for partitions that are a member's from one epoch on.
func sinceOf(set assignor.Set, epoch int32) map[topicIDPartition]int32 {
	since := map[topicIDPartition]int32{}
	for t, ps := range set {
		for _, p := range ps {
			since[topicIDPartition{t, p}] = epoch
		}
	}
	return since
}

// take takes the partitions that nobody else has: a leader may have given one to two members.
func take(taken map[topicIDPartition]bool, set assignor.Set) assignor.Set {
	own := assignor.Set{}
	for t, ps := range set {
		for _, p := range ps {
			if at := (topicIDPartition{t, p}); !taken[at] {
				taken[at] = true
				own[t] = append(own[t], p)
			}
		}
	}
	return own
}

// beClassic makes the group a new classic one without members, with the offsets that it has.
func (g *group) beClassic() {
	for id := range g.pendingJoin {
		g.dropPending(id)
	}
	g.c.stopTimer(&g.joinTimer)
	g.c.stopTimer(&g.syncTimer)
	g.life++
	g.consumer, g.persisted, g.storing = nil, false, -1
	g.state, g.fromEmpty, g.newcomers = Empty, false, false
	g.generation, g.protocolType, g.protocol, g.leader = 0, "", "", ""
	g.stateSince, g.subscribed = g.c.millis(), nil
}

// tombstones delete what the log has of a group without members.
func (cg *consumerGroup) tombstones() []Record {
	id := cg.g.id
	return []Record{targetEpochChange{gone: true}.record(id), epochChange{gone: true}.record(id)}
}
