package group

import (
	"slices"
	"sort"
	"time"
	"unicode/utf16"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/internal/kafka"
)

// consumerProtocol is the protocol type whose subscriptions the coordinator understands.
const consumerProtocol = "consumer"

func (c *Coordinator) onCommit(e Commit) {
	g, err := c.committer(e.CommitRequest)
	if err != nil {
		c.reply(e.To, CommitResponse{Err: err})
		return
	}
	defer c.reap(g)
	var r CommitResponse
	var items []CommitItem
	for i, it := range e.Items {
		if textLength(it.Metadata) > c.cfg.OffsetMetadataMax {
			if r.Errs == nil {
				r.Errs = make([]error, len(e.Items))
			}
			r.Errs[i] = ErrMetadataTooLarge
			continue
		}
		items = append(items, it)
	}
	if len(items) == 0 {
		c.reply(e.To, r)
		return
	}
	expire := int64(-1)
	if e.Retention >= 0 {
		expire = c.now.Add(e.Retention).UnixMilli()
	}
	changes := make([]offsetChange, len(items))
	for i, it := range items {
		changes[i] = offsetChange{topicPartition{it.Topic, it.Partition}, &Offset{
			Offset: it.Offset, LeaderEpoch: it.LeaderEpoch, Metadata: it.Metadata,
			CommitTime: c.millis(), ExpireTime: expire, TopicID: it.TopicID,
		}}
	}
	g.changeOffsets(changes, nil, func(err error) {
		if err != nil {
			r = CommitResponse{Err: err}
		}
		c.reply(e.To, r)
	})
}

// committer finds the group that a commit may go to.
func (c *Coordinator) committer(r CommitRequest) (*group, error) {
	if c.closed != nil {
		return nil, c.closed
	}
	g := c.groups[r.Group]
	if g == nil {
		switch {
		case r.Generation < 0:
			return c.open(r.Group), nil
		case r.NotFoundError:
			return nil, ErrGroupNotFound
		}
		return nil, ErrIllegalGeneration
	}
	switch {
	case g.state == Dead:
		return nil, coordinator.ErrUnavailable
	case g.consumer != nil:
		if err := g.consumer.checkCommit(r); err != nil {
			return nil, err
		}
		return g, nil
	case r.Generation < 0 && g.state == Empty:
		return g, nil // a consumer without group management, or an administrator
	case r.Generation < 0 && r.MemberID == "" && r.InstanceID == nil:
		return nil, ErrUnknownMember
	}
	m, err := g.check(r.MemberID, r.InstanceID)
	switch {
	case err != nil:
		return nil, err
	case !g.ofGeneration(m, r.Generation):
		return nil, ErrIllegalGeneration
	case g.state == CompletingRebalance:
		return nil, ErrRebalanceInProgress
	}
	g.touch(m)
	return g, nil
}

// textLength counts characters as Java does.
func textLength(s string) int {
	n := 0
	for _, r := range s {
		n += max(utf16.RuneLen(r), 1)
	}
	return n
}

// offsetChange sets an offset, or deletes it where it is nil.
type offsetChange struct {
	topicPartition
	to *Offset
}

// changeOffsets writes offsets, and more records behind them. They are seen once they are durable; done runs then.
func (g *group) changeOffsets(changes []offsetChange, more []Record, done func(error)) {
	records := make([]Record, 0, len(changes)+len(more))
	for _, ch := range changes {
		g.committing[ch.topicPartition]++
		rec := Record{Key: offsetKey(g.id, ch.topic, ch.partition)}
		if ch.to != nil {
			rec.Value = offsetValue(*ch.to)
		}
		records = append(records, rec)
	}
	g.write(append(records, more...), func(err error) {
		for _, ch := range changes {
			if g.committing[ch.topicPartition]--; g.committing[ch.topicPartition] == 0 {
				delete(g.committing, ch.topicPartition)
			}
			if err == nil {
				g.setOffset(ch.topicPartition, ch.to)
			}
		}
		if done != nil {
			done(err)
		}
	})
}

func (g *group) setOffset(tp topicPartition, o *Offset) {
	ps := g.offsets[tp.topic]
	if o == nil {
		if delete(ps, tp.partition); len(ps) == 0 {
			delete(g.offsets, tp.topic)
		}
		return
	}
	if ps == nil {
		ps = map[int32]Offset{}
		g.offsets[tp.topic] = ps
	}
	ps[tp.partition] = *o
}

