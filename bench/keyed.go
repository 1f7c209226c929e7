package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	keyedValue     = 1 << 10
	keyedBytes     = keyedValue + 32 // of a record in a batch, about
	txnRecords     = 5000
	abortEvery     = 10
	tombstoneEvery = 20
)

// keyed writes versions of keys to partition 0 of a topic and knows what a reader of the whole must end up with.
type keyed struct {
	addr, topic string
	rng         *rand.Rand
	filler      []byte
	version     uint64
	want        []uint64 // by key: the version of its last committed record, 0 for a key without a value
}

func newKeyed(addr, topic string, keys int) *keyed {
	k := &keyed{addr: addr, topic: topic, rng: rand.New(rand.NewPCG(7, uint64(keys))), filler: make([]byte, 1<<20), want: make([]uint64, keys)}
	for i := range k.filler {
		k.filler[i] = byte(k.rng.Uint32())
	}
	return k
}

// A value is the version, whether its transaction is to be aborted, and random bytes.
const keyedHead = 9

// next makes a record of a random key. What is committed is noted by note.
func (k *keyed) next(aborted bool) (r *kgo.Record, key int, version uint64) {
	key = k.rng.IntN(len(k.want))
	k.version++
	r = &kgo.Record{Topic: k.topic, Partition: 0, Key: binary.BigEndian.AppendUint64(nil, uint64(key))}
	if k.rng.IntN(tombstoneEvery) == 0 {
		return r, key, 0
	}
	at := k.rng.IntN(len(k.filler) - keyedValue)
	r.Value = make([]byte, keyedValue)
	binary.BigEndian.PutUint64(r.Value, k.version)
	if aborted {
		r.Value[8] = 1
	}
	copy(r.Value[keyedHead:], k.filler[at:])
	return r, key, k.version
}

func (k *keyed) producer(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(k.addr), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression())}, opts...)...)
}

// failures collects the errors of records.
type failures struct {
	mu   sync.Mutex
	errs []error
}

func (f *failures) add(err error) {
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.errs) < 10 {
			f.errs = append(f.errs, err)
		}
	}
}

func (f *failures) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.errs...)
}

// fill writes so many bytes in transactions.
func (k *keyed) fill(ctx context.Context, bytes int64) error {
	c, err := k.producer(kgo.TransactionalID("fill"), kgo.TransactionTimeout(time.Minute), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return err
	}
	defer c.Close()
	for n, txns := int64(0), bytes/keyedBytes/txnRecords; n < txns; n++ {
		if err := k.transaction(ctx, c, n%abortEvery == abortEvery-1); err != nil {
			return fmt.Errorf("transaction %d: %w", n, err)
		}
	}
	return nil
}

func (k *keyed) transaction(ctx context.Context, c *kgo.Client, abort bool) error {
	if err := c.BeginTransaction(); err != nil {
		return err
	}
	var failed failures
	for range txnRecords {
		r, key, version := k.next(abort)
		if !abort {
			k.want[key] = version
		}
		c.Produce(ctx, r, func(_ *kgo.Record, err error) { failed.add(err) })
	}
	if err := errors.Join(c.Flush(ctx), failed.err()); err != nil {
		return err
	}
	return c.EndTransaction(ctx, kgo.TransactionEndTry(!abort))
}

// load writes at a fixed rate for at least d, and until the channel is closed if there is one, and returns how long each
// record took from when it was due.
func (k *keyed) load(ctx context.Context, rate int, d time.Duration, until <-chan struct{}) ([]time.Duration, error) {
	c, err := k.producer(kgo.ProducerLinger(0))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.ProduceSync(ctx, k.committed()).FirstErr(); err != nil { // connects
		return nil, err
	}
	var mu sync.Mutex
	var lat []time.Duration
	var failed failures
	ticker := time.NewTicker(endToEndStep)
	defer ticker.Stop()
	perStep := rate / int(time.Second/endToEndStep)
	start := time.Now()
	for sent, over := 0, false; !over; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		for due := int(time.Since(start)/endToEndStep) * perStep; sent < due; sent++ {
			at := start.Add(time.Duration(sent/perStep) * endToEndStep)
			c.Produce(ctx, k.committed(), func(_ *kgo.Record, err error) {
				failed.add(err)
				mu.Lock()
				defer mu.Unlock()
				lat = append(lat, time.Since(at))
			})
		}
		if over = time.Since(start) >= d; over && until != nil {
			select {
			case <-until:
			default:
				over = false
			}
		}
	}
	return lat, errors.Join(c.Flush(ctx), failed.err())
}

// committed is a record outside of transactions.
func (k *keyed) committed() *kgo.Record {
	r, key, version := k.next(false)
	k.want[key] = version
	return r
}

// check folds the topic as a reader with read_committed and counts the records it has and the keys that are not as they must.
func (k *keyed) check(ctx context.Context) (records, wrong int, err error) {
	admin, err := dial(k.addr)
	if err != nil {
		return 0, 0, err
	}
	defer admin.close()
	end, err := admin.end(k.topic, 0)
	if err != nil {
		return 0, 0, err
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(k.addr), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{k.topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	got := make([]uint64, len(k.want))
	for last := int64(-1); last < end-1; {
		fs := c.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return 0, 0, err
		}
		for r := range fs.RecordsAll() {
			if r.Offset <= last {
				return 0, 0, fmt.Errorf("%w: offset %d after %d", errAnswer, r.Offset, last)
			}
			last = r.Offset
			if r.Attrs.IsControl() {
				continue
			}
			records++
			if err := fold(got, r); err != nil {
				return 0, 0, err
			}
		}
	}
	for key := range got {
		if got[key] != k.want[key] {
			wrong++
		}
	}
	return records, wrong, nil
}

// fold takes one record into what a reader has of each key.
func fold(got []uint64, r *kgo.Record) error {
	if len(r.Key) != 8 {
		return fmt.Errorf("%w: a key of %d bytes at offset %d", errAnswer, len(r.Key), r.Offset)
	}
	key := binary.BigEndian.Uint64(r.Key)
	switch {
	case key >= uint64(len(got)):
		return fmt.Errorf("%w: key %d at offset %d", errAnswer, key, r.Offset)
	case r.Value == nil:
		got[key] = 0
	case len(r.Value) != keyedValue || r.Value[8] != 0:
		return fmt.Errorf("%w: a record of an aborted transaction, or not one of ours, at offset %d", errAnswer, r.Offset)
	default:
		got[key] = binary.BigEndian.Uint64(r.Value)
	}
	return nil
}
