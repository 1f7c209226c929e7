package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/connect/convert"
	"github.com/varvehq/varve/sdk"
)

// sourceBatch is what one Read became: records for the producer and the offsets behind them. It owns all their memory and
// goes back to the task's free list when the last record is acknowledged.
type sourceBatch struct {
	ctx     *batchContext
	arena   []byte
	recs    []kgo.Record
	headers []kgo.RecordHeader
	offsets []sdk.PartitionOffset // the last of each source partition
	index   map[*sdk.SourcePartition]int

	size    int64        // bytes charged to the task
	pending atomic.Int64 // records not acknowledged, and one for the reader
	failed  atomic.Bool  // a record was lost: nothing from here on may be committed
}

// batchContext leads from a record back to its batch without a closure per record. The producer may look at a record's
// context after its promise, so it is made anew each time the batch is used.
type batchContext struct {
	context.Context
	batch *sourceBatch
}

const (
	arenaSize      = 64 << 10
	recordOverhead = 256 // what a record costs besides its bytes
)

// take returns an empty batch.
func (t *sourceTask) take(ctx context.Context) *sourceBatch {
	t.mu.Lock()
	var b *sourceBatch
	if n := len(t.mu.free); n > 0 {
		b = t.mu.free[n-1]
		t.mu.free = t.mu.free[:n-1]
	}
	t.mu.Unlock()
	if b == nil {
		b = &sourceBatch{arena: make([]byte, 0, arenaSize), index: map[*sdk.SourcePartition]int{}}
	}
	b.ctx = &batchContext{ctx, b}
	b.arena, b.recs, b.headers, b.offsets = b.arena[:0], b.recs[:0], b.headers[:0], b.offsets[:0]
	clear(b.index)
	b.failed.Store(false)
	return b
}

// push queues a batch, before its records are produced.
func (t *sourceTask) push(b *sourceBatch) {
	b.pending.Store(int64(len(b.recs)) + 1)
	b.size = int64(len(b.arena)) + int64(len(b.recs))*recordOverhead
	t.inFlight.Add(b.size)
	t.mu.Lock()
	t.mu.queue = append(t.mu.queue, b)
	t.mu.Unlock()
}

// release counts one down and signals the committer at the last.
func (b *sourceBatch) release(t *sourceTask) {
	size := b.size // b may be taken again as soon as it is complete
	if b.pending.Add(-1) == 0 {
		t.inFlight.Add(-size)
		signal(t.complete)
		signal(t.space)
	}
}

// signal wakes the one that waits on c, now or at its next wait.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// produced is the promise of every record.
func (t *sourceTask) produced(r *kgo.Record, err error) {
	b := r.Context.(*batchContext).batch
	if err == nil {
		t.metrics.out.Inc()
		t.metrics.bytes.Add(float64(len(r.Key) + len(r.Value)))
	} else {
		t.lost(b, r, err)
	}
	b.release(t)
}

// lost decides about a record that the brokers did not take.
func (t *sourceTask) lost(b *sourceBatch, r *kgo.Record, err error) {
	if b.ctx.Err() != nil || errors.Is(err, kgo.ErrClientClosed) {
		b.failed.Store(true) // stopping: it will be read again
		return
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID) {
		err = fmt.Errorf("topic %s was deleted while the connector wrote to it: make it again, or restart the task, which does so where it may "+
			"make topics; what was not stored is read from the source again: %w", r.Topic, err)
	}
	err = t.errors.handle(bad{stage: stageProduce, class: "producer", err: err, topic: r.Topic, partition: r.Partition, key: r.Key, value: r.Value, headers: r.Headers})
	if err != nil {
		b.failed.Store(true)
		t.fail(err)
	}
}

