package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/connect/topics"
)

// stage is where in the way of a record an error came up, in Kafka Connect's words.
type stage string

const (
	stagePut       stage = "TASK_PUT"
	stageTransform stage = "TRANSFORMATION"
	stageKey       stage = "KEY_CONVERTER"
	stageValue     stage = "VALUE_CONVERTER"
	stageHeader    stage = "HEADER_CONVERTER"
	stageProduce   stage = "KAFKA_PRODUCE"
)

// errorHandler decides what becomes of a record that cannot be handled. It is safe for concurrent use.
type errorHandler struct {
	id      topics.TaskID
	conf    *connConfig
	log     *slog.Logger
	metrics *taskMetrics
	dlq     *deadLetters // nil: none
}

// bad is a record that cannot be handled.
type bad struct {
	stage stage
	class string
	err   error
	// topic, partition and offset of a sink's record; a source's record has the topic it was meant for.
	topic     string
	partition int32
	offset    int64
	key       []byte
	value     []byte
	headers   []kgo.RecordHeader
}

// handle returns nil where the record may be passed over, else the error that ends the task.
func (h *errorHandler) handle(b bad) error {
	h.metrics.errors.Inc()
	if !h.conf.tolerateAll {
		return fmt.Errorf("Tolerance exceeded in error handler: %s of topic %s: %w", b.stage, b.topic, b.err) //nolint:staticcheck // Kafka's wording
	}
	h.metrics.skipped.Inc()
	if h.conf.logErrors {
		attrs := []any{"connector", h.id.Connector, "task", h.id.Task, "stage", string(b.stage), "class", b.class,
			"topic", b.topic, "partition", b.partition, "offset", b.offset, "err", b.err}
		if h.conf.logMessages {
			attrs = append(attrs, "key", string(b.key), "value", string(b.value))
		}
		h.log.Error("record passed over", attrs...)
	}
	if h.dlq != nil {
		return h.dlq.put(b)
	}
	return nil
}

// deadLetters writes to the dead letter queue.
type deadLetters struct {
	id   topics.TaskID
	conf dlqConfig
	cl   *kgo.Client

	mu struct {
		sync.Mutex
		err error // the first that failed
	}
}

// openDeadLetters creates the topic where it is missing.
func openDeadLetters(ctx context.Context, id topics.TaskID, conf dlqConfig, opts []kgo.Opt) (*deadLetters, error) {
	cl, err := kgo.NewClient(append(opts, kgo.ClientID("connector-dlq-producer-"+id.String()), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))...)
	if err != nil {
		return nil, err
	}
	_, err = kadm.NewClient(cl).CreateTopic(ctx, 1, conf.rf, nil, conf.topic)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		cl.Close()
		return nil, fmt.Errorf("could not create dead letter queue topic %s: %w", conf.topic, err)
	}
	return &deadLetters{id: id, conf: conf, cl: cl}, nil
}

const contextPrefix = "__connect.errors."

func (d *deadLetters) put(b bad) error {
	r := &kgo.Record{Topic: d.conf.topic, Key: clone(b.key), Value: clone(b.value)}
	for _, h := range b.headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: clone(h.Value)})
	}
	if d.conf.headers {
		add := func(name, value string) {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: contextPrefix + name, Value: []byte(value)})
		}
		add("topic", b.topic)
		add("partition", strconv.Itoa(int(b.partition)))
		add("offset", strconv.FormatInt(b.offset, 10))
		add("connector.name", d.id.Connector)
		add("task.id", strconv.Itoa(d.id.Task))
		add("stage", string(b.stage))
		add("class.name", b.class)
		add("exception.class.name", fmt.Sprintf("%T", b.err))
		add("exception.message", b.err.Error())
		add("exception.stacktrace", b.err.Error())
	}
	d.cl.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
		if err != nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.mu.err == nil {
				d.mu.err = fmt.Errorf("write to dead letter queue %s: %w", d.conf.topic, err)
			}
		}
	})
	return nil
}

// flush waits until what was put is durable: only then may the offsets of those records be committed.
func (d *deadLetters) flush(ctx context.Context) error {
	if d == nil {
		return nil
	}
	if err := d.cl.Flush(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.err
}

func (d *deadLetters) close() {
	if d != nil {
		d.cl.Close()
	}
}

// clone copies bytes and keeps nil nil.
func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}
