package commitlog

import (
	"errors"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// appendTxn writes an entry at the end of the segment's transaction index. The caller holds the log's lock.
func (s *segment) appendTxn(e record.TxnIndexEntry) error {
	f, err := s.l.env.FS.OpenReadWrite(s.name(suffixTxn))
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err == nil {
		size -= size % record.TxnIndexEntrySize
		_, err = f.WriteAt(e.AppendTo(nil), size)
		if err != nil {
			err = errors.Join(err, f.Truncate(size))
		}
	}
	if !s.hasTxn.Swap(true) {
		s.l.mu.dirGen++
	}
	s.auxGen++
	return errors.Join(err, f.Close())
}

// txns reads the segment's transaction index. With an error of the class ErrCorrupt come the entries before the damage.
func (s *segment) txns() ([]record.TxnIndexEntry, error) {
	if !s.hasTxn.Load() {
		return nil, nil
	}
	b, err := s.readFile(suffixTxn)
	if vfs.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := record.ParseTxnIndex(b)
	if err != nil {
		return entries, &CorruptError{File: s.name(suffixTxn), Offset: s.base, Reason: err}
	}
	return entries, nil
}

// cutTxn drops the entries whose marker is at or above end.
func (s *segment) cutTxn(end int64) error {
	entries, err := s.txns()
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	keep := len(entries)
	for keep > 0 && entries[keep-1].LastOffset >= end {
		keep--
	}
	if err == nil && keep == len(entries) {
		return nil
	}
	f, err := s.l.env.FS.OpenReadWrite(s.name(suffixTxn))
	if err != nil {
		return err
	}
	s.auxGen++
	return errors.Join(f.Truncate(int64(keep*record.TxnIndexEntrySize)), f.Close())
}

// AbortedTxns returns the aborted transactions that overlap offsets from (inclusive) to to (exclusive), in order of their
// markers. Consumers at read_committed need them with every fetch.
func (l *Log) AbortedTxns(from, to int64) ([]record.TxnIndexEntry, error) {
	segs := *l.segs.Load()
	var out []record.TxnIndexEntry
	for i := max(find(segs, from), 0); i < len(segs); i++ {
		s := segs[i]
		if !s.hasTxn.Load() {
			continue
		}
		if !s.retain() { // deleted or replaced since the list was loaded
			return l.AbortedTxns(from, to)
		}
		entries, err := s.txns()
		if err = errors.Join(err, s.release()); err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.LastOffset >= from && e.FirstOffset < to {
				out = append(out, e)
			}
			if e.LastStableOffset >= to {
				return out, nil
			}
		}
	}
	return out, nil
}
