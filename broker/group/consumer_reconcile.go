package group

import (
	"container/heap"
	"slices"

	"github.com/varvehq/varve/broker/group/assignor"
)

// reconcile moves a member on towards its target. owned is what the member says it has, nil where it does not say.
func (s *step) reconcile(m *consumerMember, owned assignor.Set) {
	cg := s.cg
	if m.reconciled(cg.targetEpoch) || m.state == memberUnrevoked && owns(owned, m.revoke) {
		return
	}
	next := cg.next(m, owned)
	if next.epoch != m.epoch {
		next.previous = m.epoch
	} else {
		next.previous = m.previous
	}
	if next.equal(&m.current) {
		return
	}
	s.do(currentChange{id: m.id, current: next})
	cg.g.c.stopTimer(&m.revoking)
	if next.state == memberUnrevoked && m.classic == nil { // others join again, and have that time for it
		m.revoking = cg.g.c.startTimer(&timer{at: cg.g.c.now.Add(m.rebalanceTimeout), kind: timerRevocation, group: cg.g, member: m.id})
	}
}

// owns reports whether a member has, or for all that it says may have, one of the partitions.
func owns(owned, ps assignor.Set) bool {
	if owned == nil {
		return len(ps) > 0
	}
	for t, list := range ps {
		if slices.ContainsFunc(list, func(p int32) bool { return slices.Contains(owned[t], p) }) {
			return true
		}
	}
	return false
}

// next is where a member goes from its epoch: it gives up what is not in its target any more, and only then goes to the target's
// epoch and gets what nobody else has.
func (cg *consumerGroup) next(m *consumerMember, owned assignor.Set) current {
	keep, revoke, gain := assignor.Set{}, assignor.Set{}, assignor.Set{}
	since := map[topicIDPartition]int32{}
	blocked := false
	for t, ps := range m.assigned {
		for _, p := range ps {
			if slices.Contains(m.target[t], p) {
				keep[t] = append(keep[t], p)
				since[topicIDPartition{t, p}] = m.since[topicIDPartition{t, p}]
			} else {
				revoke[t] = append(revoke[t], p)
			}
		}
	}
	for t, ps := range m.target {
		for _, p := range ps {
			owner := cg.owners[topicIDPartition{t, p}]
			switch {
			case slices.Contains(m.assigned[t], p):
			case owner != "" && owner != m.id:
				blocked = true
			default:
				gain[t] = append(gain[t], p)
			}
		}
	}
	if len(revoke) > 0 && owns(owned, revoke) {
		return current{epoch: m.epoch, state: memberUnrevoked, assigned: keep, revoke: revoke, since: m.since}
	}
	for t, ps := range gain {
		keep[t] = append(slices.Clone(keep[t]), ps...)
		slices.Sort(keep[t])
		for _, p := range ps {
			since[topicIDPartition{t, p}] = cg.targetEpoch
		}
	}
	state := memberStable
	if blocked {
		state = memberUnreleased
	}
	return current{epoch: cg.targetEpoch, state: state, assigned: keep, revoke: assignor.Set{}, since: since}
}

// touch gives a member its whole session again, with a timer that is moved lazily.
func (cg *consumerGroup) touch(m *consumerMember) {
	session, _ := cg.settings()
	if m.classic != nil {
		session = m.classic.session
	}
	m.deadline = cg.g.c.now.Add(session)
	switch {
	case m.session == nil:
		m.session = cg.g.c.startTimer(&timer{at: m.deadline, kind: timerConsumerSession, group: cg.g, member: m.id})
	case m.session.at.After(m.deadline):
		m.session.at = m.deadline
		heap.Fix(&cg.g.c.timers, m.session.index)
	}
}

// sessionTimer removes a member that was silent for too long.
func (cg *consumerGroup) sessionTimer(t *timer) {
	m := cg.members[t.member]
	if m == nil || m.session != t {
		return
	}
	m.session = nil
	if m.deadline.After(cg.g.c.now) {
		t.at = m.deadline
		m.session = cg.g.c.startTimer(t)
		return
	}
	cg.expel(m, "a member's session ended")
}

// revocationTimer removes a member that does not give up what is not its own any more.
func (cg *consumerGroup) revocationTimer(t *timer) {
	m := cg.members[t.member]
	if m == nil || m.revoking != t {
		return
	}
	m.revoking = nil
	cg.expel(m, "a member did not give up its partitions in time")
}

// rejoinTimer removes a member of the classic protocol that does not join again.
func (cg *consumerGroup) rejoinTimer(t *timer) {
	if m := cg.members[t.member]; m != nil && m.rejoining == t {
		m.rejoining = nil
		cg.expel(m, "a member did not join again in time")
	}
}

// syncTimer removes a member of the classic protocol that has joined and does not sync.
func (cg *consumerGroup) syncTimer(t *timer) {
	if m := cg.members[t.member]; m != nil && m.syncing == t {
		m.syncing = nil
		cg.expel(m, "a member did not sync in time")
	}
}

func (cg *consumerGroup) expel(m *consumerMember, why string) {
	cg.g.note(Note{What: why, Member: m.id})
	s := &step{cg: cg}
	s.fence(m)
	s.commit(func(error) {})
}

// restored goes on with a group that was loaded: every member has its whole session ahead.
func (cg *consumerGroup) restored() {
	cg.stale = true
	for id, m := range cg.members {
		if !m.known {
			cg.disown(m)
			delete(cg.members, id)
			continue
		}
		cg.touch(m)
		if m.state == memberUnrevoked && m.classic == nil {
			m.revoking = cg.g.c.startTimer(&timer{at: cg.g.c.now.Add(m.rebalanceTimeout), kind: timerRevocation, group: cg.g, member: id})
		}
	}
	for _, r := range cg.regexes {
		r.stale = true
	}
}
