package coordinator

import (
	"sync"
	"time"
)

// alarm is the one timer of a Runtime. It rings at the earliest of the times that were set since it last rang.
type alarm struct {
	mu struct {
		sync.Mutex
		at      int64 // 0 for none
		stopped bool
	}
	timer *time.Timer
	quit  chan struct{}
	ended chan struct{}
}

func newAlarm() *alarm {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &alarm{timer: t, quit: make(chan struct{}), ended: make(chan struct{})}
}

// set asks for a ring in d, which is at the time at.
func (a *alarm) set(d time.Duration, at int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.stopped || a.mu.at != 0 && a.mu.at <= at {
		return
	}
	a.mu.at = at
	a.timer.Reset(max(d, 0))
}

// run calls f at every ring, until stop.
func (a *alarm) run(f func()) {
	defer close(a.ended)
	for {
		select {
		case <-a.quit:
			return
		case <-a.timer.C:
			a.mu.Lock()
			a.mu.at = 0
			a.mu.Unlock()
			f()
		}
	}
}

// stop ends run and waits for it.
func (a *alarm) stop() {
	a.mu.Lock()
	a.mu.stopped = true
	a.timer.Stop()
	a.mu.Unlock()
	close(a.quit)
	<-a.ended
}
