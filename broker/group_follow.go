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
	changed := false
	for o, n := range controller.DiffTopics(before, after) {
		changed = changed || o == nil || n == nil || len(o.Partitions) != len(n.Partitions)
		if n == nil {
			gone = append(gone, group.DeletedTopic{Name: o.Name, ID: o.ID})
		}
	}
	if len(gone) > 0 {
		g.ForgetTopics(gone)
	}
	if changed {
		g.TopicsChanged(topicsView{after})
	}
	if !maps.EqualFunc(before.BrokerConfigs, after.BrokerConfigs, maps.Equal) || !maps.EqualFunc(before.GroupConfigs, after.GroupConfigs, maps.Equal) {
		if err := g.SetConfig(b.groupConfig()); err != nil {
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

// topicsView is what an image has of topics, for groups.
type topicsView struct{ im *controller.Image }

func (b *Broker) topicsView() group.Topics { return topicsView{b.ctl.Image()} }

func (v topicsView) Topic(name string) (kafka.UUID, int32, bool) {
	t := v.im.Topic(name)
	if t == nil {
		return kafka.UUID{}, 0, false
	}
	return t.ID, int32(len(t.Partitions)), true
}

func (v topicsView) Name(id kafka.UUID) (string, bool) {
	t := v.im.TopicByID(id)
	if t == nil {
		return "", false
	}
	return t.Name, true
}

func (v topicsView) Names() []string { return v.im.TopicNames() }
