package commitlog

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

func benchDir(b *testing.B) *Dir {
	b.Helper()
	d, err := OpenDir(DirEnv{FS: vfs.OS(), ClusterID: "c", NodeID: 1}, filepath.ToSlash(b.TempDir()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := d.Close(nil); err != nil {
			b.Error(err)
		}
	})
	return d
}

func benchBatch(size int) []byte {
	bld := record.NewBuilder(record.BuilderOptions{})
	value := make([]byte, 1024)
	for i := range value {
		value[i] = byte(i * 7)
	}
	for bld.Size()+1100 < size || bld.Len() == 0 {
		bld.Append(1_700_000_000_000, nil, value, nil)
	}
	return bld.Batch(0)
}

// BenchmarkAppend writes to the page cache only.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{16 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			cfg := DefaultConfig()
			cfg.FlushPolicy = FlushOS
			l, err := benchDir(b).OpenLog(testTP, testID, cfg, Hooks{})
			if err != nil {
				b.Fatal(err)
			}
			batch := benchBatch(size)
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Append(batch, 0); err != nil {
					b.Fatal(err)
				}
				if l.EndOffset()*1100 > 4<<30 { // keep the disk's use bounded
					if _, err := l.DeleteSegmentsBefore(l.EndOffset()); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkGroupCommit has writers with one 16 KiB batch in flight each, acknowledged after the sync.
func BenchmarkGroupCommit(b *testing.B) {
	for _, c := range []struct{ writers, logs int }{{1, 1}, {32, 1}, {32, 32}, {256, 256}} {
		b.Run(fmt.Sprintf("writers=%d/logs=%d", c.writers, c.logs), func(b *testing.B) {
			d := benchDir(b)
			type target struct {
				log  *Log
				mu   sync.Mutex
				cond *sync.Cond
			}
			targets := make([]*target, c.logs)
			for i := range targets {
				t := &target{}
				t.cond = sync.NewCond(&t.mu)
				tp := kafka.TopicPartition{Topic: "t", Partition: int32(i)}
				l, err := d.OpenLog(tp, testID, DefaultConfig(), Hooks{OnFlushed: func(int64) {
					t.mu.Lock()
					t.cond.Broadcast()
					t.mu.Unlock()
				}})
				if err != nil {
					b.Fatal(err)
				}
				t.log = l
				targets[i] = t
			}
			var left atomic.Int64
			left.Store(int64(b.N))
			b.SetBytes(int64(len(benchBatch(16 << 10))))
			b.ResetTimer()
			var wg sync.WaitGroup
			for w := range c.writers {
				wg.Go(func() {
					t, batch := targets[w%c.logs], benchBatch(16<<10)
					for left.Add(-1) >= 0 {
						info, err := t.log.Append(batch, 0)
						if err != nil {
							b.Error(err)
							return
						}
						if t.log.Flush(info.LastOffset + 1) {
							continue
						}
						t.mu.Lock()
						for t.log.FlushedOffset() <= info.LastOffset {
							t.cond.Wait()
						}
						t.mu.Unlock()
					}
				})
			}
			wg.Wait()
		})
	}
}

// BenchmarkRead finds and reads slices of a sealed log.
func BenchmarkRead(b *testing.B) {
	l, err := benchDir(b).OpenLog(testTP, testID, DefaultConfig(), Hooks{})
	if err != nil {
		b.Fatal(err)
	}
	batch := benchBatch(16 << 10)
	for range 4096 {
		if _, err := l.Append(batch, 0); err != nil {
			b.Fatal(err)
		}
	}
	end := l.EndOffset()
	for _, mode := range []string{"sequential", "random"} {
		b.Run(mode, func(b *testing.B) {
			b.ReportAllocs()
			off := int64(0)
			for i := 0; b.Loop(); i++ {
				if mode == "random" {
					off = int64(i) * 7919 % end
				}
				s, err := l.Read(off, 1<<20, end, true)
				if err != nil {
					b.Fatal(err)
				}
				if off = s.NextOffset; off == end {
					off = 0
				}
				s.Release()
			}
		})
	}
}
