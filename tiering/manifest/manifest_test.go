package manifest_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/tiering/manifest"
)

var update = flag.Bool("update", false, "write the fixtures anew; only for a new format version")

var (
	topicID = kafka.UUID{0x42, 0x56, 0x4e, 0x27, 0x10, 0x11, 0x42, 0x13, 0x94, 0x15, 1, 2, 3, 4, 5, 6}
	noon    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

func segment(base, last int64, nonce uint64) manifest.Segment {
	return manifest.Segment{
		BaseOffset: base, LastOffset: last, FirstTimestamp: 1_700_000_000_000 + base, MaxTimestamp: 1_700_000_000_000 + last,
		Nonce: nonce, Bytes: 2000, LogBytes: 1500, Records: uint32(last - base + 1), LeaderEpoch: 7, CRC32C: 0xdeadbeef,
	}
}

func samplePage(t testing.TB) (*manifest.Page, []byte, manifest.PageRef) {
	t.Helper()
	p := &manifest.Page{Format: 1, TopicID: topicID, Partition: 3, Segments: []manifest.Segment{segment(100, 199, 1), segment(200, 299, 2)}}
	p.Segments[1].Flags = manifest.FlagTxn
	data, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return p, data, p.Ref(0xabc, data)
}

func sampleManifest(t testing.TB) *manifest.Manifest {
	t.Helper()
	_, _, ref := samplePage(t)
	return &manifest.Manifest{
		Format: 1, ClusterID: "cluster", Topic: "orders", TopicID: topicID, Partition: 3, Number: 42,
		Previous:       &manifest.Previous{Number: 41, SHA256: strings.Repeat("0f", 32)},
		Writer:         manifest.Writer{Incarnation: 1, LeaderEpoch: 7, Broker: 2, Nonce: "00000000000000aa"},
		Time:           noon,
		LogStartOffset: 150, EndOffset: 500,
		LeaderEpochs: []manifest.Epoch{{Epoch: 5, StartOffset: 0}, {Epoch: 7, StartOffset: 320}},
		Pages:        []manifest.PageRef{ref},
		Segments:     []manifest.Segment{segment(300, 399, 3), segment(400, 499, 4)},
		Condemned:    []manifest.Condemned{{Key: segment(0, 99, 9).Key(), Since: noon.Add(-time.Minute)}},
	}
}

// sampleObject is a segment object whose log part is three chunks, the last one short.
func sampleObject() []byte {
	log := bytes.Repeat([]byte("0123456789abcdef"), (2*manifest.ChunkSize+4096)/16)
	var crcs []uint32
	for at := 0; at < len(log); at += manifest.ChunkSize {
		crcs = append(crcs, manifest.CRC32C(log[at:min(at+manifest.ChunkSize, len(log))]))
	}
	return manifest.AppendTrailer(log, int64(len(log)), []manifest.Section{
		{Type: manifest.SectionTimeIndex, Data: bytes.Repeat([]byte{1}, 24)},
		{Type: manifest.SectionTxnIndex}, // empty: left out
		{Type: manifest.SectionOffsetIndex, Data: bytes.Repeat([]byte{2}, 16)},
		{Type: 99, Data: []byte("of a later version")},
		{Type: manifest.SectionLeaderEpochs, Data: []byte("0\n1\n7 0\n")},
		{Type: manifest.SectionChunkChecksums, Data: manifest.ChunkChecksums(crcs)},
	})
}

// fixture compares with a file that an earlier version has written.
func fixture(t *testing.T, name string, got []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", "v1", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: the encoder writes other bytes than format 1 had:\n%s", name, cmp.Diff(string(want), string(got)))
	}
	return want
}

