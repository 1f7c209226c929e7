package main

import (
	"math/rand/v2"
	"time"

	"github.com/varvehq/varve/internal/record"
)

// batch is one encoded record batch, which every request of a scenario carries.
type batch struct {
	bytes   []byte
	records int
}

// newBatch makes an uncompressed batch of exactly size bytes from records with values of about value bytes and no keys: the
// last value is longer by what is left.
func newBatch(size, value int) batch {
	now := time.Now().UnixMilli()
	data := make([]byte, 2*value+size)
	rng := rand.New(rand.NewPCG(1, uint64(size)))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	b := record.NewBuilder(record.BuilderOptions{})
	one := 0
	for {
		before := b.Size()
		b.Append(now, nil, data[:value], nil)
		one = max(one, b.Size()-before)
		if b.Size()+2*one > size {
			break
		}
	}
	n := b.Len() + 1
	for last := value; ; {
		b.Reset()
		for range n - 1 {
			b.Append(now, nil, data[:value], nil)
		}
		b.Append(now, nil, data[:last], nil)
		if b.Size() == size {
			return batch{b.Batch(0), n}
		}
		last = max(last+size-b.Size(), 0)
	}
}
