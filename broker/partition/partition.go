package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/varvehq/varve/broker/commitlog"
	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tiering"
)

// Partition is one partition of a topic on this broker. Its methods may be called concurrently.
type Partition struct {
	m  *Manager
	id tiering.PartitionID

	hw, flushed atomic.Int64
	leader      atomic.Pointer[leadership]
	log         atomic.Pointer[commitlog.Log] // nil until the first append, or the folder found at the start
	cfg         atomic.Pointer[config.Topic]  // shared by the topic's partitions
	err         atomic.Pointer[error]         // why the partition serves no more

	waitMu sync.Mutex
	waits  waitList
	reads  remoteReads

	// onDisk says that the data directory has, or had, records of the partition: without an open log it is not empty, but
	// cannot be read.
	onDisk atomic.Bool

	openMu sync.Mutex // held while the log is opened or the configuration changes
	tier   tierState
	// compacting says that a worker compacts the log; uncleanable that the last try failed.
	compacting, uncleanable atomic.Bool
	// active says that the sweep has the partition in its list.
	active atomic.Bool
}

// leadership is who leads a partition.
type leadership struct {
	id    int32 // node id, or -1
	epoch int32
	isr   int
}

func newPartition(m *Manager, id tiering.PartitionID, cfg *config.Topic, l leadership, manifest int64) *Partition {
	p := &Partition{m: m, id: id}
	p.cfg.Store(cfg)
	p.leader.Store(&l)
	p.tier.known = manifest
	return p
}

// Topic, TopicID and Index name the partition.
func (p *Partition) Topic() string { return p.id.Topic }

// TopicID is the topic's id.
func (p *Partition) TopicID() kafka.UUID { return p.id.TopicID }

// Index is the number of the partition.
func (p *Partition) Index() int32 { return p.id.Partition }

func (p *Partition) name() kafka.TopicPartition {
	return kafka.TopicPartition{Topic: p.id.Topic, Partition: p.id.Partition}
}

func (p *Partition) String() string { return p.name().String() }

// Config is the topic's effective configuration.
func (p *Partition) Config() *config.Topic { return p.cfg.Load() }

// Leader tells who leads the partition, -1 for nobody, and the leader epoch.
func (p *Partition) Leader() (node, epoch int32) {
	l := p.leader.Load()
	return l.id, l.epoch
}

// leads returns the leader epoch where this broker leads.
func (p *Partition) leads() (int32, error) {
	if err := p.Err(); err != nil {
		return 0, err
	}
	l := p.leader.Load()
	if l.id != p.m.env.NodeID {
		return 0, ErrNotLeader
	}
	return l.epoch, nil
}

// CheckEpoch compares a request's leader epoch (-1: none) with the one the partition is led in.
func (p *Partition) CheckEpoch(epoch int32) error {
	if epoch == record.NoEpoch {
		return nil
	}
	switch l := p.leader.Load(); {
	case epoch < l.epoch:
		return ErrFencedEpoch
	case epoch > l.epoch:
		return ErrUnknownEpoch
	}
	return nil
}

// Err tells why the partition serves no more, or nil.
func (p *Partition) Err() error {
	if e := p.err.Load(); e != nil {
		return *e
	}
	return nil
}

// fail makes the partition serve no more and wakes all who wait. The first reason stays.
func (p *Partition) fail(err error) {
	if p.err.CompareAndSwap(nil, &err) {
		p.wake(true)
	}
}

// HighWatermark is the offset below which records are committed.
func (p *Partition) HighWatermark() int64 { return p.hw.Load() }

// LastStableOffset is the offset below which every transaction is decided; it is not above the high watermark.
func (p *Partition) LastStableOffset() int64 {
	hw := p.hw.Load()
	if l := p.log.Load(); l != nil {
		return min(hw, l.LastStableOffset(hw))
	}
	return hw
}

// LogStart is the first offset that can be read, in whichever tier.
func (p *Partition) LogStart() int64 {
	if l := p.log.Load(); l != nil {
		return l.StartOffset()
	}
	return 0
}

// EndOffset is the offset after the last record appended, committed or not.
func (p *Partition) EndOffset() int64 {
	if l := p.log.Load(); l != nil {
		return l.EndOffset()
	}
	return 0
}

// Producers lists the producers that have written to the partition lately, in order of id, where this broker leads it.
func (p *Partition) Producers() ([]record.ProducerState, error) {
	if _, err := p.leads(); err != nil {
		return nil, err
	}
	if l := p.log.Load(); l != nil {
		return l.Producers(), nil
	}
	return nil, nil
}

// KnowsProducer reports whether a producer has written to the partition lately.
func (p *Partition) KnowsProducer(id int64) (bool, error) {
	l, err := p.local()
	return err == nil && l != nil && l.KnowsProducer(id), err
}

