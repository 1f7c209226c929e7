package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/varvehq/varve/broker/commitlog"
	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/broker/group"
	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/broker/txn"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
)

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
		if !errors.Is(err, coordinator.ErrLoading) {
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
	stateTopic
	txns    *txn.Manager
	markers *markerWriter
}

func (e *txnEnv) Coordinator() *txn.Manager { return e.txns }

func (e *txnEnv) WriteMarker(ctx context.Context, tp kafka.TopicPartition, m txn.Markers) error {
	return e.markers.write(ctx, tp, m)
}

func txnConfig(v config.Broker) txn.Config {
	c := txn.DefaultConfig()
	c.MaxTimeout, c.Expiration, c.SweepInterval = v.TransactionMaxTimeout, v.TransactionalIDExpiration, v.TransactionSweepInterval
	c.MaxBatchBytes = max(1024, min(c.MaxBatchBytes, int(v.MessageMaxBytes)))
	return c
}
