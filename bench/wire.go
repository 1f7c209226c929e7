package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Versions of the requests that are replayed. Both brokers serve them; they name topics, so that a request can be encoded
// before its topic exists.
const (
	produceVersion = 9
	fetchVersion   = 12
)

const callTimeout = time.Minute

// client is one connection that is cheap enough to leave the processors to the broker: requests are encoded once and only
// the fields that decide about success are read of an answer.
type client struct {
	nc net.Conn
	r  *bufio.Reader
}

func dial(addr string) (*client, error) { return dialSized(addr, 256<<10) }

// dialSized connects with a buffer of so many bytes for answers.
func dialSized(addr string, buffer int) (*client, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &client{nc: nc, r: bufio.NewReaderSize(nc, buffer)}, nil
}

func (c *client) close() { _ = c.nc.Close() }

func encode(req kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, req, 1)
}

// call sends one request and decodes its answer.
func (c *client) call(req kmsg.Request, version int16) (kmsg.Response, error) {
	req.SetVersion(version)
	if err := c.nc.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return nil, err
	}
	defer func() { _ = c.nc.SetDeadline(time.Time{}) }()
	if _, err := c.nc.Write(encode(req)); err != nil {
		return nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(c.r, body); err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	resp.SetVersion(version)
	skip := 4
	if resp.IsFlexible() && resp.Key() != 18 {
		skip++
	}
	return resp, resp.ReadFrom(body[skip:])
}

func (c *client) createTopic(name string, partitions int32, configs map[string]string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 30000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, 1
	for k, v := range configs {
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: k, Value: &v})
	}
	req.Topics = append(req.Topics, t)
	resp, err := c.call(req, 7)
	if err != nil {
		return err
	}
	if code := resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 && code != kerr.TopicAlreadyExists.Code {
		return fmt.Errorf("create topic %s: %w", name, kerr.ErrorForCode(code))
	}
	return nil
}

func (c *client) deleteTopic(name string) error {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis, req.TopicNames = 30000, []string{name}
	resp, err := c.call(req, 4)
	if err != nil {
		return err
	}
	if code := resp.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode; code != 0 && code != kerr.UnknownTopicOrPartition.Code {
		return fmt.Errorf("delete topic %s: %w", name, kerr.ErrorForCode(code))
	}
	return nil
}

// end is the offset after the last record of a partition.
func (c *client) end(topic string, partition int32) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, -1, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := c.call(req, 5)
	if err != nil {
		return 0, err
	}
	out := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	return out.Offset, kerr.ErrorForCode(out.ErrorCode)
}

// produceFrame is an encoded Produce request with acks=all for one batch.
func produceFrame(b batch, topic string, partition int32) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = produceVersion, -1, 30000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, b.bytes
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return encode(req)
}

// produceOne produces one batch and waits for the answer.
func (c *client) produceOne(b batch, topic string, partition int32) error {
	if _, err := c.nc.Write(produceFrame(b, topic, partition)); err != nil {
		return err
	}
	return c.produceAnswer(topic)
}

// errAnswer is an answer that does not look as it must.
var errAnswer = errors.New("unexpected answer")

// produceAnswer reads the answer to a Produce of one partition.
func (c *client) produceAnswer(topic string) error {
	head, err := c.r.Peek(4)
	if err != nil {
		return err
	}
	size := 4 + int(binary.BigEndian.Uint32(head))
	// size, correlation id, tags; 1 topic, its name; 1 partition, its index, its error code
	at := 4 + 4 + 1 + 1 + 1 + len(topic) + 1 + 4
	if size < at+2 {
		return fmt.Errorf("%w: %d bytes to a produce", errAnswer, size)
	}
	b, err := c.r.Peek(at + 2)
	if err != nil {
		return err
	}
	code := int16(binary.BigEndian.Uint16(b[at:]))
	if _, err := c.r.Discard(size); err != nil {
		return err
	}
	return kerr.ErrorForCode(code)
}

// fetcher reads one partition in order, again and again.
type fetcher struct {
	c         *client
	topic     string
	partition int32
	frame     []byte
	offsetAt  int // where the fetch offset stands in frame
	b         batch
}

func newFetcher(c *client, topic string, partition int32, b batch, maxBytes int32, wait time.Duration) *fetcher {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = fetchVersion, -1, int32(wait.Milliseconds()), 1, maxBytes
	req.SessionEpoch = -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.PartitionMaxBytes, p.CurrentLeaderEpoch, p.LogStartOffset = partition, maxBytes, -1, -1
	const mark = 0x7ead_beef_0bad_cafe
	p.FetchOffset = mark
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	f := &fetcher{c: c, topic: topic, partition: partition, frame: encode(req), b: b}
	for i := range f.frame {
		if binary.BigEndian.Uint64(f.frame[i:]) == mark {
			f.offsetAt = i
			break
		}
	}
	return f
}

// fetch asks for the records from an offset on and returns how many bytes of whole batches came; a batch that is cut off at
// the end is of no use to a consumer.
func (f *fetcher) fetch(offset int64) (int, error) {
	binary.BigEndian.PutUint64(f.frame[f.offsetAt:], uint64(offset))
	if _, err := f.c.nc.Write(f.frame); err != nil {
		return 0, err
	}
	b, err := f.c.r.Peek(4)
	if err != nil {
		return 0, err
	}
	size := 4 + int(binary.BigEndian.Uint32(b))
	// size, correlation id, tags, throttle, error, session; 1 topic, its name; 1 partition: index, error, three offsets
	at := 4 + 4 + 1 + 4 + 2 + 4 + 1 + 1 + len(f.topic) + 1 + 4
	if size < at+2+24+1+4+1 {
		return 0, fmt.Errorf("%w: %d bytes to a fetch", errAnswer, size)
	}
	if b, err = f.c.r.Peek(min(size, at+2+24+16)); err != nil {
		return 0, err
	}
	if code := int16(binary.BigEndian.Uint16(b[at:])); code != 0 {
		return 0, fmt.Errorf("fetch: %w", kerr.ErrorForCode(code))
	}
	at += 2 + 24
	aborted, n := binary.Uvarint(b[at:]) // null or none: no records of transactions are read
	if aborted > 1 {
		return 0, fmt.Errorf("%w: aborted transactions", errAnswer)
	}
	at += n + 4 // and the preferred read replica
	records, _ := binary.Uvarint(b[at:])
	if _, err := f.c.r.Discard(size); err != nil {
		return 0, err
	}
	whole := int(max(records, 1)-1) / len(f.b.bytes)
	return whole * len(f.b.bytes), nil
}
