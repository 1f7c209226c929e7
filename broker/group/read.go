package group

import "slices"

// List returns the groups for which keep is true, in order of id.
func (c *Coordinator) List(keep func(Listed) bool) []Listed {
	var out []Listed
	for _, g := range c.groups {
		l := Listed{Group: g.id, ProtocolType: g.protocolType, State: g.state.String()}
		if g.consumer != nil {
			l.Consumer, l.ProtocolType = true, consumerProtocol
			if g.state != Dead {
				l.State = g.consumer.state()
			}
		}
		if keep == nil || keep(l) {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b Listed) int {
		switch {
		case a.Group < b.Group:
			return -1
		case a.Group > b.Group:
			return 1
		}
		return 0
	})
	return out
}

// Describe tells a group, or ErrGroupNotFound.
func (c *Coordinator) Describe(id string) (Description, error) {
	g := c.groups[id]
	if g == nil {
		return Description{Group: id, State: Dead}, ErrGroupNotFound
	}
	if g.consumer != nil {
		return Description{Group: id, State: Dead}, ErrNotClassic
	}
	d := Description{
		Group: id, State: g.state, ProtocolType: g.protocolType, Generation: g.generation,
		Members: make([]MemberDescription, 0, len(g.order)),
	}
	if g.state == Stable {
		d.Protocol = g.protocol
	}
	for _, m := range g.order {
		md := MemberDescription{MemberID: m.id, InstanceID: m.instance, ClientID: m.clientID, ClientHost: m.clientHost,
			Assignment: m.assignment}
		if g.state == Stable {
			md.Metadata = m.metadata(g.protocol)
		}
		d.Members = append(d.Members, md)
	}
	return d, nil
}

// Offsets calls f with every committed offset of a group, in order of topic and partition.
func (c *Coordinator) Offsets(id string, f func(PartitionOffset)) {
	g := c.groups[id]
	if g == nil || g.state == Dead {
		return
	}
	for _, t := range g.topics() {
		for _, p := range g.partitions(t) {
			f(PartitionOffset{Topic: t, Partition: p, Offset: g.offsets[t][p]})
		}
	}
}

// Offset returns the committed offset of one partition. One that was committed to another topic of the same name does not
// count.
func (c *Coordinator) Offset(id string, it FetchItem) (Offset, bool) {
	g := c.groups[id]
	if g == nil || g.state == Dead {
		return Offset{}, false
	}
	o, ok := g.offsets[it.Topic][it.Partition]
	if ok && !o.TopicID.IsZero() && !it.TopicID.IsZero() && o.TopicID != it.TopicID {
		return Offset{}, false
	}
	return o, ok
}
