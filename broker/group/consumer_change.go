package group

import (
	"github.com/varvehq/varve/broker/group/assignor"
)

// change is one record of a consumer group: it changes the state, and is in the log.
type change interface {
	record(group string) Record
	apply(cg *consumerGroup)
}

// The changes. gone makes a tombstone.
type (
	// epochChange begins a group epoch; gone ends the group.
	epochChange struct {
		gone  bool
		epoch int32
		hash  int64
	}
	// memberChange is a member's subscription.
	memberChange struct {
		id   string
		gone bool
		memberSubscription
	}
	// targetEpochChange tells that the target assignment of an epoch is complete.
	targetEpochChange struct {
		gone             bool
		epoch, timestamp int64
	}
	// targetChange is a member's part of the target assignment.
	targetChange struct {
		id   string
		gone bool
		set  assignor.Set
	}
	// currentChange is a member's progress.
	currentChange struct {
		id   string
		gone bool
		current
	}
	// regexChange is what a regular expression matches.
	regexChange struct {
		regex string
		gone  bool
		resolved
	}
)

func (ch epochChange) apply(cg *consumerGroup) { cg.epoch, cg.hash = ch.epoch, ch.hash }

func (ch targetEpochChange) apply(cg *consumerGroup) { cg.targetEpoch = int32(ch.epoch) }

func (ch memberChange) apply(cg *consumerGroup) {
	m := cg.member(ch.id)
	if m.instance != nil && cg.static[*m.instance] == ch.id {
		delete(cg.static, *m.instance)
	}
	if ch.gone {
		cg.g.c.stopTimer(&m.session)
		cg.stopTimers(m)
		delete(cg.members, ch.id)
		return
	}
	if (m.classic == nil) != (ch.classic == nil) {
		cg.stopTimers(m)
	}
	m.known = true
	if m.memberSubscription = ch.memberSubscription; m.instance != nil {
		cg.static[*m.instance] = ch.id
	}
}

func (ch targetChange) apply(cg *consumerGroup) { cg.member(ch.id).target = ch.set }

func (ch currentChange) apply(cg *consumerGroup) {
	m := cg.member(ch.id)
	cg.disown(m)
	m.current = ch.current
	for _, set := range [...]assignor.Set{m.assigned, m.revoke} {
		for t, ps := range set {
			for _, p := range ps {
				cg.owners[topicIDPartition{t, p}] = ch.id
			}
		}
	}
}

func (ch regexChange) apply(cg *consumerGroup) {
	if ch.gone {
		delete(cg.regexes, ch.regex)
		return
	}
	cg.regexes[ch.regex] = &ch.resolved
}

// member returns a member, making it where there is none.
func (cg *consumerGroup) member(id string) *consumerMember {
	m := cg.members[id]
	if m == nil {
		m = &consumerMember{id: id}
		cg.members[id] = m
	}
	return m
}

// stopTimers stops the timers of a member's progress.
func (cg *consumerGroup) stopTimers(m *consumerMember) {
	cg.g.c.stopTimer(&m.revoking)
	cg.g.c.stopTimer(&m.rejoining)
	cg.g.c.stopTimer(&m.syncing)
}

// disown forgets that a member has partitions.
func (cg *consumerGroup) disown(m *consumerMember) {
	for _, set := range [...]assignor.Set{m.assigned, m.revoke} {
		for t, ps := range set {
			for _, p := range ps {
				if cg.owners[topicIDPartition{t, p}] == m.id {
					delete(cg.owners, topicIDPartition{t, p})
				}
			}
		}
	}
}

// step gathers the changes of one event.
type step struct {
	cg      *consumerGroup
	records []Record
	// seam is where the records may be written in two: those before it and those behind it belong together. 0 is none.
	seam int
	// unsettled says that the members are to be assigned anew, whatever has changed.
	unsettled bool
}

func (s *step) do(ch change) {
	ch.apply(s.cg)
	s.records = append(s.records, ch.record(s.cg.g.id))
}

// commit makes the changes durable and calls done after. Where that fails, the state here is not what is in the log.
func (s *step) commit(done func(error)) {
	g := s.cg.g
	if len(s.records) == 0 && g.writes == 0 {
		done(nil)
		return
	}
	changes := len(s.records) > 0
	written := func(err error) {
		if err != nil && changes {
			g.c.eff.Reload = true
		}
	}
	if s.seam > 0 && (Write{Records: s.records}).Size() > g.c.cfg.MaxBatchBytes {
		g.write(s.records[:s.seam], written)
		s.records = s.records[s.seam:]
	}
	g.write(s.records, func(err error) {
		written(err)
		done(err)
	})
}
