package group

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// shard is one partition of __consumer_offsets with its coordinator.
type shard struct {
	m         *Manager
	partition int32
	// next is when the coordinator wants its Tick, in nanoseconds since the epoch, or 0.
	next atomic.Int64

	mu      sync.Mutex // guards what follows; taken after Manager.mu
	co      *Coordinator
	epoch   int32 // the leader epoch that co or the load is of
	loading bool
	closed  bool
	retryAt time.Time // no load before it, after one has failed
	// queue holds the writes of co that are not given to the log yet, and appending says that a goroutine sees to them.
	queue     []Write
	appending bool
}

// retryLoad is the pause after a load that failed.
const retryLoad = time.Second

// serving returns the coordinator, or why there is none. It begins to load where it has to. mu is held.
func (sh *shard) serving() (*Coordinator, error) {
	if sh.closed {
		return nil, ErrUnavailable
	}
	epoch, leads := sh.m.env.OffsetsLog.Leads(sh.partition)
	if sh.co != nil {
		if leads && epoch == sh.epoch {
			return sh.co, nil
		}
		sh.drop(ErrNotCoordinator)
	}
	switch {
	case !leads:
		return nil, ErrNotCoordinator
	case sh.loading:
		return nil, ErrLoading
	case sh.m.env.Now().Before(sh.retryAt):
		return nil, ErrUnavailable
	}
	sh.loading, sh.epoch = true, epoch
	sh.m.wg.Add(1)
	go sh.load(epoch)
	return nil, ErrLoading
}

// refresh follows a change of leadership.
func (sh *shard) refresh() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	_, _ = sh.serving() // it loads or drops as is due
}

// step gives an event to the coordinator and sees to its effects. An error means that there is none; the event's reply then
// never comes.
func (sh *shard) step(e Event) error {
	sh.mu.Lock()
	co, err := sh.serving()
	if err != nil {
		sh.mu.Unlock()
		return err
	}
	eff := co.Step(sh.m.env.Now(), e)
	sh.take(eff)
	sh.mu.Unlock()
	deliver(eff.Replies)
	return nil
}

// read runs f on the coordinator.
func (sh *shard) read(f func(*Coordinator)) error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	co, err := sh.serving()
	if err == nil {
		f(co)
	}
	return err
}

func (sh *shard) tick() {
	sh.mu.Lock()
	if sh.co == nil || sh.closed {
		sh.next.Store(0)
		sh.mu.Unlock()
		return
	}
	eff := sh.co.Step(sh.m.env.Now(), Tick{})
	sh.take(eff)
	sh.mu.Unlock()
	deliver(eff.Replies)
}

// take queues the writes of a step, logs its notes and sets the alarm. mu is held.
func (sh *shard) take(eff Effects) {
	for i := range eff.Notes {
		sh.log(&eff.Notes[i])
	}
	if len(eff.Writes) > 0 {
		sh.queue = append(sh.queue, eff.Writes...)
		if !sh.appending {
			sh.appending = true
			sh.m.wg.Add(1)
			go sh.appendLoop()
		}
	}
	at, ok := sh.co.Next()
	if !ok {
		sh.next.Store(0)
		return
	}
	if ns := at.UnixNano(); sh.next.Swap(ns) != ns {
		sh.m.timers.set(at.Sub(sh.m.env.Now()), ns)
	}
}

func (sh *shard) log(n *Note) {
	attrs := make([]slog.Attr, 0, 5)
	attrs = append(attrs, slog.String("group", n.Group), slog.Int("generation", int(n.Generation)), slog.Int("members", n.Members))
	if n.Member != "" {
		attrs = append(attrs, slog.String("member", n.Member))
	}
	if n.Reason != "" {
		attrs = append(attrs, slog.String("reason", n.Reason))
	}
	sh.m.env.Log.LogAttrs(sh.m.ctx, slog.LevelInfo, n.What, attrs...)
}

