package broker

import (
	"context"
	"sync"

	"github.com/varvehq/varve/broker/api"
	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/broker/group"
	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/internal/kafka"
)

// dataEnv is what the handlers of records see of the broker.
type dataEnv struct {
	parts *partition.Manager
	ctl   *controller.Controller
	ids   *producerIDs
}

func (e *dataEnv) Partition(topic string, index int32) (*partition.Partition, error) {
	return e.parts.Get(topic, index)
}

func (e *dataEnv) PartitionByID(id kafka.UUID, index int32) (*partition.Partition, error) {
	return e.parts.GetByID(id, index)
}

func (e *dataEnv) AllocateProducerID(ctx context.Context) (int64, error) { return e.ids.next(ctx) }

func (e *dataEnv) Endpoint(node int32, listener string) (string, int32, bool) {
	b := e.ctl.Image().Brokers[node]
	if b == nil {
		return "", 0, false
	}
	l, ok := b.Listener(listener)
	return l.Host, l.Port, ok
}

// producerIDs hands out producer ids from blocks that the controller gives.
type producerIDs struct {
	allocate func(ctx context.Context, n int64) (first int64, err error)

	mu        sync.Mutex
	free, end int64
}

func (p *producerIDs) next(ctx context.Context) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free == p.end {
		first, err := p.allocate(ctx, controller.ProducerIDBlockSize)
		if err != nil {
			return 0, err
		}
		p.free, p.end = first, first+controller.ProducerIDBlockSize
	}
	id := p.free
	p.free++
	return id, nil
}

// groupEnv is what the handlers of groups see of the broker.
type groupEnv struct {
	stateTopic
	groups *group.Manager
}

func (e *groupEnv) Coordinator() *group.Manager { return e.groups }

func (e *groupEnv) TopicByName(name string) (api.GroupTopic, bool) {
	return groupTopic(e.ctl.Image().Topic(name))
}

func (e *groupEnv) TopicByID(id kafka.UUID) (api.GroupTopic, bool) {
	return groupTopic(e.ctl.Image().TopicByID(id))
}

func groupTopic(t *controller.Topic) (api.GroupTopic, bool) {
	if t == nil {
		return api.GroupTopic{}, false
	}
	return api.GroupTopic{Name: t.Name, ID: t.ID, Partitions: int32(len(t.Partitions))}, true
}
