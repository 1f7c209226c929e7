//go:build !race

package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/broker/group"
	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
)

// step does one thing, and perhaps lets a group commit go on.
func (w *world) step() {
	if w.rng.IntN(5) < 2 && w.p.release(w.rng.IntN(8)) {
		w.note("a sync goes on")
		return
	}
	type op struct {
		weight int
		do     func()
	}
	ops := []op{
		{30, w.produce}, {14, w.produceIdempotent}, {14, w.transact}, {12, w.consume}, {8, w.commitOffset}, {7, w.roll}, {4, w.sweep},
		{4, w.checkpoint}, {6, w.retain}, {6, w.tier}, {3, w.deleteRecords}, {4, w.changeTopics}, {3, w.compact}, {2, w.producerID}, {2, w.sleep},
	}
	total := 0
	for _, o := range ops {
		total += o.weight
	}
	n := w.rng.IntN(total)
	for _, o := range ops {
		if n -= o.weight; n < 0 {
			o.do()
			return
		}
	}
}

// pickLog picks a partition of a topic that is there, or nil.
func (w *world) pickLog() *mLog {
	var logs []*mLog
	for _, name := range slices.Sorted(maps.Keys(w.model.topics)) {
		if t := w.model.topics[name]; t.state == alive {
			logs = append(logs, t.logs[:t.parts]...)
		}
	}
	if len(logs) == 0 {
		return nil
	}
	return logs[w.rng.IntN(len(logs))]
}

func (w *world) partition(l *mLog) *partition.Partition {
	p, err := w.b.parts.Get(l.t.name, l.index)
	if err != nil {
		w.violate("%s: %w", l, err)
		return nil
	}
	return p
}

// broken notes an error that a client may not see: with the power on, of a topic that nobody deletes.
func (w *world) broken(l *mLog, what string, err error) {
	w.p.live(func() {
		if w.ctx.Err() == nil && l.t.state == alive {
			w.violate("%s: %s: %w", l, what, err)
		}
	})
}

// values makes the records of one batch.
func (w *world) values() []string {
	out := make([]string, 1+w.rng.IntN(3))
	for i := range out {
		w.model.serial++
		out[i] = fmt.Sprintf("v%d:%s", w.model.serial, strings.Repeat(string(rune('a'+w.rng.IntN(26))), w.rng.IntN(400)*w.rng.IntN(4)))
	}
	return out
}

func (w *world) batch(values []string, opts record.BuilderOptions) (batch []byte, keys []string) {
	b := record.NewBuilder(opts)
	for _, v := range values {
		key := "k" + strconv.Itoa(w.rng.IntN(6))
		keys = append(keys, key)
		b.Append(time.Now().UnixMilli(), []byte(key), []byte(v), nil)
	}
	return b.Batch(0), keys
}

// append sends a batch. known is the offset at which the log has it already, or -1. What a broker that died may have written is
// noted too: it may turn up anywhere behind what is known.
func (w *world) append(l *mLog, p *partition.Partition, batch []byte, keys, values []string, acks int16, known int64) (first int64, ok bool) {
	recs := make([]*mRec, len(values))
	for i, v := range values {
		recs[i] = &mRec{key: keys[i], value: v}
	}
	recs[0].bytes = len(batch)
	a, err := p.Append(batch, partition.AppendOptions{AllReplicas: acks == -1})
	switch {
	case err != nil:
		if known < 0 {
			l.limbo = append(l.limbo, recs...)
		}
		w.broken(l, "append", err)
		return -1, false
	case known >= 0:
		if !a.Duplicate || a.FirstOffset != known {
			w.violate("%s: the batch at offset %d was sent again and got %d, duplicate %v", l, known, a.FirstOffset, a.Duplicate)
		}
		return a.FirstOffset, true
	case a.Duplicate || a.FirstOffset < l.end || a.FirstOffset > l.end && !l.txns:
		w.violate("%s: a new batch got offset %d, expected %d, duplicate %v", l, a.FirstOffset, l.end, a.Duplicate)
	}
	w.books.Lock()
	defer w.books.Unlock()
	for i, r := range recs {
		l.recs[a.FirstOffset+int64(i)] = r
	}
	l.end = a.LastOffset + 1
	return a.FirstOffset, true
}

