package partition_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

func (w *world) createWith(name string, configs map[string]string) *partition.Partition {
	w.t.Helper()
	res, err := w.ctl.CreateTopics(w.t.Context(), []controller.NewTopic{{Name: name, Partitions: 1, ReplicationFactor: 1, Configs: configs}}, false)
	if err != nil || res[0].Err != nil {
		w.t.Fatal(err, res)
	}
	return w.get(name, 0)
}

// fillKeys appends until several segments are sealed, each key again and again.
func fillKeys(t *testing.T, p *partition.Partition) {
	t.Helper()
	var last int64
	for i := range 60 {
		b := record.NewBuilder(record.BuilderOptions{})
		for k := range 10 {
			b.Append(time.Now().UnixMilli(), fmt.Append(nil, "key", k), fmt.Appendf(nil, "%d %s", i, bytes.Repeat([]byte("x"), 8000)), nil)
		}
		a, err := p.Append(b.Batch(0), partition.AppendOptions{})
		if err != nil {
			t.Fatal(err)
		}
		last = a.LastOffset
	}
	if err := p.WaitCommitted(t.Context(), last); err != nil {
		t.Fatal(err)
	}
}

// fold is the last value of every key, and the number of records that a reader sees.
func fold(t *testing.T, p *partition.Partition) (last map[string]string, n int) {
	t.Helper()
	last = map[string]string{}
	err := p.ForEachBatch(t.Context(), func(b []byte) error {
		return record.ForEachRecord(b, 1<<20, func(r *record.Record) error {
			n++
			last[string(r.Key)], _, _ = bytesCut(r.Value)
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return last, n
}

func bytesCut(b []byte) (string, string, bool) {
	before, after, ok := bytes.Cut(b, []byte(" "))
	return string(before), string(after), ok
}

// The cleaner compacts the topics that ask for it once they are dirty enough, and no others; readers see the same last
// values before and after, and after a restart.
func TestCleaner(t *testing.T) {
	metaFS, fs := vfs.NewMem(), vfs.NewMem()
	w := open(t, metaFS, fs)
	compacted := w.createWith("compacted", map[string]string{"cleanup.policy": "compact", "segment.bytes": "1048576"})
	both := w.createWith("both", map[string]string{"cleanup.policy": "compact,delete", "segment.bytes": "1048576", "retention.bytes": "3000000"})
	deleted := w.createWith("deleted", map[string]string{"segment.bytes": "1048576"})
	clean := w.createWith("clean", map[string]string{"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "1"})
	for _, p := range []*partition.Partition{compacted, both, deleted, clean} {
		fillKeys(t, p)
	}
	w.m.Compact() // needs no checkpoint to come before it
	w.m.Retain()
	check := func(p *partition.Partition, most int) {
		t.Helper()
		last, n := fold(t, p)
		if n > most {
			t.Errorf("%s: %d records", p, n)
		}
		for k := range 10 {
			if v := last[fmt.Sprint("key", k)]; v != "59" {
				t.Errorf("%s: key %d has %q", p, k, v)
			}
		}
	}
	check(compacted, 150)
	check(both, 150)
	check(deleted, 600)
	check(clean, 600)
	if _, n := fold(t, deleted); n != 600 {
		t.Errorf("%d records of a topic that is not compacted", n)
	}
	if _, n := fold(t, clean); n != 600 {
		t.Errorf("%d records of a topic that is not dirty enough", n)
	}
	w.stop()
	w = open(t, metaFS, fs)
	check(w.get("compacted", 0), 150)
	w.m.Compact()
	check(w.get("compacted", 0), 150)
}
