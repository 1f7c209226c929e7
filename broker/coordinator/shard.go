package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Shard is one partition of the topic with its machine.
type Shard[M Machine[E, F], E any, F Outcome] struct {
	r         *Runtime[M, E, F]
	partition int32
	// next is when the shard wants its tick, in nanoseconds since the epoch, or 0.
	next atomic.Int64

	mu      sync.Mutex // guards what follows; taken after Runtime.mu
	machine M          // the zero value for none
	epoch   int32      // the leader epoch that the machine or the load is of
	loading bool
	closed  bool
	retryAt time.Time // no load before it, after one has failed
	// queue holds the writes of the machine that are not given to the log yet, and appending says that a goroutine sees to them.
	queue     []Write
	appending bool
}

// retryLoad is the pause after a load that failed.
const retryLoad = time.Second

// Partition is the shard's partition of the topic.
func (sh *Shard[M, E, F]) Partition() int32 { return sh.partition }

// Machine and Epoch are the machine that serves, and the leader epoch it is of. They are for Act and With.
func (sh *Shard[M, E, F]) Machine() M { return sh.machine }

// Epoch is the leader epoch of the machine.
func (sh *Shard[M, E, F]) Epoch() int32 { return sh.epoch }

func (sh *Shard[M, E, F]) serves() bool {
	var none M
	return sh.machine != none
}

// serving returns the machine, or why there is none. It begins to load where it has to. mu is held.
func (sh *Shard[M, E, F]) serving() (M, error) {
	var none M
	if sh.closed {
		return none, ErrUnavailable
	}
	epoch, leads := sh.r.env.Topic.Leads(sh.partition)
	if sh.serves() {
		if leads && epoch == sh.epoch {
			return sh.machine, nil
		}
		sh.drop(ErrNotCoordinator)
	}
	switch {
	case !leads:
		return none, ErrNotCoordinator
	case sh.loading:
		return none, ErrLoading
	case sh.r.env.Now().Before(sh.retryAt):
		return none, ErrUnavailable
	}
	sh.loading, sh.epoch = true, epoch
	sh.r.wg.Add(1)
	go sh.load(epoch)
	return none, ErrLoading
}

// refresh follows a change of leadership.
func (sh *Shard[M, E, F]) refresh() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	_, _ = sh.serving() // it loads or drops as is due
}

// Step gives an event to the machine and sees to its effects. An error means that there is none; the event's reply then never
// comes.
func (sh *Shard[M, E, F]) Step(e E) error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	m, err := sh.serving()
	if err == nil {
		sh.take(m.Step(sh.r.env.Now(), e))
	}
	return err
}

// StepOf is Step where the machine that serves is still m.
func (sh *Shard[M, E, F]) StepOf(m M, e E) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.machine == m {
		sh.take(m.Step(sh.r.env.Now(), e))
	}
}

// Read runs f on the machine.
func (sh *Shard[M, E, F]) Read(f func(M)) error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	m, err := sh.serving()
	if err == nil {
		f(m)
	}
	return err
}

// With runs f with the shard's lock held, whether the shard serves or not.
func (sh *Shard[M, E, F]) With(f func()) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	f()
}

// Go runs f in a goroutine that Close waits for, unless the shard is closed. ctx ends when Close gives up waiting. It is for
// Act and With.
func (sh *Shard[M, E, F]) Go(f func(ctx context.Context)) {
	if sh.closed {
		return
	}
	sh.r.wg.Add(1)
	go func() {
		defer sh.r.wg.Done()
		f(sh.r.ctx)
	}()
}

// Current tells whether m still serves.
func (sh *Shard[M, E, F]) Current(m M) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.machine == m && !sh.closed
}

func (sh *Shard[M, E, F]) update(f func(M)) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.serves() {
		f(sh.machine)
		sh.setAlarm()
	}
}

// tick lets the machine's timers fire, and begins a load again that had failed.
func (sh *Shard[M, E, F]) tick() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.next.Store(0)
	if m, err := sh.serving(); err == nil {
		sh.take(m.Step(sh.r.env.Now(), sh.r.spec.Tick))
	}
}

// take sees to the effects of a step. mu is held; answers only close channels.
func (sh *Shard[M, E, F]) take(f F) {
	eff := f.Common()
	deliver(eff.Replies)
	if len(eff.Writes) > 0 {
		sh.queue = append(sh.queue, eff.Writes...)
		if !sh.appending {
			sh.appending = true
			sh.r.wg.Add(1)
			go sh.appendLoop()
		}
	}
	if sh.r.spec.Act != nil {
		sh.r.spec.Act(sh, f)
	}
	if eff.Reload {
		sh.reload()
		return
	}
	sh.setAlarm()
}

