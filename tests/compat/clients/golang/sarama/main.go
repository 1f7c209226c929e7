// The driver of sarama.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/varvehq/varve/tests/compat/clients/golang/contract"
)

func main() { contract.Main(client{}) }

type client struct{}

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4,
	"zstd": sarama.CompressionZSTD,
}

func (client) Version() string { return contract.ModuleVersion("github.com/IBM/sarama") }

func newConfig() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.MaxVersion
	cfg.Consumer.Return.Errors = true
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	return cfg
}

func (client) Produce(bootstrap, codec, topic string, records []contract.Record) error {
	cfg := newConfig()
	cfg.Producer.Compression = codecs[codec]
	cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests = true, 1
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Return.Successes = true
	p, err := sarama.NewAsyncProducer([]string{bootstrap}, cfg)
	if err != nil {
		return err
	}
	go func() {
		for _, r := range records {
			m := &sarama.ProducerMessage{Topic: topic, Timestamp: time.UnixMilli(r.Timestamp)}
			if r.Key != nil {
				m.Key = sarama.ByteEncoder(r.Key)
			}
			if r.Value != nil {
				m.Value = sarama.ByteEncoder(r.Value)
			}
			for _, h := range r.Headers {
				m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Name), Value: h.Value})
			}
			p.Input() <- m
		}
	}()
	for range records {
		select {
		case <-p.Successes():
		case err := <-p.Errors():
			return err
		}
	}
	return p.Close()
}

func (client) Consume(bootstrap, topic string, count int, out *contract.Printer) error {
	cl, err := sarama.NewClient([]string{bootstrap}, newConfig())
	if err != nil {
		return err
	}
	c, err := sarama.NewConsumerFromClient(cl)
	if err != nil {
		return err
	}
	partitions, err := c.Partitions(topic)
	if err != nil {
		return err
	}
	for _, p := range partitions {
		end, err := cl.GetOffset(topic, p, sarama.OffsetNewest)
		if err != nil {
			return err
		}
		pc, err := c.ConsumePartition(topic, p, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		for next := int64(0); next < end && count > 0; count-- {
			select {
			case m := <-pc.Messages():
				out.Print(record(m))
				next = m.Offset + 1
			case err := <-pc.Errors():
				return err
			}
		}
		if err := pc.Close(); err != nil {
			return err
		}
	}
	return errors.Join(c.Close(), cl.Close())
}

func record(m *sarama.ConsumerMessage) contract.Record {
	r := contract.Record{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Timestamp: m.Timestamp.UnixMilli(), Key: m.Key, Value: m.Value}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, contract.Header{Name: string(h.Key), Value: h.Value})
	}
	return r
}

func (client) Group(bootstrap, group, topic string, out *contract.Printer) error {
	cfg := newConfig()
	cfg.Consumer.Group.Session.Timeout = 6 * time.Second
	cfg.Consumer.Group.Heartbeat.Interval = time.Second
	cfg.Consumer.Offsets.AutoCommit.Enable = false
	g, err := sarama.NewConsumerGroup([]string{bootstrap}, group, cfg)
	if err != nil {
		return err
	}
	go func() {
		for err := range g.Errors() {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	h := handler{mu: new(sync.Mutex), out: out}
	for {
		if err := g.Consume(context.Background(), []string{topic}, h); err != nil {
			return err
		}
	}
}

// handler runs in a goroutine per partition.
type handler struct {
	mu  *sync.Mutex
	out *contract.Printer
}

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h handler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			h.batch(s, claim, m)
			s.Commit()
		case <-s.Context().Done():
			return nil
		}
	}
}

// batch prints m and what has arrived behind it, and marks it.
func (h handler) batch(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim, m *sarama.ConsumerMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.out.Flush()
	for n := 0; m != nil; n++ {
		h.out.Print(record(m))
		s.MarkMessage(m, "")
		if n == 1000 {
			return
		}
		select {
		case m = <-claim.Messages():
		default:
			return
		}
	}
}
