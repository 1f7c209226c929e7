package commitlog

import (
	"bytes"
	"fmt"
	"maps"
	"sort"
	"strconv"
	"sync"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// encodeCheckpoint is a Kafka offset checkpoint: version 0, the count, and lines of topic, partition and offset.
func encodeCheckpoint(offsets map[kafka.TopicPartition]int64) []byte {
	keys := make([]kafka.TopicPartition, 0, len(offsets))
	for tp := range offsets {
		keys = append(keys, tp)
	}
	sort.Slice(keys, func(i, j int) bool {
		if keys[i].Topic != keys[j].Topic {
			return keys[i].Topic < keys[j].Topic
		}
		return keys[i].Partition < keys[j].Partition
	})
	b := append(strconv.AppendInt([]byte("0\n"), int64(len(keys)), 10), '\n')
	for _, tp := range keys {
		b = append(append(b, tp.Topic...), ' ')
		b = append(strconv.AppendInt(b, int64(tp.Partition), 10), ' ')
		b = append(strconv.AppendInt(b, offsets[tp], 10), '\n')
	}
	return b
}

// parseCheckpoint reads what encodeCheckpoint wrote. Errors are of the class ErrCorrupt.
func parseCheckpoint(b []byte) (map[kafka.TopicPartition]int64, error) {
	lines, err := record.CheckpointLines(b)
	if err != nil {
		return nil, err
	}
	out := make(map[kafka.TopicPartition]int64, len(lines))
	for _, line := range lines {
		f := bytes.Split(line, []byte{' '})
		if len(f) != 3 {
			return nil, fmt.Errorf("%w: checkpoint line %q", ErrCorrupt, line)
		}
		p, err1 := strconv.ParseInt(string(f[1]), 10, 32)
		o, err2 := strconv.ParseInt(string(f[2]), 10, 64)
		if err1 != nil || err2 != nil || p < 0 || o < 0 {
			return nil, fmt.Errorf("%w: checkpoint line %q", ErrCorrupt, line)
		}
		out[kafka.TopicPartition{Topic: string(f[0]), Partition: int32(p)}] = o
	}
	return out, nil
}

// readCheckpoint reads a checkpoint file; a missing one is empty.
func readCheckpoint(fsys vfs.FS, name string) (map[kafka.TopicPartition]int64, error) {
	b, err := vfs.ReadFile(fsys, name)
	if vfs.IsNotExist(err) {
		return map[kafka.TopicPartition]int64{}, nil
	}
	if err != nil {
		return nil, err
	}
	out, err := parseCheckpoint(b)
	if err != nil {
		return nil, &CorruptError{File: name, Reason: err}
	}
	return out, nil
}

// checkpointWriter lets one write of a file serve all who wait for one.
type checkpointWriter struct {
	mu      sync.Mutex // held while writing
	state   sync.Mutex
	wanted  int
	written int
}

// writeCheckpoint writes a checkpoint file that holds what offsets returns at some moment after the call began.
func (d *Dir) writeCheckpoint(w *checkpointWriter, name string, offsets func() map[kafka.TopicPartition]int64) error {
	w.state.Lock()
	w.wanted++
	mine := w.wanted
	w.state.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state.Lock()
	latest, done := w.wanted, w.written >= mine
	w.state.Unlock()
	if done {
		return nil
	}
	if err := vfs.WriteFileAtomic(d.env.FS, d.root+"/"+name, encodeCheckpoint(offsets())); err != nil {
		return err
	}
	w.state.Lock()
	w.written = latest
	w.state.Unlock()
	return nil
}

// saveOffset makes one log's offset durable in its checkpoint file.
func (d *Dir) saveOffset(w *checkpointWriter, offsets map[kafka.TopicPartition]int64, tp kafka.TopicPartition, offset int64) error {
	d.mu.Lock()
	offsets[tp] = offset
	d.mu.Unlock()
	switch w {
	case &d.startWriter:
		return d.writeCheckpoint(w, startFile, d.logStarts)
	case &d.cleanerWriter:
		return d.writeCheckpoint(w, cleanerFile, d.cleanedOffsets)
	}
	return d.writeCheckpoint(w, recoveryFile, d.recoveryPoints)
}

// recoveryPoints is the content of its checkpoint: open logs speak for themselves.
func (d *Dir) recoveryPoints() map[kafka.TopicPartition]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := maps.Clone(d.mu.recovery)
	for tp, l := range d.mu.logs {
		if l.onDisk() {
			out[tp] = l.recovery.Load()
		}
	}
	return out
}

func (d *Dir) logStarts() map[kafka.TopicPartition]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := maps.Clone(d.mu.start)
	for tp, l := range d.mu.logs {
		out[tp] = l.start.Load()
	}
	maps.DeleteFunc(out, func(_ kafka.TopicPartition, o int64) bool { return o == 0 })
	return out
}

// cleanedOffsets is the content of the cleaner's checkpoint.
func (d *Dir) cleanedOffsets() map[kafka.TopicPartition]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := maps.Clone(d.mu.cleaned)
	for tp, l := range d.mu.logs {
		out[tp] = l.cleaned.Load()
	}
	maps.DeleteFunc(out, func(_ kafka.TopicPartition, o int64) bool { return o == 0 })
	return out
}

func (d *Dir) highWatermarks() map[kafka.TopicPartition]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.mu.highWatermark)
}

// writeAll writes the checkpoints that move with every log; the cleaner's is written when a log is compacted.
func (d *Dir) writeAll() error {
	if err := d.writeCheckpoint(&d.recoveryWriter, recoveryFile, d.recoveryPoints); err != nil {
		return err
	}
	if err := d.writeCheckpoint(&d.startWriter, startFile, d.logStarts); err != nil {
		return err
	}
	return d.writeCheckpoint(&d.highWatermarkWriter, highWatermarkFile, d.highWatermarks)
}
