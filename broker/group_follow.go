package broker

import (
	"maps"

	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/broker/group"
	"github.com/varvehq/varve/internal/kafka"
)

// followGroups tells the group coordinator of a new image: partitions of the offsets topic that this node leads or leads no
// more, topics whose offsets go with them, and changed settings. It waits for nothing.
func (b *Broker) followGroups(g *group.Manager, before, after *controller.Image) {
	g.Refresh()
	if before == nil {
		return
	}
	var gone []group.DeletedTopic
	for o, n := range controller.DiffTopics(before, after) {
		if n == nil {
			gone = append(gone, group.DeletedTopic{Name: o.Name, ID: o.ID})
		}
	}
	if len(gone) > 0 {
		g.ForgetTopics(gone)
	}
	if !maps.EqualFunc(before.BrokerConfigs, after.BrokerConfigs, maps.Equal) {
		if err := g.SetConfig(groupConfig(b.view())); err != nil {
			b.env.Log.Error("group settings are not taken over", "err", err)
		}
	}
}

// topicID tells the id of the topic that has a name now.
func (b *Broker) topicID(name string) (kafka.UUID, bool) {
	t := b.ctl.Image().Topic(name)
	if t == nil {
		return kafka.UUID{}, false
	}
	return t.ID, true
}
