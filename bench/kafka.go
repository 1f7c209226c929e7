package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Sizes of batches and fetches.
const (
	smallBatch = 16 << 10
	largeBatch = 1_000_000
	mega       = 1e6
	giga       = 1e9
)

// duel is a run against Apache Kafka.
type duel struct {
	o     *options
	res   *results
	sides []*broker
	short bool // as short as can be: for -quick
}

// scenario is one measurement of one side.
type scenario struct {
	name string
	run  func(ctx context.Context, b *broker, topic string) (map[string]float64, error)
}

func runKafka(ctx context.Context, o *options, res *results) (err error) {
	if err := installPeer(ctx, o, "kafka.sh"); err != nil {
		return err
	}
	res.Settings = kafkaSettings
	res.marks = kafkaMarks
	d := &duel{o: o, res: res, short: o.quick}
	if o.selected("start") {
		if err := d.starts(ctx); err != nil {
			return err
		}
	}
	defer func() {
		for _, b := range d.sides {
			err = errors.Join(err, b.proc.stop())
		}
	}()
	for _, s := range bothSides {
		b, err := s.start(o, filepath.Join(o.work, fmt.Sprintf("load-%d", len(d.sides))), nil)
		if err != nil {
			return err
		}
		d.sides = append(d.sides, b)
		if _, err := b.ready(ctx); err != nil {
			return err
		}
	}
	for round := range o.rounds + 1 {
		if err := d.round(ctx, round); err != nil {
			return err
		}
	}
	return nil
}

var kafkaSettings = []string{
	"One node each, on loopback, both processes up during the whole run; acks=all, one replica, no compression, no keys, no idempotence.",
	"Apache Kafka " + kafkaVersion + ", KRaft, settings and JVM flags of its own scripts (G1, 1 GB heap). A round that does not count, three times as long as the others, warms it up.",
	"Produce: 4 connections, 4 partitions, 5 requests in flight each, one batch a request; consume: 2 connections, 2 partitions, one fetch in flight each, from the page cache.",
	"fsync: an acknowledgement means synced: flush.policy=fsync against flush.messages=1. os: the operating system syncs when it likes: flush.policy=os against Kafka's default.",
	"CPU is user and system time of the broker's process; GB and MB are powers of ten and count record batches; p99 of produce and consume is of the closed loop, that is at full load.",
}

// Marks of the comparison.
var kafkaMarks = []mark{
	{scenario: "produce os 16 KiB batches of 1 KiB", metric: "broker CPU s/GB", bound: 0.6},
	{scenario: "produce os 16 KiB batches of 100 B", metric: "broker CPU s/GB", bound: 0.6},
	{scenario: "produce fsync 16 KiB batches of 1 KiB", metric: "broker CPU s/GB", bound: 0.6},
	{scenario: "produce fsync 16 KiB batches of 100 B", metric: "broker CPU s/GB", bound: 0.6},
	{scenario: "consume 1 MiB fetches", metric: "broker CPU s/GB", bound: 1.1},
	{scenario: "consume 64 KiB fetches", metric: "broker CPU s/GB", bound: 1.1},
	{scenario: "produce fsync 32 producers, 1 partition", metric: "MB/s", bound: 5, atLeast: true},
	{scenario: "produce fsync 32 producers, 1 partition", metric: "acknowledged batches per sync", bound: 10, atLeast: true, absolute: true},
	{scenario: "start", metric: "first record accepted, ms", bound: 300, absolute: true},
	{scenario: "start", metric: "idle RSS, MB", bound: 80, absolute: true},
}

// warmUp is how much longer than the others the round is that does not count: a JVM compiles what it finds hot.
const warmUp = 3

func (d *duel) scenarios(round int) []scenario {
	load, read, idle := 1500*time.Millisecond, time.Second, 3*time.Second
	switch {
	case d.short:
		load, read, idle = time.Second, time.Second, time.Second
	case round == 0:
		load, read = warmUp*load, warmUp*read
	}
	var all []scenario
	for _, policy := range []string{"os", "fsync"} {
		for _, size := range []int{smallBatch, largeBatch} {
			for _, value := range []int{1024, 100} {
				l := produceLoad{batch: newBatch(size, value), conns: 4, inFlight: 5, partitions: 4, fsync: policy == "fsync", duration: load}
				all = append(all, scenario{fmt.Sprintf("produce %s %s batches of %s", policy, sizeName(size), sizeName(value)), l.measure})
			}
		}
	}
	grouped := produceLoad{batch: newBatch(smallBatch, 1024), conns: 32, inFlight: 1, partitions: 1, fsync: true, duration: load}
	all = append(all, scenario{"produce fsync 32 producers, 1 partition", grouped.measure})
	for _, policy := range []string{"os", "fsync"} {
		e := endToEnd{rate: 5000, value: 1024, fsync: policy == "fsync", duration: idle}
		all = append(all, scenario{"end to end, 5,000 records/s, " + policy, e.measure})
	}
	polls := idlePolls{polls: 1000, duration: idle}
	all = append(all, scenario{"1,000 idle long polls", polls.measure})
	for _, size := range []int32{1 << 20, 64 << 10} {
		c := consumeLoad{batch: newBatch(smallBatch, 1024), conns: 2, maxBytes: size, duration: read}
		all = append(all, scenario{fmt.Sprintf("consume %s fetches", sizeName(int(size))), c.measure})
	}
	return all
}

