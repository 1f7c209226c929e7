package worker

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// producerOptions are the options of a source task's producer: acknowledged by all replicas, idempotent, retried for ever,
// large batches. The task itself bounds what is buffered. Keys of producer.override.* that mean something to our client change them; others are logged.
func producerOptions(base []kgo.Opt, conf *connConfig, clientID string, log *slog.Logger) ([]kgo.Opt, error) {
	o := overrides{values: withPrefix(conf.raw, "producer.override."), log: log, prefix: "producer.override."}
	maxBatch := o.number("max.request.size", 1<<20)
	// Kafka's batch.size is where a batch is sent without waiting; our client fills a batch to its limit. It is known, not used.
	o.take("batch.size")
	o.take("buffer.memory")
	o.take("max.in.flight.requests.per.connection") // always as many as idempotence allows
	opts := append(slices.Clone(base),
		kgo.ClientID(o.text("client.id", clientID)),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchMaxBytes(int32(maxBatch)),
		kgo.ProducerLinger(time.Duration(o.number("linger.ms", 5))*time.Millisecond),
		kgo.MaxBufferedRecords(math.MaxInt32),
		kgo.MetadataMinAge(100*time.Millisecond), // topics that were just created take a moment to show
		kgo.RecordPartitioner(partitioner{kgo.StickyKeyPartitioner(nil)}),
	)
	codec, err := o.codec("compression.type")
	if err != nil {
		return nil, err
	}
	opts = append(opts, kgo.ProducerBatchCompression(codec...))
	if v := o.take("acks"); v != "" && v != "all" && v != "-1" {
		return nil, fmt.Errorf("producer.override.acks=%s: a source's records are written with acks=all only", v)
	}
	if ms := o.number("delivery.timeout.ms", 0); ms > 0 && ms < 1<<31-1 {
		opts = append(opts, kgo.RecordDeliveryTimeout(time.Duration(ms)*time.Millisecond))
	}
	o.rest()
	return opts, o.err
}

// overrides reads client configuration keys, and remembers which were of use.
type overrides struct {
	values map[string]string
	log    *slog.Logger
	prefix string
	err    error
}

func (o *overrides) take(key string) string {
	v := strings.TrimSpace(o.values[key])
	delete(o.values, key)
	return v
}

func (o *overrides) text(key, def string) string {
	if v := o.take(key); v != "" {
		return v
	}
	return def
}

func (o *overrides) number(key string, def int64) int64 {
	v := o.take(key)
	if v == "" {
		return def
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 {
		if o.err == nil {
			o.err = fmt.Errorf("Invalid value %s for configuration %s%s: Not a number", v, o.prefix, key) //nolint:staticcheck // Kafka's wording
		}
		return def
	}
	return n
}

func (o *overrides) codec(key string) ([]kgo.CompressionCodec, error) {
	switch v := o.take(key); v {
	case "", "lz4":
		return []kgo.CompressionCodec{kgo.Lz4Compression(), kgo.NoCompression()}, nil
	case "none", "uncompressed":
		return []kgo.CompressionCodec{kgo.NoCompression()}, nil
	case "gzip":
		return []kgo.CompressionCodec{kgo.GzipCompression()}, nil
	case "snappy":
		return []kgo.CompressionCodec{kgo.SnappyCompression()}, nil
	case "zstd":
		return []kgo.CompressionCodec{kgo.ZstdCompression()}, nil
	default:
		return nil, fmt.Errorf("Invalid value %s for configuration %s%s", v, o.prefix, key) //nolint:staticcheck // Kafka's wording
	}
}

func (o *overrides) rest() {
	for k := range o.values {
		o.log.Warn("client setting has no counterpart here and is not used", "key", o.prefix+k)
	}
}

// partitioner keeps the partition that a source chose and leaves the others to Kafka's own partitioner.
type partitioner struct{ kgo.Partitioner }

func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return &topicPartitioner{p.Partitioner.ForTopic(topic)}
}

type topicPartitioner struct{ kgo.TopicPartitioner }

func (p *topicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || p.TopicPartitioner.RequiresConsistency(r)
}

func (p *topicPartitioner) Partition(r *kgo.Record, n int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return p.TopicPartitioner.Partition(r, n)
}

// OnNewBatch lets the sticky partitioner move on.
func (p *topicPartitioner) OnNewBatch() {
	if b, ok := p.TopicPartitioner.(kgo.TopicPartitionerOnNewBatch); ok {
		b.OnNewBatch()
	}
}
