package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Env is what a Runtime needs of its broker.
type Env struct {
	Topic Log
	Now   func() time.Time // timers go by package time
	Log   *slog.Logger
}

// Runtime runs the machines of all partitions of a topic that this node leads. Its methods may be called concurrently.
type Runtime[M Machine[E, F], E any, F Outcome] struct {
	env  Env
	spec Spec[M, E, F]

	ctx     context.Context // ends when Close gives up waiting
	cancel  context.CancelFunc
	wg      sync.WaitGroup // loads, appends and what Act has begun
	loads   chan struct{}  // bounds the loads that run at once
	timers  *alarm
	closing chan struct{} // closed when Close begins
	stopped chan struct{}

	mu struct { // taken before a shard's mutex, never after
		sync.Mutex
		shards []*Shard[M, E, F]
		closed bool
	}
}

// concurrentLoads is how many partitions are read at once.
const concurrentLoads = 4

// NewRuntime starts a runtime. It serves nothing before Refresh has found partitions to lead.
func NewRuntime[M Machine[E, F], E any, F Outcome](env Env, spec Spec[M, E, F]) *Runtime[M, E, F] {
	r := &Runtime[M, E, F]{env: env, spec: spec, loads: make(chan struct{}, concurrentLoads), timers: newAlarm(),
		closing: make(chan struct{}), stopped: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	go r.timers.run(r.ring)
	return r
}

// ring lets the timers that are due fire.
func (r *Runtime[M, E, F]) ring() {
	now := r.env.Now()
	for _, sh := range r.Shards() {
		if at := sh.next.Load(); at != 0 && at <= now.UnixNano() {
			sh.tick()
		}
	}
	// What the ticks left is the next alarm.
	for _, sh := range r.Shards() {
		if at := sh.next.Load(); at != 0 {
			r.timers.set(time.Unix(0, at).Sub(r.env.Now()), at)
		}
	}
}

// Refresh looks which partitions this node leads now: it begins to load those it has come to lead and gives up those it
// leads no more. It is to be called after every change of the topic's leadership.
func (r *Runtime[M, E, F]) Refresh() {
	n := r.env.Topic.Partitions()
	for p := range n {
		if sh := r.Shard(p); sh != nil {
			sh.refresh()
		}
	}
	for _, sh := range r.Shards() {
		if sh.partition >= n {
			sh.refresh()
		}
	}
}

// PartitionFor is the partition that holds a key, or ok=false while there is no such topic.
func (r *Runtime[M, E, F]) PartitionFor(key string) (partition int32, ok bool) {
	n := r.env.Topic.Partitions()
	if n <= 0 {
		return 0, false
	}
	return PartitionFor(key, n), true
}

// Touch begins to load the partition of a key where that is still to be done.
func (r *Runtime[M, E, F]) Touch(key string) {
	if sh, err := r.ShardFor(key); err == nil {
		sh.refresh()
	}
}

// Shard returns the shard of a partition, or nil when the runtime is closed.
func (r *Runtime[M, E, F]) Shard(p int32) *Shard[M, E, F] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed {
		return nil
	}
	for int(p) >= len(r.mu.shards) {
		r.mu.shards = append(r.mu.shards, &Shard[M, E, F]{r: r, partition: int32(len(r.mu.shards))})
	}
	return r.mu.shards[p]
}

// Shards returns the shards of all partitions that were of interest so far.
func (r *Runtime[M, E, F]) Shards() []*Shard[M, E, F] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*Shard[M, E, F](nil), r.mu.shards...)
}

// ShardFor returns the shard of a key's partition, or why there is none.
func (r *Runtime[M, E, F]) ShardFor(key string) (*Shard[M, E, F], error) {
	p, ok := r.PartitionFor(key)
	if !ok {
		return nil, r.spec.NoTopic
	}
	sh := r.Shard(p)
	if sh == nil {
		return nil, ErrUnavailable
	}
	return sh, nil
}

// Read runs f on the machine of a key.
func (r *Runtime[M, E, F]) Read(key string, f func(M)) error {
	sh, err := r.ShardFor(key)
	if err != nil {
		return err
	}
	return sh.Read(f)
}

// Each runs f on the machines of all partitions that this node leads. While one of them is being loaded, it is ErrLoading.
func (r *Runtime[M, E, F]) Each(f func(M)) error {
	for p := range r.env.Topic.Partitions() {
		sh := r.Shard(p)
		if sh == nil {
			return ErrUnavailable
		}
		if err := sh.Read(f); err != nil && !errors.Is(err, ErrNotCoordinator) {
			return err
		}
	}
	return nil
}

// Update runs f on the machines that serve now, and looks at their timers again.
func (r *Runtime[M, E, F]) Update(f func(M)) {
	for _, sh := range r.Shards() {
		sh.update(f)
	}
}

// Closing is closed when Close begins.
func (r *Runtime[M, E, F]) Closing() <-chan struct{} { return r.closing }

// Close refuses new requests, waits until ctx ends for the appends under way and for what Act has begun, and answers
// everything that still waits with ErrUnavailable.
func (r *Runtime[M, E, F]) Close(ctx context.Context) error {
	r.mu.Lock()
	if r.mu.closed {
		r.mu.Unlock()
		<-r.stopped
		return nil
	}
	r.mu.closed = true
	shards := r.mu.shards
	r.mu.Unlock()

	close(r.closing)
	for _, sh := range shards {
		sh.close()
	}
	idle := make(chan struct{})
	go func() { r.wg.Wait(); close(idle) }()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = fmt.Errorf("coordinator of %s: close: appends are unfinished: %w", r.spec.Name, ctx.Err())
	}
	r.cancel()
	<-idle
	for _, sh := range shards {
		sh.unload(ErrUnavailable)
	}
	r.timers.stop()
	close(r.stopped)
	return err
}