// partitions lists a topic's partitions with an offset, in order.
func (g *group) partitions(topic string) []int32 {
	ps := make([]int32, 0, len(g.offsets[topic]))
	for p := range g.offsets[topic] {
		ps = append(ps, p)
	}
	slices.Sort(ps)
	return ps
}

func (g *group) topics() []string {
	ts := make([]string, 0, len(g.offsets))
	for t := range g.offsets {
		ts = append(ts, t)
	}
	slices.Sort(ts)
	return ts
}

// subscribedTo reports whether the members are, or for all that is known may be, subscribed to a topic.
func (g *group) subscribedTo(topic string) bool {
	if g.consumer != nil {
		return g.consumer.subscribedTo(topic)
	}
	if g.subscribed == nil {
		return g.protocolType == consumerProtocol
	}
	_, ok := g.subscribed[topic]
	return ok
}

func (c *Coordinator) onOffsetDelete(e OffsetDelete) {
	g := c.groups[e.Group]
	var err error
	switch {
	case c.closed != nil:
		err = c.closed
	case e.Group == "":
		err = ErrInvalidGroupID
	case g == nil || g.state == Dead:
		err = ErrGroupNotFound
	case g.state != Empty && g.protocolType != consumerProtocol:
		err = ErrNotEmpty
	}
	if err != nil {
		c.reply(e.To, CommitResponse{Err: err})
		return
	}
	var r CommitResponse
	var changes []offsetChange
	for i, it := range e.Items {
		tp := topicPartition{it.Topic, it.Partition}
		_, stored := g.offsets[it.Topic][it.Partition]
		switch {
		case g.subscribedTo(it.Topic):
			if r.Errs == nil {
				r.Errs = make([]error, len(e.Items))
			}
			r.Errs[i] = ErrSubscribed
		case stored || g.committing[tp] > 0:
			changes = append(changes, offsetChange{tp, nil})
		}
	}
	if len(changes) == 0 {
		c.reply(e.To, r)
		return
	}
	g.changeOffsets(changes, nil, func(err error) {
		if err != nil {
			r = CommitResponse{Err: err}
		}
		c.reply(e.To, r)
	})
}

func (c *Coordinator) onDelete(e Delete) {
	g := c.groups[e.Group]
	switch {
	case c.closed != nil:
		c.reply(e.To, c.closed)
	case g == nil || g.state == Dead:
		c.reply(e.To, ErrGroupNotFound)
	case g.state != Empty || g.consumer != nil && len(g.consumer.members) > 0:
		c.reply(e.To, ErrNotEmpty)
	default:
		g.delete(func(err error) { c.reply(e.To, err) })
	}
}

// delete writes the end of an empty group and of all its offsets. The group is dead meanwhile, and back where the write
// fails.
func (g *group) delete(done func(error)) {
	var changes []offsetChange
	for _, t := range g.topics() {
		for _, p := range g.partitions(t) {
			changes = append(changes, offsetChange{topicPartition{t, p}, nil})
		}
	}
	for tp := range g.committing {
		if _, ok := g.offsets[tp.topic][tp.partition]; !ok {
			changes = append(changes, offsetChange{tp, nil})
		}
	}
	g.state = Dead
	end := []Record{{Key: groupKey(g.id)}}
	if g.consumer != nil {
		end = g.consumer.tombstones()
	}
	g.changeOffsets(changes, end, func(err error) {
		if err != nil {
			g.state = Empty
		} else {
			for id := range g.pendingJoin {
				g.dropPending(id)
			}
			delete(g.c.groups, g.id)
			if len(g.pending) > 0 { // what is decided later is there again, as it will be after a load
				g.c.open(g.id).pending = g.pending
			}
		}
		if done != nil {
			done(err)
		}
	})
}

func (c *Coordinator) onTopicsDeleted(e TopicsDeleted) {
	if c.closed != nil {
		c.reply(e.To, c.closed)
		return
	}
	ids := make(map[string][]kafka.UUID, len(e.Topics))
	for _, t := range e.Topics {
		ids[t.Name] = append(ids[t.Name], t.ID)
	}
	waiting, first := 1, error(nil)
	done := func(err error) {
		if first == nil {
			first = err
		}
		if waiting--; waiting == 0 {
			c.reply(e.To, first)
		}
	}
	for _, g := range c.sorted() {
		if g.state == Dead {
			continue
		}
		if changes := g.offsetsOf(ids); len(changes) > 0 {
			waiting++
			g.changeOffsets(changes, nil, done)
		}
	}
	done(nil)
}

