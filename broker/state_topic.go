package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvehq/varve/broker/commitlog"
	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/broker/partition"
)

// stateLog is the topic of a coordinator.
type stateLog struct {
	topic  string
	nodeID int32
	parts  *partition.Manager
	image  func() *controller.Image
}

func (b *Broker) stateLog(topic string) *stateLog {
	return &stateLog{topic: topic, nodeID: b.cfg.NodeID, parts: b.parts, image: b.ctl.Image}
}

func (l *stateLog) Partitions() int32 {
	t := l.image().Topic(l.topic)
	if t == nil {
		return 0
	}
	return int32(len(t.Partitions))
}

func (l *stateLog) Leads(index int32) (int32, bool) {
	p := l.image().Partition(l.topic, index)
	if p == nil || p.Leader != l.nodeID {
		return 0, false
	}
	return p.LeaderEpoch, true
}

func (l *stateLog) Load(ctx context.Context, index int32, f func(batch []byte) error) error {
	p, err := l.parts.Get(l.topic, index)
	if err != nil {
		return fmt.Errorf("%w: %w", coordinator.ErrNotCoordinator, err)
	}
	return p.ForEachBatch(ctx, f)
}

func (l *stateLog) Append(ctx context.Context, index, epoch int32, batch []byte) error {
	p, err := l.parts.Get(l.topic, index)
	if err != nil {
		return fmt.Errorf("%w: %w", coordinator.ErrNotCoordinator, err)
	}
	a, err := p.Append(batch, partition.AppendOptions{AllReplicas: true, Epoch: epoch, Checked: true})
	switch {
	case err == nil:
		return p.WaitCommitted(ctx, a.LastOffset)
	case errors.Is(err, commitlog.ErrInvalidProducerEpoch):
		return fmt.Errorf("%w: %w: %w", coordinator.ErrNotWritten, coordinator.ErrProducerFenced, err)
	case errors.Is(err, commitlog.ErrTooLarge):
		return fmt.Errorf("%w: %w: %w", coordinator.ErrNotWritten, coordinator.ErrRecordTooLarge, err)
	case errors.Is(err, partition.ErrNotLeader), errors.Is(err, partition.ErrFencedEpoch), errors.Is(err, partition.ErrUnknown),
		errors.Is(err, partition.ErrClosed), errors.Is(err, partition.ErrUnknownEpoch):
		return fmt.Errorf("%w: %w", coordinator.ErrNotCoordinator, err)
	case errors.Is(err, partition.ErrNotEnoughReplicas):
		return fmt.Errorf("%w: %w", coordinator.ErrNotWritten, err)
	}
	return err
}

// stateTopic is the topic of a coordinator as the handlers see it.
type stateTopic struct {
	topic string
	ctl   *controller.Controller
	data  *dataEnv
}

func (s *stateTopic) EnsureTopic(ctx context.Context) error {
	_, err := s.ctl.EnsureTopic(ctx, s.topic)
	return err
}

func (s *stateTopic) Leader(index int32, listener string) (int32, string, int32, bool) {
	p := s.ctl.Image().Partition(s.topic, index)
	if p == nil || p.Leader < 0 {
		return 0, "", 0, false
	}
	host, port, ok := s.data.Endpoint(p.Leader, listener)
	return p.Leader, host, port, ok
}
