package record

import (
	"bytes"
	"fmt"
	"strconv"
)

// EpochEntry says that leader epoch Epoch starts at StartOffset.
type EpochEntry struct {
	Epoch       int32
	StartOffset int64
}

// AppendEpochCheckpoint appends a leader-epoch-checkpoint file: lines of version 0, the count, then "epoch offset".
func AppendEpochCheckpoint(b []byte, entries []EpochEntry) []byte {
	b = append(b, "0\n"...)
	b = append(strconv.AppendInt(b, int64(len(entries)), 10), '\n')
	for _, e := range entries {
		b = append(strconv.AppendInt(b, int64(e.Epoch), 10), ' ')
		b = append(strconv.AppendInt(b, e.StartOffset, 10), '\n')
	}
	return b
}

// ParseEpochCheckpoint reads a leader-epoch-checkpoint file. Entries are strictly ascending in epoch and not descending
// in offset; anything else is of the class ErrCorrupt.
func ParseEpochCheckpoint(b []byte) ([]EpochEntry, error) {
	lines, err := CheckpointLines(b)
	if err != nil {
		return nil, err
	}
	out := make([]EpochEntry, 0, len(lines))
	for _, l := range lines {
		epoch, off, ok := bytes.Cut(l, []byte{' '})
		e, err1 := strconv.ParseInt(string(epoch), 10, 32)
		o, err2 := strconv.ParseInt(string(off), 10, 64)
		if !ok || err1 != nil || err2 != nil || e < 0 || o < 0 {
			return nil, fmt.Errorf("%w: epoch checkpoint line %q", ErrCorrupt, l)
		}
		if n := len(out); n > 0 && (int32(e) <= out[n-1].Epoch || o < out[n-1].StartOffset) {
			return nil, fmt.Errorf("%w: epoch checkpoint is out of order at %q", ErrCorrupt, l)
		}
		out = append(out, EpochEntry{int32(e), o})
	}
	return out, nil
}

// CheckpointLines splits a Kafka checkpoint file (a line with version 0, a line with the number of entries, the entries)
// into its entries.
func CheckpointLines(b []byte) ([][]byte, error) {
	lines := bytes.Split(b, []byte{'\n'})
	if len(lines) < 3 || len(lines[len(lines)-1]) != 0 || string(lines[0]) != "0" {
		return nil, fmt.Errorf("%w: checkpoint file does not start with version 0 and a count", ErrCorrupt)
	}
	entries := lines[2 : len(lines)-1]
	if n, err := strconv.ParseInt(string(lines[1]), 10, 32); err != nil || n != int64(len(entries)) {
		return nil, fmt.Errorf("%w: checkpoint file says %q entries and has %d", ErrCorrupt, lines[1], len(entries))
	}
	return entries, nil
}