// goneTopics lists the topics that have offsets and are not what current tells for their name any more. Offsets without a
// topic id are left alone.
func (c *Coordinator) goneTopics(current func(name string) (kafka.UUID, bool)) []DeletedTopic {
	if current == nil {
		return nil
	}
	seen := map[DeletedTopic]bool{}
	var gone []DeletedTopic
	for _, g := range c.groups {
		for name, ps := range g.offsets {
			for _, o := range ps {
				t := DeletedTopic{Name: name, ID: o.TopicID}
				if o.TopicID.IsZero() || seen[t] {
					continue
				}
				seen[t] = true
				if id, ok := current(name); !ok || id != o.TopicID {
					gone = append(gone, t)
				}
			}
		}
	}
	return gone
}

// offsetsOf lists the deletions of all offsets of topics. Offsets without a topic id go by the name.
func (g *group) offsetsOf(topics map[string][]kafka.UUID) []offsetChange {
	var changes []offsetChange
	for _, t := range g.topics() {
		ids, ok := topics[t]
		if !ok {
			continue
		}
		for _, p := range g.partitions(t) {
			if id := g.offsets[t][p].TopicID; id.IsZero() || slices.Contains(ids, id) {
				changes = append(changes, offsetChange{topicPartition{t, p}, nil})
			}
		}
	}
	return changes
}

func (c *Coordinator) onBarrier(e Barrier) {
	g := c.groups[e.Group]
	if c.closed != nil || g == nil || g.writes == 0 {
		c.reply(e.To, c.closed)
		return
	}
	g.write(nil, func(err error) { c.reply(e.To, err) })
}

func (c *Coordinator) startRetention() {
	c.startTimer(&timer{at: c.now.Add(c.cfg.RetentionCheckInterval), kind: timerRetention})
}

// expireOffsets drops the offsets that outlived the retention, and empty groups that have none left (KIP-211).
func (c *Coordinator) expireOffsets() {
	c.startRetention()
	for _, g := range c.sorted() {
		if g.state != Dead {
			g.expireOffsets()
		}
	}
}

func (g *group) expireOffsets() {
	var changes []offsetChange
	all := true
	for _, t := range g.topics() {
		for _, p := range g.partitions(t) {
			tp := topicPartition{t, p}
			if g.expired(t, g.offsets[t][p]) && g.committing[tp] == 0 {
				changes = append(changes, offsetChange{tp, nil})
			} else {
				all = false
			}
		}
	}
	switch {
	case all && g.state == Empty && (g.consumer == nil || len(g.consumer.members) == 0) && len(g.committing) == 0 && len(g.pendingJoin) == 0 && len(g.pending) == 0:
		g.delete(nil)
	case len(changes) > 0:
		g.changeOffsets(changes, nil, nil)
	}
}

// expired reports whether an offset's time is over. A group's offsets keep while it has members, except those of topics
// that a stable group of consumers does not read; after that they are counted from when the group became empty.
func (g *group) expired(topic string, o Offset) bool {
	base := o.CommitTime
	switch {
	case g.protocolType == "" && g.consumer == nil:
	case g.subscribedTo(topic):
		return false
	case g.consumer != nil:
	case g.state == Empty:
		if g.stateSince >= 0 {
			base = g.stateSince
		}
	case g.protocolType != consumerProtocol || g.subscribed == nil || g.state != Stable:
		return false
	}
	if o.ExpireTime >= 0 {
		return g.c.millis() >= o.ExpireTime
	}
	return time.Duration(g.c.millis()-base)*time.Millisecond >= g.c.cfg.OffsetsRetention
}

// sorted returns the groups in order of id, so that what a step does does not depend on a map.
func (c *Coordinator) sorted() []*group {
	gs := make([]*group, 0, len(c.groups))
	for _, g := range c.groups {
		gs = append(gs, g)
	}
	sort.Slice(gs, func(i, j int) bool { return gs[i].id < gs[j].id })
	return gs
}
