package txn

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/varvehq/varve/internal/kafka"
)

// retryMarkers is the pause after markers that could not be written.
const retryMarkers = time.Second / 2

// gates holds markers back while appends of their transaction are under way. It outlives coordinators: an append that was let
// through before a reload is still to be waited for.
type gates struct {
	mu       sync.Mutex
	inflight map[int64]int         // appends under way by producer id
	held     map[int64]heldMarkers // by producer id
}

// heldMarkers are markers with who asked for them.
type heldMarkers struct {
	sh *shard
	co *Coordinator
	Markers
}

// enter counts an append of a producer.
func (g *gates) enter(producer int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inflight == nil {
		g.inflight, g.held = map[int64]int{}, map[int64]heldMarkers{}
	}
	g.inflight[producer]++
}

// leave ends an append, and returns the markers that may be written now.
func (g *gates) leave(producer int64) (heldMarkers, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inflight[producer]--; g.inflight[producer] > 0 {
		return heldMarkers{}, false
	}
	delete(g.inflight, producer)
	h, ok := g.held[producer]
	delete(g.held, producer)
	return h, ok
}

// hold keeps markers where appends of their producer are under way.
func (g *gates) hold(h heldMarkers) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inflight[h.ProducerID] == 0 {
		return false
	}
	g.held[h.ProducerID] = h
	return true
}

// enter lets an append for a partition of the ongoing transaction through.
func (m *Manager) enter(sh *shard, id string, producer int64, epoch int16, tp kafka.TopicPartition) (func(), error) {
	var covers error
	err := sh.Read(func(c *Coordinator) {
		if covers = c.Covers(id, producer, epoch, tp); covers == nil {
			m.gates.enter(producer)
		}
	})
	if err != nil {
		return nil, err
	}
	if covers != nil {
		return nil, covers
	}
	return sync.OnceFunc(func() { m.leave(producer) }), nil
}

func (m *Manager) leave(producer int64) {
	if h, ok := m.gates.leave(producer); ok {
		h.sh.With(func() {
			if h.sh.Machine() == h.co {
				m.startMarkers(h)
			}
		})
	}
}

// act sees to what a step asks for beyond answers and records.
func (m *Manager) act(sh *shard, eff Effects) {
	for i := range eff.TimedOut {
		t := &eff.TimedOut[i]
		m.env.Log.Info("transaction timed out and is aborted", slog.String("transactional.id", t.ID),
			slog.Int64("producer", t.ProducerID), slog.Duration("timeout", t.Timeout), slog.Int("partitions", len(t.Partitions)))
	}
	for _, mk := range eff.Markers {
		mk.CoordinatorEpoch = sh.Epoch()
		if h := (heldMarkers{sh, sh.Machine(), mk}); !m.gates.hold(h) {
			m.startMarkers(h)
		}
	}
}

// startMarkers begins to write markers. Where the shard is closed it does not: the decision is in the log, and its end goes on
// when that is loaded again. The shard's lock is held.
func (m *Manager) startMarkers(h heldMarkers) {
	h.sh.Go(func(ctx context.Context) { m.writeMarkers(ctx, h) })
}

// writeMarkers writes the markers of one transaction, again and again until it is done or somebody else's.
func (m *Manager) writeMarkers(ctx context.Context, h heldMarkers) {
	for {
		err := m.env.Markers.WriteMarkers(ctx, h.Markers)
		if err == nil {
			h.sh.StepOf(h.co, Marked{ID: h.ID, ProducerID: h.ProducerID, Epoch: h.Epoch})
			return
		}
		if !h.sh.Current(h.co) || ctx.Err() != nil {
			return // somebody else's, or the decision is in the log
		}
		m.env.Log.Warn("the end of a transaction is not written yet, trying again",
			slog.String("transactional.id", h.ID), slog.Int64("producer", h.ProducerID), slog.Any("err", err))
		t := time.NewTimer(retryMarkers)
		select {
		case <-t.C:
		case <-m.Closing():
		}
		t.Stop()
	}
}
