package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// endToEnd is a producer at a fixed rate and a consumer, both of a real client library. Latency is from the moment at which
// a record was due to the moment at which the consumer has it, so that a producer which falls behind does not hide it.
type endToEnd struct {
	topic    string
	rate     int // records per second
	value    int // bytes
	fsync    bool
	duration time.Duration
}

// endToEndStep is how often the producer sends.
const endToEndStep = time.Millisecond

func (l *endToEnd) run(ctx context.Context, b *broker) (out outcome, err error) {
	c, err := dial(b.addr)
	if err != nil {
		return out, err
	}
	defer c.close()
	if err := c.createTopic(l.topic, 1, b.topicConfig(l.fsync)); err != nil {
		return out, err
	}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		l.topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return out, err
	}
	defer consumer.Close()
	producer, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.DefaultProduceTopic(l.topic), kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return out, err
	}
	defer producer.Close()
	ctx, cancel := context.WithTimeout(ctx, l.duration+time.Minute)
	defer cancel()
	// The first record connects both clients and is not counted.
	if err := producer.ProduceSync(ctx, &kgo.Record{Value: make([]byte, 8)}).FirstErr(); err != nil {
		return out, err
	}
	if _, err := l.receive(ctx, consumer, 1); err != nil {
		return out, err
	}
	type received struct {
		latency []time.Duration
		err     error
	}
	total := int(l.duration.Seconds() * float64(l.rate))
	done := make(chan received, 1)
	go func() {
		lat, err := l.receive(ctx, consumer, total)
		done <- received{lat, err}
	}()
	before, start := b.proc.cpu(), time.Now()
	if err := l.send(ctx, producer, start, total); err != nil {
		cancel()
		return out, errors.Join(err, (<-done).err)
	}
	got := <-done
	return outcome{bytes: int64(total * l.value), elapsed: time.Since(start), latency: got.latency, cpu: b.proc.cpu() - before}, got.err
}

func (l *endToEnd) send(ctx context.Context, c *kgo.Client, start time.Time, total int) error {
	var failed atomic.Pointer[error]
	perStep := l.rate / int(time.Second/endToEndStep)
	ticker := time.NewTicker(endToEndStep)
	defer ticker.Stop()
	for sent := 0; sent < total; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		due := int(time.Since(start)/endToEndStep) * perStep
		for ; sent < min(due, total); sent++ {
			at := start.Add(time.Duration(sent/perStep) * endToEndStep)
			value := make([]byte, l.value)
			binary.BigEndian.PutUint64(value, uint64(at.UnixNano()))
			c.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
				if err != nil {
					failed.Store(&err)
				}
			})
		}
	}
	if err := c.Flush(ctx); err != nil {
		return err
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// receive reads n records and tells how old each was.
func (l *endToEnd) receive(ctx context.Context, c *kgo.Client, n int) ([]time.Duration, error) {
	lat := make([]time.Duration, 0, n)
	for len(lat) < n {
		fs := c.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			return lat, fmt.Errorf("%d of %d records received: %w", len(lat), n, err)
		}
		now := time.Now()
		fs.EachRecord(func(r *kgo.Record) {
			lat = append(lat, now.Sub(time.Unix(0, int64(binary.BigEndian.Uint64(r.Value)))))
		})
	}
	return lat, nil
}