func sizeName(n int) string {
	switch {
	case n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	case n%1_000_000 == 0:
		return fmt.Sprintf("%d MB", n/1_000_000)
	default:
		return fmt.Sprintf("%d B", n)
	}
}

// round runs every scenario on every side in turn. Round 0 warms up.
func (d *duel) round(ctx context.Context, round int) error {
	for i, s := range d.scenarios(round) {
		if !d.o.selected(s.name) {
			continue
		}
		for j := range d.sides {
			b := d.sides[(j+round)%len(d.sides)] // who goes first changes
			if !d.o.measures(b.name) {
				continue
			}
			syscall.Sync()
			values, err := s.run(ctx, b, fmt.Sprintf("s%d-%d", i, round))
			if err != nil {
				return fmt.Errorf("%s, %s, round %d: %w", s.name, b.name, round, err)
			}
			d.res.add(sample{Scenario: s.name, Side: b.name, Round: round, Values: values})
			fmt.Fprintf(os.Stderr, "%d/%d %-40s %-6s %v\n", round, d.o.rounds, s.name, b.name, values)
		}
	}
	return nil
}

// values are what every load has: throughput, latency and the broker's CPU time.
func (o outcome) values() map[string]float64 {
	v := map[string]float64{
		"MB/s":            float64(o.bytes) / mega / o.elapsed.Seconds(),
		"broker CPU s/GB": o.cpu.Seconds() / (float64(o.bytes) / giga),
		"p99, ms":         percentile(o.latency, 99),
	}
	if o.syncs > 0 {
		v["acknowledged batches per sync"] = float64(len(o.latency)) / o.syncs
	}
	return v
}

// drop deletes a topic.
func (b *broker) drop(topic string) error {
	c, err := dial(b.addr)
	if err != nil {
		return err
	}
	defer c.close()
	return c.deleteTopic(topic)
}

func (l produceLoad) measure(ctx context.Context, b *broker, topic string) (map[string]float64, error) {
	l.topic = topic
	out, err := l.run(ctx, b)
	if err != nil {
		return nil, err
	}
	return out.values(), b.drop(topic)
}

// preload is what there is to consume.
const preload = 200_000_000

func (l consumeLoad) measure(ctx context.Context, b *broker, topic string) (map[string]float64, error) {
	l.topic = topic
	fill := produceLoad{topic: topic, batch: l.batch, conns: 2, inFlight: 5, partitions: l.conns, bytes: preload}
	if _, err := fill.run(ctx, b); err != nil {
		return nil, err
	}
	out, err := l.run(ctx, b)
	if err != nil {
		return nil, err
	}
	return out.values(), b.drop(topic)
}

func (l endToEnd) measure(ctx context.Context, b *broker, topic string) (map[string]float64, error) {
	l.topic = topic
	out, err := l.run(ctx, b)
	if err != nil {
		return nil, err
	}
	return map[string]float64{
		"broker CPU, % of a core": out.cpu.Seconds() / out.elapsed.Seconds() * 100,
		"p50, ms":                 percentile(out.latency, 50),
		"p99, ms":                 percentile(out.latency, 99),
	}, b.drop(topic)
}

// starts measures first starts and what an idle broker takes.
func (d *duel) starts(ctx context.Context) error {
	settle, idle := 2*time.Second, 3*time.Second
	if d.short {
		settle, idle = time.Second, time.Second
	}
	for round := 1; round <= d.o.rounds; round++ {
		for _, side := range bothSides {
			dir := filepath.Join(d.o.work, fmt.Sprintf("start-%s-%d", side.name, round))
			s, err := d.start(ctx, side.start, dir, settle, idle)
			if err != nil {
				return err
			}
			s.Round = round
			d.res.add(s)
			fmt.Fprintf(os.Stderr, "%d/%d start %-6s %v\n", round, d.o.rounds, s.Side, s.Values)
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *duel) start(ctx context.Context, start starter, dir string, settle, idle time.Duration) (s sample, err error) {
	b, err := start(d.o, dir, nil)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, b.proc.stop()) }()
	took, err := b.ready(ctx)
	if err != nil {
		return s, err
	}
	if err := pause(ctx, settle); err != nil {
		return s, err
	}
	before := b.proc.cpu()
	if err := pause(ctx, idle); err != nil {
		return s, err
	}
	used := b.proc.cpu() - before
	rss, _ := b.proc.memory()
	return sample{Scenario: "start", Side: b.name, Values: map[string]float64{
		"first record accepted, ms": float64(took.Microseconds()) / 1000,
		"idle RSS, MB":              rss,
		"idle CPU, % of a core":     used.Seconds() / idle.Seconds() * 100,
	}}, nil
}