// await waits for the answer that acks asks for, and notes it.
func (w *world) await(l *mLog, p *partition.Partition, first int64, n int, acks int16, then func()) {
	w.goClient(func() {
		kind := partition.Committed
		if acks == 1 {
			kind = partition.Flushed
		}
		if err := awaitProgress(w.ctx, p, kind, first+int64(n)-1); err != nil {
			w.broken(l, "acknowledgement", err)
			return
		}
		w.p.live(func() {
			w.books.Lock()
			for i := range int64(n) {
				if r := l.recs[first+i]; r != nil {
					r.durable = true
				}
			}
			w.books.Unlock()
			then()
		})
	})
}

func awaitProgress(ctx context.Context, p *partition.Partition, kind partition.Progress, offset int64) error {
	sig := partition.NewSignal()
	var wait partition.Wait
	for !p.Reached(kind, offset) {
		if err := errors.Join(p.Err(), ctx.Err()); err != nil {
			return err
		}
		p.Watch(&wait, kind, offset, sig)
		select {
		case <-sig.C():
		case <-ctx.Done():
		}
		wait.Cancel()
	}
	return nil
}

func (w *world) produce() {
	l := w.pickLog()
	if l == nil {
		w.createTopic()
		return
	}
	p := w.partition(l)
	if p == nil {
		return
	}
	acks := []int16{0, 1, -1, -1}[w.rng.IntN(4)]
	values := w.values()
	batch, keys := w.batch(values, record.BuilderOptions{})
	first, ok := w.append(l, p, batch, keys, values, acks, -1)
	w.note("produce to %s acks %d: %d records at %d, %v", l, acks, len(values), first, ok)
	if ok && acks != 0 {
		w.await(l, p, first, len(values), acks, func() { w.count("produce") })
	}
}

// produceIdempotent sends the next batch of a producer, or one that it sent before.
func (w *world) produceIdempotent() {
	if len(w.model.producers) < 3 || w.rng.IntN(12) == 0 {
		w.newProducer()
		return
	}
	pr := w.model.producers[w.rng.IntN(len(w.model.producers))]
	if pr.l.t.state != alive {
		return
	}
	p := w.partition(pr.l)
	if p == nil {
		return
	}
	if pr.last != nil && pr.l.recs[pr.last.first] != nil && w.rng.IntN(4) == 0 && len(pr.unacked) < 4 {
		w.send(pr, p, pr.last)
		return
	}
	if len(pr.unacked) >= 4 {
		return
	}
	b := &mBatch{seq: pr.seq, values: w.values(), first: -1}
	pr.seq += int32(len(b.values))
	pr.unacked = append(pr.unacked, b)
	w.send(pr, p, b)
}

// send sends a batch of a producer, for the first time where its offset is not known.
func (w *world) send(pr *mProducer, p *partition.Partition, b *mBatch) {
	known := b.first
	batch, keys := w.batch(b.values, record.BuilderOptions{Producer: &record.Producer{ID: pr.id, BaseSequence: b.seq}})
	first, ok := w.append(pr.l, p, batch, keys, b.values, -1, known)
	w.note("producer %d to %s: sequence %d, known at %d, is at %d, %v", pr.id, pr.l, b.seq, known, first, ok)
	if !ok {
		return
	}
	b.first = first
	w.await(pr.l, p, first, len(b.values), -1, func() {
		w.count("idempotent")
		if known >= 0 {
			w.count("duplicate")
		}
		b.acked = true
		for len(pr.unacked) > 0 && pr.unacked[0].acked {
			pr.unacked, pr.last = pr.unacked[1:], pr.unacked[0]
		}
	})
}

func (w *world) newProducer() {
	l := w.pickLog()
	if l == nil || l.t.compacted {
		return
	}
	if id, ok := w.takeID(); ok {
		w.model.producers = append(w.model.producers, &mProducer{l: l, id: id})
	}
}

