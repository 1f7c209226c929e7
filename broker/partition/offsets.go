package partition

import (
	"context"
	"fmt"

	"github.com/varvehq/varve/broker/commitlog"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tiering"
)

// Timestamps with a meaning of their own in ListOffset, with the protocol's numbers.
const (
	Latest                int64 = -1
	Earliest              int64 = -2
	MaxTimestamp          int64 = -3
	EarliestLocal         int64 = -4
	LatestTiered          int64 = -5
	EarliestPendingUpload int64 = -6
)

// OffsetQuery asks for an offset.
type OffsetQuery struct {
	Timestamp   int64 // milliseconds, or one of the constants above
	LeaderEpoch int32 // -1 for none
	Committed   bool  // nothing at or above the last stable offset
}

// OffsetAnswer is the answer: Offset -1 where there is none, Timestamp -1 where the answer has none.
type OffsetAnswer struct {
	Offset, Timestamp int64
	LeaderEpoch       int32
}

var noOffset = OffsetAnswer{Offset: -1, Timestamp: -1, LeaderEpoch: -1}

// ListOffset finds an offset by a timestamp over both tiers. It may wait for the remote tier.
func (p *Partition) ListOffset(ctx context.Context, q OffsetQuery) (OffsetAnswer, error) {
	if _, err := p.leads(); err != nil {
		return noOffset, err
	}
	if err := p.CheckEpoch(q.LeaderEpoch); err != nil {
		return noOffset, err
	}
	l, err := p.local()
	if err != nil {
		return noOffset, err
	}
	if l == nil {
		return p.emptyOffset(q), nil
	}
	bound := p.hw.Load()
	if q.Committed {
		bound = min(bound, l.LastStableOffset(bound))
	}
	switch q.Timestamp {
	case Latest:
		return OffsetAnswer{Offset: bound, Timestamp: -1, LeaderEpoch: p.epochAt(l, bound)}, nil
	case Earliest:
		return p.at(l, l.StartOffset()), nil
	case EarliestLocal:
		return p.at(l, l.LocalStartOffset()), nil
	case LatestTiered, EarliestPendingUpload:
		return p.tieredOffset(ctx, l, q.Timestamp)
	}
	if q.Timestamp < EarliestPendingUpload {
		return noOffset, fmt.Errorf("%w: timestamp %d has no meaning", ErrOffsetOutOfRange, q.Timestamp)
	}
	a, err := p.timestampOffset(ctx, l, q.Timestamp)
	if err != nil || a.Offset >= bound || a.Offset < 0 {
		return noOffset, err
	}
	return a, nil
}

// emptyOffset answers for a partition that never had a record.
func (p *Partition) emptyOffset(q OffsetQuery) OffsetAnswer {
	switch q.Timestamp {
	case Latest, Earliest, EarliestLocal:
		_, epoch := p.Leader()
		return OffsetAnswer{Offset: 0, Timestamp: -1, LeaderEpoch: epoch}
	case EarliestPendingUpload:
		if p.cfg.Load().Tiered {
			return OffsetAnswer{Offset: 0, Timestamp: -1, LeaderEpoch: -1}
		}
	}
	return noOffset
}

// at is an answer without timestamp.
func (p *Partition) at(l *commitlog.Log, offset int64) OffsetAnswer {
	return OffsetAnswer{Offset: offset, Timestamp: -1, LeaderEpoch: p.epochAt(l, offset)}
}

// epochAt is the epoch of the record at an offset; at the end it is the epoch in which the next one comes.
func (p *Partition) epochAt(l *commitlog.Log, offset int64) int32 {
	if offset >= l.EndOffset() {
		_, epoch := p.Leader()
		return epoch
	}
	if epoch, ok := l.EpochForOffset(offset); ok {
		return epoch
	}
	return -1
}

func (p *Partition) tieredOffset(ctx context.Context, l *commitlog.Log, which int64) (OffsetAnswer, error) {
	if p.m.env.Remote == nil || !p.cfg.Load().Tiered && p.tier.known == 0 {
		return noOffset, nil
	}
	remote, err := p.loadRemote(ctx)
	if err != nil {
		return noOffset, err
	}
	end := remote.EndOffset()
	if which == EarliestPendingUpload {
		return p.at(l, max(end, l.StartOffset())), nil
	}
	if end == 0 || end <= l.StartOffset() {
		return noOffset, nil
	}
	return p.at(l, end-1), nil
}

