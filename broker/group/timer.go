package group

import (
	"container/heap"
	"time"
)

// timerKind says what a timer is for.
type timerKind int8

const (
	timerSession         timerKind = iota // a member has to heartbeat
	timerPending                          // a member that was told its id has to join with it
	timerRebalance                        // members have to rejoin
	timerInitial                          // a group's first rebalance goes on
	timerSync                             // members have to sync
	timerConsumerSession                  // a member of the consumer protocol has to heartbeat
	timerRevocation                       // a member has to give up partitions
	timerRejoin                           // a member of the classic protocol has to join the consumer group again
	timerClassicSync                      // a member of the classic protocol has to sync in the consumer group
	timerRetention                        // offsets are looked through for expired ones
)

// timer is one deadline. It is in the heap of its Coordinator until it fires or is stopped.
type timer struct {
	at     time.Time
	index  int
	kind   timerKind
	group  *group
	member string // of the timers of a member
}

type timerHeap []*timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}

func (c *Coordinator) startTimer(t *timer) *timer {
	heap.Push(&c.timers, t)
	return t
}

// stopTimer stops *t where it runs, and forgets it.
func (c *Coordinator) stopTimer(t **timer) {
	if *t != nil && (*t).index >= 0 {
		heap.Remove(&c.timers, (*t).index)
	}
	*t = nil
}

// Next is when the coordinator wants its next Tick.
func (c *Coordinator) Next() (time.Time, bool) {
	if len(c.timers) == 0 {
		return time.Time{}, false
	}
	return c.timers[0].at, true
}

// tick fires what is due.
func (c *Coordinator) tick() {
	for len(c.timers) > 0 && !c.timers[0].at.After(c.now) {
		t := heap.Pop(&c.timers).(*timer)
		if t.kind == timerRetention {
			c.expireOffsets()
			continue
		}
		t.group.fire(t)
		c.reap(t.group)
	}
}

func (g *group) fire(t *timer) {
	switch t.kind {
	case timerSession:
		g.sessionTimer(t)
	case timerPending:
		delete(g.pendingJoin, t.member)
		g.completeIfAllJoined()
	case timerRebalance:
		g.joinTimer = nil
		g.completeJoin()
	case timerInitial:
		g.joinTimer = nil
		g.initialTimer()
	case timerConsumerSession, timerRevocation, timerRejoin, timerClassicSync:
		if g.consumer != nil {
			g.consumer.fire(t)
		}
	case timerSync:
		g.syncTimer = nil
		g.expireSync()
	}
}

func (cg *consumerGroup) fire(t *timer) {
	switch t.kind {
	case timerConsumerSession:
		cg.sessionTimer(t)
	case timerRevocation:
		cg.revocationTimer(t)
	case timerRejoin:
		cg.rejoinTimer(t)
	case timerClassicSync:
		cg.syncTimer(t)
	}
}

// touch gives a member its whole session again. Timers are moved lazily: a heartbeat only moves the deadline, and the
// timer finds out when it fires.
func (g *group) touch(m *member) { g.setSession(m, m.sessionTimeout) }

func (g *group) setSession(m *member, timeout time.Duration) {
	m.deadline = g.c.now.Add(timeout)
	switch {
	case m.session == nil:
		m.session = g.c.startTimer(&timer{at: m.deadline, kind: timerSession, group: g, member: m.id})
	case m.session.at.After(m.deadline):
		m.session.at = m.deadline
		heap.Fix(&g.c.timers, m.session.index)
	}
}

func (g *group) sessionTimer(t *timer) {
	m := g.members[t.member]
	if m == nil || m.session != t {
		return
	}
	m.session = nil
	if m.deadline.After(g.c.now) {
		t.at = m.deadline
		m.session = g.c.startTimer(t)
		return
	}
	// Who waits for a rebalance cannot heartbeat and gets its session back with the answer. A new member may be one that
	// is long gone, so that for it the deadline holds even then.
	if !m.isNew && (m.join != nil || m.sync != nil) {
		return
	}
	g.because("rebalancing: a member's session ended", m.id, "")
	g.removeMember(m, ErrUnknownMember)
	g.membersLeft()
}
