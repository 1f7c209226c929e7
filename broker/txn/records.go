package txn

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
)

// loadLimit bounds one batch when it is decompressed.
const loadLimit = 256 << 20

// newestValue is the newest version of the value that is understood.
const newestValue = 1

func encodeKey(id string) []byte {
	k := kmsg.NewTxnMetadataKey()
	k.TransactionalID = id
	return k.AppendTo(nil)
}

func encode(m *Metadata) Record {
	v := kmsg.NewTxnMetadataValue()
	v.Version = newestValue
	v.ProducerID, v.ProducerEpoch, v.TimeoutMillis = m.ProducerID, m.Epoch, int32(m.Timeout/time.Millisecond)
	v.State = kmsg.TransactionState(m.State)
	v.Topics = []kmsg.TxnMetadataValueTopic{}
	for i := 0; i < len(m.Partitions); {
		t := kmsg.NewTxnMetadataValueTopic()
		t.Topic = m.Partitions[i].Topic
		for ; i < len(m.Partitions) && m.Partitions[i].Topic == t.Topic; i++ {
			t.Partitions = append(t.Partitions, m.Partitions[i].Partition)
		}
		v.Topics = append(v.Topics, t)
	}
	if m.State == Empty {
		v.Topics = nil // null, as Kafka writes it
	}
	v.LastUpdateTimestamp, v.StartTimestamp = m.Updated, m.Started
	v.PreviousProducerID, v.NextProducerID, v.ClientTransactionVersion = m.PrevProducerID, m.NextProducerID, m.Version
	return Record{Key: encodeKey(m.ID), Value: v.AppendTo(nil)}
}

// decode reads a value. Its errors are of the class ErrCorrupt.
func decode(id string, value []byte) (m Metadata, err error) {
	defer func() {
		if p := recover(); p != nil {
			m, err = Metadata{}, fmt.Errorf("%w: transactional id %q: %v", ErrCorrupt, id, p)
		}
	}()
	if len(value) < 2 || binary.BigEndian.Uint16(value) > newestValue {
		return Metadata{}, fmt.Errorf("%w: transactional id %q: a value of an unknown version", ErrCorrupt, id)
	}
	v := kmsg.NewTxnMetadataValue()
	if err := v.ReadFrom(value); err != nil {
		return Metadata{}, fmt.Errorf("%w: transactional id %q: %w", ErrCorrupt, id, err)
	}
	if v.State < 0 || State(v.State) > PrepareEpochFence {
		return Metadata{}, fmt.Errorf("%w: transactional id %q in state %d", ErrCorrupt, id, v.State)
	}
	m = Metadata{ID: id, State: State(v.State), ProducerID: v.ProducerID, Epoch: v.ProducerEpoch, PrevProducerID: None,
		NextProducerID: None, LastEpoch: None, Timeout: time.Duration(v.TimeoutMillis) * time.Millisecond,
		Started: v.StartTimestamp, Updated: v.LastUpdateTimestamp}
	if v.Version >= 1 {
		m.PrevProducerID, m.NextProducerID, m.Version = v.PreviousProducerID, v.NextProducerID, v.ClientTransactionVersion
	}
	for _, t := range v.Topics {
		for _, p := range t.Partitions {
			m.Partitions = append(m.Partitions, kafka.TopicPartition{Topic: t.Topic, Partition: p})
		}
	}
	slices.SortFunc(m.Partitions, compareTP)
	m.Partitions = slices.Compact(m.Partitions)
	return m, nil
}

// Loader gathers the state of a partition of __transaction_state from its batches.
type Loader struct{ live map[string][]byte }

// NewLoader returns an empty Loader.
func NewLoader() *Loader { return &Loader{live: map[string][]byte{}} }

// Add takes the next batch of the log. It keeps nothing of it.
func (l *Loader) Add(batch []byte) error {
	h, err := record.ParseHeader(batch)
	if err != nil {
		return err
	}
	if h.Control() {
		return nil
	}
	return record.ForEachRecord(batch, loadLimit, func(r *record.Record) error {
		if len(r.Key) < 2 || binary.BigEndian.Uint16(r.Key) != 0 {
			return nil // a kind of record that is not known here
		}
		k := kmsg.NewTxnMetadataKey()
		if err := k.ReadFrom(r.Key); err != nil {
			return fmt.Errorf("%w: key: %w", ErrCorrupt, err)
		}
		if r.Value == nil {
			delete(l.live, k.TransactionalID)
		} else {
			l.live[k.TransactionalID] = slices.Clone(r.Value)
		}
		return nil
	})
}

// Coordinator returns a coordinator with what was loaded. The effects have the markers of the transactions whose end was
// decided and is not complete.
func (l *Loader) Coordinator(cfg *Config, now time.Time) (*Coordinator, Effects, error) {
	c := NewCoordinator(cfg, now)
	for id, value := range l.live {
		m, err := decode(id, value)
		if err != nil {
			return nil, Effects{}, err
		}
		if m.State != Dead {
			c.entries[id] = &entry{Metadata: m, stored: true}
		}
	}
	c.begin(now)
	for _, t := range c.sorted() {
		c.mark(t)
	}
	return c, c.end(), nil
}
