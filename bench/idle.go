package main

import (
	"context"
	"time"
)

// idlePolls are consumers that wait for records where none come: one parked fetch on a connection of its own each.
type idlePolls struct {
	polls    int
	duration time.Duration
}

// idleSettle is how long the requests have to arrive.
const idleSettle = time.Second

func (l idlePolls) measure(ctx context.Context, b *broker, topic string) (map[string]float64, error) {
	first, err := dial(b.addr)
	if err != nil {
		return nil, err
	}
	defer first.close()
	if err := first.createTopic(topic, 1, nil); err != nil {
		return nil, err
	}
	if err := untilLed(ctx, func() error { _, err := first.end(topic, 0); return err }); err != nil {
		return nil, err
	}
	for range l.polls {
		c, err := dialSized(b.addr, 512)
		if err != nil {
			return nil, err
		}
		defer c.close()
		if _, err := c.nc.Write(newFetcher(c, topic, 0, batch{}, 1<<20, 2*(idleSettle+l.duration)).frame); err != nil {
			return nil, err
		}
	}
	if err := pause(ctx, idleSettle); err != nil {
		return nil, err
	}
	before := b.proc.cpu()
	if err := pause(ctx, l.duration); err != nil {
		return nil, err
	}
	used := b.proc.cpu() - before
	rss, _ := b.proc.memory()
	return map[string]float64{"broker CPU, % of a core": used.Seconds() / l.duration.Seconds() * 100, "RSS, MB": rss}, b.drop(topic)
}
