package commitlog

import (
	"errors"
	"io"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// loadProducers restores the producer state: the newest sound snapshot, then the batches after it. Above the recovery
// point the transaction indexes are made again.
func (ld *loader) loadProducers(state State) error {
	l := ld.l
	end := ld.end()
	trust := end
	if !state.Clean {
		trust = state.RecoveryPoint
		for _, s := range ld.segs {
			if s.next.Load() >= trust {
				if err := s.cutTxn(trust); err != nil {
					return err
				}
			}
		}
	}
	from, err := ld.loadSnapshot(trust, end)
	if err != nil {
		return err
	}
	next := find(ld.segs, from) + 1 // the first segment without a snapshot at its base
	err = ld.walkFrom(from, func(s *segment, h *record.Header, pos int64) error {
		for ; next < len(ld.segs) && ld.segs[next].base <= s.base; next++ {
			if err := ld.writeSnapshot(next); err != nil {
				return err
			}
		}
		if !h.HasProducer() || h.BaseOffset < from {
			return nil
		}
		if !h.Control() {
			l.mu.producers.applyData(h, s.modTime.Load())
			return nil
		}
		return ld.replayMarker(s, h, pos, trust)
	})
	for ; err == nil && next < len(ld.segs); next++ {
		err = ld.writeSnapshot(next)
	}
	if err != nil {
		return err
	}
	return ld.refillWindows()
}

// writeSnapshot writes the producer state at the base of segment i, up to which batches have been replayed. Without it nobody
// would know the producers any more once the segments before are deleted.
func (ld *loader) writeSnapshot(i int) error {
	ld.segs[i-1].auxGen++
	return ld.l.writeSnapshot(ld.segs[i].base)
}

func (ld *loader) replayMarker(s *segment, h *record.Header, pos, trust int64) error {
	b, err := s.readBatch(h, pos)
	if err != nil {
		return err
	}
	m, err := parseMarker(b, ld.l.cfg.Load().DecompressLimit)
	if err != nil {
		return s.corrupt(pos, h.BaseOffset, err)
	}
	if !isMarker(h, m) {
		return nil
	}
	if e, ok := ld.l.mu.producers.applyMarker(h, m, s.modTime.Load()); ok && h.BaseOffset >= trust {
		return s.appendTxn(e)
	}
	return nil
}

// loadSnapshot loads the newest sound snapshot at or below trust and returns the offset to replay from. It removes those above,
// which may be of batches that were cut, and those below the log's first segment, behind which batches are missing.
func (ld *loader) loadSnapshot(trust, end int64) (from int64, err error) {
	l := ld.l
	for i := len(ld.snapshots) - 1; i >= 0; i-- {
		at := ld.snapshots[i]
		name := fileName(l.dir, at, suffixSnapshot)
		if at > end || at > trust || at < ld.segs[0].base {
			l.mu.dirGen++
			if err := l.env.FS.Remove(name); err != nil && !vfs.IsNotExist(err) {
				return 0, err
			}
			continue
		}
		b, err := vfs.ReadFile(l.env.FS, name)
		if err != nil {
			return 0, err
		}
		states, err := record.ParseProducerSnapshot(b)
		if err != nil {
			l.env.Log.Warn("producer snapshot is passed over", "file", name, "error", err)
			l.mu.dirGen++
			if err := l.env.FS.Remove(name); err != nil {
				return 0, err
			}
			continue
		}
		l.mu.producers.load(states)
		l.mu.producers.snapshotAt = at
		return at, nil
	}
	return ld.segs[0].base, nil
}

// refillBytes is how far back refillWindows looks.
const refillBytes = 1 << 20

// refillWindows gives producers from a snapshot, which holds one batch of each, the batches before it, from the last part
// of the log: a producer that lost its connection in a restart repeats up to five.
func (ld *loader) refillWindows() error {
	if len(ld.l.mu.producers.byID) == 0 {
		return nil
	}
	first, from, left := len(ld.segs)-1, int64(0), int64(refillBytes)
	for ; first > 0 && ld.segs[first].size.Load() < left; first-- {
		left -= ld.segs[first].size.Load()
	}
	if s := ld.segs[first]; s.size.Load() > left {
		e, err := s.floorPosition(s.size.Load() - left)
		if err != nil {
			return err
		}
		from = int64(e.Position)
	}
	var recent []record.Header
	for _, s := range ld.segs[first:] {
		err := s.walk(from, func(h *record.Header, _ int64) error {
			if h.HasProducer() && !h.Control() {
				recent = append(recent, *h)
			}
			return nil
		})
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		from = 0
	}
	for i := len(recent) - 1; i >= 0; i-- {
		ld.l.mu.producers.refill(&recent[i])
	}
	return nil
}