func (w *world) producerID() { w.takeID() }

// takeID asks for a producer id, which nobody may have got before.
func (w *world) takeID() (int64, bool) {
	id, err := w.b.ids.next(w.ctx)
	if err != nil {
		if !w.gone(err) {
			w.violate("producer id: %w", err)
		}
		return 0, false
	}
	given := w.p.live(func() {
		if w.model.ids[id] {
			w.violate("producer id %d was given twice", id)
		}
		w.model.ids[id] = true
		w.count("producer id")
	})
	return id, given
}

// restartClients lets the producers find out what became of what they sent, as clients do: they send it again. Those whose
// records were deleted meanwhile have ended.
func (m *model) restartClients() {
	m.producers = slices.DeleteFunc(m.producers, func(pr *mProducer) bool {
		return m.topics[pr.l.t.name] != pr.l.t || int(pr.l.index) >= pr.l.t.parts || slices.ContainsFunc(pr.unacked, func(b *mBatch) bool {
			return b.first >= 0 && b.first < pr.l.start
		})
	})
	for _, pr := range m.producers {
		pr.last = nil
		at := map[string]int64{}
		for o, r := range pr.l.recs {
			at[r.value] = o
		}
		for _, b := range pr.unacked {
			if m.w.p.isOff() || m.w.failed() != nil {
				return
			}
			b.first = -1
			if o, there := at[b.values[0]]; there {
				b.first = o
			}
			if p := m.w.partition(pr.l); p != nil {
				m.w.send(pr, p, b)
			}
		}
	}
	m.restartTxns()
}

// consume reads somewhere below the high watermark. What was read may never be gone.
func (w *world) consume() {
	l := w.pickLog()
	if l == nil {
		return
	}
	p := w.partition(l)
	if p == nil {
		return
	}
	start, hw := p.LogStart(), p.HighWatermark()
	if hw <= start {
		return
	}
	from := start + w.rng.Int64N(hw-start)
	b, _, err := w.read(p, from, 2000, false)
	if err != nil {
		w.broken(l, "read", err)
		return
	}
	got := map[int64]*gotRec{}
	it := record.NewBatchIterator(b)
	for h, batch, ok := it.Next(); ok; h, batch, ok = it.Next() {
		if err := addRecords(got, &h, batch, from); err != nil {
			w.broken(l, "read", err)
			return
		}
	}
	w.note("read %s from %d: %d records", l, from, len(got))
	w.p.live(func() {
		w.count("read")
		for o, g := range got {
			r := l.recs[o]
			switch {
			case r == nil && g.control && l.txns:
			case r == nil || r.value != g.value:
				w.violate("%s: offset %d reads as %.30q, expected %+v", l, o, g.value, r)
			default:
				r.durable = true
			}
		}
	})
}

func (w *world) commitOffset() {
	l := w.pickLog()
	if l == nil {
		return
	}
	key := mOffsetKey{"g" + strconv.Itoa(w.rng.IntN(3)), l.t.id, l.index}
	o := w.model.offsets[key]
	if o == nil {
		o = &mOffset{acked: -1}
		w.model.offsets[key] = o
	}
	if o.busy {
		return
	}
	value := w.rng.Int64N(l.end + 1)
	o.busy, o.tried = true, append(o.tried, value)
	pending := w.b.groups.Load().OffsetCommit(group.CommitRequest{Group: key.group, Generation: -1, Retention: -1,
		Items: []group.CommitItem{{Topic: l.t.name, TopicID: l.t.id, Partition: l.index, Offset: value, LeaderEpoch: -1}}})
	w.note("%s commits %d of %s", key.group, value, l)
	w.goClient(func() {
		r, err := pending.Wait(w.ctx)
		if err = errors.Join(err, r.Err, errors.Join(r.Errs...)); err != nil {
			w.broken(l, "offset commit", err)
			return
		}
		w.p.live(func() {
			w.count("offset commit")
			o.busy, o.acked, o.tried = false, value, nil
		})
	})
}