// timestampOffset finds the first record with at least a timestamp, or the one with the largest.
func (p *Partition) timestampOffset(ctx context.Context, l *commitlog.Log, ts int64) (OffsetAnswer, error) {
	var remote OffsetAnswer
	below := l.LocalStartOffset()
	if l.StartOffset() < below && p.m.env.Remote != nil {
		var err error
		if remote, err = p.remoteTimestamp(ctx, l, ts); err != nil {
			return noOffset, err
		}
		// What the remote tier has at or above the local start is answered by the local log, which is as exact.
		if ts != MaxTimestamp && remote.Offset >= 0 && remote.Offset < below {
			return remote, nil
		}
	} else {
		remote = noOffset
	}
	local, err := localTimestamp(l, ts)
	if err != nil {
		return noOffset, fmt.Errorf("%w: %w", ErrStorage, err)
	}
	if ts == MaxTimestamp && remote.Offset >= 0 && remote.Timestamp >= local.Timestamp {
		return remote, nil
	}
	return local, nil
}

func localTimestamp(l *commitlog.Log, ts int64) (OffsetAnswer, error) {
	find := func() (int64, int64, int32, bool, error) { return l.OffsetForTimestamp(ts) }
	if ts == MaxTimestamp {
		find = l.OffsetForMaxTimestamp
	}
	offset, timestamp, epoch, found, err := find()
	if err != nil || !found {
		return noOffset, err
	}
	return OffsetAnswer{Offset: offset, Timestamp: timestamp, LeaderEpoch: epoch}, nil
}

func (p *Partition) remoteTimestamp(ctx context.Context, l *commitlog.Log, ts int64) (OffsetAnswer, error) {
	remote, err := p.loadRemote(ctx)
	if err != nil {
		return noOffset, err
	}
	var a tiering.TimestampOffset
	var found bool
	if ts == MaxTimestamp {
		found, a, err = remote.MaxTimestamp(ctx)
	} else {
		found, a, err = remote.OffsetForTimestamp(ctx, ts)
	}
	if err != nil || !found {
		return noOffset, err
	}
	if a.Offset < l.StartOffset() { // deleted since the manifest was written: all of the answer's segment is going
		return noOffset, nil
	}
	return OffsetAnswer{Offset: a.Offset, Timestamp: a.Timestamp, LeaderEpoch: a.LeaderEpoch}, nil
}

// EpochEnd finds the end of a leader epoch in the log: the largest epoch not above it, and the offset after its last record.
// Epoch and End are -1 where the log knows none.
func (p *Partition) EpochEnd(epoch, currentEpoch int32) (EpochEnd, error) {
	if _, err := p.leads(); err != nil {
		return noEpoch, err
	}
	if err := p.CheckEpoch(currentEpoch); err != nil {
		return noEpoch, err
	}
	l, err := p.local()
	if err != nil {
		return noEpoch, err
	}
	_, leads := p.Leader()
	return endOfEpoch(l, epoch, leads), nil
}

// endOfEpoch is EpochEnd in a log, nil for one that was never written to, which is led in an epoch: its own, also before the first
// record of that epoch.
func endOfEpoch(l *commitlog.Log, epoch, leads int32) EpochEnd {
	start, end, latest := int64(0), int64(0), record.NoEpoch
	if l != nil {
		start, end, latest = l.StartOffset(), l.EndOffset(), l.LatestEpoch()
	}
	switch {
	case epoch == record.NoEpoch || epoch > leads:
		return noEpoch
	case epoch == leads:
		return EpochEnd{Epoch: leads, End: end}
	case latest == record.NoEpoch:
		return EpochEnd{Epoch: epoch, End: start}
	case epoch > latest:
		return EpochEnd{Epoch: latest, End: end}
	}
	e, end := l.EndOffsetForEpoch(epoch)
	return EpochEnd{Epoch: e, End: end}
}

// DeleteRecords moves the log start to an offset, -1 for the high watermark, and returns it. It is on disk when it returns.
func (p *Partition) DeleteRecords(offset int64) (int64, error) {
	if _, err := p.leads(); err != nil {
		return -1, err
	}
	l, err := p.local()
	if err != nil {
		return -1, err
	}
	hw := p.hw.Load()
	if offset == Latest {
		offset = hw
	}
	if l == nil || offset > hw || offset < 0 {
		if l == nil && offset == 0 {
			return 0, nil
		}
		return -1, fmt.Errorf("%w: %d is above the high watermark %d", ErrOffsetOutOfRange, offset, hw)
	}
	if offset > l.StartOffset() {
		if err := l.AdvanceStart(offset); err != nil {
			return -1, fmt.Errorf("%w: %w", ErrStorage, err)
		}
		p.m.touch(p)
	}
	return l.StartOffset(), nil
}
