package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// connections opens all connections at once and asks on each.
func (c *crowd) connections(ctx context.Context) (map[string]float64, error) {
	before, err := c.settled(ctx)
	if err != nil {
		return nil, err
	}
	var refused atomic.Int64
	clients := make([]*client, manyConnections)
	began := time.Now()
	err = all(manyConnections, func(i int) error {
		cl, err := dialSized(c.b.addr, 1<<10)
		if err == nil {
			clients[i] = cl
			_, err = cl.call(kmsg.NewPtrApiVersionsRequest(), 2)
		}
		if err != nil {
			refused.Add(1)
		}
		return nil
	})
	took := time.Since(began)
	if err != nil {
		return nil, err
	}
	after, err := c.settled(ctx)
	for _, cl := range clients {
		if cl != nil {
			cl.close()
		}
	}
	return map[string]float64{
		"refused":                float64(refused.Load()),
		"answered after, s":      took.Seconds(),
		"RSS per connection, kB": perUnit(before, after, manyConnections),
	}, err
}

// perUnit spreads the growth of the memory, in MB, over n units, in kB.
func perUnit(before, after float64, n int) float64 { return max(0, after-before) * 1000 / float64(n) }

// partitions creates all partitions and waits until each has a leader.
func (c *crowd) partitions(ctx context.Context) (map[string]float64, error) {
	before, err := c.settled(ctx)
	if err != nil {
		return nil, err
	}
	cl, err := dial(c.b.addr)
	if err != nil {
		return nil, err
	}
	defer cl.close()
	began := time.Now()
	if err := c.createMany(ctx, cl); err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, err := c.settled(ctx)
	return map[string]float64{
		"created after, s":           took.Seconds(),
		"RSS per idle partition, kB": perUnit(before, after, manyPartitions),
	}, err
}

func (c *crowd) createMany(ctx context.Context, cl *client) error {
	for i := range partitionTopics {
		if err := cl.createTopic(fmt.Sprintf("many-%d", i), manyPartitions/partitionTopics, nil); err != nil {
			return err
		}
	}
	return c.b.proc.await(ctx, 5*time.Minute, 20*time.Millisecond, "leaders of all partitions", func() error {
		led, err := cl.led()
		if err == nil && led < manyPartitions {
			err = fmt.Errorf("%d of %d partitions have a leader", led, manyPartitions)
		}
		return err
	})
}

// led counts the partitions of the many topics that have a leader.
func (c *client) led() (int, error) {
	req := kmsg.NewPtrMetadataRequest()
	for i := range partitionTopics {
		t := kmsg.NewMetadataRequestTopic()
		name := fmt.Sprintf("many-%d", i)
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	resp, err := c.call(req, 9)
	if err != nil {
		return 0, err
	}
	led := 0
	for _, t := range resp.(*kmsg.MetadataResponse).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 && p.Leader >= 0 {
				led++
			}
		}
	}
	return led, nil
}

// restart stops the broker in order with many groups beside the partitions and measures how long it takes to serve again.
func (c *crowd) restart(ctx context.Context) (map[string]float64, error) {
	cl, err := dial(c.b.addr)
	if err != nil {
		return nil, err
	}
	if err := c.createMany(ctx, cl); err != nil {
		return nil, err
	}
	if err := c.coordinatorReady(ctx, cl, "many-0"); err != nil {
		return nil, err
	}
	for i := range manyGroups {
		err := c.b.proc.await(ctx, time.Minute, 20*time.Millisecond, "a commit", func() error { return cl.commit(groupName(i), "many-0", int64(i)) })
		if err != nil {
			return nil, err
		}
	}
	cl.close()
	stopping := time.Now()
	if err := c.b.proc.stop(); err != nil {
		return nil, err
	}
	stopped := time.Since(stopping)
	c.b = nil
	began := time.Now()
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	if cl, err = dial(c.b.addr); err != nil {
		return nil, err
	}
	defer cl.close()
	for i := range manyGroups {
		err := c.b.proc.await(ctx, time.Minute, 5*time.Millisecond, "a group", func() error { return cl.committed(groupName(i), "many-0", int64(i)) })
		if err != nil {
			return nil, err
		}
	}
	return map[string]float64{"serving after, s": time.Since(began).Seconds(), "stopped after, s": stopped.Seconds()}, nil
}

func groupName(i int) string { return fmt.Sprintf("group-%d", i) }

// commit commits an offset of partition 0 for a group without members.
func (c *client) commit(group, topic string, offset int64) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = offset
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := c.call(req, 7)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
}

var errLost = errors.New("a commit is lost")

// committed checks the committed offset of partition 0.
func (c *client) committed(group, topic string, want int64) error {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = group
	t := kmsg.NewOffsetFetchRequestTopic()
	t.Topic, t.Partitions = topic, []int32{0}
	req.Topics = append(req.Topics, t)
	resp, err := c.call(req, 7)
	if err != nil {
		return err
	}
	r := resp.(*kmsg.OffsetFetchResponse)
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		return err
	}
	if got := r.Topics[0].Partitions[0].Offset; got != want {
		return fmt.Errorf("%w: %s has %d, want %d", errLost, group, got, want)
	}
	return nil
}
