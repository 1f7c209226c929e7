package manifest_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/varvehq/varve/tiering/manifest"
)

func seed(f *testing.F, name string) {
	f.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "v1", name))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
}

// FuzzManifest: whatever decodes also encodes, and decodes to the same.
func FuzzManifest(f *testing.F) {
	seed(f, "manifest.json")
	f.Add([]byte(`{"format":1,"topic":"t","segments":[{"key":"segments/x.seg"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := manifest.Decode(data)
		if err != nil {
			return
		}
		once, err := m.Encode()
		if err != nil {
			t.Skip() // times outside of what JSON allows
		}
		again, err := manifest.Decode(once)
		if err != nil {
			t.Fatalf("%v in %s", err, once)
		}
		twice, err := again.Encode()
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%v\n%s\n%s", err, once, twice)
		}
	})
}

func FuzzPage(f *testing.F) {
	seed(f, "page.json")
	_, _, ref := samplePage(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		ref := ref
		ref.SHA256 = manifest.SHA256(data)
		if p, err := manifest.DecodePage(data, ref); err == nil && len(p.Segments) != ref.Segments {
			t.Fatalf("%d segments", len(p.Segments))
		}
	})
}

func FuzzCatalog(f *testing.F) {
	seed(f, "catalog.json")
	seed(f, "varve.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := manifest.DecodeCatalog(data); err == nil && c.Number < 1 {
			t.Fatal("number below 1")
		}
		if r, err := manifest.DecodeRoot(data); err == nil && r.ClusterID == "" {
			t.Fatal("no cluster id")
		}
	})
}

// FuzzTrailer: tail, table and checksums of an object that ends in the given bytes never point outside of it.
func FuzzTrailer(f *testing.F) {
	seed(f, "trailer.bin")
	const logBytes = 2*manifest.ChunkSize + 4096
	f.Fuzz(func(t *testing.T, trailer []byte) {
		if len(trailer) < manifest.TailSize {
			return
		}
		size := int64(logBytes + len(trailer))
		tail, err := manifest.ParseTail(trailer[len(trailer)-manifest.TailSize:], size)
		if err != nil {
			return
		}
		if tail.LogBytes > tail.TableOffset || tail.TableOffset+int64(tail.TableLength) > size {
			t.Fatalf("tail points outside: %+v of %d", tail, size)
		}
		if tail.TableOffset < logBytes {
			return
		}
		entries, err := tail.ParseTable(trailer[tail.TableOffset-logBytes:][:tail.TableLength])
		if err != nil {
			return
		}
		for _, e := range entries {
			if e.Offset < uint64(tail.LogBytes) || e.Offset+e.Length > uint64(tail.TableOffset) {
				t.Fatalf("section points outside: %+v of %+v", e, tail)
			}
			if e.Offset >= logBytes && e.Type == manifest.SectionChunkChecksums {
				_, _ = manifest.ParseChunkChecksums(trailer[e.Offset-logBytes:][:e.Length], tail.LogBytes)
			}
		}
	})
}

func FuzzSegmentName(f *testing.F) {
	f.Add(segment(100, 200, 5).Key())
	f.Add("segments/00000000000000000100-7-0000000000000005.segz")
	f.Fuzz(func(t *testing.T, key string) {
		base, epoch, nonce, err := manifest.ParseSegmentName(key)
		if err == nil && manifest.SegmentName(base, epoch, nonce) != key {
			t.Fatalf("%q reads as %d %d %x", key, base, epoch, nonce)
		}
	})
}