// Size is the number of local bytes.
func (p *Partition) Size() int64 {
	if l := p.log.Load(); l != nil {
		return l.Size()
	}
	return 0
}

// Reached reports whether the progress asked for is above an offset.
func (p *Partition) Reached(kind Progress, offset int64) bool { return p.progress(kind) > offset }

// AppendOptions modify an append.
type AppendOptions struct {
	// AllReplicas: the record will be acknowledged when all in-sync replicas have it (acks=-1), so there must be enough.
	AllReplicas bool
	// Epoch is the leader epoch that the caller believes in, or -1 for whichever it is.
	Epoch int32
	// Checked says that Epoch means something.
	Checked bool
}

// Appended is the outcome of an append.
type Appended struct {
	FirstOffset, LastOffset int64
	LogAppendTime           int64 // -1 with CreateTime
	LogStart                int64
	LeaderEpoch             int32
	Duplicate               bool
}

// Append appends batches, assigning offsets and epoch in place, and asks for them to be made durable. It does not wait:
// Watch tells when the high watermark or the disk has reached LastOffset. Only then may anybody be told.
func (p *Partition) Append(batches []byte, o AppendOptions) (Appended, error) {
	epoch, err := p.leads()
	if err != nil {
		return Appended{}, err
	}
	if o.Checked {
		if err := p.CheckEpoch(o.Epoch); err != nil {
			return Appended{}, err
		}
	}
	if o.AllReplicas && int(p.cfg.Load().MinInsyncReplicas) > p.leader.Load().isr {
		return Appended{}, ErrNotEnoughReplicas
	}
	l := p.log.Load()
	if l == nil {
		if l, err = p.open(); err != nil {
			return Appended{}, err
		}
	}
	info, err := l.Append(batches, epoch)
	if err != nil {
		if errors.Is(err, commitlog.ErrFailed) || errors.Is(err, commitlog.ErrClosed) {
			if perr := p.Err(); perr != nil {
				return Appended{}, perr
			}
			return Appended{}, fmt.Errorf("%w: %w", ErrStorage, err)
		}
		if errno := syscall.Errno(0); errors.As(err, &errno) { // a full disk, say: clients try again
			return Appended{}, fmt.Errorf("%w: %w", ErrStorage, err)
		}
		return Appended{}, err
	}
	if flushed := l.FlushedOffset(); flushed > info.LastOffset {
		p.onFlushed(flushed) // the operating system is trusted with it: nobody else will tell
	} else {
		l.Flush(info.LastOffset + 1)
	}
	p.m.touch(p)
	return Appended{FirstOffset: info.FirstOffset, LastOffset: info.LastOffset, LogAppendTime: info.LogAppendTime,
		LogStart: info.LogStartOffset, LeaderEpoch: epoch, Duplicate: info.Duplicate}, nil
}

// local returns the open log, or nil where the partition never had a record. Where a log that there is could not be
// opened, it is tried again: a partition that cannot be read must not pass for an empty one.
func (p *Partition) local() (*commitlog.Log, error) {
	if l := p.log.Load(); l != nil || !p.onDisk.Load() && p.tier.known == 0 {
		return l, nil
	}
	return p.open()
}

