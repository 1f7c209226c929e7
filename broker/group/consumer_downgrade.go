package group

import (
	"maps"
	"slices"
)

// A group of the consumer protocol becomes a classic one when the last member of that protocol is gone and others remain. Their
// epoch is the generation, and their assignment is what they have, or have yet to give up; they are called to join again, unless
// everyone has what it is to have. The log says by a group without leader that they have yet to. (Kafka writes the target instead,
// and would not know what members have where the group is changed back before they joined.)

// downgrade makes the group a classic one where that is what is to become of it without the members that go, and reports whether.
// Where none goes, joining is the one that took the place of a member of the consumer protocol.
func (s *step) downgrade(gone []*consumerMember, joining *consumerMember) bool {
	cg, g := s.cg, s.cg.g
	left := slices.DeleteFunc(cg.sorted(), func(m *consumerMember) bool { return slices.Contains(gone, m) })
	if len(left) == 0 || slices.ContainsFunc(left, func(m *consumerMember) bool { return m.classic == nil }) {
		return false
	}
	note := func(what string) {
		g.c.eff.Notes = append(g.c.eff.Notes, Note{Group: g.id, What: what, Generation: cg.epoch, Members: len(left)})
	}
	switch cfg := g.c.cfg; {
	case !cfg.Consumer.Migration.Downgrade:
		note("consumer group stays one of classic members: online downgrade is disabled")
		return false
	case len(left) > cfg.MaxSize:
		note("consumer group stays one of classic members: there are more than a classic group may have")
		return false
	}
	settled := len(gone) == 0 && cg.settled(joining)
	next := cg.downgraded(left, settled)
	records := append(cg.allTombstones(), Record{Key: groupKey(g.id), Value: next.metadataValue(nil)})
	if next.protocol == "" || (Write{Records: records}).Size() > g.c.cfg.MaxBatchBytes {
		note("consumer group stays one of classic members: its state does not fit in one batch")
		return false
	}
	s.seam = len(s.records)
	s.records = append(s.records, records...)
	for _, m := range cg.sorted() {
		g.c.stopTimer(&m.session)
		cg.stopTimers(m)
	}
	g.adopt(next)
	note("consumer group becomes a classic group")
	if !settled {
		g.because("rebalancing: the group has changed its protocol", "", "")
		g.prepareRebalance()
	}
	return true
}

// settled reports whether every member has its part of the target, and knows it or is just told.
func (cg *consumerGroup) settled(joining *consumerMember) bool {
	for _, m := range cg.members {
		if m.syncing != nil && m != joining {
			return false
		}
	}
	return cg.state() == "Stable"
}

// downgraded is the classic group of members of a consumer group. settled says that it is stable.
func (cg *consumerGroup) downgraded(left []*consumerMember, settled bool) *group {
	next := newGroup(cg.g.c, cg.g.id)
	next.generation, next.state = cg.epoch, Stable
	for _, m := range left {
		next.add(&member{id: m.id, instance: m.instance, clientID: m.clientID, clientHost: m.clientHost,
			rebalanceTimeout: m.rebalanceTimeout, sessionTimeout: m.classic.session, protocols: m.classic.protocols,
			knowsID: true, epoch: m.epoch}, consumerProtocol)
	}
	next.protocol = next.selectProtocol()
	for _, m := range left {
		next.members[m.id].assignment = cg.g.c.encodeAssignment(m.has(), next.members[m.id].metadata(next.protocol))
	}
	if !settled {
		next.leader = ""
	}
	return next
}

// allTombstones delete everything that the log has of a group.
func (cg *consumerGroup) allTombstones() []Record {
	var all []Record
	for _, m := range cg.sorted() {
		for _, ch := range []change{currentChange{id: m.id, gone: true}, targetChange{id: m.id, gone: true}, memberChange{id: m.id, gone: true}} {
			all = append(all, ch.record(cg.g.id))
		}
	}
	for _, regex := range slices.Sorted(maps.Keys(cg.regexes)) {
		all = append(all, regexChange{regex: regex, gone: true}.record(cg.g.id))
	}
	return append(all, cg.tombstones()...)
}

// adopt makes a group of the consumer protocol the classic one that it is to be.
func (g *group) adopt(next *group) {
	g.beClassic()
	g.generation, g.protocolType, g.protocol, g.leader = next.generation, next.protocolType, next.protocol, next.leader
	g.members, g.order, g.static, g.supported = next.members, next.order, next.static, next.supported
	g.persisted = true
	g.become(Stable)
	g.subscribed = g.subscriptions()
	for _, m := range g.order {
		g.touch(m)
	}
	if g.leader == "" {
		g.leader = g.order[0].id
	}
}

// ofGeneration reports whether a member is in the group's generation. While members of what was a consumer group have yet to join
// the classic one, each may be in an epoch of its own.
func (g *group) ofGeneration(m *member, generation int32) bool {
	return generation == g.generation || g.state == PreparingRebalance && m.epoch > 0 && generation == m.epoch
}
