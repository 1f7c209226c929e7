package group

import (
	"time"

	"github.com/varvehq/varve/broker/coordinator"
)

func (c *Coordinator) onJoin(e Join) {
	refuse := func(err error) { c.reply(e.To, JoinResponse{Err: err, MemberID: e.MemberID}) }
	switch {
	case c.closed != nil:
		refuse(c.closed)
		return
	case e.Group == "":
		refuse(ErrInvalidGroupID)
		return
	case e.SessionTimeout < c.cfg.MinSessionTimeout || e.SessionTimeout > c.cfg.MaxSessionTimeout:
		refuse(ErrInvalidSessionTimeout)
		return
	case e.MemberID != "" && c.groups[e.Group] == nil:
		refuse(ErrUnknownMember)
		return
	}
	e.Protocols = uniqueProtocols(e.Protocols)
	g := c.open(e.Group)
	if g.consumer != nil && g.state != Dead && len(g.consumer.members) == 0 {
		records := g.consumer.tombstones()
		g.beClassic()
		g.write(records, func(err error) { c.eff.Reload = c.eff.Reload || err != nil })
	}
	switch {
	case g.consumer != nil && g.state != Dead:
		if err := g.consumer.join(e); err != nil {
			refuse(err)
		}
	case g.state == Dead:
		refuse(coordinator.ErrUnavailable)
	case !g.accepts(e.MemberID):
		c.reply(e.To, JoinResponse{Err: ErrGroupFull})
		g.expel(e.MemberID)
	case !g.supports(e.ProtocolType, e.Protocols):
		refuse(ErrInconsistentProtocol)
	case e.MemberID != "":
		g.joinKnown(e)
	case e.InstanceID != nil:
		g.joinStatic(e)
	default:
		g.joinNew(e)
	}
	c.reap(g)
}

// accepts reports whether the group has room. While a rebalance is prepared those count that have joined it, so that a
// group over a lowered maximum sheds its last ones.
func (g *group) accepts(memberID string) bool {
	m := g.members[memberID]
	switch g.state {
	case PreparingRebalance:
		return m != nil && m.join != nil || g.joining < g.c.cfg.MaxSize
	case CompletingRebalance, Stable:
		return m != nil || len(g.members) < g.c.cfg.MaxSize
	}
	return true
}

// expel removes whom a full group does not take back.
func (g *group) expel(memberID string) {
	g.dropPending(memberID)
	if m := g.members[memberID]; m != nil {
		g.removeMember(m, ErrGroupFull)
	}
	g.completeIfAllJoined()
}

// joinNew takes a dynamic member without id.
func (g *group) joinNew(e Join) {
	id := g.c.memberID(e.ClientID)
	if e.NeedsMemberID {
		g.pendingJoin[id] = g.c.startTimer(&timer{
			at: g.c.now.Add(e.SessionTimeout), kind: timerPending, group: g, member: id})
		g.c.reply(e.To, JoinResponse{Err: ErrMemberIDRequired, MemberID: id})
		return
	}
	g.addMember(e, id, false)
}

// joinStatic takes a static member without id: a new one, or one that has restarted.
func (g *group) joinStatic(e Join) {
	id := g.c.memberID(*e.InstanceID)
	if old, ok := g.static[*e.InstanceID]; ok {
		g.replaceStatic(e, g.members[old], id)
		return
	}
	g.addMember(e, id, false)
}

func (g *group) addMember(e Join, id string, knowsID bool) {
	if g.state == PreparingRebalance && g.fromEmpty {
		g.newcomers = true
	}
	m := &member{
		id: id, instance: e.InstanceID, clientID: e.ClientID, clientHost: e.ClientHost,
		rebalanceTimeout: e.RebalanceTimeout, sessionTimeout: e.SessionTimeout,
		protocols: e.Protocols, isNew: true, knowsID: knowsID, join: e.To,
	}
	g.add(m, e.ProtocolType)
	// It cannot heartbeat before it has its generation; a waiting join of a client that is gone must end all the same.
	g.setSession(m, g.c.cfg.NewMemberJoinTimeout)
	g.because("rebalancing: a member joins", id, e.Reason)
	g.rebalance()
}

