package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/varvehq/varve/broker/commitlog"
	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/broker/group"
	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/broker/txn"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
)

// txnLog is the __transaction_state topic for the transaction coordinator.
type txnLog struct {
	nodeID int32
	parts  *partition.Manager
	image  func() *controller.Image
}

func (o *txnLog) Partitions() int32 {
	t := o.image().Topic(kafka.TransactionStateTopic)
	if t == nil {
		return 0
	}
	return int32(len(t.Partitions))
}

// PartitionFor is Kafka's: by the same hash as for groups.
func (o *txnLog) PartitionFor(id string, n int32) int32 { return group.PartitionFor(id, n) }

func (o *txnLog) Leads(index int32) (int32, bool) {
	p := o.image().Partition(kafka.TransactionStateTopic, index)
	if p == nil || p.Leader != o.nodeID {
		return 0, false
	}
	return p.LeaderEpoch, true
}

func (o *txnLog) Load(ctx context.Context, index int32, f func(batch []byte) error) error {
	p, err := o.parts.Get(kafka.TransactionStateTopic, index)
	if err != nil {
		return fmt.Errorf("%w: %w", txn.ErrNotCoordinator, err)
	}
	return p.ForEachBatch(ctx, f)
}

func (o *txnLog) Append(ctx context.Context, index, epoch int32, batch []byte) error {
	p, err := o.parts.Get(kafka.TransactionStateTopic, index)
	if err != nil {
		return fmt.Errorf("%w: %w", txn.ErrNotCoordinator, err)
	}
	a, err := p.Append(batch, partition.AppendOptions{AllReplicas: true, Epoch: epoch, Checked: true})
	switch {
	case err == nil:
		return p.WaitCommitted(ctx, a.LastOffset)
	case errors.Is(err, partition.ErrNotLeader), errors.Is(err, partition.ErrFencedEpoch), errors.Is(err, partition.ErrUnknown),
		errors.Is(err, partition.ErrClosed), errors.Is(err, partition.ErrUnknownEpoch):
		return fmt.Errorf("%w: %w", txn.ErrNotCoordinator, err)
	case errors.Is(err, partition.ErrNotEnoughReplicas), errors.Is(err, commitlog.ErrTooLarge):
		return fmt.Errorf("%w: %w", txn.ErrNotWritten, err)
	}
	return err
}

// markerWriter writes the ends of transactions.
type markerWriter struct {
	parts  *partition.Manager
	groups *group.Manager
	now    func() time.Time
}

// WriteMarkers writes to all partitions at once. Those that do not exist any more need no marker, and a partition that knows a
// later epoch of the producer has its end already.
func (w *markerWriter) WriteMarkers(ctx context.Context, m txn.Markers) error {
	errs := make([]error, len(m.Partitions))
	var wg sync.WaitGroup
	for i, tp := range m.Partitions {
		wg.Go(func() {
			errs[i] = w.write(ctx, tp, m)
			if errors.Is(errs[i], partition.ErrUnknown) || errors.Is(errs[i], commitlog.ErrInvalidProducerEpoch) {
				errs[i] = nil
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// write writes one marker and returns when it is durable and, in the offsets topic, known to the groups.
func (w *markerWriter) write(ctx context.Context, tp kafka.TopicPartition, m txn.Markers) error {
	p, err := w.parts.Get(tp.Topic, tp.Partition)
	if err != nil {
		return err
	}
	marker := record.Marker{Type: record.AbortMarker, CoordinatorEpoch: m.CoordinatorEpoch}
	if m.Commit {
		marker.Type = record.CommitMarker
	}
	a, err := p.Append(record.NewMarkerBatch(marker, m.ProducerID, m.Epoch, w.now().UnixMilli()), partition.AppendOptions{AllReplicas: true})
	if err != nil {
		return err
	}
	if err := p.WaitCommitted(ctx, a.LastOffset); err != nil {
		return err
	}
	if tp.Topic != kafka.ConsumerOffsetsTopic {
		return nil
	}
	return w.tellGroups(ctx, tp.Partition, m)
}

// tellGroups gives the end of a transaction to the group coordinator. One that is reading the log may have begun before the
// marker was in it, so that it is told when it is done; one that has yet to begin will see it.
func (w *markerWriter) tellGroups(ctx context.Context, index int32, m txn.Markers) error {
	const pause = 5 * time.Millisecond
	for {
		err := w.groups.TxnEnded(index, m.ProducerID, m.Commit)
		if !errors.Is(err, group.ErrLoading) {
			return nil
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

// txnEnv is what the handlers of transactions see of the broker.
type txnEnv struct {
	txns    *txn.Manager
	markers *markerWriter
	ctl     *controller.Controller
	data    *dataEnv
}

func (e *txnEnv) Coordinator() *txn.Manager { return e.txns }

func (e *txnEnv) EnsureTransactionTopic(ctx context.Context) error {
	_, err := e.ctl.EnsureTopic(ctx, kafka.TransactionStateTopic)
	return err
}

func (e *txnEnv) TransactionLeader(index int32, listener string) (int32, string, int32, bool) {
	p := e.ctl.Image().Partition(kafka.TransactionStateTopic, index)
	if p == nil || p.Leader < 0 {
		return 0, "", 0, false
	}
	host, port, ok := e.data.Endpoint(p.Leader, listener)
	return p.Leader, host, port, ok
}

func (e *txnEnv) WriteMarker(ctx context.Context, tp kafka.TopicPartition, m txn.Markers) error {
	return e.markers.write(ctx, tp, m)
}

func txnConfig(v config.Broker) txn.Config {
	c := txn.DefaultConfig()
	c.MaxTimeout, c.Expiration, c.SweepInterval = v.TransactionMaxTimeout, v.TransactionalIDExpiration, v.TransactionSweepInterval
	c.MaxBatchBytes = max(1024, min(c.MaxBatchBytes, int(v.MessageMaxBytes)))
	return c
}
