package buffer

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// Budget bounds the bytes that requests may hold at one time. All methods may be called concurrently.
type Budget struct {
	sem  *semaphore.Weighted
	size int64
	used atomic.Int64
}

// NewBudget makes a budget of size bytes.
func NewBudget(size int64) *Budget {
	return &Budget{sem: semaphore.NewWeighted(size), size: size}
}

// Acquire takes n bytes, waiting for at most wait until they are there or ctx ends. More than the whole budget counts as
// the whole budget; it returns what was taken, which the caller gives back.
func (b *Budget) Acquire(ctx context.Context, wait time.Duration, n int64) (int64, error) {
	n = min(n, b.size)
	if !b.sem.TryAcquire(n) {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		if err := b.sem.Acquire(ctx, n); err != nil {
			return 0, err
		}
	}
	b.used.Add(n)
	return n, nil
}

// Release gives n bytes back.
func (b *Budget) Release(n int64) {
	if n > 0 {
		b.used.Add(-n)
		b.sem.Release(n)
	}
}

// Used is what is taken now, Size the whole.
func (b *Budget) Used() int64 { return b.used.Load() }

// Size is the whole budget.
func (b *Budget) Size() int64 { return b.size }
