package controller

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/varvehq/varve/internal/vfs"
	"go.etcd.io/raft/v3/raftpb"
)

func seedRecords() []byte {
	return AppendRecords(nil,
		&ClusterRecord{ClusterID: testCluster},
		&FeatureRecord{Name: "metadata.version", Level: 30},
		&BrokerRecord{ID: 1, Incarnation: testID(3), Epoch: 9, Rack: "r", Fenced: true, Listeners: []Listener{{"PLAINTEXT", "h", 9092, "PLAINTEXT"}}},
		&TopicRecord{ID: testID(1), Name: "t"},
		&PartitionRecord{TopicID: testID(1), Leader: -1, LeaderEpoch: 2, PartitionEpoch: 3, Replicas: []int32{1, 2}, ISR: []int32{2}},
		&ManifestRecord{TopicID: testID(1), Manifest: 1 << 40},
		&ConfigRecord{Type: ResourceTopic, Name: "t", Key: "retention.ms", Value: "5"},
		&ConfigRecord{Type: ResourceBroker, Key: "log.retention.ms", Delete: true},
		&ProducerIDsRecord{BrokerID: 1, Next: 2000},
		&RemoveTopicRecord{TopicID: testID(1), InBucket: true, DeletedAt: 1, Name: "t", Partitions: 1},
		&BucketDeletedRecord{TopicID: testID(1)},
		&QuotaRecord{Entity: QuotaEntity{User: QuotaName{Kind: DefaultQuota}, ClientID: QuotaName{Kind: NamedQuota, Name: "c"}}, Key: ProducerByteRate, Value: 1024.5},
	)
}

// What decodes encodes to records that decode equally, and folds into an image whose snapshot gives that image again.
func FuzzRecords(f *testing.F) {
	f.Add(seedRecords())
	f.Add([]byte{})
	f.Add([]byte{2, 99, 0})
	f.Add([]byte{2, 1, 7})
	f.Fuzz(func(t *testing.T, b []byte) {
		records, err := DecodeRecords(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
				t.Fatal(err)
			}
			return
		}
		encoded := AppendRecords(nil, records...)
		again, err := DecodeRecords(encoded)
		if err != nil || !bytes.Equal(AppendRecords(nil, again...), encoded) {
			t.Fatalf("not stable: %v", err)
		}
		im, err := Apply(nil, 5, records)
		if err != nil {
			return
		}
		snap := im.Records()
		next, err := Apply(nil, 5, snap)
		if err != nil || !bytes.Equal(AppendRecords(nil, next.Records()...), AppendRecords(nil, snap...)) {
			t.Fatalf("the snapshot gives another image: %v", err)
		}
	})
}

// Whatever the log file holds, reading ends in a contiguous log or in an error of a known class.
func FuzzLog(f *testing.F) {
	index, term := uint64(6), uint64(2)
	entry := &raftpb.Entry{Index: &index, Term: &term, Type: raftpb.EntryNormal.Enum(), Data: seedRecords()}
	b := encodeLogHeader(logPosition{index: 5, term: 1})
	f.Add(bytes.Clone(b))
	b = appendFrame(b, int64(len(b)), payloadOf([]*raftpb.Entry{entry}, &raftpb.HardState{Term: &term, Vote: &term, Commit: &index}))
	f.Add(bytes.Clone(b))
	f.Add(b[:len(b)-3])
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := readLog(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
				t.Fatal(err)
			}
			return
		}
		if c.size > int64(len(b)) || c.size < logHeaderSize {
			t.Fatalf("size %d of %d bytes", c.size, len(b))
		}
		for i, e := range c.entries {
			if e.GetIndex() != c.base.index+uint64(i)+1 {
				t.Fatalf("entry %d has index %d after base %d", i, e.GetIndex(), c.base.index)
			}
		}
	})
}

func FuzzSnapshot(f *testing.F) {
	s := &snapshotContent{at: logPosition{7, 2}, conf: &raftpb.ConfState{Voters: []uint64{1}, Learners: []uint64{2, 3}}, records: seedRecords()}
	f.Add(s.encode())
	f.Add([]byte(snapshotMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeSnapshot(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
				t.Fatal(err)
			}
			return
		}
		if again, err := decodeSnapshot(s.encode()); err != nil || again.at != s.at || !bytes.Equal(again.records, s.records) {
			t.Fatalf("not stable: %v", err)
		}
	})
}

// TestWriteFixture makes the fixture of the present formats anew. It runs on demand only: a fixture is made once per format.
func TestWriteFixture(t *testing.T) {
	dir := os.Getenv("VARVE_WRITE_FIXTURE")
	if dir == "" {
		t.Skip("VARVE_WRITE_FIXTURE names no folder to write to")
	}
	env := testEnv(t, vfs.NewMem())
	env.SnapshotBytes = 800
	c := openWithBroker(t, env)
	fixtureCalls(t, c)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{logName, snapshotName} {
		b, err := vfs.ReadFile(env.FS, env.Dir+"/"+name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "image.txt"), []byte(dumpImage(open(t, env).Image())), 0o644); err != nil {
		t.Fatal(err)
	}
}
