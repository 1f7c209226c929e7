package worker

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// control is how the herder talks to a running task.
type control struct {
	soft context.Context // ends when the task is to stop
	hard context.Context // ends when it must have stopped

	stopSoft, stopHard context.CancelFunc

	mu struct {
		sync.Mutex
		paused  bool
		changed chan struct{} // closed and replaced at every change of paused
		timer   *time.Timer
	}
}

func newControl(life context.Context, paused bool) *control {
	c := &control{}
	c.hard, c.stopHard = context.WithCancel(life)
	c.soft, c.stopSoft = context.WithCancel(c.hard)
	c.mu.paused = paused
	c.mu.changed = make(chan struct{})
	return c
}

// stop asks the task to stop, within the grace period.
func (c *control) stop(grace time.Duration) {
	c.stopSoft()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.timer == nil {
		c.mu.timer = time.AfterFunc(grace, c.stopHard)
	}
}

// release frees what the control holds, once the task has ended.
func (c *control) release() {
	c.stopHard()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.timer != nil {
		c.mu.timer.Stop()
	}
}

func (c *control) pause(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.paused != on {
		c.mu.paused = on
		close(c.mu.changed)
		c.mu.changed = make(chan struct{})
	}
}

// paused returns whether the task is to pause, and a channel that closes when that changes.
func (c *control) paused() (bool, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.paused, c.mu.changed
}

// awaitRun blocks while the task is to pause.
func (c *control) awaitRun(ctx context.Context) error {
	for {
		paused, changed := c.paused()
		if !paused {
			return ctx.Err()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// backoff gives the delays between tries: 300 ms, doubling, with jitter, up to a limit.
type backoff struct {
	limit time.Duration
	tries int
}

const firstRetryDelay = 300 * time.Millisecond

func (b *backoff) next() time.Duration {
	d := firstRetryDelay << min(b.tries, 20)
	b.tries++
	if d > b.limit {
		d = b.limit/2 + rand.N(b.limit/2+1)
	}
	return d
}

func (b *backoff) reset() { b.tries = 0 }

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
