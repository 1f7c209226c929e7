package group

import (
	"bytes"
	"slices"
	"time"
)

// member is one member of a group.
type member struct {
	id               string
	instance         *string
	clientID         string
	clientHost       string
	rebalanceTimeout time.Duration
	sessionTimeout   time.Duration
	protocols        []Protocol
	assignment       []byte
	epoch            int32 // what it had in the consumer group that this was, until it joins; 0 for none

	// isNew holds until the member's first generation is told to it; knowsID says that it learned its id before joining.
	isNew, knowsID bool
	// join and sync are the tokens of the member's waiting requests, nil for none.
	join, sync any
	// gone says that the connection of the waiting join is lost.
	gone bool
	// syncing says that the member has joined the generation and has yet to sync.
	syncing bool

	deadline time.Time
	session  *timer
}

func (m *member) metadata(protocol string) []byte {
	for i := range m.protocols {
		if m.protocols[i].Name == protocol {
			return m.protocols[i].Metadata
		}
	}
	return nil
}

// speaks reports whether the member would join with exactly these protocols.
func (m *member) speaks(protocols []Protocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b Protocol) bool {
		return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata)
	})
}

// uniqueProtocols drops later protocols of a name that is already there.
func uniqueProtocols(ps []Protocol) []Protocol {
	for i := range ps {
		if slices.ContainsFunc(ps[:i], func(p Protocol) bool { return p.Name == ps[i].Name }) {
			out := slices.Clone(ps[:i])
			for _, p := range ps[i:] {
				if !slices.ContainsFunc(out, func(q Protocol) bool { return q.Name == p.Name }) {
					out = append(out, p)
				}
			}
			return out
		}
	}
	return ps
}

// add puts a new member at the end of the group.
func (g *group) add(m *member, protocolType string) {
	if len(g.members) == 0 {
		g.protocolType = protocolType
	}
	if m.instance != nil {
		g.static[*m.instance] = m.id
	}
	g.members[m.id] = m
	g.order = append(g.order, m)
	g.count(m.protocols, 1)
	if m.join != nil {
		g.joining++
	}
	if g.leader == "" {
		g.leader = m.id
	}
	g.dropPending(m.id)
}

// remove takes a member out. Its waiting requests must have been answered.
func (g *group) remove(m *member) {
	delete(g.members, m.id)
	g.order = slices.DeleteFunc(g.order, func(o *member) bool { return o == m })
	g.count(m.protocols, -1)
	if m.instance != nil && g.static[*m.instance] == m.id {
		delete(g.static, *m.instance)
	}
	g.clearSyncing(m)
	g.c.stopTimer(&m.session)
	if g.leader == m.id {
		g.leader = ""
		if len(g.order) > 0 {
			g.leader = g.order[0].id
		}
	}
}

// removeMember answers a member's waiting requests with err and takes it out.
func (g *group) removeMember(m *member, err error) {
	g.answerJoin(m, JoinResponse{Err: err})
	g.answerSync(m, SyncResponse{Err: err})
	g.remove(m)
}

func (g *group) count(protocols []Protocol, d int) {
	for i := range protocols {
		name := protocols[i].Name
		if g.supported[name] += d; g.supported[name] == 0 {
			delete(g.supported, name)
		}
	}
}

// update takes over what a known member joins with, and its new join request.
func (g *group) update(m *member, protocols []Protocol, rebalance, session time.Duration, join any) {
	g.count(m.protocols, -1)
	m.protocols = protocols
	g.count(m.protocols, 1)
	m.rebalanceTimeout, m.sessionTimeout, m.epoch = rebalance, session, 0
	g.answerJoin(m, JoinResponse{Err: ErrRebalanceInProgress, MemberID: m.id})
	g.await(m, join)
}

// await makes a member wait for the rebalance to complete.
func (g *group) await(m *member, join any) {
	m.join, m.gone = join, false
	if join != nil {
		g.joining++
	}
}

func (g *group) answerJoin(m *member, r JoinResponse) {
	if m.join != nil {
		g.c.reply(m.join, r)
		m.join = nil
		g.joining--
	}
}

func (g *group) answerSync(m *member, r SyncResponse) bool {
	if m.sync == nil {
		return false
	}
	g.c.reply(m.sync, r)
	m.sync = nil
	return true
}

func (g *group) setSyncing(m *member) {
	if !m.syncing {
		m.syncing = true
		g.syncing++
	}
}

func (g *group) clearSyncing(m *member) {
	if m.syncing {
		m.syncing = false
		g.syncing--
	}
}

// supports reports whether a member with these protocols could be in the group.
func (g *group) supports(protocolType string, protocols []Protocol) bool {
	if protocolType == "" || len(protocols) == 0 {
		return false
	}
	if g.state == Empty {
		return true
	}
	if g.protocolType != protocolType {
		return false
	}
	return slices.ContainsFunc(protocols, func(p Protocol) bool { return g.supported[p.Name] == len(g.members) })
}

// selectProtocol takes the protocol that all members support and most prefer; of equals, the one that the earlier members
// prefer.
func (g *group) selectProtocol() string {
	votes := map[string]int{}
	best := ""
	for _, m := range g.order {
		for i := range m.protocols {
			name := m.protocols[i].Name
			if g.supported[name] == len(g.members) {
				votes[name]++
				if best == "" {
					best = name
				}
				break
			}
		}
	}
	for _, m := range g.order {
		for i := range m.protocols {
			if name := m.protocols[i].Name; votes[name] > votes[best] {
				best = name
			}
		}
	}
	return best
}

// rebalanceTimeout is the longest that a member asks for.
func (g *group) rebalanceTimeout() time.Duration {
	var d time.Duration
	for _, m := range g.order {
		d = max(d, m.rebalanceTimeout)
	}
	return d
}
