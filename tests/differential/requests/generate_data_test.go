//go:build differential

package requests

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/internal/record"
)

// began is the time of the records, the same for both brokers.
var began = time.Now().UnixMilli()

// lastRecord is by how much the youngest record, but for those that are wrong, is younger, in milliseconds.
const lastRecord = 1005

func (m *model) produce() kmsg.Request {
	r := kmsg.NewPtrProduceRequest()
	r.Acks, r.TimeoutMillis = pick[int16](m, -1, -1, -1, 1, 0), 5000
	p := m.producer()
	if m.chance(40) {
		p = &producer{id: -1, epoch: -1}
	}
	r.TransactionID = p.txn
	for range 1 + m.IntN(2) {
		t := m.topic()
		rt := kmsg.NewProduceRequestTopic()
		rt.Topic, rt.TopicID = t.name, t.id
		for i := range 1 + m.IntN(2) {
			rp := kmsg.NewProduceRequestTopicPartition()
			if rp.Partition = int32(i); m.chance(10) {
				rp.Partition = m.partition()
			}
			rp.Records = m.batch(p, fmt.Sprint(t.name, rp.Partition))
			rt.Partitions = append(rt.Partitions, rp)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

// batch makes a batch of the producer's, with something wrong in it now and then.
func (m *model) batch(p *producer, partition string) []byte {
	b := kmsg.RecordBatch{PartitionLeaderEpoch: -1, Magic: 2, ProducerID: p.id, ProducerEpoch: p.epoch, FirstSequence: -1}
	if p.id >= 0 {
		b.FirstSequence = p.next[partition]
		b.ProducerID, b.ProducerEpoch = m.identity(p)
		if m.chance(10) {
			b.FirstSequence += pick[int32](m, -1, 1, 5, 1<<31-1)
		}
	}
	if p.txn != nil && !m.chance(5) {
		b.Attributes |= 0x10
	}
	b.NumRecords = int32(1 + m.IntN(3))
	b.LastOffsetDelta = b.NumRecords - 1
	b.FirstTimestamp = began + int64(m.IntN(1000))
	b.MaxTimestamp = b.FirstTimestamp
	var raw []byte
	for i := range b.NumRecords {
		raw = append(raw, m.record(i)...)
	}
	codec := record.Codec(pick(m, 0, 0, 0, 1, 2, 3, 4))
	packed, err := record.Compress(codec, record.DefaultLevel, nil, raw)
	if err != nil {
		panic(err) // every codec takes these few bytes
	}
	b.Records, b.Attributes = packed, b.Attributes|int16(codec)
	if m.chance(15) {
		m.spoil(&b)
	}
	out := seal(b)
	switch {
	case m.chance(1):
		return out[:m.IntN(len(out))]
	case m.chance(1):
		out[m.IntN(len(out))] ^= 1 << m.IntN(8)
	case m.chance(1):
		return pick(m, []byte{}, out[:12])
	}
	return out
}

// spoil makes a batch wrong, with a checksum that holds.
func (m *model) spoil(b *kmsg.RecordBatch) {
	switch m.IntN(14) {
	case 0:
		b.Magic = pick[int8](m, 0, 1, 3, -1)
	case 1:
		b.LastOffsetDelta += pick[int32](m, 1, -1, 1<<30)
	case 2:
		b.NumRecords += pick[int32](m, 1, -1, -100, 1000)
	case 3:
		b.Attributes ^= pick[int16](m, 0x8, 0x10, 0x20, 0x40, 0x5, 0x7, 0x80)
	case 4:
		b.FirstTimestamp = pick[int64](m, -1, -5, 0, began+int64(2*time.Hour/time.Millisecond), 1<<62)
		b.MaxTimestamp = b.FirstTimestamp
	case 5:
		b.MaxTimestamp = pick[int64](m, -1, 0, b.MaxTimestamp+5)
	case 6:
		b.Records = b.Records[:len(b.Records)-1]
	case 7:
		b.Records = append(b.Records, 0)
	case 8:
		b.FirstSequence = pick[int32](m, -1, -2, 1<<31-1)
	case 9:
		b.ProducerEpoch = pick[int16](m, -1, -2, 1<<15-1)
	case 10:
		b.ProducerID = pick[int64](m, -1, -2, 1<<62)
	case 11:
		b.FirstOffset = pick[int64](m, 5, -1, 1<<62)
	case 12:
		b.PartitionLeaderEpoch = pick[int32](m, 0, 7, -2)
	case 13:
		b.NumRecords, b.LastOffsetDelta, b.Records = 0, pick[int32](m, -1, 0), nil
	}
}

// seal fills in length and checksum.
func seal(b kmsg.RecordBatch) []byte {
	out := b.AppendTo(nil)
	binary.BigEndian.PutUint32(out[8:], uint32(len(out)-12))
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], crc32.MakeTable(crc32.Castagnoli)))
	return out
}

