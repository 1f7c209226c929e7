package tiering_test

import (
	"fmt"
	"testing"

	"github.com/varvehq/varve/internal/objstore/fs"
	"github.com/varvehq/varve/internal/vfs"
	. "github.com/varvehq/varve/tiering"
	"github.com/varvehq/varve/tiering/tieringtest"
)

// BenchmarkRead reads a partition of 64 MiB from a folder in order, in fetches of 1 MiB: with an empty cache, and again
// from memory.
func BenchmarkRead(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10} {
		for _, warm := range []bool{false, true} {
			b.Run(fmt.Sprintf("record=%d/warm=%v", size, warm), func(b *testing.B) { benchmarkRead(b, size, warm) })
		}
	}
}

func benchmarkRead(b *testing.B, size int, warm bool) {
	bucket, err := fs.Open(vfs.OS(), b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	open := func() (*Store, *Partition) {
		s, err := Open(b.Context(), Env{Bucket: bucket, ClusterID: "c"})
		if err != nil {
			b.Fatal(err)
		}
		return s, s.Partition(testID, 0)
	}
	s, p := open()
	if err := p.Open(b.Context(), 0, nil); err != nil {
		b.Fatal(err)
	}
	per := int64(16<<20) / int64(size)
	l := tieringtest.NewLog(0).Add(0, int(4*per/16), 16, size)
	for i := range int64(4) {
		if err := p.Copy(b.Context(), l.Segment(b, i*per, (i+1)*per)); err != nil {
			b.Fatal(err)
		}
	}
	read := func(p *Partition) (n int64) {
		for next := int64(0); next < 4*per; {
			data, release, err := p.Read(b.Context(), next, 1<<20)
			if err != nil {
				b.Fatal(err)
			}
			n += int64(len(data))
			next = lastOffset(b, data) + 1
			release()
		}
		return n
	}
	b.SetBytes(read(p))
	s.Close()
	s, p = open()
	if warm {
		read(p)
	}
	b.ReportAllocs()
	for b.Loop() {
		if !warm {
			b.StopTimer()
			s.Close()
			s, p = open()
			b.StartTimer()
		}
		read(p)
	}
	s.Close()
}