// joinKnown takes a member that comes with its id.
func (g *group) joinKnown(e Join) {
	if _, ok := g.pendingJoin[e.MemberID]; ok && e.InstanceID == nil {
		g.addMember(e, e.MemberID, true)
		return
	}
	m, err := g.check(e.MemberID, e.InstanceID)
	if err != nil {
		g.c.reply(e.To, JoinResponse{Err: err, MemberID: e.MemberID})
		return
	}
	leads := g.leader == m.id
	switch {
	case g.state == CompletingRebalance && m.speaks(e.Protocols):
		// It may have missed the answer to its join.
		g.c.reply(e.To, g.joinResponse(m))
	case g.state == Stable && !leads && m.speaks(e.Protocols):
		g.c.reply(e.To, g.joinResponse(m))
	default:
		// The leader may join to rebalance for reasons of its own, such as more partitions of a topic.
		g.update(m, e.Protocols, e.RebalanceTimeout, e.SessionTimeout, e.To)
		g.because("rebalancing: a member joins again", m.id, e.Reason)
		g.rebalance()
	}
}

// joinResponse tells a member of the current generation.
func (g *group) joinResponse(m *member) JoinResponse {
	r := JoinResponse{
		MemberID: m.id, Generation: g.generation,
		ProtocolType: g.protocolType, Protocol: g.protocol, Leader: g.leader,
	}
	if m.id == g.leader {
		r.Members = g.joinMembers()
	}
	return r
}

func (g *group) joinMembers() []JoinMember {
	out := make([]JoinMember, len(g.order))
	for i, m := range g.order {
		out[i] = JoinMember{MemberID: m.id, InstanceID: m.instance, Metadata: m.metadata(g.protocol)}
	}
	return out
}

// rename gives a static member a new id; its waiting requests are fenced.
func (g *group) rename(m *member, id string) {
	g.answerJoin(m, JoinResponse{Err: ErrFenced, MemberID: m.id})
	g.answerSync(m, SyncResponse{Err: ErrFenced})
	delete(g.members, m.id)
	g.c.stopTimer(&m.session)
	if g.leader == m.id {
		g.leader = id
	}
	m.id = id
	g.members[id] = m
	g.static[*m.instance] = id
}

// replaceStatic puts a restarted static member in the place of its former self. In a stable group that costs no rebalance
// as long as the group's protocol stays the same (KIP-345, KIP-814).
func (g *group) replaceStatic(e Join, m *member, id string) {
	oldID, oldLeader := m.id, g.leader
	old := staticUndo{protocols: m.protocols, rebalance: m.rebalanceTimeout, session: m.sessionTimeout,
		clientID: m.clientID, clientHost: m.clientHost}
	g.rename(m, id)
	m.clientID, m.clientHost = e.ClientID, e.ClientHost
	g.update(m, e.Protocols, e.RebalanceTimeout, e.SessionTimeout, e.To)
	g.touch(m)
	switch g.state {
	case CompletingRebalance:
		// The leader may be assigning to the old id.
		g.because("rebalancing: a static member restarted", m.id, e.Reason)
		g.prepareRebalance()
	case Stable:
		if g.selectProtocol() != g.protocol {
			g.because("rebalancing: a static member restarted with other protocols", m.id, e.Reason)
			g.rebalance()
			return
		}
		generation := g.generation
		g.writeMetadata(nil, func(err error) {
			if m.join != e.To || g.state != Stable || g.generation != generation {
				return // the rebalance that came between answers it
			}
			if err != nil {
				g.answerJoin(m, JoinResponse{Err: err})
				g.undoStatic(m, oldID, old)
				return
			}
			g.answerJoin(m, g.staticResponse(e, m, oldLeader))
			g.touch(m)
		})
	default:
		g.completeIfAllJoined()
	}
}

// staticResponse answers a static member that came back into a stable generation. From v9 on a leader is told to skip the
// assignment; before, it is named the old leader's id, so that it does not take itself for the leader.
func (g *group) staticResponse(e Join, m *member, oldLeader string) JoinResponse {
	r := g.joinResponse(m)
	if e.CanSkipAssignment {
		r.SkipAssignment = g.leader == m.id
		return r
	}
	r.Leader, r.Members = oldLeader, nil
	return r
}

// staticUndo is what replaceStatic overwrites.
type staticUndo struct {
	protocols            []Protocol
	rebalance, session   time.Duration
	clientID, clientHost string
}

func (g *group) undoStatic(m *member, oldID string, old staticUndo) {
	g.rename(m, oldID)
	m.clientID, m.clientHost = old.clientID, old.clientHost
	g.update(m, old.protocols, old.rebalance, old.session, nil)
	g.touch(m)
}
