// The driver of segmentio's kafka-go.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/varvehq/varve/tests/compat/clients/golang/contract"
)

func main() { contract.Main(client{}) }

type client struct{}

var codecs = map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}

func (client) Version() string { return contract.ModuleVersion("github.com/segmentio/kafka-go") }

func (client) Produce(bootstrap, codec, topic string, records []contract.Record) error {
	w := &kafka.Writer{
		Addr: kafka.TCP(bootstrap), Topic: topic, Compression: codecs[codec], RequiredAcks: kafka.RequireAll, Balancer: &kafka.Hash{},
		BatchSize: 1000, BatchTimeout: 5 * time.Millisecond,
	}
	ctx := context.Background()
	messages := make([]kafka.Message, 0, 20000)
	for i, r := range records {
		m := kafka.Message{Key: r.Key, Value: r.Value, Time: time.UnixMilli(r.Timestamp)}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, kafka.Header{Key: h.Name, Value: h.Value})
		}
		if messages = append(messages, m); len(messages) == cap(messages) || i == len(records)-1 {
			if err := w.WriteMessages(ctx, messages...); err != nil {
				return err
			}
			messages = messages[:0]
		}
	}
	return w.Close()
}

func (client) Consume(bootstrap, topic string, count int, out *contract.Printer) error {
	ctx := context.Background()
	conn, err := kafka.DialContext(ctx, "tcp", bootstrap)
	if err != nil {
		return err
	}
	partitions, err := conn.ReadPartitions(topic)
	if err != nil {
		return err
	}
	for _, p := range partitions {
		leader, err := kafka.DialLeader(ctx, "tcp", bootstrap, topic, p.ID)
		if err != nil {
			return err
		}
		end, err := leader.ReadLastOffset()
		if err != nil {
			return err
		}
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, Topic: topic, Partition: p.ID, MaxBytes: 1 << 20, MaxWait: 100 * time.Millisecond})
		for next := int64(0); next < end && count > 0; count-- {
			m, err := r.ReadMessage(ctx)
			if err != nil {
				return err
			}
			out.Print(record(m))
			next = m.Offset + 1
		}
		if err := errors.Join(r.Close(), leader.Close()); err != nil {
			return err
		}
	}
	return conn.Close()
}

func record(m kafka.Message) contract.Record {
	r := contract.Record{Topic: m.Topic, Partition: int32(m.Partition), Offset: m.Offset, Timestamp: m.Time.UnixMilli(), Key: m.Key, Value: m.Value}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, contract.Header{Name: h.Key, Value: h.Value})
	}
	return r
}

func (client) Group(bootstrap, group, topic string, out *contract.Printer) error {
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap}, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset, MaxBytes: 1 << 20,
		MaxWait: 100 * time.Millisecond, SessionTimeout: 6 * time.Second, HeartbeatInterval: time.Second,
	})
	ctx := context.Background()
	for {
		m, err := r.FetchMessage(ctx)
		if err != nil {
			return err
		}
		read := []kafka.Message{m}
		for len(read) < 500 {
			soon, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			m, err := r.FetchMessage(soon)
			cancel()
			if err != nil {
				break
			}
			read = append(read, m)
		}
		for _, m := range read {
			out.Print(record(m))
		}
		out.Flush()
		if err := r.CommitMessages(ctx, read...); err != nil {
			return err
		}
	}
}
