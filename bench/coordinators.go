package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Sizes of the load on the coordinators.
const (
	groupMembers    = 1000
	groupPartitions = 1000
	manyPartitions  = 10_000
	partitionTopics = 10
	manyConnections = 10_000
	manyGroups      = 1000
)

var coordinatorSettings = []string{
	"One node each, started anew for every figure, on loopback; settings and JVM flags of Kafka's own scripts (1 GB heap).",
	"Both with group.initial.rebalance.delay.ms=1000 and a heartbeat interval of 500 ms in groups of the new protocol, so that the figures show the coordinator and not its timers.",
	fmt.Sprintf("Groups: %d members, with a connection each that is open already, join one topic of %d partitions at once; stable: every member has its part of one generation, and the parts are all partitions, none twice. One that is not after %v counts as if it were then.",
		groupMembers, groupPartitions, membersLimit),
	fmt.Sprintf("Partitions: %d in %d topics; created: all have a leader in Metadata.", manyPartitions, partitionTopics),
	fmt.Sprintf("Connections: %d opened at once; each asks for ApiVersions; refused: dial failed or the connection ended before the answer.", manyConnections),
	fmt.Sprintf("Restart: after an orderly stop, with those partitions and %d groups of one commit each; serving: a record is accepted and every group's commit is answered.", manyGroups),
}

var coordinatorMarks = []mark{
	{scenario: "classic group", metric: "stable after, s", bound: 5, absolute: true},
	{scenario: "consumer group", metric: "stable after, s", bound: 5, absolute: true},
	{scenario: "partitions", metric: "created after, s", bound: 15, absolute: true},
	{scenario: "connections", metric: "refused", bound: 0, absolute: true},
	{scenario: "restart", metric: "serving after, s", bound: 2, absolute: true},
}

// coordinatorProps are the settings of both sides.
var coordinatorProps = map[string]string{
	"group.initial.rebalance.delay.ms":         "1000",
	"group.consumer.heartbeat.interval.ms":     "500",
	"group.consumer.min.heartbeat.interval.ms": "500",
	"group.consumer.session.timeout.ms":        "45000",
}

func runCoordinators(ctx context.Context, o *options, res *results) error {
	if err := installPeer(ctx, o, "kafka.sh"); err != nil {
		return err
	}
	res.Settings, res.marks = coordinatorSettings, coordinatorMarks
	for round := 1; round <= o.rounds; round++ {
		for _, side := range bothSides {
			if !o.measures(side.name) {
				continue
			}
			c := &crowd{o: o, res: res, round: round, side: side.name, start: side.start, dir: filepath.Join(o.work, side.name)}
			if err := c.run(ctx); err != nil {
				return fmt.Errorf("%s: %w", side.name, err)
			}
		}
	}
	return nil
}

// crowd is one round of one side: many members, partitions, connections and groups.
type crowd struct {
	o     *options
	res   *results
	round int
	side  string
	start starter
	dir   string
	b     *broker
}

// run measures each scenario on a broker of its own, so that what one leaves in memory is not in the figures of the next.
func (c *crowd) run(ctx context.Context) error {
	for _, s := range []struct {
		name string
		run  func(context.Context) (map[string]float64, error)
	}{
		{"connections", c.connections},
		{"classic group", c.classicGroup},
		{"consumer group", c.consumerGroup},
		{"partitions", c.partitions},
		{"restart", c.restart},
	} {
		if !c.o.selected(s.name) {
			continue
		}
		values, err := c.fresh(ctx, s.run)
		if err != nil {
			return fmt.Errorf("%s, round %d: %w", s.name, c.round, err)
		}
		c.res.add(sample{Scenario: s.name, Side: c.side, Round: c.round, Values: values})
		fmt.Fprintf(os.Stderr, "%d/%d %-16s %-6s %v\n", c.round, c.o.rounds, s.name, c.side, values)
	}
	return nil
}

// fresh runs f with a new broker.
func (c *crowd) fresh(ctx context.Context, f func(context.Context) (map[string]float64, error)) (_ map[string]float64, err error) {
	defer func() {
		if c.b != nil {
			err = errors.Join(err, c.b.proc.stop())
		}
		c.b = nil
		err = errors.Join(err, os.RemoveAll(c.dir))
	}()
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	return f(ctx)
}

// open starts the broker on what is in its folder.
func (c *crowd) open(ctx context.Context) error {
	b, err := c.start(c.o, c.dir, coordinatorProps)
	if err != nil {
		return err
	}
	c.b = b
	_, err = b.ready(ctx)
	return err
}

// settled is what the process has in memory once it has been left alone for a moment.
func (c *crowd) settled(ctx context.Context) (float64, error) {
	if err := pause(ctx, 2*time.Second); err != nil {
		return 0, err
	}
	now, _ := c.b.proc.memory()
	return now, nil
}

// all runs f for 0 to n-1 at once and returns the first error.
func all(n int, f func(i int) error) error {
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	var first error
	for range n {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}
