// Package tieringtest makes local logs for tests of what is copied to a bucket.
package tieringtest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/varvehq/varve/internal/objstore/objstoretest"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tiering"
)

// FirstTimestamp is the timestamp of a log's first record; each further one is 10 ms later.
const FirstTimestamp = 1_700_000_000_010

// Clock is a clock that tests move.
type Clock struct {
	mu sync.Mutex
	t  time.Time
}

// NewClock starts at a fixed time.
func NewClock() *Clock { return &Clock{t: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

// Now tells the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// Log is a local log: batches with their epochs, from which segments are cut.
type Log struct {
	Epochs  []record.EpochEntry
	Next    int64
	Time    int64 // timestamp of the last record
	batches []batch
}

type batch struct {
	first, last int64
	data        []byte
	maxTs       int64
}

// NewLog makes an empty log that starts at an offset.
func NewLog(first int64) *Log { return &Log{Next: first, Time: FirstTimestamp - 10} }

// Add appends batches of so many records of so many bytes in a leader epoch, in all codecs by turns.
func (l *Log) Add(epoch int32, batches, records, size int) *Log {
	if n := len(l.Epochs); n == 0 || l.Epochs[n-1].Epoch != epoch {
		l.Epochs = append(l.Epochs, record.EpochEntry{Epoch: epoch, StartOffset: l.Next})
	}
	for range batches {
		b := record.NewBuilder(record.BuilderOptions{LeaderEpoch: epoch, Codec: record.Codec(l.Next % 5)})
		first := l.Next
		for range records {
			l.Time += 10
			b.Append(l.Time, fmt.Appendf(nil, "key-%d", l.Next), objstoretest.Bytes(size, uint64(l.Next)), nil)
			l.Next++
		}
		l.batches = append(l.batches, batch{first, l.Next - 1, b.Batch(first), l.Time})
	}
	return l
}

// AddBatch appends a batch that the test has built; its base offset is set.
func (l *Log) AddBatch(data []byte) {
	record.SetBaseOffset(data, l.Next)
	h, err := record.ParseHeader(data)
	if err != nil {
		panic(err)
	}
	l.batches = append(l.batches, batch{l.Next, h.LastOffset(), data, h.MaxTimestamp})
	l.Next = h.NextOffset()
}

// Segment cuts [from, to) out of the log; both are offsets at batch borders.
func (l *Log) Segment(t testing.TB, from, to int64) tiering.Segment {
	t.Helper()
	s := tiering.Segment{BaseOffset: from, LastOffset: to - 1, ProducerSnapshot: []byte("snapshot"), MaxTimestamp: -1, FirstTimestamp: -1}
	log := l.Bytes(from, to)
	for _, b := range l.batches {
		if b.first >= from && b.last < to {
			s.MaxTimestamp = max(s.MaxTimestamp, b.maxTs)
			s.Records += b.last - b.first + 1
		}
	}
	for _, e := range l.Epochs {
		if e.StartOffset < to {
			s.Epochs = append(s.Epochs, e)
		}
	}
	s.Log, s.LogBytes = bytes.NewReader(log), int64(len(log))
	if len(log) == 0 {
		t.Fatalf("no batches in %d to %d", from, to)
	}
	s.LeaderEpoch = s.Epochs[len(s.Epochs)-1].Epoch
	return s
}

// Bytes gives the log's bytes from the batch that holds an offset to the one that holds the offset before to.
func (l *Log) Bytes(from, to int64) []byte {
	var out []byte
	for _, b := range l.batches {
		if b.last >= from && b.first < to {
			out = append(out, b.data...)
		}
	}
	return out
}

// Compare reads [from, to) of the bucket and compares it with the log.
func (l *Log) Compare(ctx context.Context, p *tiering.Partition, from, to int64, maxBytes int) error {
	var got []byte
	for next := from; next < to; {
		b, release, err := p.Read(ctx, next, maxBytes)
		if err != nil {
			return err
		}
		it := record.NewBatchIterator(b)
		for h, batch, ok := it.Next(); ok; h, batch, ok = it.Next() {
			if next = h.NextOffset(); h.BaseOffset < to {
				got = append(got, batch...)
			}
		}
		if it.Err() != nil || len(b) == 0 {
			return fmt.Errorf("read at %d gave %d bytes, %w", next, len(b), it.Err())
		}
		release()
	}
	if want := l.Bytes(from, to); !bytes.Equal(got, want) {
		return fmt.Errorf("%s: read of %d to %d gave %d bytes, want %d, or other ones", p, from, to, len(got), len(want))
	}
	return nil
}

// Borders gives the offsets at which batches start, and the log's end.
func (l *Log) Borders() []int64 {
	out := make([]int64, 0, len(l.batches)+1)
	for _, b := range l.batches {
		out = append(out, b.first)
	}
	return append(out, l.Next)
}

// Decode decodes every record.
func (l *Log) Decode() error {
	for _, b := range l.batches {
		if err := record.ForEachRecord(b.data, 1<<30, func(*record.Record) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}
