package group

import (
	"errors"
	"testing"
	"time"

	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
)

// FuzzDecodeRecord checks that no record of __consumer_offsets makes the decoder panic, and that what it takes as an
// offset or a deletion says the same when it is written again.
func FuzzDecodeRecord(f *testing.F) {
	c := NewCoordinator(&Config{RetentionCheckInterval: time.Minute}, time.Unix(1, 0), nil)
	g := newGroup(c, "group")
	instance := "instance"
	g.add(&member{id: "m", instance: &instance, protocols: []Protocol{{"range", subscription("t")}}, assignment: []byte("x")}, "consumer")
	g.protocol = "range"
	f.Add(groupKey("group"), g.metadataValue(nil), false)
	f.Add(groupKey("group"), []byte(nil), true)
	f.Add(offsetKey("group", "topic", 3), offsetValue(Offset{Offset: 7, LeaderEpoch: 2, Metadata: "m", CommitTime: 5, ExpireTime: -1, TopicID: kafka.UUID{1}}), false)
	f.Add(offsetKey("group", "topic", 3), offsetValue(Offset{Offset: 7, ExpireTime: 9}), false)
	f.Add([]byte{0, 3, 0, 1, 'g'}, []byte{0, 0}, false)
	f.Add([]byte{0}, []byte{}, false)
	f.Fuzz(func(t *testing.T, key, value []byte, null bool) {
		if null {
			value = nil
		} else if value == nil {
			value = []byte{}
		}
		d, err := decodeRecord(key, value)
		switch {
		case err != nil:
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%v is not of the class", err)
			}
		case d.kind == offsetRecord && d.offset != nil:
			o := *d.offset
			if o.ExpireTime < -1 {
				return
			}
			again, err := decodeRecord(offsetKey(d.group, d.tp.topic, d.tp.partition), offsetValue(o))
			if o.ExpireTime >= 0 { // that version has neither
				o.LeaderEpoch, o.TopicID = -1, kafka.UUID{}
			}
			if err != nil || *again.offset != o || again.tp != d.tp || again.group != d.group {
				t.Fatalf("%+v became %+v, %v", o, again.offset, err)
			}
		case d.kind == groupRecord && d.meta != nil:
			l := NewLoader()
			l.set(key, value)
			cfg := DefaultConfig()
			if _, _, err := l.Coordinator(&cfg, time.Unix(1, 0), func(p string) string { return p }); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzLoader checks that no batch makes the loader panic.
func FuzzLoader(f *testing.F) {
	f.Add(coordinator.BatchOf([]Record{{Key: groupKey("g"), Value: nil}, {Key: offsetKey("g", "t", 0), Value: offsetValue(Offset{ExpireTime: -1})}}, 1, 1, nil))
	marker := record.NewBuilder(record.BuilderOptions{Control: true, Transactional: true, Producer: &record.Producer{ID: 5}})
	marker.Append(1, []byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 0}, nil)
	f.Add(marker.Batch(3))
	f.Fuzz(func(t *testing.T, batch []byte) {
		l := NewLoader()
		if err := l.Add(batch); err != nil {
			if !errors.Is(err, record.ErrCorrupt) && !errors.Is(err, record.ErrPartial) {
				t.Fatal(err)
			}
			return
		}
		cfg := DefaultConfig()
		if _, _, err := l.Coordinator(&cfg, time.Unix(1, 0), func(p string) string { return p }); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

// TestLoaderFollowsTransactions loads what a Kafka log can hold: transactional commits count from their marker on, if that
// is a commit.
func TestLoaderFollowsTransactions(t *testing.T) {
	l := NewLoader()
	add := func(opts record.BuilderOptions, key, value []byte) {
		b := record.NewBuilder(opts)
		b.Append(1, key, value, nil)
		if err := l.Add(b.Batch(0)); err != nil {
			t.Fatal(err)
		}
	}
	txn := func(id int64, control bool) record.BuilderOptions {
		return record.BuilderOptions{Transactional: true, Control: control, Producer: &record.Producer{ID: id, BaseSequence: -1}}
	}
	add(txn(1, false), offsetKey("g", "t", 0), offsetValue(Offset{Offset: 10, ExpireTime: -1}))
	add(txn(2, false), offsetKey("g", "t", 1), offsetValue(Offset{Offset: 20, ExpireTime: -1}))
	add(txn(3, false), offsetKey("g", "t", 2), offsetValue(Offset{Offset: 30, ExpireTime: -1}))
	add(record.BuilderOptions{}, offsetKey("g", "t", 3), offsetValue(Offset{Offset: 40, ExpireTime: -1}))
	add(txn(1, true), []byte{0, 0, 0, 1}, nil)
	add(txn(2, true), []byte{0, 0, 0, 0}, nil)
	cfg := DefaultConfig()
	c, _, err := l.Coordinator(&cfg, time.Unix(1, 0), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[int32]int64{}
	c.Offsets("g", func(o PartitionOffset) { got[o.Partition] = o.Offset.Offset })
	if len(got) != 2 || got[0] != 10 || got[3] != 40 {
		t.Fatalf("offsets %v", got)
	}
}
