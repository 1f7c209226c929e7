package group

import "time"

// initialDelay is what is left of the wait for more members of a group that was empty.
type initialDelay struct {
	delay, remaining time.Duration
}

// minRejoinWait is the shortest time between two looks at a group none of whose members joins.
const minRejoinWait = time.Second

// rebalance starts a rebalance where none is being prepared, and otherwise ends the one that is when all have joined.
func (g *group) rebalance() {
	switch g.state {
	case Empty, Stable, CompletingRebalance:
		g.prepareRebalance()
	default:
		g.completeIfAllJoined()
	}
}

// prepareRebalance calls all members to join again.
func (g *group) prepareRebalance() {
	if g.state == CompletingRebalance {
		for _, m := range g.order {
			m.assignment = nil
			if g.answerSync(m, SyncResponse{Err: ErrRebalanceInProgress}) {
				g.touch(m)
			}
		}
	}
	g.endSync()
	g.fromEmpty = g.state == Empty
	g.become(PreparingRebalance)
	g.note(g.cause)
	if g.fromEmpty {
		g.newcomers = false
		delay := g.c.cfg.InitialRebalanceDelay
		if delay == 0 {
			g.completeJoin()
			return
		}
		g.startInitial(initialDelay{delay: delay, remaining: max(g.rebalanceTimeout()-delay, 0)})
		return
	}
	if g.allJoined() {
		g.completeJoin()
		return
	}
	g.startJoinTimer(timerRebalance, g.rebalanceTimeout())
}

// startJoinTimer sets the one timer of the phase.
func (g *group) startJoinTimer(kind timerKind, d time.Duration) {
	g.c.stopTimer(&g.joinTimer)
	g.joinTimer = g.c.startTimer(&timer{at: g.c.now.Add(d), kind: kind, group: g})
}

func (g *group) startInitial(d initialDelay) {
	g.initial = d
	g.startJoinTimer(timerInitial, d.delay)
}

// initialTimer waits on while members keep coming, but no longer than the rebalance timeout.
func (g *group) initialTimer() {
	d := g.initial
	if !g.newcomers || d.remaining == 0 {
		g.completeJoin()
		return
	}
	g.newcomers = false
	g.startInitial(initialDelay{
		delay:     min(g.c.cfg.InitialRebalanceDelay, d.remaining),
		remaining: max(d.remaining-d.delay, 0),
	})
}

func (g *group) allJoined() bool {
	return g.joining == len(g.members) && len(g.pendingJoin) == 0
}

// completeIfAllJoined ends the join phase early. The first rebalance of a group waits its delay in any case.
func (g *group) completeIfAllJoined() {
	if g.state == PreparingRebalance && !g.fromEmpty && g.allJoined() {
		g.completeJoin()
	}
}

// membersLeft goes on after members were removed.
func (g *group) membersLeft() {
	switch g.state {
	case Stable, CompletingRebalance:
		g.prepareRebalance()
	case PreparingRebalance:
		if g.fromEmpty && len(g.members) == 0 && len(g.pendingJoin) == 0 {
			g.c.stopTimer(&g.joinTimer) // it never came to a generation
			g.become(Empty)
			return
		}
		g.completeIfAllJoined()
	}
}

// completeJoin ends the join phase: dynamic members that did not join are out, and the rest form the next generation.
func (g *group) completeJoin() {
	g.c.stopTimer(&g.joinTimer)
	for _, m := range append([]*member(nil), g.order...) {
		if m.join == nil && m.instance == nil {
			g.removeMember(m, ErrUnknownMember)
		}
	}
	if len(g.members) == 0 {
		g.becomeEmpty(nil)
		return
	}
	if !g.electLeader() {
		// Only static members are left, and none has come back. Their sessions decide.
		g.startJoinTimer(timerRebalance, max(g.rebalanceTimeout(), minRejoinWait))
		return
	}
	g.generation++
	g.protocol = g.selectProtocol()
	g.subscribed = g.subscriptions()
	g.become(CompletingRebalance)
	g.note(Note{What: "generation formed"})
	g.endSync()
	for _, m := range g.order {
		g.answerJoin(m, g.joinResponse(m))
		g.touch(m)
		m.isNew, m.knowsID = false, true
		g.setSyncing(m)
	}
	g.syncTimer = g.c.startTimer(&timer{at: g.c.now.Add(g.rebalanceTimeout()), kind: timerSync, group: g})
}

// electLeader keeps the leader where it has joined, and else takes the first member that has. One whose connection is gone
// is taken only where there is no other.
func (g *group) electLeader() bool {
	present := func(m *member) bool { return m != nil && m.join != nil && !m.gone }
	if present(g.members[g.leader]) {
		return true
	}
	for _, m := range g.order {
		if present(m) {
			g.leader = m.id
			return true
		}
	}
	if m := g.members[g.leader]; m != nil && m.join != nil {
		return true
	}
	for _, m := range g.order {
		if m.join != nil {
			g.leader = m.id
			return true
		}
	}
	return false
}

// becomeEmpty ends the group's last generation. done runs when that is durable; where it fails, the members of the last
// generation come back with the next load, and their sessions end there.
func (g *group) becomeEmpty(done func(error)) {
	g.generation++
	g.protocol, g.leader = "", ""
	g.subscribed = g.subscriptions()
	g.endSync()
	g.become(Empty)
	g.note(Note{What: "group is empty"})
	g.writeMetadata(nil, func(err error) {
		if done != nil {
			done(err)
		}
	})
}

// endSync ends the sync phase.
func (g *group) endSync() {
	for _, m := range g.order {
		g.clearSyncing(m)
	}
	g.c.stopTimer(&g.syncTimer)
}

// expireSync removes the members that joined the generation and never synced.
func (g *group) expireSync() {
	if g.syncing == 0 || g.state != CompletingRebalance && g.state != Stable {
		return
	}
	for _, m := range append([]*member(nil), g.order...) {
		if m.syncing {
			g.because("rebalancing: members did not sync", m.id, "")
			g.removeMember(m, ErrUnknownMember)
		}
	}
	g.prepareRebalance()
}