// reload forgets the machine and asks for another load. mu is held.
func (sh *Shard[M, E, F]) reload() {
	sh.drop(ErrUnavailable)
	sh.retry()
}

// setAlarm looks when the machine wants its tick. mu is held.
func (sh *Shard[M, E, F]) setAlarm() {
	at, ok := sh.machine.Next()
	if !ok {
		sh.next.Store(0)
		return
	}
	sh.wakeAt(at)
}

func (sh *Shard[M, E, F]) wakeAt(at time.Time) {
	if ns := at.UnixNano(); sh.next.Swap(ns) != ns {
		sh.r.timers.set(at.Sub(sh.r.env.Now()), ns)
	}
}

func deliver(replies []Reply) {
	for _, r := range replies {
		r.To.(answerer).answer(r.Body)
	}
}

// load reads the partition.
func (sh *Shard[M, E, F]) load(epoch int32) {
	defer sh.r.wg.Done()
	m, eff, err := sh.read()
	if err != nil && sh.r.ctx.Err() == nil {
		sh.r.env.Log.Error(fmt.Sprintf("loading %s failed", sh.r.spec.Name), slog.Int("partition", int(sh.partition)), slog.Any("err", err))
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.loading = false
	now, leads := sh.r.env.Topic.Leads(sh.partition)
	switch {
	case sh.closed:
	case err != nil:
		sh.retry()
	case !leads || now != epoch: // the next request or Refresh loads again
	default:
		sh.machine = m
		sh.take(eff)
		if sh.r.spec.Loaded != nil {
			sh.take(sh.r.spec.Loaded(sh.r.env.Now(), m))
		}
	}
}

// read makes a machine of the log.
func (sh *Shard[M, E, F]) read() (m M, eff F, err error) {
	select {
	case sh.r.loads <- struct{}{}:
	case <-sh.r.ctx.Done():
		return m, eff, sh.r.ctx.Err()
	}
	add, finish := sh.r.spec.Loader()
	err = sh.r.env.Topic.Load(sh.r.ctx, sh.partition, add)
	<-sh.r.loads
	if err != nil {
		return m, eff, err
	}
	return finish(sh.r.env.Now())
}

// retry asks for another load after a pause. mu is held.
func (sh *Shard[M, E, F]) retry() {
	sh.retryAt = sh.r.env.Now().Add(retryLoad)
	sh.wakeAt(sh.retryAt)
}

// drop answers everything that waits with err and forgets the state. mu is held.
func (sh *Shard[M, E, F]) drop(err error) {
	if !sh.serves() {
		return
	}
	eff := sh.machine.Unload(sh.r.env.Now(), err)
	var none M
	sh.machine, sh.queue = none, nil
	sh.next.Store(0)
	deliver(eff.Common().Replies)
}

func (sh *Shard[M, E, F]) unload(err error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.drop(err)
}

// close refuses all later requests.
func (sh *Shard[M, E, F]) close() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.closed = true
}

// appendLoop gives the queued writes to the log, batch by batch: while one is being made durable, the machine's next writes
// gather. It ends when nothing is queued.
func (sh *Shard[M, E, F]) appendLoop() {
	defer sh.r.wg.Done()
	for {
		sh.mu.Lock()
		m, epoch := sh.machine, sh.epoch
		writes := takeWrites(&sh.queue, sh.r.spec.MaxBatchBytes())
		if len(writes) == 0 {
			sh.appending = false
			sh.mu.Unlock()
			return
		}
		sh.mu.Unlock()

		err := sh.append(epoch, writes)

		sh.mu.Lock()
		if sh.machine == m {
			sh.written(m, writes, err)
		} // else the machine that asked for it has answered already
		sh.mu.Unlock()
	}
}

// written tells the machine what became of its writes. Where that is not certain, the log is read again. mu is held.
func (sh *Shard[M, E, F]) written(m M, writes []Write, err error) {
	switch {
	case err == nil:
	case errors.Is(err, ErrNotCoordinator):
		sh.drop(ErrNotCoordinator)
		return
	case !errors.Is(err, ErrNotWritten):
		sh.r.env.Log.Error(fmt.Sprintf("appending to the topic of %s failed; they are loaded again", sh.r.spec.Name),
			slog.Int("partition", int(sh.partition)), slog.Any("err", err))
		sh.reload()
		return
	case !errors.Is(err, ErrRecordTooLarge) && !errors.Is(err, ErrProducerFenced):
		err = errors.Join(ErrUnavailable, err)
	}
	for _, w := range writes {
		if sh.machine != m {
			return // an earlier one of them made it load again
		}
		sh.take(m.Step(sh.r.env.Now(), sh.r.spec.Written(w.ID, err)))
	}
}
