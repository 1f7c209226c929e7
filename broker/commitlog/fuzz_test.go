package commitlog

import (
	"bytes"
	"errors"
	"maps"
	"testing"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// FuzzCheckpoint: no checkpoint file panics; what is read is written back the same.
func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte("0\n0\n"))
	f.Add(encodeCheckpoint(map[kafka.TopicPartition]int64{{Topic: "a", Partition: 1}: 5, {Topic: "b.c", Partition: 0}: 1 << 40}))
	f.Add([]byte("0\n1\na 1 x\n"))
	f.Add([]byte("0\n1\na  1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseCheckpoint(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, err := parseCheckpoint(encodeCheckpoint(m))
		if err != nil || !maps.Equal(m, again) {
			t.Fatal(err, m, again)
		}
	})
}

// FuzzMeta: no meta.properties or partition.metadata panics.
func FuzzMeta(f *testing.F) {
	f.Add([]byte("#\n#date\ncluster.id=x\nnode.id=1\nversion=1\n"))
	f.Add([]byte("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := parseMeta(b)
		if again := parseMeta(m.encode()); len(again.known) > len(m.known) {
			t.Fatal(m, again)
		}
		fs := vfs.NewMem()
		if err := errors.Join(fs.MkdirAll("/p"), vfs.WriteFileAtomic(fs, "/p/"+metadataFile, b)); err != nil {
			t.Fatal(err)
		}
		_, _ = readMetadata(fs, "/p")
	})
}

// FuzzRecover: whatever the files of a log hold after an unclean stop, opening it gives a readable log or an error, and
// bytes that are valid from the start stay.
func FuzzRecover(f *testing.F) {
	var b []byte
	for i := range 4 {
		batch := makeBatch(newEnv(f, nil, smallConfig()).now, "value")
		record.SetBaseOffset(batch, int64(i))
		b = append(b, batch...)
	}
	f.Add(b, []byte{}, []byte{}, []byte{}, []byte{})
	f.Add(b[:len(b)-3], record.OffsetIndexEntry{RelOffset: 1, Position: 73}.AppendTo(nil), []byte{1}, []byte("0\n1\n0 0\n"), record.AppendProducerSnapshot(nil, nil))
	f.Add(append(bytes.Clone(b), make([]byte, 600)...), make([]byte, 16), make([]byte, 24), []byte("x"), make([]byte, 40))
	f.Fuzz(func(t *testing.T, log, index, times, epochs, snapshot []byte) {
		fs := vfs.NewMem()
		err := fs.MkdirAll("/p")
		for suffix, b := range map[string][]byte{suffixLog: log, suffixIndex: index, suffixTime: times, suffixTxn: index, suffixSnapshot: snapshot} {
			err = errors.Join(err, vfs.WriteFileAtomic(fs, fileName("/p", 0, suffix), b))
		}
		if err = errors.Join(err, vfs.WriteFileAtomic(fs, "/p/"+epochFile, epochs)); err != nil {
			t.Fatal(err)
		}
		l, err := Open(Env{FS: fs}, "/p", testID, smallConfig())
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		defer func() {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}()
		valid, it := int64(0), record.NewBatchIterator(log)
		for h, batch, ok := it.Next(); ok && record.VerifyBatch(batch) == nil && h.BaseOffset >= valid; h, batch, ok = it.Next() {
			valid = h.NextOffset()
		}
		if l.EndOffset() < valid {
			t.Fatalf("end %d, the file is valid up to %d", l.EndOffset(), valid)
		}
		for off := int64(0); off < l.EndOffset(); {
			s, err := l.Read(off, 1<<20, l.EndOffset(), true)
			if err != nil || s.NextOffset <= off {
				t.Fatal(off, s, err)
			}
			off = s.NextOffset
			s.Release()
		}
		if _, err := l.Append(makeBatch(l.env.Clock(), "x"), max(l.LatestEpoch(), 0)); err != nil {
			t.Fatal(err)
		}
	})
}
