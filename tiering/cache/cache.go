// Package cache keeps what was downloaded, in bounded memory. Concurrent readers of one key share one download, a reader
// that gives up does not stop it (the next one finds the result), and a failed download is forgotten at once. It knows
// nothing of what it keeps.
package cache

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrClosed: the cache is closed.
var ErrClosed = errors.New("cache: closed")

// Load fetches a value and tells its size in bytes. Its context ends with the cache, not with a reader.
type Load[V any] func(ctx context.Context) (value V, size int64, err error)

// Cache is a least-recently-used cache over values that nobody changes. Values in use stay alive after eviction, so that
// memory is bounded by the limit, the downloads under way and what readers hold.
type Cache[K comparable, V any] struct {
	limit  int64
	slots  chan struct{}
	ctx    context.Context // lifetime of the cache
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     struct {
		sync.Mutex
		entries map[K]*list.Element // of *entry
		order   *list.List          // most recently used first
		loading map[K]*load[V]
		size    int64
		closed  bool
		stats   Stats
	}
}

// Stats counts since the start.
type Stats struct {
	Hits, Misses, Prefetched, Evicted int64
	Bytes                             int64 // held now
}

type entry[K comparable, V any] struct {
	key   K
	value V
	size  int64
}

type load[V any] struct {
	done  chan struct{} // closed when value and err are set
	value V
	err   error
}

// New makes a cache of so many bytes that runs so many downloads at a time.
func New[K comparable, V any](limit int64, downloads int) *Cache[K, V] {
	c := &Cache[K, V]{limit: limit, slots: make(chan struct{}, downloads)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.mu.entries = map[K]*list.Element{}
	c.mu.order = list.New()
	c.mu.loading = map[K]*load[V]{}
	return c
}

// Get gives the value of a key, from memory or by f. It returns when ctx ends; the download goes on. Where a download that
// somebody else started fails, f is tried once more.
func (c *Cache[K, V]) Get(ctx context.Context, key K, f Load[V]) (V, error) {
	for {
		v, l, joined, err := c.find(key, f)
		if l == nil {
			return v, err
		}
		select {
		case <-l.done:
		case <-ctx.Done():
			return v, ctx.Err()
		}
		if l.err == nil || !joined {
			return l.value, l.err
		}
		if err := ctx.Err(); err != nil {
			return v, err
		}
	}
}

// find gives the value, or the download to wait for; joined tells that it was under way.
func (c *Cache[K, V]) find(key K, f Load[V]) (value V, l *load[V], joined bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.mu.entries[key]; ok {
		c.mu.stats.Hits++
		c.mu.order.MoveToFront(el)
		return el.Value.(*entry[K, V]).value, nil, false, nil
	}
	c.mu.stats.Misses++
	if l, ok := c.mu.loading[key]; ok {
		return value, l, true, nil
	}
	if c.mu.closed {
		return value, nil, false, ErrClosed
	}
	return value, c.startLocked(key, f, false), false, nil
}

// Has tells whether a value is here or on its way, without counting as a use.
func (c *Cache[K, V]) Has(key K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, here := c.mu.entries[key]
	_, coming := c.mu.loading[key]
	return here || coming
}

// Prefetch starts a download unless the value is here, on its way, or all download slots are taken.
func (c *Cache[K, V]) Prefetch(key K, f Load[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.mu.entries[key]; ok || c.mu.loading[key] != nil || c.mu.closed {
		return
	}
	select {
	case c.slots <- struct{}{}:
		c.mu.stats.Prefetched++
		c.startLocked(key, f, true)
	default:
	}
}

func (c *Cache[K, V]) startLocked(key K, f Load[V], hasSlot bool) *load[V] {
	l := &load[V]{done: make(chan struct{})}
	c.mu.loading[key] = l
	c.wg.Go(func() {
		var size int64
		l.value, size, l.err = c.run(f, hasSlot)
		c.finish(key, l, size)
	})
	return l
}

func (c *Cache[K, V]) run(f Load[V], hasSlot bool) (value V, size int64, err error) {
	if !hasSlot {
		select {
		case c.slots <- struct{}{}:
		case <-c.ctx.Done():
			return value, 0, ErrClosed
		}
	}
	defer func() { <-c.slots }()
	value, size, err = f(c.ctx)
	if err != nil && c.ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return value, size, err
}

func (c *Cache[K, V]) finish(key K, l *load[V], size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(l.done)
	delete(c.mu.loading, key)
	if l.err != nil || size > c.limit {
		return
	}
	c.mu.entries[key] = c.mu.order.PushFront(&entry[K, V]{key, l.value, size})
	c.mu.size += size
	for c.mu.size > c.limit {
		c.evictLocked(c.mu.order.Back())
	}
}

func (c *Cache[K, V]) evictLocked(el *list.Element) {
	e := c.mu.order.Remove(el).(*entry[K, V])
	delete(c.mu.entries, e.key)
	c.mu.size -= e.size
	c.mu.stats.Evicted++
}

// Drop forgets a value.
func (c *Cache[K, V]) Drop(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.mu.entries[key]; ok {
		c.evictLocked(el)
	}
}

// Stats counts.
func (c *Cache[K, V]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.mu.stats
	s.Bytes = c.mu.size
	return s
}

// Close ends the downloads and waits for them. Waiting readers get ErrClosed.
func (c *Cache[K, V]) Close() {
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
}
