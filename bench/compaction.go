package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// compactionSize is how much there is to compact.
type compactionSize struct {
	bytes    int64 // written before the compaction, in transactions
	keys     int
	baseline time.Duration // of the load without compaction
	least    time.Duration // of the load beside it
}

var (
	compactionFull  = compactionSize{bytes: 10e9, keys: 1_000_000, baseline: 30 * time.Second, least: 30 * time.Second}
	compactionQuick = compactionSize{bytes: 300e6, keys: 30_000, baseline: 3 * time.Second, least: 3 * time.Second}
)

const (
	compactionRate    = 5000 // records per second of the load
	compactionSegment = 64 << 20
	compactionLimit   = 10 * time.Minute // for the compaction to be through
)

// compactionMarks: the peak is bounded by the table of keys (log.cleaner.dedupe.buffer.size, 128 MiB) and what an idle broker has.
var compactionMarks = []mark{
	{scenario: "compaction", metric: "keys lost or wrong", bound: 0, absolute: true},
	{scenario: "compaction", metric: "p99 with ÷ p99 without", bound: 2, absolute: true},
	{scenario: "compaction", metric: "peak memory, MB", bound: 400, absolute: true},
}

func runCompaction(ctx context.Context, o *options, res *results) error {
	if err := installPeer(ctx, o, "kafka.sh"); err != nil {
		return err
	}
	size := compactionFull
	if o.quick {
		size = compactionQuick
	}
	res.marks = compactionMarks
	res.Settings = []string{
		fmt.Sprintf("One partition, segments of %s, %.1f GB of records of 1 KiB over %d keys, written in transactions of %d records; one in %d is aborted, one record in %d is a tombstone.",
			sizeName(compactionSegment), float64(size.bytes)/giga, size.keys, txnRecords, abortEvery, tombstoneEvery),
		fmt.Sprintf("Then a load of %d records/s on the same topic, first with cleanup.policy=delete and no retention, then, once that is set to compact, until the log without its open segment is no larger than twice what it must hold.", compactionRate),
		"Latency is from the moment at which a record was due to its acknowledgement; every setting is the default but log.cleaner.backoff.ms=1000, delete.retention.ms=1000, min.cleanable.dirty.ratio=0.1. So Varve syncs before it acknowledges, and Kafka does not.",
		"A reader with read_committed folds the topic afterwards. It must have the last committed value of each key, no record of an aborted transaction, no offset twice.",
	}
	for round := 1; round <= o.rounds; round++ {
		for _, side := range bothSides {
			if !o.measures(side.name) {
				continue
			}
			dir := filepath.Join(o.work, fmt.Sprintf("compaction-%s-%d", side.name, round))
			values, err := compact(ctx, o, side.start, dir, size)
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", side.name, round, err)
			}
			res.add(sample{Scenario: "compaction", Side: side.name, Round: round, Values: values})
			fmt.Fprintf(os.Stderr, "%d/%d compaction %-6s %v\n", round, o.rounds, side.name, values)
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// compact is one round of one side.
func compact(ctx context.Context, o *options, start starter, dir string, size compactionSize) (_ map[string]float64, err error) {
	b, err := start(o, dir, map[string]string{"log.cleaner.backoff.ms": "1000"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.proc.stop()) }()
	if _, err := b.ready(ctx); err != nil {
		return nil, err
	}
	c, err := dial(b.addr)
	if err != nil {
		return nil, err
	}
	defer c.close()
	const topic = "compacted"
	err = c.createTopic(topic, 1, map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1",
		"segment.bytes": fmt.Sprint(compactionSegment), "delete.retention.ms": "1000", "min.cleanable.dirty.ratio": "0.1"})
	if err != nil {
		return nil, err
	}
	w := newKeyed(b.addr, topic, size.keys)
	if err := w.fill(ctx, size.bytes); err != nil {
		return nil, fmt.Errorf("fill: %w", err)
	}
	return compactUnderLoad(ctx, b, c, w, size)
}

func compactUnderLoad(ctx context.Context, b *broker, c *client, w *keyed, size compactionSize) (map[string]float64, error) {
	without, err := w.load(ctx, compactionRate, size.baseline, nil)
	if err != nil {
		return nil, fmt.Errorf("load without compaction: %w", err)
	}
	before, err := c.logSize(w.topic)
	if err != nil {
		return nil, err
	}
	if err := b.proc.resetPeak(); err != nil {
		return nil, err
	}
	cpu, began := b.proc.cpu(), time.Now()
	if err := c.setTopic(w.topic, "cleanup.policy", "compact"); err != nil {
		return nil, err
	}
	target := 2*int64(size.keys)*keyedBytes + compactionSegment // the open segment is not compacted
	through, watch := make(chan struct{}), make(chan error, 1)
	var took time.Duration
	go func() {
		defer close(through)
		watch <- b.proc.await(ctx, compactionLimit, 200*time.Millisecond, "the end of the compaction", func() error {
			now, err := c.logSize(w.topic)
			if err == nil && now > target {
				err = fmt.Errorf("the log still has %.1f GB", float64(now)/giga)
			}
			took = time.Since(began)
			return err
		})
	}()
	with, err := w.load(ctx, compactionRate, size.least, through)
	used := b.proc.cpu() - cpu
	if err := errors.Join(err, <-watch); err != nil {
		return nil, fmt.Errorf("load beside the compaction: %w", err)
	}
	_, peak := b.proc.memory()
	after, err := c.logSize(w.topic)
	if err != nil {
		return nil, err
	}
	kept, wrong, err := w.check(ctx)
	if err != nil {
		return nil, err
	}
	p := percentile(without, 99)
	q := percentile(with, 99)
	return map[string]float64{
		"log before, GB": float64(before) / giga, "log after, GB": float64(after) / giga, "compacted after, s": took.Seconds(),
		"peak memory, MB": peak, "broker CPU beside the load, s": used.Seconds(), "records left": float64(kept),
		"keys lost or wrong": float64(wrong), "p99 without, ms": p, "p99 with, ms": q, "p99 with ÷ p99 without": q / p,
		"p50 without, ms": percentile(without, 50), "p50 with, ms": percentile(with, 50),
	}, nil
}

// logSize is what partition 0 of a topic takes on disk.
func (c *client) logSize(topic string) (int64, error) {
	req := kmsg.NewPtrDescribeLogDirsRequest()
	t := kmsg.NewDescribeLogDirsRequestTopic()
	t.Topic, t.Partitions = topic, []int32{0}
	req.Topics = append(req.Topics, t)
	resp, err := c.call(req, 2)
	if err != nil {
		return 0, err
	}
	for _, d := range resp.(*kmsg.DescribeLogDirsResponse).Dirs {
		if err := kerr.ErrorForCode(d.ErrorCode); err != nil {
			return 0, err
		}
		for _, t := range d.Topics {
			for _, p := range t.Partitions {
				return p.Size, nil
			}
		}
	}
	return 0, fmt.Errorf("%w: no log dir has %s", errAnswer, topic)
}

// setTopic sets one config of a topic.
func (c *client) setTopic(topic, name, value string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	r.Configs = append(r.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: name, Op: kmsg.IncrementalAlterConfigOpSet, Value: &value})
	req.Resources = append(req.Resources, r)
	resp, err := c.call(req, 1)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode)
}
