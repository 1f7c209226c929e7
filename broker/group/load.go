package group

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/internal/record"
)

// loadLimit bounds one batch when it is decompressed.
const loadLimit = 256 << 20

// Loader gathers the state of a partition of __consumer_offsets from its batches. For every key the last record counts, and
// only that is decoded.
type Loader struct {
	// live holds the values by key. They are pointers so that a value that is replaced costs no allocation.
	live map[string]*[]byte
	// open holds the records of transactions whose end was not seen yet, by producer id.
	open map[int64][]Record
	// Skipped counts the records of kinds that are not known here.
	Skipped int
}

// NewLoader returns an empty Loader.
func NewLoader() *Loader {
	return &Loader{live: map[string]*[]byte{}, open: map[int64][]Record{}}
}

// Add takes the next batch of the log. It keeps nothing of it. Its errors are of the class record.ErrCorrupt.
func (l *Loader) Add(batch []byte) error {
	h, err := record.ParseHeader(batch)
	if err != nil {
		return err
	}
	return record.ForEachRecord(batch, loadLimit, func(r *record.Record) error {
		switch {
		case h.Control():
			l.endTransaction(h.ProducerID, r.Key)
		case keyKind(r.Key) == otherRecord:
			l.Skipped++
		case h.Transactional():
			l.open[h.ProducerID] = append(l.open[h.ProducerID], Record{Key: slices.Clone(r.Key), Value: slices.Clone(r.Value)})
		default:
			l.set(r.Key, r.Value)
		}
		return nil
	})
}

// endTransaction takes over or drops a producer's records, as the key of a control record says (type 1 is commit).
func (l *Loader) endTransaction(producer int64, key []byte) {
	if len(key) < 4 {
		return
	}
	if binary.BigEndian.Uint16(key[2:]) == 1 {
		for _, r := range l.open[producer] {
			l.set(r.Key, r.Value)
		}
	}
	delete(l.open, producer)
}

func (l *Loader) set(key, value []byte) {
	if key[1] == 0 { // version 0 of an offset's key says the same as 1
		key = slices.Clone(key)
		key[1] = offsetKeyVersion
	}
	if value == nil {
		delete(l.live, string(key))
		return
	}
	v := l.live[string(key)]
	if v == nil {
		v = &[]byte{} // a value without bytes is not a tombstone
		l.live[string(key)] = v
	}
	*v = append((*v)[:0], value...)
}

// Coordinator returns a coordinator with what was loaded; the Loader is not used after it. Members of stable generations are
// in, with their whole sessions ahead. The effects are for groups that have become too large. The error is of the class
// ErrCorrupt.
func (l *Loader) Coordinator(cfg *Config, now time.Time, memberID func(prefix string) string) (*Coordinator, Effects, error) {
	c := NewCoordinator(cfg, now, memberID)
	c.begin(now)
	for key, value := range l.live {
		d, err := decodeRecord([]byte(key), *value)
		switch {
		case err != nil:
			return nil, Effects{}, err
		case d.kind == groupRecord:
			c.open(d.group).restore(d.meta)
		case d.kind == consumerRecord:
			if d.change != nil {
				g := c.open(d.group)
				if g.consumer == nil {
					g.consumer = newConsumerGroup(g)
				}
				d.change.apply(g.consumer)
			}
		default:
			c.open(d.group).setOffset(d.tp, d.offset)
		}
	}
	if err := l.pending(c); err != nil {
		return nil, Effects{}, err
	}
	for _, g := range c.sorted() {
		if g.consumer != nil {
			g.consumer.restored()
		}
		switch {
		case g.state != Stable:
		case len(g.members) > cfg.MaxSize:
			g.because("rebalancing: the group is over its maximum size", "", "")
			g.prepareRebalance() // who is last to join again is turned away
		case g.rejoin:
			g.because("rebalancing: the group has changed its protocol", "", "")
			g.prepareRebalance()
		}
		g.rejoin = false
	}
	return c, c.end(), nil
}

// pending takes over the offsets of transactions that are not decided yet.
func (l *Loader) pending(c *Coordinator) error {
	for producer, records := range l.open {
		for _, r := range records {
			d, err := decodeRecord(r.Key, r.Value)
			if err != nil {
				return err
			}
			if d.kind == offsetRecord && d.offset != nil {
				c.addPending(c.open(d.group), producer, []offsetChange{{d.tp, d.offset}})
			}
		}
	}
	return nil
}

// restore takes over a metadata record.
func (g *group) restore(v *kmsg.GroupMetadataValue) {
	g.persisted = true
	g.protocolType, g.generation, g.stateSince = v.ProtocolType, v.Generation, v.CurrentStateTimestamp
	if v.Protocol != nil {
		g.protocol = *v.Protocol
	}
	for i := range v.Members {
		mv := &v.Members[i]
		m := &member{
			id: mv.MemberID, instance: mv.InstanceID, clientID: mv.ClientID, clientHost: mv.ClientHost,
			rebalanceTimeout: time.Duration(mv.RebalanceTimeoutMillis) * time.Millisecond,
			sessionTimeout:   time.Duration(mv.SessionTimeoutMillis) * time.Millisecond,
			protocols:        []Protocol{{Name: g.protocol, Metadata: mv.Subscription}},
			assignment:       mv.Assignment, knowsID: true,
		}
		if mv.RebalanceTimeoutMillis < 0 {
			m.rebalanceTimeout = m.sessionTimeout
		}
		if g.members[m.id] != nil {
			continue
		}
		g.add(m, v.ProtocolType)
		g.touch(m)
	}
	if len(g.members) > 0 {
		g.state = Stable
		g.rejoin = v.Leader == nil
	}
	if v.Leader != nil && g.members[*v.Leader] != nil {
		g.leader = *v.Leader
	}
	g.subscribed = g.subscriptions()
}
