package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/connect/convert"
	"github.com/varvehq/varve/connect/plugin"
	"github.com/varvehq/varve/connect/topics"
	"github.com/varvehq/varve/connect/transform"
	"github.com/varvehq/varve/sdk"
)

// opener opens tasks.
type opener struct {
	cfg     Config
	env     Env
	store   *topics.Store
	adm     *kadm.Client
	metrics *metrics
}

// runner is an open task.
type runner interface {
	run(ctl *control) error
}

// open starts a task of a connector whose configuration is raw.
func (o *opener) open(ctx context.Context, p plugin.Plugin, kind sdk.Kind, id runID, raw, task map[string]string) (runner, error) {
	conf, errs := parseConn(o.cfg, kind, raw)
	if len(errs) > 0 {
		return nil, errs[0]
	}
	env := sdk.Env{Connector: id.Connector, Task: id.Task, Config: task, Generation: id.gen,
		Log: o.env.Log.With("connector", id.Connector, "task", id.Task)}
	if kind == sdk.SinkKind {
		return o.openSink(ctx, p, id.TaskID, conf, env)
	}
	return o.openSource(ctx, p, id.TaskID, conf, env)
}

// converters are one task's.
func (o *opener) converters(conf *connConfig) (key, value, header convert.Converter, chain *transform.Chain, err error) {
	var c [3]convert.Converter
	for i, role := range roles {
		if c[i], err = o.cfg.converter(role, conf.raw); err != nil {
			return nil, nil, nil, nil, err
		}
	}
	chain, err = transform.New(conf.raw)
	return c[0], c[1], c[2], chain, err
}

func (o *opener) openSource(ctx context.Context, p plugin.Plugin, id topics.TaskID, conf *connConfig, env sdk.Env) (runner, error) {
	m := o.metrics.task(id, "polled", "written", "written")
	env.Metrics = m.sdk
	t := &sourceTask{
		id: id, conf: conf, cfg: o.cfg, log: env.Log, adm: o.adm, store: o.store, metrics: m,
		errors: &errorHandler{id: id, conf: conf, log: env.Log, metrics: m},
		known:  map[string]bool{}, byPart: map[string]int{},
		complete: make(chan struct{}, 1), failed: make(chan struct{}), space: make(chan struct{}, 1),
	}
	var err error
	if t.key, t.value, t.header, t.chain, err = o.converters(conf); err != nil {
		return nil, err
	}
	opts, err := producerOptions(o.env.Client, conf, "connector-producer-"+id.String(), env.Log)
	if err != nil {
		return nil, err
	}
	if t.cl, err = kgo.NewClient(opts...); err != nil {
		return nil, err
	}
	t.task, err = p.OpenSource(ctx, sdk.SourceEnv{Env: env, Offsets: o.store.Offsets(id.Connector)})
	if err != nil {
		t.cl.Close()
		return nil, err
	}
	return t, nil
}

func (o *opener) openSink(ctx context.Context, p plugin.Plugin, id topics.TaskID, conf *connConfig, env sdk.Env) (runner, error) {
	m := o.metrics.task(id, "read", "put", "read")
	env.Metrics = m.sdk
	t := &sinkTask{
		id: id, conf: conf, cfg: o.cfg, log: env.Log, adm: o.adm, store: o.store, metrics: m,
		errors:  &errorHandler{id: id, conf: conf, log: env.Log, metrics: m},
		fetches: make(chan kgo.Fetches), next: make(chan struct{}, 1), group: make(chan *groupEvent), flushes: make(chan struct{}, 1), done: make(chan struct{}),
		parts: map[sdk.TopicPartition]*sinkPartition{}, known: map[string]bool{}, gone: goneTopics{}, retry: backoff{limit: conf.retryMax},
		batch: sinkBatch{next: map[sdk.TopicPartition]int64{}, arena: make([]byte, 0, arenaSize)},
	}
	var err error
	if t.key, t.value, t.header, t.chain, err = o.converters(conf); err != nil {
		return nil, err
	}
	if conf.dlq.topic != "" {
		if t.dlq, err = openDeadLetters(ctx, id, conf.dlq, slices.Clone(o.env.Client)); err != nil {
			return nil, err
		}
		t.errors.dlq = t.dlq
	}
	opts, err := t.consumerOptions(o.env.Client, env.Log)
	if err == nil {
		// The sink may pause partitions from its first moment on, so the client comes first; it fetches nothing until the
		// loop runs, since the assignment waits for the loop.
		t.cl, err = kgo.NewClient(opts...)
	}
	if err != nil {
		t.dlq.close()
		return nil, err
	}
	t.task, err = p.OpenSink(ctx, sdk.SinkEnv{Env: env, Seek: t.Seek, Pause: t.Pause, Resume: t.Resume, RequestFlush: t.RequestFlush, Report: t.Report})
	if err != nil {
		close(t.done)
		t.cl.Close()
		t.dlq.close()
		return nil, err
	}
	return t, nil
}

// consumerOptions are those of a sink task's consumer.
func (t *sinkTask) consumerOptions(base []kgo.Opt, log *slog.Logger) ([]kgo.Opt, error) {
	const prefix = "consumer.override."
	ov := overrides{values: withPrefix(t.conf.raw, prefix), log: log, prefix: prefix}
	switch v := strings.ToLower(ov.text("auto.offset.reset", "earliest")); v {
	case "earliest":
		t.reset = kgo.NewOffset().AtStart()
	case "latest":
		t.reset = kgo.NewOffset().AtEnd()
	default:
		return nil, fmt.Errorf("Invalid value %s for configuration %sauto.offset.reset: earliest or latest", v, prefix) //nolint:staticcheck // Kafka's wording
	}
	t.maxPoll = int(ov.number("max.poll.records", 5000))
	opts := append(slices.Clone(base),
		kgo.ClientID(ov.text("client.id", "connector-consumer-"+t.id.String())),
		kgo.ConsumerGroup(ov.text("group.id", sinkGroup(t.id.Connector))),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.ConsumeResetOffset(t.reset),
		kgo.SessionTimeout(time.Duration(ov.number("session.timeout.ms", 45000))*time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(ov.number("heartbeat.interval.ms", 3000))*time.Millisecond),
		kgo.RebalanceTimeout(time.Duration(ov.number("max.poll.interval.ms", 300000))*time.Millisecond),
		kgo.FetchMaxBytes(int32(ov.number("fetch.max.bytes", int64(t.cfg.FetchBytes)))),
		kgo.FetchMaxPartitionBytes(int32(ov.number("max.partition.fetch.bytes", 1<<20))),
		kgo.FetchMaxWait(time.Duration(ov.number("fetch.max.wait.ms", 500))*time.Millisecond),
		kgo.MetadataMaxAge(time.Duration(ov.number("metadata.max.age.ms", 10000))*time.Millisecond), // topics may come after their sink
		kgo.MetadataMinAge(250*time.Millisecond),
	)
	if ov.take("isolation.level") == "read_committed" {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if t.conf.topicRegex != nil {
		opts = append(opts, kgo.ConsumeRegex(), kgo.ConsumeTopics(t.conf.topicRegex.String()))
	} else {
		opts = append(opts, kgo.ConsumeTopics(t.conf.topics...))
	}
	ov.rest()
	return append(opts, t.groupOptions()...), ov.err
}

// sinkGroup is a sink connector's consumer group.
func sinkGroup(connector string) string { return "connect-" + connector }