func deliver(replies []Reply) {
	for _, r := range replies {
		body := r.Body
		if _, ok := r.To.(*Pending[outcome]); ok {
			err, _ := body.(error)
			body = outcome{err}
		}
		r.To.(answerer).answer(body)
	}
}

// load reads the partition.
func (sh *shard) load(epoch int32) {
	defer sh.m.wg.Done()
	l := NewLoader()
	var err error
	select {
	case sh.m.loads <- struct{}{}:
		err = sh.m.env.OffsetsLog.Load(sh.m.ctx, sh.partition, l.Add)
		<-sh.m.loads
	case <-sh.m.ctx.Done():
		err = sh.m.ctx.Err()
	}
	var co *Coordinator
	var eff Effects
	if err == nil {
		co, eff, err = l.Coordinator(sh.m.cfg.Load(), sh.m.env.Now(), sh.m.env.MemberID)
	}
	if err != nil && sh.m.ctx.Err() == nil {
		sh.m.env.Log.Error("loading groups failed", slog.Int("partition", int(sh.partition)), slog.Any("err", err))
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.loading = false
	now, leads := sh.m.env.OffsetsLog.Leads(sh.partition)
	switch {
	case sh.closed:
	case err != nil:
		sh.retryAt = sh.m.env.Now().Add(retryLoad)
	case !leads || now != epoch: // the next request or Refresh loads again
	default:
		sh.co = co
		sh.take(eff)
		if gone := sh.co.goneTopics(sh.m.env.TopicID); len(gone) > 0 {
			sh.take(sh.co.Step(sh.m.env.Now(), TopicsDeleted{Topics: gone}))
		}
	}
}

// drop answers everything that waits with err and forgets the state. mu is held.
func (sh *shard) drop(err error) {
	if sh.co == nil {
		return
	}
	eff := sh.co.Unload(sh.m.env.Now(), err)
	sh.co, sh.queue = nil, nil
	sh.next.Store(0)
	deliver(eff.Replies) // answers only close channels
}

func (sh *shard) unload(err error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.drop(err)
}

// close refuses all later requests.
func (sh *shard) close() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.closed = true
}

// appendLoop gives the queued writes to the log, batch by batch: while one is being made durable, the writes of all groups
// gather for the next. It ends when nothing is queued.
func (sh *shard) appendLoop() {
	defer sh.m.wg.Done()
	for {
		sh.mu.Lock()
		co, epoch := sh.co, sh.epoch
		writes := takeWrites(&sh.queue, sh.m.cfg.Load().MaxBatchBytes)
		if len(writes) == 0 {
			sh.appending = false
			sh.mu.Unlock()
			return
		}
		sh.mu.Unlock()

		err := sh.append(epoch, writes)

		sh.mu.Lock()
		if sh.co != co {
			sh.mu.Unlock()
			continue // the coordinator that asked for it has answered already
		}
		replies := sh.written(co, writes, err)
		sh.mu.Unlock()
		deliver(replies)
	}
}

// written tells the coordinator what became of its writes. Where that is not certain, the log is read again. mu is held.
func (sh *shard) written(co *Coordinator, writes []Write, err error) []Reply {
	switch {
	case err == nil, errors.Is(err, ErrNotWritten) && !errors.Is(err, ErrNotCoordinator):
	case errors.Is(err, ErrNotCoordinator):
		sh.drop(ErrNotCoordinator)
		return nil
	default:
		sh.m.env.Log.Error("appending to the offsets topic failed; its groups are loaded again",
			slog.Int("partition", int(sh.partition)), slog.Any("err", err))
		sh.retryAt = sh.m.env.Now().Add(retryLoad)
		sh.drop(ErrUnavailable)
		return nil
	}
	if err != nil && !errors.Is(err, ErrRecordTooLarge) && !errors.Is(err, ErrProducerFenced) {
		err = errors.Join(ErrUnavailable, err)
	}
	var replies []Reply
	for _, w := range writes {
		eff := co.Step(sh.m.env.Now(), Written{ID: w.ID, Err: err})
		replies = append(replies, eff.Replies...)
		sh.take(eff)
	}
	return replies
}
