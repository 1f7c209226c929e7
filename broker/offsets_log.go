package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvehq/varve/broker/commitlog"
	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/broker/group"
	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/internal/kafka"
)

// offsetsLog is the __consumer_offsets topic for the group coordinator.
type offsetsLog struct {
	nodeID int32
	parts  *partition.Manager
	image  func() *controller.Image
}

func (o *offsetsLog) Partitions() int32 {
	t := o.image().Topic(kafka.ConsumerOffsetsTopic)
	if t == nil {
		return 0
	}
	return int32(len(t.Partitions))
}

func (o *offsetsLog) Leads(index int32) (int32, bool) {
	p := o.image().Partition(kafka.ConsumerOffsetsTopic, index)
	if p == nil || p.Leader != o.nodeID {
		return 0, false
	}
	return p.LeaderEpoch, true
}

func (o *offsetsLog) Load(ctx context.Context, index int32, f func(batch []byte) error) error {
	p, err := o.parts.Get(kafka.ConsumerOffsetsTopic, index)
	if err != nil {
		return fmt.Errorf("%w: %w", group.ErrNotCoordinator, err)
	}
	return p.ForEachBatch(ctx, f)
}

func (o *offsetsLog) Append(ctx context.Context, index, epoch int32, batch []byte) error {
	p, err := o.parts.Get(kafka.ConsumerOffsetsTopic, index)
	if err != nil {
		return fmt.Errorf("%w: %w", group.ErrNotCoordinator, err)
	}
	a, err := p.Append(batch, partition.AppendOptions{AllReplicas: true, Epoch: epoch, Checked: true})
	switch {
	case err == nil:
		return p.WaitCommitted(ctx, a.LastOffset)
	case errors.Is(err, commitlog.ErrInvalidProducerEpoch):
		return fmt.Errorf("%w: %w: %w", group.ErrNotWritten, group.ErrProducerFenced, err)
	case errors.Is(err, commitlog.ErrTooLarge):
		return fmt.Errorf("%w: %w: %w", group.ErrNotWritten, group.ErrRecordTooLarge, err)
	case errors.Is(err, partition.ErrNotLeader), errors.Is(err, partition.ErrFencedEpoch), errors.Is(err, partition.ErrUnknown),
		errors.Is(err, partition.ErrClosed), errors.Is(err, partition.ErrUnknownEpoch):
		return fmt.Errorf("%w: %w", group.ErrNotCoordinator, err)
	case errors.Is(err, partition.ErrNotEnoughReplicas):
		return fmt.Errorf("%w: %w", group.ErrNotWritten, err)
	}
	return err
}