// open opens the partition's log, or makes one, which has no folder before the first append.
func (p *Partition) open() (*commitlog.Log, error) {
	p.openMu.Lock()
	defer p.openMu.Unlock()
	if l := p.log.Load(); l != nil {
		return l, nil
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	p.m.awaitDeleted(p.name())
	l, err := p.m.env.Dir.OpenLog(p.name(), p.id.TopicID, logConfig(p.cfg.Load(), p.m.cfg.ProducerExpiry), commitlog.Hooks{
		OnFlushed: p.onFlushed,
		OnFailed:  func(err error) { p.fail(fmt.Errorf("%w: %w", ErrStorage, err)) },
		ScrubPace: p.m.scrubPace,
		Remote:    p.tier.known > 0,
	})
	if err != nil {
		return nil, p.openFailed(fmt.Errorf("%w: open %s: %w", ErrStorage, p, err))
	}
	if err := p.startBehindTier(l); err != nil {
		return nil, errors.Join(err, p.m.env.Dir.CloseLog(p.name()))
	}
	p.onFlushed(l.FlushedOffset()) // before anybody sees the log: with a high watermark of 0 it would look empty
	p.log.Store(l)
	if l.EndOffset() > l.StartOffset() {
		p.m.touch(p)
	}
	return l, nil
}

// openFailed takes a partition offline whose log is damaged: one damaged partition does not keep the broker down. Other
// errors (no descriptors, no space) may pass.
func (p *Partition) openFailed(err error) error {
	p.m.env.Log.Error("log not opened", "partition", p.name(), "err", err)
	if errors.Is(err, commitlog.ErrCorrupt) || errors.Is(err, commitlog.ErrTopicID) {
		p.m.metrics.offline.Inc()
		p.fail(err)
	}
	return err
}

// startBehindTier makes an empty log of a partition whose records are in the bucket (the disk was lost) go on where the
// bucket ends, so that no offset is given twice.
func (p *Partition) startBehindTier(l *commitlog.Log) error {
	if p.tier.known == 0 || l.EndOffset() > 0 || p.m.env.Remote == nil {
		return nil
	}
	remote, err := p.loadRemote(p.m.ctx)
	if err != nil {
		return fmt.Errorf("%w: the local log is gone and the remote end cannot be read: %w", ErrStorage, err)
	}
	if remote.EndOffset() == 0 {
		return nil
	}
	if err := l.TruncateFullyAndStartAt(remote.EndOffset()); err != nil {
		return fmt.Errorf("%w: %w", ErrStorage, err)
	}
	return nil
}

// Alone reports whether this broker is the only replica in sync, so that the disk is all that a commit waits for.
func (p *Partition) Alone() bool { return p.leader.Load().isr <= 1 }

// onFlushed is told by the syncer what is on disk. With this broker as the only replica that is what is committed.
func (p *Partition) onFlushed(flushed int64) {
	raise(&p.flushed, flushed)
	if p.Alone() {
		raise(&p.hw, flushed) // never past what is on disk
	}
	p.wake(false)
}

// raise moves a forward to v.
func raise(a *atomic.Int64, v int64) {
	for {
		old := a.Load()
		if old >= v || a.CompareAndSwap(old, v) {
			return
		}
	}
}

// lead changes who leads.
func (p *Partition) lead(l leadership) {
	old := p.leader.Swap(&l)
	if old.id != l.id || old.epoch != l.epoch {
		p.wake(true)
	}
}

// setConfig changes the configuration.
func (p *Partition) setConfig(cfg *config.Topic) error {
	p.openMu.Lock()
	defer p.openMu.Unlock()
	p.cfg.Store(cfg)
	if l := p.log.Load(); l != nil {
		return l.SetConfig(logConfig(cfg, p.m.cfg.ProducerExpiry))
	}
	return nil
}

// WaitCommitted returns when the high watermark is above offset, the partition fails, or ctx ends.
func (p *Partition) WaitCommitted(ctx context.Context, offset int64) error {
	if p.Reached(Committed, offset) {
		return nil
	}
	sig := NewSignal()
	var w Wait
	for {
		p.Watch(&w, Committed, offset, sig)
		select {
		case <-sig.C():
			w.Cancel()
		case <-ctx.Done():
			w.Cancel()
			return ctx.Err()
		}
		if p.Reached(Committed, offset) {
			return nil
		}
		if err := p.Err(); err != nil {
			return err
		}
	}
}

// ForEachBatch calls f with every committed local batch from the log start on. A batch is valid during the call.
func (p *Partition) ForEachBatch(ctx context.Context, f func(batch []byte) error) error {
	l, err := p.local()
	if l == nil || err != nil {
		return errors.Join(err, p.Err())
	}
	const step = 1 << 20
	var buf []byte
	end := p.hw.Load()
	for offset := max(l.StartOffset(), l.LocalStartOffset()); offset < end; {
		if err := errors.Join(ctx.Err(), p.Err()); err != nil {
			return err
		}
		s, err := l.Read(offset, step, end, true)
		if err != nil {
			return err
		}
		if s.Length == 0 {
			s.Release()
			return nil
		}
		if cap(buf) < s.Length {
			buf = make([]byte, s.Length)
		}
		_, err = s.File.ReadAt(buf[:s.Length], s.Position)
		n := s.Length
		s.Release()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrStorage, err)
		}
		if offset, err = eachBatch(buf[:n], f); err != nil {
			return err
		}
	}
	return nil
}

// eachBatch calls f with every batch of b and returns the offset after the last one, which a slice's own may be past where the
// end of a segment is missing.
func eachBatch(b []byte, f func([]byte) error) (next int64, err error) {
	it := record.NewBatchIterator(b)
	for h, batch, ok := it.Next(); ok; h, batch, ok = it.Next() {
		if err := record.VerifyBatch(batch); err != nil {
			return next, err
		}
		if err := f(batch); err != nil {
			return next, err
		}
		next = h.NextOffset()
	}
	return next, it.Err()
}

// now is the manager's clock.
func (p *Partition) now() time.Time { return p.m.env.Clock() }
