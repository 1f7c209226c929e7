package group

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/varvehq/varve/broker/coordinator"
)

// join takes a member of the classic protocol into the group, at once: it returns why the request is refused, and otherwise it is
// or will be answered. With its subscription the member tells what it has, and so gives up the rest.
func (cg *consumerGroup) join(e Join) error {
	c := cg.g.c
	sub, err := cg.checkJoin(e)
	if err != nil {
		return err
	}
	id := c.joiningID(e)
	if e.MemberID == "" && e.NeedsMemberID && e.InstanceID == nil {
		c.reply(e.To, JoinResponse{Err: ErrMemberIDRequired, MemberID: id})
		return nil
	}
	m := cg.members[id]
	if e.InstanceID != nil {
		if m, err = cg.joiningStatic(e); err != nil {
			return err
		}
	}
	s := &step{cg: cg}
	replaced := m != nil && m.classic == nil
	next := cg.subscribeClassic(m, e, sub)
	if m != nil && m.id != id {
		s.replaceStatic(m, id)
		m = cg.members[id]
	}
	m = s.advance(m, id, next, (*regexp.Regexp)(nil), c.ownedSet(sub.owned))
	cg.touch(m)
	c.stopTimer(&m.rejoining)
	c.stopTimer(&m.syncing)
	m.syncing = c.startTimer(&timer{at: c.now.Add(m.rebalanceTimeout), kind: timerClassicSync, group: cg.g, member: id})
	r := JoinResponse{MemberID: id, Generation: m.epoch, ProtocolType: consumerProtocol, Protocol: m.classic.protocol()}
	if replaced && s.downgrade(nil, m) {
		r.Protocol = cg.g.protocol
	}
	s.commit(func(err error) {
		if err != nil {
			r = JoinResponse{Err: err, MemberID: e.MemberID}
		}
		c.reply(e.To, r)
	})
	return nil
}

// joiningID is the id that a member joins with: its own, or a new one.
func (c *Coordinator) joiningID(e Join) string {
	switch {
	case e.MemberID != "":
		return e.MemberID
	case e.InstanceID != nil:
		return c.memberID(*e.InstanceID)
	}
	return c.memberID(e.ClientID)
}

// checkJoin tells whether a member may join with the classic protocol, and what it tells of itself.
func (cg *consumerGroup) checkJoin(e Join) (sub clientSubscription, err error) {
	cfg := cg.g.c.cfg
	if m := cfg.Consumer.Migration; !m.Upgrade && !m.Downgrade {
		return sub, fmt.Errorf("%w: Cannot join the consumer group %s with the classic protocol because the group migration is disabled.", //nolint:staticcheck // Kafka's text
			ErrInconsistentProtocol, e.Group)
	}
	if err := cg.checkRoom(e.MemberID, e.InstanceID); err != nil {
		return sub, err
	}
	if e.ProtocolType != consumerProtocol || !cg.speaks(e.Protocols) {
		return sub, ErrInconsistentProtocol
	}
	side := classicSide{protocols: e.Protocols}
	if size := side.size() + len(e.Group) + len(e.MemberID) + len(e.ClientID); size > cfg.MaxBatchBytes/2 {
		return sub, fmt.Errorf("%w: a subscription of %d bytes", coordinator.ErrRecordTooLarge, size)
	}
	if sub, err = decodeSubscription(e.Protocols[0].Metadata); err != nil {
		return sub, fmt.Errorf("%w: %w", ErrInconsistentProtocol, err)
	}
	return sub, nil
}

// speaks reports whether the members of the classic protocol all know one of the protocols.
func (cg *consumerGroup) speaks(protocols []Protocol) bool {
	return slices.ContainsFunc(protocols, func(p Protocol) bool {
		for _, m := range cg.members {
			if m.classic != nil && !m.classic.speaks(p.Name) {
				return false
			}
		}
		return true
	})
}

// joiningStatic is the member that has the instance id of a join, nil for none. One without member id takes its place, whatever
// protocol that speaks; another has to be the same.
func (cg *consumerGroup) joiningStatic(e Join) (*consumerMember, error) {
	m := cg.members[cg.static[*e.InstanceID]]
	switch {
	case e.MemberID == "":
		return m, nil
	case m == nil:
		return nil, ErrUnknownMember
	case m.id != e.MemberID:
		return nil, ErrFenced
	}
	return m, nil
}

// subscribeClassic is what a member asks for with a join.
func (cg *consumerGroup) subscribeClassic(m *consumerMember, e Join, sub clientSubscription) memberSubscription {
	var s memberSubscription
	if m != nil {
		s = m.memberSubscription
	}
	s.clientID, s.clientHost, s.rebalanceTimeout = e.ClientID, e.ClientHost, e.RebalanceTimeout
	if e.InstanceID != nil {
		s.instance = e.InstanceID
	}
	if sub.rack != nil {
		s.rack = sub.rack
	}
	s.topics, s.regex = sub.topics, ""
	s.classic = &classicSide{session: e.SessionTimeout, protocols: e.Protocols}
	return s
}
