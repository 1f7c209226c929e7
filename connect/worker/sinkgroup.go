package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/sdk"
)

// ask hands a question of the group's callbacks to the loop and waits for the answer.
func (t *sinkTask) ask(ev *groupEvent) error {
	ev.done = make(chan struct{})
	select {
	case t.group <- ev:
	case <-t.done:
		return nil
	}
	select {
	case <-ev.done:
		return ev.err
	case <-t.done:
		return nil
	}
}

// groupOptions are the callbacks of the consumer group. Offsets are adjusted, and the sink is told, after the group's
// committed offsets are known and before the first record of a partition is fetched.
func (t *sinkTask) groupOptions() []kgo.Opt {
	revoke := func(lost bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
			if len(parts) > 0 {
				_ = t.ask(&groupEvent{revoke: parts, lost: lost}) // the loop ends by that error
			}
		}
	}
	return []kgo.Opt{
		kgo.OnPartitionsRevoked(revoke(false)),
		kgo.OnPartitionsLost(revoke(true)),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {}),
		kgo.AdjustFetchOffsetsFn(func(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
			if err := t.resolve(ctx, offsets); err != nil {
				return nil, err
			}
			return offsets, t.ask(&groupEvent{assign: offsets})
		}),
	}
}

// forgetPastEnd replaces committed offsets past the end, which are of a topic that was deleted and made again, by "where
// auto.offset.reset puts it", as the first fetch would. The sink must see where it really starts.
func (t *sinkTask) forgetPastEnd(ctx context.Context, offsets map[string]map[int32]kgo.Offset) error {
	if len(offsets) == 0 {
		return nil
	}
	ends, err := t.adm.ListEndOffsets(ctx, slices.Sorted(maps.Keys(offsets))...)
	if err != nil {
		return err
	}
	for topic, parts := range offsets {
		for p, o := range parts {
			end, ok := ends.Lookup(topic, p)
			if at := o.EpochOffset().Offset; ok && end.Err == nil && at > end.Offset {
				t.log.Warn("committed offset is past the end", "topic", topic, "partition", p, "committed", at, "end", end.Offset)
				parts[p] = t.reset
			}
		}
	}
	return nil
}

// resolve replaces "where auto.offset.reset puts it" by that offset.
func (t *sinkTask) resolve(ctx context.Context, offsets map[string]map[int32]kgo.Offset) error {
	if err := t.forgetPastEnd(ctx, offsets); err != nil {
		return err
	}
	var unknown []string
	for topic, parts := range offsets {
		for _, o := range parts {
			if o.EpochOffset().Offset < 0 {
				unknown = append(unknown, topic)
				break
			}
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	list := t.adm.ListStartOffsets
	if t.reset == kgo.NewOffset().AtEnd() {
		list = t.adm.ListEndOffsets
	}
	listed, err := list(ctx, unknown...)
	if err != nil {
		return err
	}
	for topic, parts := range offsets {
		for p, o := range parts {
			if o.EpochOffset().Offset >= 0 {
				continue
			}
			l, ok := listed.Lookup(topic, p)
			if !ok {
				return fmt.Errorf("offset of %s-%d: the brokers did not answer it", topic, p)
			}
			if l.Err != nil {
				return fmt.Errorf("offset of %s-%d: %w", topic, p, l.Err)
			}
			parts[p] = kgo.NewOffset().At(l.Offset)
		}
	}
	return nil
}

// checkSeeks refuses a position past the end of a partition. A sink that keeps its own offsets asks for one where the topic was
// deleted and made again: it would take the new records for those that it has, and drop them.
func (t *sinkTask) checkSeeks(ctx context.Context, seeks map[sdk.TopicPartition]int64) error {
	if len(seeks) == 0 {
		return nil
	}
	names := map[string]bool{}
	for tp := range seeks {
		names[tp.Topic] = true
	}
	ends, err := t.adm.ListEndOffsets(ctx, slices.Sorted(maps.Keys(names))...)
	if err != nil {
		return err
	}
	for tp, at := range seeks {
		end, ok := ends.Lookup(tp.Topic, tp.Partition)
		if ok && end.Err == nil && at > end.Offset {
			return fmt.Errorf("the sink already holds records of %s-%d before offset %d, but the partition ends at %d: the topic was deleted "+
				"and made again; move away what the sink has written, or let it write to another place", tp.Topic, tp.Partition, at, end.Offset)
		}
	}
	return nil
}

// groupChange tells the sink what the group gave or took.
func (t *sinkTask) groupChange(ctx context.Context, ev *groupEvent) error {
	if ev.assign != nil {
		return t.assign(ctx, ev.assign)
	}
	return t.revoke(ctx, ev)
}

func (t *sinkTask) assign(ctx context.Context, offsets map[string]map[int32]kgo.Offset) error {
	ids, err := t.topicIDs(ctx, slices.Sorted(maps.Keys(offsets)))
	if err != nil {
		return err
	}
	var parts, again []sdk.Assignment
	for topic, ps := range offsets {
		for p, o := range ps {
			a := sdk.Assignment{TopicPartition: sdk.TopicPartition{Topic: topic, Partition: p}, Offset: o.EpochOffset().Offset,
				TopicID: ids[topic]}
			if t.parts[a.TopicPartition] != nil {
				again = append(again, a) // a session of the group broke off while the offsets were fetched
			}
			parts = append(parts, a)
		}
	}
	slices.SortFunc(parts, func(a, b sdk.Assignment) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition - b.Partition)
	})
	if len(again) > 0 {
		tps := make([]sdk.TopicPartition, len(again))
		for i, a := range again {
			tps[i] = a.TopicPartition
		}
		if err := t.task.Revoke(ctx, tps); err != nil {
			return fmt.Errorf("revoke: %w", err)
		}
		t.drop(tps)
	}
	for _, a := range parts {
		t.parts[a.TopicPartition] = &sinkPartition{position: a.Offset, committed: a.Offset}
		if !t.known[a.Topic] {
			t.known[a.Topic] = true
			t.store.PutTopic(t.id.Connector, t.id.Task, a.Topic)
		}
	}
	if err := t.task.Assign(ctx, parts); err != nil {
		return fmt.Errorf("assign: %w", err)
	}
	seeks := t.takeSeeks()
	if err := t.checkSeeks(ctx, seeks); err != nil {
		return err
	}
	for tp, at := range seeks {
		if ps := offsets[tp.Topic]; ps != nil {
			if _, ok := ps[tp.Partition]; ok {
				ps[tp.Partition] = kgo.NewOffset().At(at)
				t.parts[tp] = &sinkPartition{position: at}
				continue
			}
		}
		t.Seek(tp, at) // of a partition that it had before
	}
	return nil
}

