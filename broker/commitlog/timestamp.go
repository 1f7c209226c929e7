package commitlog

import (
	"errors"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// errFound ends a walk.
var errFound = errors.New("found")

// OffsetForTimestamp finds the first record, in offset order from LocalStartOffset, whose timestamp is at or after ts. It
// looks into the batch, decompressing it under the configured limit. Control records do not count.
func (l *Log) OffsetForTimestamp(ts int64) (offset, timestamp int64, epoch int32, found bool, err error) {
	for _, s := range *l.segs.Load() {
		if !s.retain() { // deleted or replaced since the list was loaded
			return l.OffsetForTimestamp(ts)
		}
		var r stampedRecord
		if _, maxTs, _, terr := s.times(); terr != nil {
			err = terr
		} else if maxTs >= ts {
			r, err = s.firstAtOrAfter(ts, l.localStart.Load())
		}
		if err = errors.Join(err, s.release()); err != nil || r.found {
			return r.offset, r.timestamp, r.epoch, r.found, err
		}
	}
	return -1, record.NoTimestamp, record.NoEpoch, false, nil
}

// OffsetForMaxTimestamp finds the first record that has the largest timestamp of the local log. Control records do not
// count, so their times, which the indexes have too, are passed over.
func (l *Log) OffsetForMaxTimestamp() (offset, timestamp int64, epoch int32, found bool, err error) {
	best, from := stampedRecord{offset: -1, timestamp: record.NoTimestamp, epoch: record.NoEpoch}, l.localStart.Load()
	for _, s := range *l.segs.Load() {
		if !s.retain() {
			return l.OffsetForMaxTimestamp()
		}
		r, err := s.latest(best.timestamp, from)
		if err = errors.Join(err, s.release()); err != nil {
			return best.offset, best.timestamp, best.epoch, best.found, err
		}
		if r.found {
			best = r
		}
	}
	return best.offset, best.timestamp, best.epoch, best.found, nil
}

// latest finds the segment's first record with its largest timestamp, where that is above floor.
func (s *segment) latest(floor, from int64) (r stampedRecord, err error) {
	_, maxTs, maxTsOff, err := s.times()
	if err != nil || maxTs <= floor {
		return r, err
	}
	if h, _, err := s.locate(maxTsOff); err == nil && !h.Control() && h.LastOffset() >= from {
		if r, err := s.firstAtOrAfter(maxTs, from); err != nil || r.found {
			return r, err
		}
	}
	best := floor
	err = s.walk(0, func(h *record.Header, _ int64) error {
		if !h.Control() && h.LastOffset() >= from {
			best = max(best, h.MaxTimestamp)
		}
		return nil
	})
	if err != nil || best <= floor {
		return r, err
	}
	return s.firstAtOrAfter(best, from)
}

type stampedRecord struct {
	offset, timestamp int64
	epoch             int32
	found             bool
}

func (s *segment) firstAtOrAfter(ts, from int64) (r stampedRecord, err error) {
	pos, err := s.timeFloor(ts)
	if err != nil {
		return r, err
	}
	err = s.walk(pos, func(h *record.Header, pos int64) error {
		if h.MaxTimestamp < ts || h.Control() || h.LastOffset() < from {
			return nil
		}
		b, err := s.readBatch(h, pos)
		if err != nil {
			return err
		}
		err = record.ForEachRecord(b, s.l.cfg.Load().DecompressLimit, func(rec *record.Record) error {
			if rec.Timestamp >= ts && rec.Offset >= from {
				r = stampedRecord{rec.Offset, rec.Timestamp, h.LeaderEpoch, true}
				return errFound
			}
			return nil
		})
		return s.corrupt(pos, h.BaseOffset, err)
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return r, err
}

// timeFloor is a position before which every batch is older than ts.
func (s *segment) timeFloor(ts int64) (int64, error) {
	b, err := s.readFile(suffixTime)
	if err != nil && !vfs.IsNotExist(err) {
		return 0, err
	}
	x := record.TimeIndex(b[:len(b)-len(b)%record.TimeIndexEntrySize])
	e, ok := x.Before(ts)
	if sound := x.Check() == nil; !ok || !sound {
		return 0, nil
	}
	pos, fits, err := s.timeFits(e)
	if !fits {
		pos = 0
	}
	return pos, err
}
