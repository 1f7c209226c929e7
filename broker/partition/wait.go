package partition

import "sync/atomic"

// Signal wakes one waiting goroutine. It may be used for any number of waits at one time, and again after Drain.
type Signal struct{ ch chan struct{} }

// NewSignal makes a signal.
func NewSignal() *Signal { return &Signal{ch: make(chan struct{}, 1)} }

// C receives once after any of the signal's waits came true.
func (s *Signal) C() <-chan struct{} { return s.ch }

// Fire wakes the waiter.
func (s *Signal) Fire() {
	select {
	case s.ch <- struct{}{}:
	default:
	}
}

// Drain forgets a wake-up that nobody took.
func (s *Signal) Drain() {
	select {
	case <-s.ch:
	default:
	}
}

// Progress is what a wait is for.
type Progress int8

const (
	// Committed waits for the high watermark.
	Committed Progress = iota
	// Flushed waits for the local disk.
	Flushed
)

// Wait is one entry in a partition's list of waiters. The zero value is idle. Its owner keeps it in place while it is on
// the list, and calls Cancel before it is used again.
type Wait struct {
	p          *Partition
	prev, next *Wait
	above      int64
	kind       Progress
	sig        *Signal
}

// waitList is the list of one partition, with the partition's waitMu.
type waitList struct {
	head *Wait
	n    atomic.Int32 // so that progress without waiters takes no lock
}

// Watch fires sig once the progress asked for is above the offset, and also when the partition stops being served as it
// is: closed, failed, or led in another epoch. It fires at once where that is already so.
func (p *Partition) Watch(w *Wait, kind Progress, above int64, sig *Signal) {
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	*w = Wait{p: p, above: above, kind: kind, sig: sig, next: p.waits.head}
	if w.next != nil {
		w.next.prev = w
	}
	p.waits.head = w
	p.waits.n.Add(1)
	// Read after the entry counts: progress made before was seen by nobody else, progress after sees the entry.
	if p.progress(kind) > above || p.Err() != nil {
		p.unlink(w)
		sig.Fire()
	}
}

// Cancel takes w off its list, where it still is on one.
func (w *Wait) Cancel() {
	if w.p == nil {
		return
	}
	p := w.p
	p.waitMu.Lock()
	if w.sig != nil {
		p.unlink(w)
	}
	p.waitMu.Unlock()
	w.p = nil
}

// unlink takes w off the list. waitMu is held.
func (p *Partition) unlink(w *Wait) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		p.waits.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.sig = nil, nil, nil
	p.waits.n.Add(-1)
}

// wake fires the waits that have come true, or all.
func (p *Partition) wake(all bool) {
	if p.waits.n.Load() == 0 {
		return
	}
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	for w := p.waits.head; w != nil; {
		next := w.next
		if all || p.progress(w.kind) > w.above {
			sig := w.sig
			p.unlink(w)
			sig.Fire()
		}
		w = next
	}
}

func (p *Partition) progress(kind Progress) int64 {
	if kind == Flushed {
		return p.flushed.Load()
	}
	return p.hw.Load()
}