// topicIDs asks for the ids of topics; a cluster before Kafka 2.8 has none.
func (t *sinkTask) topicIDs(ctx context.Context, topics []string) (map[string]string, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	details, err := t.adm.ListTopicsWithInternal(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("topic ids: %w", err)
	}
	ids := make(map[string]string, len(topics))
	for _, d := range details {
		if d.Err == nil && d.ID != (kadm.TopicID{}) {
			ids[d.Topic] = kafka.UUID(d.ID).String()
		}
	}
	return ids, nil
}

// revoke flushes, commits what may be, and takes the partitions from the sink; what was not delivered of them is dropped.
func (t *sinkTask) revoke(ctx context.Context, ev *groupEvent) error {
	var tps []sdk.TopicPartition
	for topic, ps := range ev.revoke {
		for _, p := range ps {
			tp := sdk.TopicPartition{Topic: topic, Partition: p}
			if t.parts[tp] != nil {
				tps = append(tps, tp)
			}
		}
	}
	if len(tps) == 0 {
		return nil
	}
	if ev.lost {
		if _, err := t.task.Flush(ctx); err != nil {
			t.log.Warn("flush of lost partitions failed", "err", err)
		}
	} else if err := t.flush(ctx); err != nil {
		return err
	}
	t.drop(tps)
	if err := t.task.Revoke(ctx, tps); err != nil {
		return fmt.Errorf("revoke: %w", err)
	}
	return nil
}

// drop forgets partitions and what was fetched of them.
func (t *sinkTask) drop(tps []sdk.TopicPartition) {
	for _, tp := range tps {
		delete(t.parts, tp)
	}
	t.batch.drop(tps)
	if t.batch.held && len(t.batch.recs) == 0 && len(t.batch.next) == 0 {
		t.batch.reset()
		t.retryAt = nil
		signal(t.next)
	}
}

func (t *sinkTask) owned() []sdk.TopicPartition {
	var tps []sdk.TopicPartition
	for tp := range t.parts {
		tps = append(tps, tp)
	}
	return tps
}

