package group

// group is one classic group.
type group struct {
	c  *Coordinator
	id string

	// consumer is the state of a group of the consumer protocol. What follows of members and generations is then that of an
	// empty classic group.
	consumer *consumerGroup

	state State
	// fromEmpty says that the rebalance that is being prepared is the group's first, which may be delayed.
	fromEmpty bool
	// newcomers says that members were added since the initial delay began.
	newcomers  bool
	stateSince int64 // milliseconds since the epoch of the last change of state, or -1

	generation   int32
	protocolType string // "" for a group that only stores offsets
	protocol     string // "" for none
	leader       string // member id, or "" for none

	members     map[string]*member
	order       []*member         // in the order of joining
	static      map[string]string // instance id to member id
	supported   map[string]int    // protocol name to the number of members that speak it
	pendingJoin map[string]*timer // ids that were given out and not used yet
	joining     int               // members with a waiting join
	syncing     int               // members that have yet to sync

	// subscribed holds the topics of the members' subscriptions, and is nil where they are not known.
	subscribed map[string]struct{}

	// cause is why the next rebalance begins.
	cause Note

	joinTimer, syncTimer *timer
	initial              initialDelay
	// storing is the generation whose assignment is being written, or -1.
	storing int32

	offsets map[string]map[int32]Offset
	// committing counts the writes under way for a partition's offset.
	committing map[topicPartition]int
	// pending holds the offsets of undecided transactions by producer id; nil where there are none.
	pending map[int64][]offsetChange
	// persisted says that the log has a metadata record of the group.
	persisted bool
	// life counts the group's changes of protocol, for writes that are done in another life than they were begun in.
	life int
	// rejoin says that the group was loaded in the middle of a change of protocol: its members have to join.
	rejoin bool
	// writes counts the group's writes under way.
	writes int
}

type topicPartition struct {
	topic     string
	partition int32
}

func newGroup(c *Coordinator, id string) *group {
	return &group{
		c: c, id: id, stateSince: c.millis(), storing: -1,
		members: map[string]*member{}, static: map[string]string{}, supported: map[string]int{},
		pendingJoin: map[string]*timer{},
		offsets:     map[string]map[int32]Offset{}, committing: map[topicPartition]int{},
	}
}

func (g *group) become(s State) {
	g.state = s
	g.stateSince = g.c.millis()
}

// because notes why the rebalance that follows is begun.
func (g *group) because(what, member, reason string) {
	g.cause = Note{What: what, Member: member, Reason: reason}
}

func (g *group) note(n Note) {
	n.Group, n.Generation, n.Members = g.id, g.generation, len(g.members)
	if cg := g.consumer; cg != nil {
		n.Generation, n.Members = cg.epoch, len(cg.members)
	}
	g.c.eff.Notes = append(g.c.eff.Notes, n)
}

// vacant reports whether forgetting the group loses nothing.
func (g *group) vacant() bool {
	return g.consumer == nil && g.state == Empty && !g.persisted && g.writes == 0 && len(g.members) == 0 && len(g.pendingJoin) == 0 && len(g.offsets) == 0 &&
		len(g.pending) == 0
}

// write is Coordinator.write on behalf of the group.
func (g *group) write(records []Record, done func(error)) {
	g.writes++
	g.c.write(records, func(err error) {
		g.writes--
		done(err)
		g.c.reap(g)
	})
}

// writeMetadata writes the group as it is, with the given assignments instead of those of the members where they are not
// nil.
func (g *group) writeMetadata(assignments map[string][]byte, done func(error)) {
	rec := Record{Key: groupKey(g.id), Value: g.metadataValue(assignments)}
	life := g.life
	g.write([]Record{rec}, func(err error) {
		if err == nil && g.life == life {
			g.persisted = true
		}
		done(err)
	})
}

func (g *group) dropPending(id string) bool {
	t, ok := g.pendingJoin[id]
	if ok {
		g.c.stopTimer(&t)
		delete(g.pendingJoin, id)
	}
	return ok
}

// check finds the member that a request comes from.
func (g *group) check(memberID string, instance *string) (*member, error) {
	if instance != nil {
		switch id, ok := g.static[*instance]; {
		case !ok:
			return nil, ErrUnknownMember
		case id != memberID:
			return nil, ErrFenced
		}
	}
	m := g.members[memberID]
	if m == nil {
		return nil, ErrUnknownMember
	}
	return m, nil
}

// disconnected forgets the requests of a lost connection. The member stays: it may come back with its id, and its session
// decides. A member that was never told its id cannot come back.
func (g *group) disconnected(to any) {
	for _, m := range g.order {
		switch {
		case m.sync == to:
			m.sync = nil
			g.touch(m)
		case m.join != to:
			continue
		case m.isNew && !m.knowsID:
			m.join = nil
			g.joining--
			g.remove(m)
			g.because("rebalancing: the connection of a joining member is lost", m.id, "")
			g.membersLeft()
		default:
			m.gone = true
		}
		return
	}
}
