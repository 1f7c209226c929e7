package partition

import (
	"errors"
	"time"

	"github.com/varvehq/varve/broker/commitlog"
)

// Compact compacts the logs that are due, the dirtiest first, until none is left. Several workers may run it at once; each
// log is in the hands of one. A log whose compaction failed waits for the next call.
func (m *Manager) Compact() {
	tried := map[*Partition]bool{}
	for m.ctx.Err() == nil {
		p := m.dirtiest(tried)
		if p == nil {
			return
		}
		tried[p] = true
		m.compact(p)
		p.compacting.Store(false)
	}
}

// dirtiest takes the log that needs compaction most: one past max.compaction.lag.ms, or else the one with the largest share
// of dirty bytes above its min.cleanable.dirty.ratio. Its compacting mark is set.
func (m *Manager) dirtiest(tried map[*Partition]bool) *Partition {
	for {
		var best *Partition
		bestRatio, maxDirty, uncleanable := -1.0, 0.0, 0
		now := m.env.Clock()
		for p := range m.all {
			cfg, l := p.cfg.Load(), p.log.Load()
			if !cfg.Compact || cfg.Tiered || l == nil || p.Err() != nil {
				continue
			}
			if p.uncleanable.Load() {
				uncleanable++
			}
			c, err := l.Cleanable(now, p.hw.Load())
			if err != nil {
				if !tried[p] {
					m.compactFailed(p, err)
					tried[p] = true
				}
				continue
			}
			ratio := c.Ratio()
			maxDirty = max(maxDirty, ratio)
			if c.Due {
				ratio += 1
			} else if c.DirtyBytes == 0 || ratio <= cfg.MinCleanableRatio {
				continue
			}
			if !tried[p] && !p.compacting.Load() && ratio > bestRatio {
				best, bestRatio = p, ratio
			}
		}
		m.metrics.compactMaxDirty.Set(100 * maxDirty)
		m.metrics.compactUncleanable.Set(float64(uncleanable))
		if best == nil || best.compacting.CompareAndSwap(false, true) {
			return best
		}
	}
}

func (m *Manager) compact(p *Partition) {
	l := p.log.Load()
	began := m.env.Clock()
	out, err := l.Compact(commitlog.CompactOptions{HighWatermark: p.hw.Load(), Now: began,
		MapBytes: m.cfg.CompactMapBytes / int64(max(m.cfg.CompactWorkers, 1)), Pace: m.compactPace(p)})
	m.metrics.compactRead.Add(float64(out.BytesRead))
	m.metrics.compactWritten.Add(float64(out.BytesWritten))
	m.metrics.compactDropped.Add(float64(out.RecordsRead - out.RecordsKept))
	if err != nil {
		m.compactFailed(p, err)
		return
	}
	p.uncleanable.Store(false)
	m.metrics.compactRuns.Inc()
	m.metrics.compactSeconds.Observe(m.env.Clock().Sub(began).Seconds())
	m.env.Log.Debug("log compacted", "partition", p.name(), "from", out.From, "to", out.To, "read", out.BytesRead, "written", out.BytesWritten,
		"records", out.RecordsRead, "kept", out.RecordsKept, "rounds", out.Rounds)
}

func (m *Manager) compactFailed(p *Partition, err error) {
	if p.Err() != nil || m.ctx.Err() != nil || errors.Is(err, commitlog.ErrClosed) {
		return
	}
	m.metrics.compactErrors.Inc()
	if !p.uncleanable.Swap(true) { // said once
		m.env.Log.Warn("log not compacted", "partition", p.name(), "err", err)
	}
}

// Compaction works for no longer than workSlice, then rests as long: the requests of clients go first, and an append that finds
// the processors and the disk taken waits for a slice at most.
const workSlice = time.Millisecond

// compactPace holds compaction to half of a processor for each worker and to the bytes per second over all of them, and ends it
// when the partition fails or is deleted or the manager closes.
func (m *Manager) compactPace(p *Partition) func(n int) error {
	stopped := func() error { return errors.Join(m.ctx.Err(), p.Err()) }
	gathered, resumed := 0, time.Now()
	return func(n int) error {
		gathered += n
		worked := time.Since(resumed)
		if worked < workSlice {
			return stopped()
		}
		rest := worked
		if rate := m.cfg.CompactRate; rate > 0 {
			rest = max(rest, time.Duration(float64(gathered)/float64(rate)*float64(m.cfg.CompactWorkers)*float64(time.Second))-worked)
		}
		m.rest(p, rest)
		gathered, resumed = 0, time.Now()
		return stopped()
	}
}

// rest waits, in short steps, since a deletion waits for it.
func (m *Manager) rest(p *Partition, wait time.Duration) {
	const step = 200 * time.Millisecond
	for ; wait > 0 && m.ctx.Err() == nil && p.Err() == nil; wait -= step {
		m.pause(min(wait, step))
	}
}
