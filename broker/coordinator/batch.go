package coordinator

import (
	"fmt"

	"github.com/varvehq/varve/internal/record"
)

// recordOverhead is the most that a record takes beside its key and value.
const recordOverhead = 32

// Size is the most that a batch of the write takes. One that is larger than the largest batch goes in several.
func (w Write) Size() int { return record.HeaderSize + w.size() }

func (w Write) size() int {
	n := 0
	for _, r := range w.Records {
		n += len(r.Key) + len(r.Value) + recordOverhead
	}
	return n
}

// takeWrites removes from the front of a queue what goes into one batch of limit bytes, and at least one write.
func takeWrites(queue *[]Write, limit int) []Write {
	q := *queue
	size, n := record.HeaderSize, 0
	for n < len(q) {
		size += q[n].size()
		if n > 0 && (size > limit || q[n].Producer != nil || q[0].Producer != nil) {
			break
		}
		n++
	}
	writes := q[:n:n]
	if *queue = q[n:]; len(*queue) == 0 {
		*queue = nil
	}
	return writes
}

// append gives writes to the log and returns when they are durable. One write that is larger than a batch goes in several;
// if that fails behind the first, it is not certain any more what is in the log.
func (sh *Shard[M, E, F]) append(epoch int32, writes []Write) error {
	limit := sh.r.spec.MaxBatchBytes()
	var records []Record
	for _, w := range writes {
		records = append(records, w.Records...)
	}
	for first := true; len(records) > 0; first = false {
		size, n := record.HeaderSize, 0
		for n < len(records) {
			size += len(records[n].Key) + len(records[n].Value) + recordOverhead
			if n > 0 && size > limit {
				break
			}
			n++
		}
		batch := BatchOf(records[:n], sh.r.env.Now().UnixMilli(), epoch, writes[0].Producer)
		if err := sh.r.env.Topic.Append(sh.r.ctx, sh.partition, epoch, batch); err != nil {
			if !first {
				return fmt.Errorf("a write in several batches: %w", err)
			}
			return err
		}
		records = records[n:]
	}
	return nil
}

// BatchOf encodes records as one batch, as they are appended.
func BatchOf(records []Record, timestamp int64, epoch int32, producer *Producer) []byte {
	o := record.BuilderOptions{LeaderEpoch: epoch}
	if producer != nil {
		o.Transactional = true
		o.Producer = &record.Producer{ID: producer.ID, Epoch: producer.Epoch, BaseSequence: record.NoSequence}
	}
	b := record.NewBuilder(o)
	for _, r := range records {
		b.Append(timestamp, r.Key, r.Value, nil)
	}
	return b.Batch(0)
}
