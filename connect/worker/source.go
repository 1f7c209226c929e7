package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/connect/convert"
	"github.com/varvehq/varve/connect/plugin"
	"github.com/varvehq/varve/connect/topics"
	"github.com/varvehq/varve/connect/transform"
	"github.com/varvehq/varve/sdk"
)

// offsetStore is what a source task needs of the internal topics.
type offsetStore interface {
	PutOffsets(ctx context.Context, connector string, offsets []sdk.PartitionOffset) error
	PutTopic(connector string, task int, topic string)
}

// sourceTask moves what a source reads into topics. Two goroutines share it: the reader (read, convert, produce) and the
// committer (offsets of what the brokers have, then Ack).
type sourceTask struct {
	id       topics.TaskID
	conf     *connConfig
	cfg      Config
	log      *slog.Logger
	task     plugin.SourceTask
	cl       *kgo.Client
	adm      *kadm.Client
	store    offsetStore
	errors   *errorHandler
	metrics  *taskMetrics
	chain    *transform.Chain
	key      convert.Converter
	value    convert.Converter
	header   convert.Converter
	known    map[string]bool // topics that exist; the reader's
	last     string          // the topic of the record before; the reader's
	complete chan struct{}   // signals that the head of the queue may be complete
	failed   chan struct{}   // closed at the first failure
	space    chan struct{}   // signals that bytes were given back
	inFlight atomic.Int64    // bytes with the producer

	mu struct {
		sync.Mutex
		queue []*sourceBatch // in the order they were read
		free  []*sourceBatch
		err   error // why failed was closed
	}

	// the committer's
	positions  []position
	byPart     map[string]int
	dirty      bool
	lastCommit time.Time
}

// position is how far one source partition has come: everything up to offset is with the brokers.
type position struct {
	source *sdk.SourcePartition
	offset []byte
	dirty  bool
}

// run moves records until ctl stops the task (nil) or it fails. It closes the task and the client.
func (t *sourceTask) run(ctl *control) (err error) {
	hard, giveUp := context.WithCancel(ctl.hard)
	defer giveUp()
	soft, stopReading := context.WithCancel(ctl.soft)
	defer stopReading()
	read := make(chan error, 1)
	go func() { read <- t.readLoop(soft, hard, ctl) }()

	err, ended := t.commitLoop(hard, read)
	stopReading()
	// From here on the way out is bounded, also where the task failed by itself.
	timer := time.AfterFunc(t.cfg.ShutdownTimeout, giveUp)
	defer timer.Stop()
	if !ended {
		select {
		case rerr := <-read:
			err = errors.Join(err, rerr)
		case <-hard.Done():
			err = errors.Join(err, errors.New("the source did not return from Read when it was asked to stop"))
		}
	}
	if cerr := t.drain(hard); err == nil {
		err = cerr
	}
	if cerr := t.task.Close(hard); cerr != nil && err == nil && ctl.soft.Err() == nil {
		err = fmt.Errorf("close: %w", cerr)
	} else if cerr != nil {
		t.log.Warn("source task did not close cleanly", "err", cerr)
	}
	t.cl.Close()
	return err
}

// readLoop reads, converts and produces until soft ends.
func (t *sourceTask) readLoop(soft, hard context.Context, ctl *control) error {
	retry := backoff{limit: t.conf.retryMax}
	for {
		if ctl.awaitRun(soft) != nil || t.awaitSpace(soft) != nil {
			return nil //nolint:nilerr // asked to stop
		}
		recs, err := t.task.Read(soft)
		switch {
		case err == nil:
			retry.reset()
		case soft.Err() != nil:
			return nil //nolint:nilerr // asked to stop
		case errors.Is(err, sdk.ErrRetriable):
			t.log.Warn("source cannot read; trying again", "err", err)
			if sleep(soft, retry.next()) != nil {
				return nil //nolint:nilerr // asked to stop
			}
			continue
		default:
			return err
		}
		if len(recs) == 0 {
			continue
		}
		b := t.take(hard)
		t.metrics.in.Add(float64(len(recs)))
		err = t.fill(hard, b, recs)
		t.push(b)
		for i := range b.recs {
			t.cl.Produce(b.ctx, &b.recs[i], t.produced)
		}
		b.release(t)
		if err != nil {
			return err
		}
	}
}

