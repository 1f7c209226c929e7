package group

import "github.com/varvehq/varve/broker/coordinator"

func (c *Coordinator) onSync(e Sync) {
	g := c.groups[e.Group]
	err := c.closed
	switch {
	case err != nil:
	case e.Group == "":
		err = ErrInvalidGroupID
	case g != nil && g.state == Dead:
		err = coordinator.ErrUnavailable
	case g != nil && g.consumer != nil:
		err = g.consumer.sync(e)
	case g == nil || g.state == Empty:
		err = ErrUnknownMember
	default:
		err = g.onSync(e)
	}
	if err != nil {
		c.reply(e.To, SyncResponse{Err: err})
	}
}

// onSync returns why the request is refused; otherwise it is or will be answered.
func (g *group) onSync(e Sync) error {
	m, err := g.check(e.MemberID, e.InstanceID)
	switch {
	case err != nil:
		return err
	case !g.ofGeneration(m, e.Generation):
		return ErrIllegalGeneration
	case g.state == PreparingRebalance && m.epoch > 0: // the consumer group had told it a protocol of its own
		return ErrRebalanceInProgress
	case e.ProtocolType != nil && *e.ProtocolType != g.protocolType, e.Protocol != nil && *e.Protocol != g.protocol:
		return ErrInconsistentProtocol
	case g.state == PreparingRebalance:
		return ErrRebalanceInProgress
	case g.state == Stable:
		g.clearSyncing(m)
		g.c.reply(e.To, SyncResponse{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: m.assignment})
		return nil
	}
	g.answerSync(m, SyncResponse{Err: ErrRebalanceInProgress})
	m.sync = e.To
	g.clearSyncing(m)
	if g.leader == m.id && g.storing != g.generation {
		g.store(e.Assignments)
	}
	return nil
}

// store writes the leader's assignment; when it is durable, everyone who waits gets its part and the group is stable.
func (g *group) store(assignments map[string][]byte) {
	if assignments == nil {
		assignments = map[string][]byte{}
	}
	generation, life := g.generation, g.life
	g.storing = generation
	g.writeMetadata(assignments, func(err error) {
		if g.life != life {
			return // those who waited were told when it ended
		}
		if g.storing == generation {
			g.storing = -1
		}
		if g.state != CompletingRebalance || g.generation != generation {
			return // the rebalance that came between has answered
		}
		if err != nil {
			for _, m := range g.order {
				if g.answerSync(m, SyncResponse{Err: err}) {
					g.touch(m)
				}
			}
			g.because("rebalancing: the assignment could not be written", "", err.Error())
			g.prepareRebalance()
			return
		}
		for _, m := range g.order {
			m.assignment = assignments[m.id]
		}
		g.become(Stable)
		for _, m := range g.order {
			r := SyncResponse{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: m.assignment}
			if g.answerSync(m, r) {
				g.touch(m)
			}
		}
	})
}

func (c *Coordinator) onHeartbeat(e Heartbeat) {
	c.reply(e.To, c.heartbeat(e.HeartbeatRequest))
}

func (c *Coordinator) heartbeat(r HeartbeatRequest) error {
	g := c.groups[r.Group]
	switch {
	case c.closed != nil:
		return c.closed
	case r.Group == "":
		return ErrInvalidGroupID
	case g == nil:
		return ErrUnknownMember
	case g.state == Dead:
		return coordinator.ErrUnavailable
	case g.consumer != nil:
		return g.consumer.heartbeat(r)
	}
	m, err := g.check(r.MemberID, r.InstanceID)
	switch {
	case err != nil:
		return err
	case !g.ofGeneration(m, r.Generation):
		return ErrIllegalGeneration
	}
	g.touch(m)
	if g.state == PreparingRebalance {
		return ErrRebalanceInProgress
	}
	return nil
}

func (c *Coordinator) onLeave(e Leave) {
	g := c.groups[e.Group]
	switch {
	case c.closed != nil:
		c.reply(e.To, LeaveResponse{Err: c.closed})
		return
	case e.Group == "":
		c.reply(e.To, LeaveResponse{Err: ErrInvalidGroupID})
		return
	case g != nil && g.state == Dead:
		c.reply(e.To, LeaveResponse{Err: coordinator.ErrUnavailable})
		return
	case g != nil && g.consumer != nil:
		g.consumer.leave(e)
		return
	}
	r := LeaveResponse{Errs: make([]error, len(e.Members))}
	left := false
	for i, lm := range e.Members {
		if g == nil {
			r.Errs[i] = ErrUnknownMember
			continue
		}
		r.Errs[i] = g.leave(lm)
		left = left || r.Errs[i] == nil
	}
	if !left {
		c.reply(e.To, r)
		return
	}
	g.afterLeave(e.To, r)
	c.reap(g)
}

func (g *group) leave(lm LeaveMember) error {
	id := lm.MemberID
	if id == "" {
		if lm.InstanceID == nil {
			return ErrUnknownMember
		}
		id = g.static[*lm.InstanceID]
	}
	if g.dropPending(id) {
		return nil
	}
	m, err := g.check(id, lm.InstanceID)
	if err != nil {
		return err
	}
	g.because("rebalancing: a member left", m.id, lm.Reason)
	g.removeMember(m, ErrUnknownMember)
	return nil
}

// afterLeave rebalances. An answer to the last members waits until the empty group is durable, so that they do not come
// back with a restart.
func (g *group) afterLeave(to any, r LeaveResponse) {
	last := len(g.members) == 0 && len(g.pendingJoin) == 0
	if !last || g.state != Stable && g.state != CompletingRebalance && (g.state != PreparingRebalance || g.fromEmpty) {
		g.c.reply(to, r)
		g.membersLeft()
		return
	}
	g.c.stopTimer(&g.joinTimer)
	g.becomeEmpty(func(err error) {
		if err != nil {
			r = LeaveResponse{Err: err}
		}
		g.c.reply(to, r)
	})
}