// fill converts records into b. On an error b holds the records before the one that failed, and their offsets.
func (t *sourceTask) fill(ctx context.Context, b *sourceBatch, recs []sdk.Record) error {
	var err error
	for i := range recs {
		rec := &recs[i]
		source, offset := rec.Source, rec.SourceOffset
		if err = t.one(ctx, b, rec); err != nil {
			break
		}
		if source == nil || offset == nil {
			continue
		}
		at, ok := b.index[source]
		if !ok {
			at = len(b.offsets)
			b.index[source] = at
			b.offsets = append(b.offsets, sdk.PartitionOffset{Source: source})
		}
		b.offsets[at].Offset = offset
	}
	// The records' own memory is the source's again at its next Read.
	for i := range b.offsets {
		start := len(b.arena)
		b.arena = append(b.arena, b.offsets[i].Offset...)
		b.offsets[i].Offset = b.arena[start:len(b.arena):len(b.arena)]
	}
	return err
}

// one converts a record. A record that may be passed over is no error.
func (t *sourceTask) one(ctx context.Context, b *sourceBatch, rec *sdk.Record) error {
	if rec.Topic == "" && rec.SourceOffset != nil {
		return nil // only a position: fill takes note of it
	}
	keep, err := t.chain.Apply(rec)
	if err != nil {
		return t.errors.handle(bad{stage: stageTransform, class: "transform", err: err, topic: rec.Topic})
	}
	if !keep {
		return nil
	}
	if rec.Topic != t.last {
		if err := t.useTopic(ctx, rec.Topic); err != nil {
			return err
		}
	}
	mark := len(b.arena)
	key, err := b.encode(t.key, rec.Topic, rec.Key)
	if err != nil {
		return t.refuse(b, mark, stageKey, rec, err)
	}
	value, err := b.encode(t.value, rec.Topic, rec.Value)
	if err != nil {
		return t.refuse(b, mark, stageValue, rec, err)
	}
	firstHeader := len(b.headers)
	for i := range rec.Headers {
		h, err := b.encode(t.header, rec.Topic, rec.Headers[i].Value)
		if err != nil {
			b.headers = b.headers[:firstHeader]
			return t.refuse(b, mark, stageHeader, rec, err)
		}
		b.headers = append(b.headers, kgo.RecordHeader{Key: rec.Headers[i].Key, Value: h})
	}
	out := kgo.Record{Topic: rec.Topic, Partition: rec.Partition, Key: key, Value: value, Context: b.ctx}
	if n := len(b.headers); n > firstHeader {
		out.Headers = b.headers[firstHeader:n:n]
	}
	if rec.Timestamp != 0 {
		out.Timestamp = time.UnixMilli(rec.Timestamp)
	}
	b.recs = append(b.recs, out)
	return nil
}

func (t *sourceTask) refuse(b *sourceBatch, mark int, s stage, rec *sdk.Record, err error) error {
	b.arena = b.arena[:mark]
	return t.errors.handle(bad{stage: s, class: "converter", err: err, topic: rec.Topic, partition: rec.Partition, key: rec.Key.Data, value: rec.Value.Data})
}

// encode appends a value to the arena and returns its bytes there, nil for null. Where the arena grows, what was returned
// before stays in the old one.
func (b *sourceBatch) encode(c convert.Converter, topic string, v sdk.Value) ([]byte, error) {
	start := len(b.arena)
	out, null, err := c.Encode(b.arena, topic, v)
	if err != nil || null {
		return nil, err
	}
	b.arena = out
	return out[start:len(out):len(out)], nil
}

// useTopic makes sure that a topic exists, once.
func (t *sourceTask) useTopic(ctx context.Context, topic string) error {
	if topic == "" {
		return errors.New("source record without a topic")
	}
	if !t.known[topic] {
		if t.cfg.TopicCreation {
			if err := ensureTopic(ctx, t.adm, t.log, t.conf.creation, topic); err != nil {
				return fmt.Errorf("topic of a source record: %w", err)
			}
		}
		t.known[topic] = true
		t.store.PutTopic(t.id.Connector, t.id.Task, topic)
	}
	t.last = topic
	return nil
}
