package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// outcome is what a load has done.
type outcome struct {
	bytes   int64 // of record batches
	elapsed time.Duration
	latency []time.Duration // one for each request
	cpu     time.Duration   // of the broker meanwhile
	syncs   float64         // of the broker meanwhile, where it tells
}

// add takes in what another connection has done at the same time.
func (o *outcome) add(p outcome) {
	o.bytes += p.bytes
	o.elapsed = max(o.elapsed, p.elapsed)
	o.latency = append(o.latency, p.latency...)
}

// percentile is the nearest-rank percentile of durations, in milliseconds. It sorts them.
func percentile(d []time.Duration, p float64) float64 {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	i := int(float64(len(d))*p/100+0.999999) - 1
	return float64(d[min(max(i, 0), len(d)-1)].Microseconds()) / 1000
}

// produceLoad says how a topic is written to.
type produceLoad struct {
	topic      string
	batch      batch
	conns      int
	inFlight   int // of each connection
	partitions int
	fsync      bool
	duration   time.Duration
	bytes      int64 // instead of a duration: until so much is written
}

// run writes as fast as the answers come. The topic is there afterwards.
func (l *produceLoad) run(ctx context.Context, b *broker) (outcome, error) {
	clients := make([]*client, l.conns)
	for i := range clients {
		c, err := dial(b.addr)
		if err != nil {
			return outcome{}, err
		}
		defer c.close()
		clients[i] = c
	}
	if err := clients[0].createTopic(l.topic, int32(l.partitions), b.topicConfig(l.fsync)); err != nil {
		return outcome{}, err
	}
	for p := range l.partitions { // the first append of a partition makes its files
		if err := untilLed(ctx, func() error { return clients[0].produceOne(l.batch, l.topic, int32(p)) }); err != nil {
			return outcome{}, err
		}
	}
	stopped := context.AfterFunc(ctx, func() {
		for _, c := range clients {
			c.close()
		}
	})
	defer stopped()
	var left atomic.Int64
	left.Store(l.bytes)
	before, _, err := b.syncs()
	if err != nil {
		return outcome{}, err
	}
	out, err := parallel(b, l.conns, func(i int) (outcome, error) {
		return l.one(clients[i], produceFrame(l.batch, l.topic, int32(i%l.partitions)), &left)
	})
	if err != nil {
		return outcome{}, err
	}
	after, _, err := b.syncs()
	out.syncs = after - before
	return out, err
}

// untilLed repeats f while a new topic has no leader yet.
func untilLed(ctx context.Context, f func() error) error {
	for try := 0; ; try++ {
		err := f()
		if err == nil || try == 200 {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// parallel runs n connections and adds up what they did.
func parallel(b *broker, n int, f func(i int) (outcome, error)) (outcome, error) {
	var mu sync.Mutex
	var sum outcome
	var errs []error
	var wg sync.WaitGroup
	before := b.proc.cpu()
	for i := range n {
		wg.Go(func() {
			out, err := f(i)
			mu.Lock()
			defer mu.Unlock()
			sum.add(out)
			errs = append(errs, err)
		})
	}
	wg.Wait()
	sum.cpu = b.proc.cpu() - before
	return sum, errors.Join(errs...)
}

// one writes over one connection: a writer that keeps the requests in flight, and here the reader of the answers.
func (l *produceLoad) one(c *client, frame []byte, left *atomic.Int64) (out outcome, err error) {
	sent := make(chan time.Time, l.inFlight) // of the requests that were sent
	slots := make(chan struct{}, l.inFlight) // a slot is taken before a request is sent
	broken, done := make(chan struct{}), make(chan error, 1)
	start := time.Now()
	go func() {
		defer close(sent)
		for {
			if l.duration > 0 && time.Since(start) >= l.duration || l.bytes > 0 && left.Add(-int64(len(l.batch.bytes))) < 0 {
				done <- nil
				return
			}
			select {
			case slots <- struct{}{}:
			case <-broken:
				done <- nil
				return
			}
			sent <- time.Now()
			if _, err := c.nc.Write(frame); err != nil {
				done <- err
				return
			}
		}
	}()
	for at := range sent {
		if err := c.produceAnswer(l.topic); err != nil {
			c.close()
			close(broken)
			for range sent { // the writer ends
			}
			return out, errors.Join(err, <-done)
		}
		out.latency = append(out.latency, time.Since(at))
		out.bytes += int64(len(l.batch.bytes))
		<-slots
	}
	out.elapsed = time.Since(start)
	return out, <-done
}

// fetchWait is how long a fetch waits for records, as clients ask by default.
const fetchWait = 500 * time.Millisecond

// consumeLoad reads a topic again and again from its start; every connection reads one partition.
type consumeLoad struct {
	topic    string
	batch    batch
	conns    int
	maxBytes int32
	duration time.Duration
}

func (l *consumeLoad) run(ctx context.Context, b *broker) (outcome, error) {
	return parallel(b, l.conns, func(i int) (out outcome, err error) {
		c, err := dial(b.addr)
		if err != nil {
			return out, err
		}
		defer c.close()
		defer context.AfterFunc(ctx, c.close)()
		end, err := c.end(l.topic, int32(i))
		if err != nil {
			return out, err
		}
		f := newFetcher(c, l.topic, int32(i), l.batch, l.maxBytes, fetchWait)
		start := time.Now()
		for offset := int64(0); time.Since(start) < l.duration; {
			at := time.Now()
			n, err := f.fetch(offset)
			if err != nil {
				return out, err
			}
			if n == 0 {
				return out, fmt.Errorf("%w: no whole batch at offset %d of %d", errAnswer, offset, end)
			}
			out.latency = append(out.latency, time.Since(at))
			out.bytes += int64(n)
			if offset += int64(n / len(l.batch.bytes) * l.batch.records); offset >= end {
				offset = 0
			}
		}
		out.elapsed = time.Since(start)
		return out, nil
	})
}
