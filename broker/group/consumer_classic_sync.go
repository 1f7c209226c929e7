package group

import (
	"slices"
)

// classicMember finds the member that a request of the classic protocol comes from.
func (cg *consumerGroup) classicMember(id string, instance *string) (*consumerMember, error) {
	m := cg.members[id]
	if instance != nil {
		if m = cg.members[cg.static[*instance]]; m != nil && m.id != id {
			return nil, ErrFenced
		}
	}
	if m == nil || m.classic == nil {
		return nil, ErrUnknownMember
	}
	return m, nil
}

// sync tells a member of the classic protocol what it has, when that is durable. It returns why the request is refused.
func (cg *consumerGroup) sync(e Sync) error {
	c := cg.g.c
	m, err := cg.classicMember(e.MemberID, e.InstanceID)
	switch {
	case err != nil:
		return err
	case e.Generation != m.epoch:
		return ErrIllegalGeneration
	case e.ProtocolType != nil && *e.ProtocolType != consumerProtocol, e.Protocol != nil && *e.Protocol != m.classic.protocol():
		return ErrInconsistentProtocol
	case cg.epoch > m.epoch && m.state != memberUnrevoked: // who gives up partitions is told of it by the answer
		cg.expectJoin(m)
		return ErrRebalanceInProgress
	}
	c.stopTimer(&m.syncing)
	cg.touch(m)
	r := SyncResponse{ProtocolType: consumerProtocol, Protocol: m.classic.protocol(),
		Assignment: c.encodeAssignment(m.assigned, m.classic.protocols[0].Metadata)}
	(&step{cg: cg}).commit(func(err error) {
		if err != nil {
			r = SyncResponse{Err: err}
		}
		c.reply(e.To, r)
	})
	return nil
}

// heartbeat keeps a member of the classic protocol alive, and calls it to join again where it can get on.
func (cg *consumerGroup) heartbeat(r HeartbeatRequest) error {
	m, err := cg.classicMember(r.MemberID, r.InstanceID)
	switch {
	case err != nil:
		return err
	case r.Generation != m.epoch:
		return ErrIllegalGeneration
	}
	cg.touch(m)
	if cg.stale { // there may be no member of the consumer protocol that would find out
		s := &step{cg: cg}
		s.bump(false)
		s.commit(func(error) {})
	}
	if m.epoch < cg.epoch || m.state == memberUnrevoked || m.state == memberUnreleased && !cg.blocked(m) {
		cg.expectJoin(m)
		return ErrRebalanceInProgress
	}
	return nil
}

// blocked reports whether partitions of a member's target are still with others.
func (cg *consumerGroup) blocked(m *consumerMember) bool {
	for t, ps := range m.target {
		for _, p := range ps {
			if owner := cg.owners[topicIDPartition{t, p}]; owner != "" && owner != m.id {
				return true
			}
		}
	}
	return false
}

// expectJoin gives a member of the classic protocol its rebalance timeout to join again.
func (cg *consumerGroup) expectJoin(m *consumerMember) {
	if c := cg.g.c; m.rejoining == nil {
		m.rejoining = c.startTimer(&timer{at: c.now.Add(m.rebalanceTimeout), kind: timerRejoin, group: cg.g, member: m.id})
	}
}

// leave removes members of either protocol, by themselves or by an administrator.
func (cg *consumerGroup) leave(e Leave) {
	r := LeaveResponse{Errs: make([]error, len(e.Members))}
	var gone []*consumerMember
	for i, lm := range e.Members {
		m, err := cg.leaving(lm)
		if r.Errs[i] = err; err == nil && !slices.Contains(gone, m) {
			gone = append(gone, m)
			cg.g.note(Note{What: "a member left", Member: m.id, Reason: lm.Reason})
		}
	}
	c := cg.g.c
	if len(gone) == 0 {
		c.reply(e.To, r)
		return
	}
	s := &step{cg: cg}
	s.fence(gone...)
	s.commit(func(err error) {
		if err != nil {
			r = LeaveResponse{Err: err}
		}
		c.reply(e.To, r)
	})
}

// leaving finds the member that is to leave: by its id, or by its instance id alone.
func (cg *consumerGroup) leaving(lm LeaveMember) (*consumerMember, error) {
	m := cg.members[lm.MemberID]
	if lm.InstanceID != nil {
		if m = cg.members[cg.static[*lm.InstanceID]]; m != nil && lm.MemberID != "" && lm.MemberID != m.id {
			return nil, ErrFenced
		}
	}
	if m == nil {
		return nil, ErrUnknownMember
	}
	return m, nil
}
