package worker

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/connect/convert"
	"github.com/varvehq/varve/sdk"
)

// sinkBatch is what was fetched and not yet written. Its memory is used again for the next batch.
type sinkBatch struct {
	held    bool // there is a batch, if an empty one
	recs    []sdk.Record
	arena   []byte
	headers []sdk.Header
	next    map[sdk.TopicPartition]int64 // where each partition stands behind this batch
}

func (b *sinkBatch) reset() {
	clear(b.recs)
	b.held, b.recs, b.arena, b.headers = false, b.recs[:0], b.arena[:0], b.headers[:0]
	clear(b.next)
}

// drop takes partitions out.
func (b *sinkBatch) drop(tps []sdk.TopicPartition) {
	if len(tps) == 0 {
		return
	}
	b.recs = slices.DeleteFunc(b.recs, func(r sdk.Record) bool {
		return slices.Contains(tps, sdk.TopicPartition{Topic: r.Topic, Partition: r.Partition})
	})
	for _, tp := range tps {
		delete(b.next, tp)
	}
}

// decode converts a fetch into the batch under way.
func (t *sinkTask) decode(fs kgo.Fetches) error {
	b := &t.batch
	t.mu.Lock()
	t.mu.raw = map[sdk.TopicPartition][]*kgo.Record{}
	t.mu.Unlock()
	var failure error
	fs.EachPartition(func(p kgo.FetchTopicPartition) {
		tp := sdk.TopicPartition{Topic: p.Topic, Partition: p.Partition}
		if failure != nil || len(p.Records) == 0 || t.parts[tp] == nil {
			return
		}
		t.mu.Lock()
		t.mu.raw[tp] = append(t.mu.raw[tp], p.Records...)
		t.mu.Unlock()
		t.metrics.in.Add(float64(len(p.Records)))
		for _, r := range p.Records {
			if failure = t.decodeOne(b, r); failure != nil {
				return
			}
			b.next[tp] = r.Offset + 1
		}
	})
	return failure
}

// decodeOne appends a record to the batch. One that may be passed over is no error.
func (t *sinkTask) decodeOne(b *sinkBatch, r *kgo.Record) error {
	t.metrics.bytes.Add(float64(len(r.Key) + len(r.Value)))
	rec := sdk.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli()}
	var err error
	if rec.Key, err = b.value(t.key, r.Topic, r.Key); err != nil {
		return t.errors.handle(badRecord(r, stageKey, "converter", err))
	}
	if rec.Value, err = b.value(t.value, r.Topic, r.Value); err != nil {
		return t.errors.handle(badRecord(r, stageValue, "converter", err))
	}
	first := len(b.headers)
	for _, h := range r.Headers {
		v, err := b.value(t.header, r.Topic, h.Value)
		if err != nil {
			b.headers = b.headers[:first]
			return t.errors.handle(badRecord(r, stageHeader, "converter", err))
		}
		b.headers = append(b.headers, sdk.Header{Key: h.Key, Value: v})
	}
	if n := len(b.headers); n > first {
		rec.Headers = b.headers[first:n:n]
	}
	keep, err := t.chain.Apply(&rec)
	if err != nil {
		return t.errors.handle(badRecord(r, stageTransform, "transform", err))
	}
	if keep {
		b.recs = append(b.recs, rec)
	}
	return nil
}

func (b *sinkBatch) value(c convert.Converter, topic string, data []byte) (sdk.Value, error) {
	v, out, err := c.Decode(b.arena, topic, data)
	b.arena = out
	return v, err
}

func badRecord(r *kgo.Record, s stage, class string, err error) bad {
	return bad{stage: s, class: class, err: err, topic: r.Topic, partition: r.Partition, offset: r.Offset, key: r.Key, value: r.Value, headers: r.Headers}
}

// Report takes a record that the sink cannot write.
func (t *sinkTask) Report(rec *sdk.Record, err error) error {
	b := bad{stage: stagePut, class: t.conf.class, err: err, topic: rec.Topic, partition: rec.Partition, offset: rec.Offset, key: rec.Key.Data, value: rec.Value.Data}
	t.mu.Lock()
	raw := t.mu.raw[sdk.TopicPartition{Topic: rec.Topic, Partition: rec.Partition}]
	i, ok := slices.BinarySearchFunc(raw, rec.Offset, func(r *kgo.Record, off int64) int {
		switch {
		case r.Offset < off:
			return -1
		case r.Offset > off:
			return 1
		}
		return 0
	})
	t.mu.Unlock()
	if ok { // as it was in its topic
		b.key, b.value, b.headers = raw[i].Key, raw[i].Value, raw[i].Headers
	} else {
		b.key, b.value = t.again(convert.Key, rec.Topic, rec.Key), t.again(convert.Value, rec.Topic, rec.Value)
	}
	return t.errors.handle(b)
}

// again encodes a value of a record whose batch is gone, by a converter of its own: the task's are the loop's.
func (t *sinkTask) again(role convert.Role, topic string, v sdk.Value) []byte {
	c, err := t.cfg.converter(role, t.conf.raw)
	if err != nil {
		return v.Data
	}
	out, null, err := c.Encode([]byte{}, topic, v)
	if err != nil || null {
		return v.Data
	}
	return out
}