// roll seals the active segment of a log, of the broker's own topics too.
func (w *world) roll() {
	tp := kafka.TopicPartition{Topic: kafka.ConsumerOffsetsTopic, Partition: int32(w.rng.IntN(2))}
	if l := w.pickLog(); l != nil && w.rng.IntN(4) > 0 {
		tp = kafka.TopicPartition{Topic: l.t.name, Partition: l.index}
	} else if w.rng.IntN(3) == 0 {
		tp.Topic = kafka.TransactionStateTopic
	}
	log, ok := w.b.dir.Log(tp)
	if !ok {
		return
	}
	w.note("roll %s", tp)
	if err := log.Roll(); err != nil {
		if !w.gone(err) && (w.model.topics[tp.Topic] == nil || w.model.topics[tp.Topic].state == alive) {
			w.violate("roll of %s: %w", tp, err)
		}
		return
	}
	w.count("roll")
}

func (w *world) sweep() {
	w.note("sweep")
	w.b.parts.Sweep()
}

func (w *world) checkpoint() {
	w.note("checkpoint")
	w.goClient(func() {
		w.b.parts.Checkpoint()
		w.p.live(func() { w.count("checkpoint") })
	})
}

// maintain runs work in the background, one at a time.
func (w *world) maintain(what string, f func() error) {
	if w.maintaining {
		return
	}
	w.maintaining = true
	w.note("%s", what)
	w.goClient(func() {
		err := f()
		w.p.live(func() {
			w.maintaining = false
			if err == nil {
				w.count(what)
			}
		})
	})
}

func (w *world) retain() {
	w.maintain("retention", func() error {
		w.b.parts.Retain()
		return nil
	})
}

// tier lets a partition do its work on the bucket, and cleans up what deleted topics left there.
func (w *world) tier() {
	if w.rng.IntN(4) == 0 {
		w.maintain("objects of deleted topics", func() error {
			w.b.parts.DeleteBuckets(w.ctx)
			return nil
		})
		return
	}
	l := w.pickLog()
	if l == nil || !l.t.tiered {
		return
	}
	p := w.partition(l)
	if p == nil {
		return
	}
	w.maintain("work on the bucket", func() error {
		err := p.WorkTier(w.ctx)
		if err != nil {
			w.broken(l, "work on the bucket", err)
		}
		return err
	})
}

func (w *world) deleteRecords() {
	l := w.pickLog()
	if l == nil || l.t.compacted {
		return
	}
	p := w.partition(l)
	if p == nil || p.HighWatermark() == 0 {
		return
	}
	to := w.rng.Int64N(p.HighWatermark() + 1)
	l.startMax = max(l.startMax, to)
	got, err := p.DeleteRecords(to)
	w.note("delete records of %s up to %d: %d", l, to, got)
	if err != nil {
		w.broken(l, "delete records", err)
		return
	}
	w.p.live(func() {
		w.count("delete records")
		l.start = max(l.start, to)
	})
}

func (w *world) compact() {
	w.maintain("compaction", func() error {
		w.b.parts.Compact()
		return nil
	})
}

func (w *world) sleep() {
	d := time.Duration(1+w.rng.IntN(120)) * time.Second
	w.note("sleep %v", d)
	time.Sleep(d)
}

// changeTopics creates, deletes, grows or configures a topic.
func (w *world) changeTopics() {
	l := w.pickLog()
	if l == nil || l.t.busy || w.rng.IntN(3) == 0 && len(w.model.topics) < 5 {
		w.createTopic()
		return
	}
	switch w.rng.IntN(5) {
	case 0:
		w.deleteTopic(l.t)
	case 1, 2:
		w.growTopic(l.t)
	default:
		w.configureTopic(l.t)
	}
}