func TestFixtures(t *testing.T) {
	m := sampleManifest(t)
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := manifest.Decode(fixture(t, "manifest.json", data))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(m, got); d != "" {
		t.Errorf("manifest: %s", d)
	}
	page, data, ref := samplePage(t)
	gotPage, err := manifest.DecodePage(fixture(t, "page.json", data), ref)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(page, gotPage); d != "" {
		t.Errorf("page: %s", d)
	}
	root := &manifest.Root{Format: 1, ClusterID: "cluster", Created: noon}
	if data, err = root.Encode(); err != nil {
		t.Fatal(err)
	}
	if gotRoot, err := manifest.DecodeRoot(fixture(t, "varve.json", data)); err != nil || *gotRoot != *root {
		t.Errorf("root: %+v, %v", gotRoot, err)
	}
	cat := &manifest.Catalog{Format: 1, Number: 9, ClusterID: "cluster", Incarnation: 1, Nonce: "00000000000000bb", Time: noon, Topics: []manifest.CatalogTopic{
		{Name: "orders", ID: topicID, Partitions: 4, Configs: map[string]string{"retention.ms": "-1"}}, {Name: "gone", ID: kafka.UUID{1}, Deleted: true},
	}}
	if data, err = cat.Encode(); err != nil {
		t.Fatal(err)
	}
	gotCat, err := manifest.DecodeCatalog(fixture(t, "catalog.json", data))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(cat, gotCat); d != "" {
		t.Errorf("catalog: %s", d)
	}
}

func TestObjectFixture(t *testing.T) {
	object := sampleObject()
	logBytes := 2*manifest.ChunkSize + 4096
	trailer := fixture(t, "trailer.bin", object[logBytes:])
	size := int64(len(object))
	tail, err := manifest.ParseTail(trailer[len(trailer)-manifest.TailSize:], size)
	if err != nil {
		t.Fatal(err)
	}
	if tail.LogBytes != int64(logBytes) {
		t.Errorf("log bytes %d", tail.LogBytes)
	}
	entries, err := tail.ParseTable(object[tail.TableOffset:][:tail.TableLength])
	if err != nil {
		t.Fatal(err)
	}
	var types []manifest.SectionType
	for _, e := range entries {
		types = append(types, e.Type)
		if err := e.Check(object[e.Offset:][:e.Length]); err != nil {
			t.Error(err)
		}
		if e.Check(object[e.Offset+1:][:e.Length]) == nil {
			t.Errorf("%s: other bytes pass its check", e.Type)
		}
	}
	if d := cmp.Diff([]manifest.SectionType{2, 1, 99, 5, 6}, types); d != "" {
		t.Error(d)
	}
	last := entries[4]
	crcs, err := manifest.ParseChunkChecksums(object[last.Offset:][:last.Length], tail.LogBytes)
	if err != nil || len(crcs) != 3 || crcs[2] != manifest.CRC32C(object[2*manifest.ChunkSize:logBytes]) {
		t.Errorf("chunk checksums %v, %v", crcs, err)
	}
}

