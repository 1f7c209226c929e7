package partition

import (
	"errors"
	"fmt"

	"github.com/varvehq/varve/broker/commitlog"
)

// ReadSpec asks for records.
type ReadSpec struct {
	Offset   int64
	MaxBytes int
	// MinOne: the first batch comes even where it is larger than MaxBytes.
	MinOne bool
	// LeaderEpoch is the one the client believes in, LastFetchedEpoch that of the last record it has; -1 for none.
	LeaderEpoch, LastFetchedEpoch int32
	// Committed: nothing at or above the last stable offset, and the aborted transactions are told.
	Committed bool
}

// ReadResult is what a read finds.
type ReadResult struct {
	HighWatermark, LastStableOffset, LogStart int64
	Records                                   Records
	Aborted                                   []AbortedTxn
	// Diverging has Epoch -1, or names the point up to which the client's log and this one agree.
	Diverging EpochEnd
	// Remote: the offset is in the remote tier; ReadRemote gets the records.
	Remote bool
}

// Read finds records in the local log. It never waits, neither for data nor for the remote tier.
func (p *Partition) Read(s ReadSpec) (ReadResult, error) {
	res := ReadResult{Diverging: noEpoch}
	if _, err := p.leads(); err != nil {
		return res, err
	}
	if err := p.CheckEpoch(s.LeaderEpoch); err != nil {
		return res, err
	}
	l, err := p.local()
	if err != nil {
		return res, err
	}
	_, leads := p.Leader()
	if l == nil {
		return readEmpty(s, res, leads)
	}
	res.HighWatermark = p.hw.Load()
	res.LastStableOffset = min(res.HighWatermark, l.LastStableOffset(res.HighWatermark))
	res.LogStart = l.StartOffset()
	if s.LastFetchedEpoch >= 0 {
		if diverges, err := res.diverges(s, endOfEpoch(l, s.LastFetchedEpoch, leads)); diverges || err != nil {
			return res, err
		}
	}
	if s.Offset < res.LogStart || s.Offset > l.EndOffset() {
		return res, fmt.Errorf("%w: %d is not in [%d, %d]", ErrOffsetOutOfRange, s.Offset, res.LogStart, l.EndOffset())
	}
	upTo := res.HighWatermark
	if s.Committed {
		upTo = res.LastStableOffset
	}
	if s.Offset >= upTo || s.MaxBytes <= 0 && !s.MinOne {
		return res, nil
	}
	return p.readLocal(l, s, upTo, res)
}

// diverges notes where the log of a client that names the epoch of its last record parts from this one.
func (r *ReadResult) diverges(s ReadSpec, at EpochEnd) (bool, error) {
	if at.Epoch < 0 {
		return false, fmt.Errorf("%w: epoch %d is not in the log", ErrOffsetOutOfRange, s.LastFetchedEpoch)
	}
	if at.Epoch < s.LastFetchedEpoch || at.End < s.Offset {
		r.Diverging = at
		return true, nil
	}
	return false, nil
}

func readEmpty(s ReadSpec, res ReadResult, leads int32) (ReadResult, error) {
	if s.LastFetchedEpoch >= 0 {
		if diverges, err := res.diverges(s, endOfEpoch(nil, s.LastFetchedEpoch, leads)); diverges || err != nil {
			return res, err
		}
	}
	if s.Offset != 0 {
		return res, fmt.Errorf("%w: %d, and the log is empty", ErrOffsetOutOfRange, s.Offset)
	}
	return res, nil
}

func (p *Partition) readLocal(l *commitlog.Log, s ReadSpec, upTo int64, res ReadResult) (ReadResult, error) {
	if s.Offset < l.LocalStartOffset() {
		return p.remoteOr(res)
	}
	slice, err := l.Read(s.Offset, int64(max(s.MaxBytes, 0)), upTo, s.MinOne)
	if err != nil {
		switch {
		case errors.Is(err, commitlog.ErrOffsetOutOfRange) && s.Offset < l.LocalStartOffset():
			return p.remoteOr(res) // retention went by
		case errors.Is(err, commitlog.ErrOffsetOutOfRange):
			return res, fmt.Errorf("%w: %w", ErrOffsetOutOfRange, err)
		}
		return res, fmt.Errorf("%w: %w", ErrStorage, err)
	}
	if slice.Length == 0 {
		slice.Release()
		return res, nil
	}
	if s.Committed {
		entries, err := l.AbortedTxns(slice.BaseOffset, slice.NextOffset)
		if err != nil {
			slice.Release()
			return res, fmt.Errorf("%w: %w", ErrStorage, err)
		}
		res.Aborted = abortedOf(entries)
	}
	res.Records = Records{File: slice.File, Pos: slice.Position, Len: slice.Length, slice: slice}
	return res, nil
}

// remoteOr says that the records are remote, or that there is no remote tier to ask.
func (p *Partition) remoteOr(res ReadResult) (ReadResult, error) {
	if p.m.env.Remote == nil {
		return res, ErrRemoteUnavailable
	}
	res.Remote = true
	return res, nil
}
