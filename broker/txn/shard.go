package txn

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
)

// shard is one partition of __transaction_state with its coordinator.
type shard struct {
	m         *Manager
	partition int32

	mu      sync.Mutex // guards what follows; taken after Manager.mu
	co      *Coordinator
	epoch   int32 // the leader epoch that co or the load is of
	loading bool
	closed  bool
	retryAt time.Time // no load before it, after one has failed
	// queue holds the writes of co that are not given to the log yet, and appending says that a goroutine sees to them.
	queue     []Write
	appending bool
	// inflight counts the appends under way by producer id, and held has the markers that wait for them. Both outlive co: an
	// append that was let through before a reload is still to be waited for.
	inflight map[int64]int
	held     map[int64]Markers
}

const (
	retryLoad    = time.Second     // after a load that failed
	retryMarkers = time.Second / 2 // after markers that could not be written
)

// serving returns the coordinator, or why there is none. It begins to load where it has to. mu is held.
func (sh *shard) serving() (*Coordinator, error) {
	if sh.closed {
		return nil, ErrUnavailable
	}
	epoch, leads := sh.m.env.TxnLog.Leads(sh.partition)
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
	defer sh.mu.Unlock()
	co, err := sh.serving()
	if err != nil {
		return err
	}
	sh.take(co.Step(sh.m.env.Now(), e))
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

// tick lets timers fire, and begins a load again that had failed.
func (sh *shard) tick() { _ = sh.step(Tick{}) }

// take sees to the effects of a step. mu is held; answers only fill channels that have room.
func (sh *shard) take(eff Effects) {
	for _, r := range eff.Replies {
		r.To.(answer) <- r.Body
	}
	for i := range eff.TimedOut {
		t := &eff.TimedOut[i]
		sh.m.env.Log.Info("transaction timed out and is aborted", slog.String("transactional.id", t.ID),
			slog.Int64("producer", t.ProducerID), slog.Duration("timeout", t.Timeout), slog.Int("partitions", len(t.Partitions)))
	}
	if len(eff.Writes) > 0 {
		sh.queue = append(sh.queue, eff.Writes...)
		if !sh.appending {
			sh.appending = true
			sh.m.wg.Add(1)
			go sh.appendLoop()
		}
	}
	for _, mk := range eff.Markers {
		if sh.closed {
			return // the decision is in the log, and its end goes on when that is loaded again
		}
		mk.CoordinatorEpoch = sh.epoch
		if sh.inflight[mk.ProducerID] > 0 {
			sh.held[mk.ProducerID] = mk
		} else {
			sh.startMarkers(mk)
		}
	}
}

// enter counts an append for a partition of the ongoing transaction.
func (sh *shard) enter(id string, producer int64, epoch int16, tp kafka.TopicPartition) (func(), error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	co, err := sh.serving()
	if err == nil {
		err = co.Covers(id, producer, epoch, tp)
	}
	if err != nil {
		return nil, err
	}
	sh.inflight[producer]++
	return sync.OnceFunc(func() { sh.leave(producer) }), nil
}

func (sh *shard) leave(producer int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.inflight[producer]--; sh.inflight[producer] > 0 {
		return
	}
	delete(sh.inflight, producer)
	if mk, ok := sh.held[producer]; ok {
		delete(sh.held, producer)
		if !sh.closed && sh.co != nil {
			sh.startMarkers(mk)
		}
	}
}

// startMarkers begins to write markers. mu is held, and the shard is not closed.
func (sh *shard) startMarkers(mk Markers) {
	sh.m.wg.Add(1)
	go sh.writeMarkers(sh.co, mk)
}

// writeMarkers writes the markers of one transaction, again and again until it is done or somebody else's.
func (sh *shard) writeMarkers(co *Coordinator, mk Markers) {
	defer sh.m.wg.Done()
	for {
		err := sh.m.env.Markers.WriteMarkers(sh.m.ctx, mk)
		sh.mu.Lock()
		if sh.co != co {
			sh.mu.Unlock()
			return
		}
		if err == nil {
			sh.take(co.Step(sh.m.env.Now(), Marked{ID: mk.ID, ProducerID: mk.ProducerID, Epoch: mk.Epoch}))
			sh.mu.Unlock()
			return
		}
		closed := sh.closed
		sh.mu.Unlock()
		if closed || sh.m.ctx.Err() != nil {
			return // the decision is in the log
		}
		sh.m.env.Log.Warn("the end of a transaction is not written yet, trying again",
			slog.String("transactional.id", mk.ID), slog.Int64("producer", mk.ProducerID), slog.Any("err", err))
		t := time.NewTimer(retryMarkers)
		select {
		case <-t.C:
		case <-sh.m.quit:
		}
		t.Stop()
	}
}

// load reads the partition.
func (sh *shard) load(epoch int32) {
	defer sh.m.wg.Done()
	l := NewLoader()
	var err error
	select {
	case sh.m.loads <- struct{}{}:
		err = sh.m.env.TxnLog.Load(sh.m.ctx, sh.partition, l.Add)
		<-sh.m.loads
	case <-sh.m.ctx.Done():
		err = sh.m.ctx.Err()
	}
	var co *Coordinator
	var eff Effects
	if err == nil {
		co, eff, err = l.Coordinator(sh.m.cfg.Load(), sh.m.env.Now())
	}
	if err != nil && sh.m.ctx.Err() == nil {
		sh.m.env.Log.Error("loading transactions failed", slog.Int("partition", int(sh.partition)), slog.Any("err", err))
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.loading = false
	now, leads := sh.m.env.TxnLog.Leads(sh.partition)
	switch {
	case sh.closed:
	case err != nil:
		sh.retryAt = sh.m.env.Now().Add(retryLoad)
	case !leads || now != epoch: // the next request or Refresh loads again
	default:
		sh.co = co
		sh.take(eff)
	}
}

// drop answers everything that waits with err and forgets the state. mu is held.
func (sh *shard) drop(err error) {
	if sh.co == nil {
		return
	}
	eff := sh.co.Unload(sh.m.env.Now(), err)
	sh.co, sh.queue, sh.held = nil, nil, map[int64]Markers{}
	sh.take(eff)
}

// close refuses all later requests.
func (sh *shard) close() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.closed = true
}

// recordOverhead is the most that a record takes beside its key and value.
const recordOverhead = 32

// takeWrites removes from the front of the queue what goes into one batch, and at least one write.
func (sh *shard) takeWrites(limit int) []Write {
	size, n := record.HeaderSize, 0
	for n < len(sh.queue) {
		size += len(sh.queue[n].Record.Key) + len(sh.queue[n].Record.Value) + recordOverhead
		if n > 0 && size > limit {
			break
		}
		n++
	}
	writes := sh.queue[:n:n]
	if sh.queue = sh.queue[n:]; len(sh.queue) == 0 {
		sh.queue = nil
	}
	return writes
}

// appendLoop gives the queued writes to the log, batch by batch: while one is being made durable, the writes of all
// transactions gather for the next. It ends when nothing is queued.
func (sh *shard) appendLoop() {
	defer sh.m.wg.Done()
	for {
		sh.mu.Lock()
		co, epoch := sh.co, sh.epoch
		writes := sh.takeWrites(sh.m.cfg.Load().MaxBatchBytes)
		if len(writes) == 0 {
			sh.appending = false
			sh.mu.Unlock()
			return
		}
		sh.mu.Unlock()

		b := record.NewBuilder(record.BuilderOptions{LeaderEpoch: epoch})
		for _, w := range writes {
			b.Append(sh.m.env.Now().UnixMilli(), w.Record.Key, w.Record.Value, nil)
		}
		err := sh.m.env.TxnLog.Append(sh.m.ctx, sh.partition, epoch, b.Batch(0))

		sh.mu.Lock()
		if sh.co == co {
			sh.written(co, writes, err)
		} // else the coordinator that asked for it has answered already
		sh.mu.Unlock()
	}
}

// written tells the coordinator what became of its writes. Where that is not certain, the log is read again. mu is held.
func (sh *shard) written(co *Coordinator, writes []Write, err error) {
	switch {
	case err == nil:
	case errors.Is(err, ErrNotCoordinator):
		sh.drop(ErrNotCoordinator)
		return
	case errors.Is(err, ErrNotWritten):
		err = errors.Join(ErrUnavailable, err)
	default:
		sh.m.env.Log.Error("appending to the transaction log failed; its transactions are loaded again",
			slog.Int("partition", int(sh.partition)), slog.Any("err", err))
		sh.retryAt = sh.m.env.Now().Add(retryLoad)
		sh.drop(ErrUnavailable)
		return
	}
	for _, w := range writes {
		sh.take(co.Step(sh.m.env.Now(), Written{ID: w.ID, Err: err}))
	}
}