func (w *world) createTopic() {
	name := "t" + strconv.Itoa(w.rng.IntN(6))
	if w.model.topics[name] != nil {
		return
	}
	t := &mTopic{name: name, retention: -1, partsMax: 1 + w.rng.IntN(2), config: map[string]string{}, tried: map[string]string{}}
	for i := range t.id {
		t.id[i] = byte(w.rng.IntN(256))
	}
	t.id[0] &= 0x7f // its text does not begin with a dash
	configs := map[string]string{"index.interval.bytes": strconv.Itoa(w.rng.IntN(3) * 500), "remote.storage.enable": "false",
		"segment.index.bytes": strconv.Itoa(36 + 24*w.rng.IntN(4)), "segment.ms": strconv.Itoa(60000 + w.rng.IntN(600000))}
	switch w.rng.IntN(6) {
	case 0: // kept for ever
	case 1:
		t.retention = int64(500 + w.rng.IntN(4000))
	case 2:
		t.compacted = true
		configs["cleanup.policy"], configs["min.cleanable.dirty.ratio"] = "compact", "0.01"
	default:
		t.tiered = true
		local := w.rng.IntN(3000)
		configs["remote.storage.enable"], configs["local.retention.bytes"] = "true", strconv.Itoa(local)
		configs["remote.copy.max.age.ms"] = "30000"
		if w.rng.IntN(2) == 0 {
			t.retention = int64(local + 1000 + w.rng.IntN(9000))
		}
	}
	if t.retention >= 0 {
		configs["retention.bytes"] = strconv.FormatInt(t.retention, 10)
	}
	w.model.newLogs(t)
	w.model.topics[name] = t
	w.note("create %s: %d partitions, %v", name, t.partsMax, configs)
	w.goClient(func() {
		r, err := w.b.ctl.CreateTopics(w.ctx, []controller.NewTopic{{Name: name, ID: t.id, Partitions: int32(t.partsMax),
			ReplicationFactor: 1, Configs: configs}}, false)
		w.answered(t, "create", r, err, func() { t.state, t.parts = alive, t.partsMax })
	})
}

// answered notes the outcome of a change of a topic.
func (w *world) answered(t *mTopic, what string, r []controller.TopicResult, err error, then func()) {
	if err == nil && len(r) > 0 {
		err = r[0].Err
	}
	w.p.live(func() {
		if err != nil {
			if w.ctx.Err() == nil {
				w.violate("%s %s: %w", what, t.name, err)
			}
			return
		}
		t.busy = false
		w.count(what + " topic")
		then()
	})
}

func (w *world) deleteTopic(t *mTopic) {
	t.state, t.busy = deleting, true
	w.note("delete %s", t.name)
	w.goClient(func() {
		r, err := w.b.ctl.DeleteTopics(w.ctx, []controller.TopicRef{{ID: t.id}})
		w.answered(t, "delete", r, err, func() {
			w.model.deleted[t.id] = true
			delete(w.model.topics, t.name)
		})
	})
}

func (w *world) growTopic(t *mTopic) {
	if t.partsMax >= 4 {
		return
	}
	t.busy = true
	t.partsMax++
	w.model.newLogs(t)
	w.note("grow %s to %d", t.name, t.partsMax)
	w.goClient(func() {
		r, err := w.b.ctl.CreatePartitions(w.ctx, []controller.NewPartitions{{Name: t.name, Count: int32(t.partsMax)}}, false)
		w.answered(t, "grow", r, err, func() { t.parts = t.partsMax })
	})
}

func (w *world) configureTopic(t *mTopic) {
	t.busy = true
	const key = "max.message.bytes"
	value := strconv.Itoa(100000 + w.rng.IntN(1000))
	if _, set := t.config[key]; !set {
		t.config[key] = ""
	}
	t.tried[key] = value
	w.note("configure %s: %s", t.name, value)
	w.goClient(func() {
		errs, err := w.b.ctl.AlterConfigs(w.ctx, []controller.ConfigAlteration{{Type: controller.ResourceTopic, Name: t.name,
			Changes: []controller.ConfigChange{{Op: config.Set, Key: key, Value: value}}}}, false)
		w.answered(t, "configure", nil, errors.Join(err, errors.Join(errs...)), func() { t.config[key] = value })
	})
}