func (m *model) record(delta int32) []byte {
	r := kmsg.Record{OffsetDelta: delta, Value: []byte(strings.Repeat("v", m.IntN(200)))}
	if m.chance(4) {
		r.OffsetDelta += pick[int32](m, 1, -1)
	}
	if !m.chance(5) {
		r.Key = fmt.Appendf(nil, "k%d", m.IntN(5))
	}
	if m.chance(2) {
		r.Value = make([]byte, 4000)
	}
	if m.chance(5) {
		r.Value = nil
	}
	if m.chance(20) {
		r.Headers = []kmsg.Header{{Key: "h", Value: []byte("1")}}
	}
	body := r.AppendTo(nil)[1:] // a length of 0 takes one byte
	return append(binary.AppendVarint(nil, int64(len(body))), body...)
}

func (m *model) fetch() kmsg.Request {
	r := kmsg.NewPtrFetchRequest()
	r.MaxWaitMillis, r.MinBytes, r.MaxBytes = int32(m.IntN(10)), pick[int32](m, 0, 1, 1, 1<<20), pick[int32](m, 1<<20, 1<<20, 200, 1)
	r.IsolationLevel = int8(m.IntN(2))
	r.SessionID, r.SessionEpoch = 0, -1
	switch {
	case m.chance(10):
		r.SessionEpoch = 0
		m.session.epoch = 0
	case m.chance(20) && m.session.id != 0:
		r.SessionID, r.SessionEpoch = m.session.id, m.session.epoch
		if m.chance(10) {
			r.SessionEpoch += pick[int32](m, 1, -1)
		}
	case m.chance(2):
		r.SessionID, r.SessionEpoch = pick[int32](m, -1, 1<<30), pick[int32](m, 1, -1, 0)
	}
	seen := map[*topic]bool{}
	for range m.IntN(3) {
		t := m.topic()
		if seen[t] {
			continue
		}
		seen[t] = true
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic, rt.TopicID = t.name, t.id
		for i := range 1 + m.IntN(2) {
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition = int32(i)
			p.FetchOffset = int64(m.IntN(12))
			p.PartitionMaxBytes = pick[int32](m, 1<<20, 1<<20, 100, 0)
			if m.chance(10) {
				p.FetchOffset, p.CurrentLeaderEpoch = pick[int64](m, -1, -2, 1<<40), m.epoch()
			}
			if m.chance(10) {
				p.LastFetchedEpoch = pick[int32](m, 0, 1, 5)
			}
			rt.Partitions = append(rt.Partitions, p)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

// epoch is a leader epoch: the only one there is, or one that is not.
func (m *model) epoch() int32 { return pick[int32](m, -1, 0, 0, 1, -2, 1<<31-1) }

func (m *model) listOffsets() kmsg.Request {
	r := kmsg.NewPtrListOffsetsRequest()
	r.IsolationLevel, r.TimeoutMillis = int8(m.IntN(2)), 30_000
	r.Topics = sample(m, 2, func() kmsg.ListOffsetsRequestTopic {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = m.topic().name
		t.Partitions = sample(m, 2, func() kmsg.ListOffsetsRequestTopicPartition {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.CurrentLeaderEpoch = m.partition(), -1
			p.Timestamp = pick[int64](m, -1, -2, -3, -4, -5, -6, -7, 0, began-1, began, began+500, began+1000, 1<<62)
			if m.chance(15) {
				p.CurrentLeaderEpoch = m.epoch()
			}
			return p
		})
		return t
	})
	return r
}

func (m *model) leaderEpochs() kmsg.Request {
	r := kmsg.NewPtrOffsetForLeaderEpochRequest()
	r.ReplicaID = pick[int32](m, -1, -1, -2, 1)
	r.Topics = sample(m, 2, func() kmsg.OffsetForLeaderEpochRequestTopic {
		t := kmsg.NewOffsetForLeaderEpochRequestTopic()
		t.Topic = m.topic().name
		t.Partitions = sample(m, 2, func() kmsg.OffsetForLeaderEpochRequestTopicPartition {
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = m.partition(), -1, m.epoch()
			if m.chance(20) {
				p.CurrentLeaderEpoch = m.epoch()
			}
			return p
		})
		return t
	})
	return r
}

func (m *model) deleteRecords() kmsg.Request {
	r := kmsg.NewPtrDeleteRecordsRequest()
	r.TimeoutMillis = 30_000
	r.Topics = sample(m, 2, func() kmsg.DeleteRecordsRequestTopic {
		t := kmsg.NewDeleteRecordsRequestTopic()
		t.Topic = m.topic().name
		t.Partitions = sample(m, 2, func() kmsg.DeleteRecordsRequestTopicPartition {
			p := kmsg.NewDeleteRecordsRequestTopicPartition()
			p.Partition, p.Offset = m.partition(), pick[int64](m, -1, 0, 1, 2, int64(m.IntN(10)), -2, 1<<40)
			return p
		})
		return t
	})
	return r
}
