// Package coordinatortest holds what tests of coordinators share: MemLog, a coordinator's topic in memory whose failures and
// delays a test chooses, and RunLogSuite, the conformance suite that every coordinator.Log passes. It is never part of the
// binary.
package coordinatortest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/internal/record"
)

// MemLog is a coordinator's topic in memory. Its zero value has no partitions.
type MemLog struct {
	// BeforeAppend, where it is set, runs before a batch is stored and may wait or fail. It is set before the log is used.
	BeforeAppend func(partition int32, batch []byte) error
	// AfterAppend is the same once the batch is stored, for failures that leave it unknown what is in the log.
	AfterAppend func(partition int32, batch []byte) error
	// MaxBatch is the largest batch, 0 for no limit.
	MaxBatch int

	mu         sync.Mutex
	partitions []memPartition
}

type memPartition struct {
	batches [][]byte
	next    int64
	epoch   int32
	leads   bool
}

// NewMemLog returns a topic of n partitions, all led in epoch 0.
func NewMemLog(n int) *MemLog {
	l := &MemLog{}
	l.SetPartitions(n)
	return l
}

// SetPartitions makes the topic, or adds partitions to it.
func (l *MemLog) SetPartitions(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.partitions) < n {
		l.partitions = append(l.partitions, memPartition{leads: true})
	}
}

// SetLeader changes who leads a partition.
func (l *MemLog) SetLeader(partition, epoch int32, leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partitions[partition].epoch, l.partitions[partition].leads = epoch, leads
}

// Clone is what another process would find: the same batches, without the hooks.
func (l *MemLog) Clone() *MemLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &MemLog{MaxBatch: l.MaxBatch, partitions: slices.Clone(l.partitions)}
	for i := range c.partitions {
		c.partitions[i].batches = slices.Clone(c.partitions[i].batches)
	}
	return c
}

// Batches returns the batches of a partition.
func (l *MemLog) Batches(partition int32) [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.partitions[partition].batches)
}

// Partitions implements coordinator.Log.
func (l *MemLog) Partitions() int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int32(len(l.partitions))
}

// Leads implements coordinator.Log.
func (l *MemLog) Leads(partition int32) (int32, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(partition) >= len(l.partitions) {
		return 0, false
	}
	return l.partitions[partition].epoch, l.partitions[partition].leads
}

// Load implements coordinator.Log.
func (l *MemLog) Load(ctx context.Context, partition int32, f func(batch []byte) error) error {
	for _, b := range l.Batches(partition) {
		if err := ctx.Err(); err != nil {
			return err
		}
		b = slices.Clone(b)
		if err := f(b); err != nil {
			return err
		}
		clear(b) // who keeps a batch finds out
	}
	return nil
}

// Append implements coordinator.Log.
func (l *MemLog) Append(_ context.Context, partition, epoch int32, batch []byte) error {
	if l.BeforeAppend != nil {
		if err := l.BeforeAppend(partition, batch); err != nil {
			return err
		}
	}
	if err := l.store(partition, epoch, batch); err != nil {
		return err
	}
	if l.AfterAppend != nil {
		return l.AfterAppend(partition, batch)
	}
	return nil
}

func (l *MemLog) store(partition, epoch int32, batch []byte) error {
	if err := record.VerifyBatch(batch); err != nil {
		return fmt.Errorf("%w: %w", coordinator.ErrNotWritten, err)
	}
	if l.MaxBatch > 0 && len(batch) > l.MaxBatch {
		return fmt.Errorf("%w: %w", coordinator.ErrNotWritten, coordinator.ErrRecordTooLarge)
	}
	h, err := record.ParseHeader(batch)
	if err != nil {
		return fmt.Errorf("%w: %w", coordinator.ErrNotWritten, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.partitions[partition]
	if !p.leads || p.epoch != epoch {
		return fmt.Errorf("%w: %w", coordinator.ErrNotWritten, coordinator.ErrNotCoordinator)
	}
	record.SetBaseOffset(batch, p.next)
	p.next += int64(h.LastOffsetDelta) + 1
	p.batches = append(p.batches, slices.Clone(batch))
	return nil
}