func TestTailRefuses(t *testing.T) {
	object := sampleObject()
	size := int64(len(object))
	for _, c := range []struct {
		what string
		at   int
		to   byte
		want error
	}{
		{"magic", 39, 'X', manifest.ErrMalformed},
		{"format", 25, 2, manifest.ErrVersion},
		{"flags", 27, 1, manifest.ErrVersion},
		{"log bytes", 0, 0x7f, manifest.ErrMalformed},
		{"table offset", 15, 0, manifest.ErrMalformed},
		{"table length", 19, 1, manifest.ErrMalformed},
	} {
		tail := bytes.Clone(object[len(object)-manifest.TailSize:])
		tail[c.at] = c.to
		if _, err := manifest.ParseTail(tail, size); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	if _, err := manifest.ParseTail(object[len(object)-manifest.TailSize:], size-1); !errors.Is(err, manifest.ErrMalformed) {
		t.Errorf("object cut short: %v", err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, c := range []struct {
		what string
		edit func(*manifest.Manifest)
		want error
	}{
		{"newer format", func(m *manifest.Manifest) { m.Format = 2 }, manifest.ErrVersion},
		{"no format", func(m *manifest.Manifest) { m.Format = 0 }, manifest.ErrMalformed},
		{"bad topic", func(m *manifest.Manifest) { m.Topic = "a/b" }, manifest.ErrMalformed},
		{"no previous", func(m *manifest.Manifest) { m.Previous = nil }, manifest.ErrMalformed},
		{"other previous", func(m *manifest.Manifest) { m.Previous.Number = 40 }, manifest.ErrMalformed},
		{"overlap", func(m *manifest.Manifest) { m.Segments[1] = segment(399, 499, 4) }, manifest.ErrMalformed},
		{"overlap with page", func(m *manifest.Manifest) { m.Segments[0] = segment(299, 399, 3) }, manifest.ErrMalformed},
		{"other end", func(m *manifest.Manifest) { m.EndOffset = 501 }, manifest.ErrMalformed},
		{"start past the end", func(m *manifest.Manifest) { m.LogStartOffset = 501 }, manifest.ErrMalformed},
		{"epochs out of order", func(m *manifest.Manifest) { m.LeaderEpochs[1].Epoch = 5 }, manifest.ErrMalformed},
		{"condemned key elsewhere", func(m *manifest.Manifest) { m.Condemned[0].Key = "segments/../../other" }, manifest.ErrMalformed},
		{"condemned manifest", func(m *manifest.Manifest) { m.Condemned[0].Key = "manifest/x.json" }, manifest.ErrMalformed},
		{"page key elsewhere", func(m *manifest.Manifest) { m.Pages[0].Key = "segments/x" }, manifest.ErrMalformed},
	} {
		m := sampleManifest(t)
		c.edit(m)
		data, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := manifest.Decode(data); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	data, err := sampleManifest(t).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for old, replacement := range map[string]string{
		`"segments/00000000000000000300-7-`: `"segments/00000000000000000301-7-`,
		`"log_bytes":1500`:                  `"log_bytes":1999`,
		`"records":100`:                     `"records":-1`,
		`"last_offset":399`:                 `"last_offset":299`,
	} {
		bad := strings.Replace(string(data), old, replacement, 1)
		if _, err := manifest.Decode([]byte(bad)); !errors.Is(err, manifest.ErrMalformed) {
			t.Errorf("%s: %v", replacement, err)
		}
	}
	segz := strings.Replace(string(data), "0000000000000003.seg", "0000000000000003.segz", 1)
	if _, err := manifest.Decode([]byte(segz)); !errors.Is(err, manifest.ErrVersion) {
		t.Errorf("segz: %v", err)
	}
	// Gaps are for readers to name, not for the decoder to refuse; fields may be added.
	m := sampleManifest(t)
	m.Segments[1] = segment(450, 499, 4)
	if data, err = m.Encode(); err != nil {
		t.Fatal(err)
	}
	more := strings.Replace(string(data), `{"format"`, `{"added_later":[1],"format"`, 1)
	if _, err := manifest.Decode([]byte(more)); err != nil {
		t.Errorf("manifest with a gap and an unknown field: %v", err)
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("n", 249)
	for _, part := range strings.Split(manifest.PartitionDir(long, topicID, 1<<31-1), "/") {
		if len(part) > 200 {
			t.Errorf("component of %d bytes", len(part))
		}
	}
	name, id, err := manifest.ParseTopicDir(manifest.TopicDir("a.b-c", topicID))
	if err != nil || name != "a.b-c" || id != topicID {
		t.Errorf("%s %s %v", name, id, err)
	}
	for _, bad := range []string{"topics/x/", "topics/.00/", "topics/x." + strings.Repeat("g", 32) + "/"} {
		if _, _, err := manifest.ParseTopicDir(bad); !errors.Is(err, manifest.ErrMalformed) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if n, ok := manifest.ParseNumber("x/manifest/00000000000000000042.json"); !ok || n != 42 {
		t.Errorf("%d %v", n, ok)
	}
	for _, bad := range []string{"42.json", "00000000000000000042", "+0000000000000000042.json", "99999999999999999999.json"} {
		if n, ok := manifest.ParseNumber(bad); ok {
			t.Errorf("%s is number %d", bad, n)
		}
	}
}

func TestLineage(t *testing.T) {
	a := []manifest.Epoch{{0, 0}, {1, 100}, {2, 100}, {5, 200}}
	b := []manifest.Epoch{{2, 100}, {6, 200}}
	for _, c := range []struct {
		from, to int64
		same     bool
	}{{100, 199, true}, {150, 160, true}, {100, 200, false}, {0, 99, false}, {200, 300, false}, {99, 150, false}} {
		if got := manifest.SameLineage(a, b, c.from, c.to); got != c.same {
			t.Errorf("%d to %d: %v", c.from, c.to, got)
		}
	}
	for offset, want := range map[int64]int32{0: 0, 99: 0, 100: 2, 199: 2, 200: 5, 1000: 5} {
		if got := manifest.EpochAt(a, offset); got != want {
			t.Errorf("epoch at %d: %d", offset, got)
		}
	}
	if manifest.EpochAt(b, 5) != -1 {
		t.Error("an epoch is known before the first")
	}
}

func TestSegmentSize(t *testing.T) {
	if n := unsafe.Sizeof(manifest.Segment{}); n > 64 {
		t.Errorf("a segment takes %d bytes in memory", n)
	}
}
