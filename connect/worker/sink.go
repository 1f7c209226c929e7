package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/connect/convert"
	"github.com/varvehq/varve/connect/plugin"
	"github.com/varvehq/varve/connect/topics"
	"github.com/varvehq/varve/connect/transform"
	"github.com/varvehq/varve/sdk"
)

// sinkTask moves records from topics into a sink. Its loop is the one goroutine that calls the sink; a poller hands it
// fetches, and the group's callbacks ask it to assign and revoke, so that all of it happens one at a time.
type sinkTask struct {
	id      topics.TaskID
	conf    *connConfig
	cfg     Config
	log     *slog.Logger
	task    plugin.SinkTask
	cl      *kgo.Client
	adm     *kadm.Client
	store   offsetStore
	errors  *errorHandler
	dlq     *deadLetters
	metrics *taskMetrics
	chain   *transform.Chain
	key     convert.Converter
	value   convert.Converter
	header  convert.Converter

	maxPoll int
	reset   kgo.Offset // auto.offset.reset

	fetches chan kgo.Fetches
	next    chan struct{}    // lets the poller poll
	group   chan *groupEvent // from the group's callbacks
	flushes chan struct{}    // the sink asks for a flush
	done    chan struct{}    // the loop has ended: callbacks must not wait for it

	// the loop's
	parts   map[sdk.TopicPartition]*sinkPartition
	batch   sinkBatch
	known   map[string]bool // topics seen
	gone    goneTopics
	retry   backoff
	retryAt <-chan time.Time

	mu struct {
		sync.Mutex
		seeks map[sdk.TopicPartition]int64
		raw   map[sdk.TopicPartition][]*kgo.Record // of the batch under way, for Report
	}
}

// sinkPartition is what is known of an assigned partition.
type sinkPartition struct {
	position  int64 // next offset to be consumed: all before was delivered or passed over
	delivered int64 // next offset after the last that the sink was given and did not flush yet, 0 for none
	committed int64
}

// groupEvent is a question of the group's callbacks to the loop, which closes done when it has dealt with it.
type groupEvent struct {
	assign map[string]map[int32]kgo.Offset // nil: revoke
	revoke map[string][]int32
	lost   bool
	err    error
	done   chan struct{}
}

// run moves records until ctl stops the task (nil) or it fails. It closes the task and the client.
func (t *sinkTask) run(ctl *control) error {
	hard, giveUp := context.WithCancel(ctl.hard)
	defer giveUp()
	pollCtx, stopPolling := context.WithCancel(ctl.soft)
	polled := make(chan struct{})
	go func() { defer close(polled); t.poll(pollCtx) }()

	err := t.loop(ctl, hard)
	stopPolling()
	timer := time.AfterFunc(t.cfg.ShutdownTimeout, giveUp)
	defer timer.Stop()
	// What the sink says is durable is committed also where the task failed.
	if ferr := t.flush(hard); ferr != nil {
		if err == nil && ctl.soft.Err() == nil {
			err = ferr
		} else {
			t.log.Warn("last flush of a sink task failed; its records will be delivered again", "err", ferr)
		}
	}
	if owned := t.owned(); len(owned) > 0 {
		if rerr := t.task.Revoke(hard, owned); rerr != nil {
			t.log.Warn("sink task did not give up its partitions cleanly", "err", rerr)
		}
	}
	if cerr := t.task.Close(hard); cerr != nil {
		t.log.Warn("sink task did not close cleanly", "err", cerr)
	}
	close(t.done)
	t.cl.CloseAllowingRebalance()
	<-polled
	t.dlq.close()
	return err
}

// poll fetches whenever the loop is ready for more.
func (t *sinkTask) poll(ctx context.Context) {
	for {
		select {
		case <-t.next:
		case <-ctx.Done():
			return
		}
		fs := t.cl.PollRecords(ctx, t.maxPoll)
		if ctx.Err() != nil || fs.IsClientClosed() {
			t.cl.AllowRebalance()
			return
		}
		select {
		case t.fetches <- fs:
		case <-ctx.Done():
			t.cl.AllowRebalance()
			return
		}
	}
}