// commit commits offsets to the group.
func (t *sinkTask) commit(ctx context.Context, offsets map[string]map[int32]kgo.EpochOffset) error {
	if len(offsets) == 0 {
		return nil
	}
	var failure error
	t.cl.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			failure = err
			return
		}
		for _, rt := range resp.Topics {
			for _, rp := range rt.Partitions {
				if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
					failure = err
				} else if p := t.parts[sdk.TopicPartition{Topic: rt.Topic, Partition: rp.Partition}]; p != nil {
					p.committed = offsets[rt.Topic][rp.Partition].Offset
				}
			}
		}
	})
	if failure == nil {
		t.metrics.committed.Inc()
		return nil
	}
	t.metrics.commitFailed.Inc()
	if errors.Is(failure, kerr.GroupAuthorizationFailed) || errors.Is(failure, kerr.TopicAuthorizationFailed) {
		return fmt.Errorf("commit offsets: %w", failure)
	}
	// A rebalance or a broker that is away: the next flush commits again, or the records come again.
	t.log.Warn("offsets not committed; the next flush tries again", "err", failure)
	return nil
}

// fetchErrors returns an error that cannot mend itself, and logs the others. gone says that the brokers do not know a topic by
// its ID, and that the next fetch should wait.
func (t *sinkTask) fetchErrors(fs kgo.Fetches) (gone bool, fatal error) {
	fs.EachError(func(topic string, p int32, err error) {
		switch {
		case errors.Is(err, context.Canceled), errors.Is(err, kgo.ErrClientClosed):
		case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.GroupAuthorizationFailed), errors.Is(err, kerr.CorruptMessage):
			fatal = fmt.Errorf("fetch of %s-%d: %w", topic, p, err)
		case errors.Is(err, kerr.UnknownTopicID):
			gone = true
			fresh, deleted := t.gone.note(topic, time.Now())
			if deleted {
				fatal = fmt.Errorf("topic %s was deleted, or deleted and made again, while it was read: restart the connector to read what has its name now: %w", topic, err)
			} else if fresh {
				t.log.Warn("fetch error", "topic", topic, "partition", p, "err", err)
			}
		default:
			t.log.Warn("fetch error", "topic", topic, "partition", p, "err", err)
		}
	})
	return gone, fatal
}

// Seek, Pause, Resume and RequestFlush are the sink's means to steer; any goroutine may call them.

// Seek makes the loop deliver from offset on, once the call of the sink under way has returned.
func (t *sinkTask) Seek(tp sdk.TopicPartition, offset int64) {
	t.mu.Lock()
	if t.mu.seeks == nil {
		t.mu.seeks = map[sdk.TopicPartition]int64{}
	}
	t.mu.seeks[tp] = offset
	t.mu.Unlock()
}

func (t *sinkTask) takeSeeks() map[sdk.TopicPartition]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	seeks := t.mu.seeks
	t.mu.seeks = nil
	return seeks
}

// applySeeks moves the positions that the sink asked for.
func (t *sinkTask) applySeeks() error {
	seeks := t.takeSeeks()
	if len(seeks) == 0 {
		return nil
	}
	set := map[string]map[int32]kgo.EpochOffset{}
	var tps []sdk.TopicPartition
	for tp, at := range seeks {
		if t.parts[tp] == nil {
			continue // revoked since
		}
		if set[tp.Topic] == nil {
			set[tp.Topic] = map[int32]kgo.EpochOffset{}
		}
		set[tp.Topic][tp.Partition] = kgo.EpochOffset{Epoch: -1, Offset: at}
		t.parts[tp] = &sinkPartition{position: at}
		tps = append(tps, tp)
	}
	t.batch.drop(tps)
	t.cl.SetOffsets(set)
	if t.batch.held && len(t.batch.recs) == 0 && len(t.batch.next) == 0 {
		t.batch.reset()
		signal(t.next)
	}
	return nil
}

// Pause stops the delivery of partitions, from the next fetch on.
func (t *sinkTask) Pause(tps ...sdk.TopicPartition) { t.cl.PauseFetchPartitions(byTopic(tps)) }

// Resume starts it again.
func (t *sinkTask) Resume(tps ...sdk.TopicPartition) { t.cl.ResumeFetchPartitions(byTopic(tps)) }

// RequestFlush makes the loop flush soon.
func (t *sinkTask) RequestFlush() { signal(t.flushes) }

func byTopic(tps []sdk.TopicPartition) map[string][]int32 {
	m := map[string][]int32{}
	for _, tp := range tps {
		m[tp.Topic] = append(m[tp.Topic], tp.Partition)
	}
	return m
}
