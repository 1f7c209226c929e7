// The driver of franz-go's kgo.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/tests/compat/clients/golang/contract"
)

func main() { contract.Main(client{}) }

type client struct{}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(),
	"zstd": kgo.ZstdCompression(),
}

func (client) Version() string { return contract.ModuleVersion("github.com/twmb/franz-go") }

func (client) Produce(bootstrap, codec, topic string, records []contract.Record) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codecs[codec]))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx := context.Background()
	var first kgo.FirstErrPromise
	for _, r := range records {
		rec := &kgo.Record{Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Timestamp)}
		for _, h := range r.Headers {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Name, Value: h.Value})
		}
		cl.Produce(ctx, rec, first.Promise())
	}
	return first.Err()
}

func (client) Consume(bootstrap, topic string, count int, out *contract.Printer) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer cl.Close()
	for seen := 0; seen < count; {
		n, err := poll(cl, out)
		if err != nil {
			return err
		}
		seen += n
	}
	return nil
}

func (client) Group(bootstrap, group, topic string, out *contract.Printer) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(time.Second), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	for {
		if _, err := poll(cl, out); err != nil {
			return err
		}
		if err := cl.CommitUncommittedOffsets(context.Background()); err != nil {
			return err
		}
		cl.AllowRebalance()
	}
}

func poll(cl *kgo.Client, out *contract.Printer) (int, error) {
	fetches := cl.PollRecords(context.Background(), 1000)
	if errs := fetches.Errors(); len(errs) > 0 {
		return 0, fmt.Errorf("partition %d: %w", errs[0].Partition, errs[0].Err)
	}
	fetches.EachRecord(func(r *kgo.Record) {
		rec := contract.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			rec.Headers = append(rec.Headers, contract.Header{Name: h.Key, Value: h.Value})
		}
		out.Print(rec)
	})
	out.Flush()
	return fetches.NumRecords(), nil
}