// loop runs the sink until it is to stop or fails.
func (t *sinkTask) loop(ctl *control, hard context.Context) error {
	flush := time.NewTicker(t.cfg.FlushInterval)
	defer flush.Stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	signal(t.next)
	for {
		var err error
		paused, changed := ctl.paused()
		select {
		case <-ctl.soft.Done():
			return nil
		default:
		}
		select {
		case <-ctl.soft.Done():
			return nil
		case <-changed:
			err = t.resume(hard, ctl)
		case fs := <-t.fetches:
			err = t.fetched(hard, fs, paused)
		case <-t.retryAt:
			t.retryAt = nil
			if !paused {
				err = t.deliver(hard)
			}
		case ev := <-t.group:
			ev.err = t.groupChange(hard, ev)
			close(ev.done)
			err = ev.err
		case <-flush.C:
			err = t.flush(hard)
		case <-t.flushes:
			err = t.flush(hard)
		case <-tick.C:
			err = t.task.Tick(hard)
		}
		if err == nil {
			err = t.applySeeks()
		}
		if errors.Is(err, sdk.ErrRetriable) {
			t.log.Warn("sink asks for another try", "err", err)
			err = nil
		}
		if err != nil {
			return err
		}
	}
}

// resume delivers what was held back while the task was paused.
func (t *sinkTask) resume(ctx context.Context, ctl *control) error {
	if paused, _ := ctl.paused(); paused || !t.batch.held || t.retryAt != nil {
		return nil
	}
	return t.deliver(ctx)
}

// fetched takes a fetch, hands it to the sink, and lets rebalances go on. Until then the group cannot take a partition of it away.
func (t *sinkTask) fetched(ctx context.Context, fs kgo.Fetches, paused bool) error {
	defer t.cl.AllowRebalance()
	gone, err := t.fetchErrors(fs)
	if err != nil {
		return err
	}
	if err := t.decode(fs); err != nil {
		return err
	}
	t.batch.held = true
	if paused {
		return nil
	}
	if gone {
		t.retryAt = time.After(gonePause)
		return nil
	}
	return t.deliver(ctx)
}

// deliver writes the batch under way. After a retriable error it stays, and is written again later.
func (t *sinkTask) deliver(ctx context.Context) error {
	if len(t.batch.recs) > 0 {
		err := t.task.Write(ctx, t.batch.recs)
		if errors.Is(err, sdk.ErrRetriable) {
			t.retryAt = time.After(t.retry.next())
			t.log.Warn("sink cannot write; delivering the same batch again", "records", len(t.batch.recs), "err", err)
			return nil
		}
		if err != nil {
			return err
		}
		t.metrics.out.Add(float64(len(t.batch.recs)))
	}
	t.retry.reset()
	for i := range t.batch.recs {
		r := &t.batch.recs[i]
		if p := t.parts[sdk.TopicPartition{Topic: r.Topic, Partition: r.Partition}]; p != nil {
			p.delivered = max(p.delivered, r.Offset+1)
		}
	}
	for tp, next := range t.batch.next {
		if p := t.parts[tp]; p != nil {
			p.position = next
		}
	}
	t.batch.reset()
	signal(t.next)
	return nil
}

// flush asks the sink what is durable and commits it. A sink that asks for another try is asked again at the next flush.
func (t *sinkTask) flush(ctx context.Context) error {
	flushed, err := t.task.Flush(ctx)
	if errors.Is(err, sdk.ErrRetriable) {
		t.log.Warn("sink cannot flush; trying again", "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	if err := t.dlq.flush(ctx); err != nil {
		return err
	}
	commits := map[string]map[int32]kgo.EpochOffset{}
	for tp, p := range t.parts {
		at, ok := flushed[tp]
		if ok && at >= p.delivered || !ok && p.delivered == 0 {
			// All that the sink was given is durable, so what was passed over since is dealt with too.
			at, ok, p.delivered = max(at, p.position), true, 0
		}
		if !ok || at <= p.committed {
			continue
		}
		if commits[tp.Topic] == nil {
			commits[tp.Topic] = map[int32]kgo.EpochOffset{}
		}
		commits[tp.Topic][tp.Partition] = kgo.EpochOffset{Epoch: -1, Offset: at}
	}
	return t.commit(ctx, commits)
}