// awaitSpace bounds what is with the producer, by whole batches: the producer's own bound costs a goroutine per record.
func (t *sourceTask) awaitSpace(ctx context.Context) error {
	for t.inFlight.Load() >= int64(t.cfg.BufferBytes) {
		select {
		case <-t.space:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// fail records why the task cannot go on; the first reason counts.
func (t *sourceTask) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.err == nil {
		t.mu.err = err
		close(t.failed)
	}
}

func (t *sourceTask) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.err
}

// commitLoop commits what is complete until the reader ends or a record fails; ended reports which.
func (t *sourceTask) commitLoop(hard context.Context, read <-chan error) (err error, ended bool) {
	timer := time.NewTimer(t.cfg.FlushInterval)
	defer timer.Stop()
	for {
		select {
		case <-t.complete:
		case <-timer.C:
		case <-t.failed:
			return t.failure(), false
		case err := <-read:
			return err, true
		}
		t.collect()
		if !t.dirty {
			continue
		}
		if wait := t.cfg.FlushInterval - time.Since(t.lastCommit); wait > 0 {
			timer.Reset(wait)
			continue
		}
		if err := t.commit(hard); err != nil {
			return err, false
		}
	}
}

// drain waits for the records under way and commits what can be.
func (t *sourceTask) drain(hard context.Context) error {
	for t.collect() {
		select {
		case <-t.complete:
			continue
		case <-hard.Done():
			t.log.Warn("gave up on records under way; they will be read again")
		}
		break
	}
	if err := t.failure(); err != nil {
		_ = t.commit(hard) // what is before the failure is good
		return err
	}
	return t.commit(hard)
}

// collect takes complete batches from the head of the queue into the positions. It reports whether batches that may still
// complete are left.
func (t *sourceTask) collect() (more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for ; n < len(t.mu.queue); n++ {
		b := t.mu.queue[n]
		if b.pending.Load() > 0 || b.failed.Load() {
			break
		}
		t.advance(b)
		t.mu.free = append(t.mu.free, b)
	}
	t.mu.queue = append(t.mu.queue[:0], t.mu.queue[n:]...)
	t.metrics.inFlight.Set(float64(len(t.mu.queue)))
	return len(t.mu.queue) > 0 && !t.mu.queue[0].failed.Load()
}

func (t *sourceTask) advance(b *sourceBatch) {
	for _, o := range b.offsets {
		i, ok := t.byPart[string(o.Source.JSON)]
		if !ok {
			i = len(t.positions)
			t.positions = append(t.positions, position{source: o.Source})
			t.byPart[string(o.Source.JSON)] = i
		}
		p := &t.positions[i]
		p.source, p.offset, p.dirty = o.Source, append(p.offset[:0], o.Offset...), true
		t.dirty = true
	}
}

// commit makes the positions durable and only then tells the source, which may let its upstream forget.
func (t *sourceTask) commit(ctx context.Context) error {
	if !t.dirty {
		return nil
	}
	var out []sdk.PartitionOffset
	for i := range t.positions {
		if p := &t.positions[i]; p.dirty {
			out = append(out, sdk.PartitionOffset{Source: p.source, Offset: p.offset})
		}
	}
	t.lastCommit = time.Now()
	if err := t.store.PutOffsets(ctx, t.id.Connector, out); err != nil {
		t.metrics.commitFailed.Inc()
		if ctx.Err() != nil {
			return nil //nolint:nilerr // stopping: what is not committed will be read again
		}
		return fmt.Errorf("commit offsets: %w", err)
	}
	t.metrics.committed.Inc()
	for _, o := range out {
		if err := t.task.Ack(ctx, o); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // stopping
			}
			return fmt.Errorf("acknowledge to the source: %w", err)
		}
	}
	for i := range t.positions {
		t.positions[i].dirty = false
	}
	t.dirty = false
	return nil
}
