// Package buffer owns the pooled byte buffers of the broker's connections and the budget that bounds what they may hold
// together. A Buffer has one owner at a time, who releases it exactly once; with the build tag "poison" (and in every test
// binary that calls SetPoison) released bytes are overwritten, so that a late reader sees garbage at once.
//
// It never keeps a buffer larger than the largest class: those go back to the garbage collector.
package buffer

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	minShift = 10 // 1 KiB
	maxShift = 22 // 4 MiB
)

var (
	pools  [maxShift - minShift + 1]sync.Pool
	poison atomic.Bool
)

// PoisonByte fills released buffers when poisoning is on.
const PoisonByte = 0xDB

// SetPoison turns the overwriting of released buffers on or off.
func SetPoison(on bool) { poison.Store(on) }

// Buffer is a byte buffer of a size class. B may be resliced and appended to by its owner.
type Buffer struct {
	B     []byte
	class int8 // -1: not pooled
	freed bool
}

// Get returns an empty buffer with room for at least n bytes.
func Get(n int) *Buffer {
	c := classOf(n)
	if c < 0 {
		return &Buffer{B: make([]byte, 0, n), class: -1}
	}
	if b, ok := pools[c].Get().(*Buffer); ok {
		b.freed = false
		b.B = b.B[:0]
		return b
	}
	return &Buffer{B: make([]byte, 0, 1<<(c+minShift)), class: int8(c)}
}

// Release gives the buffer back. The caller must not touch it, nor anything that aliases it, afterwards. A nil buffer may be
// released.
func (b *Buffer) Release() {
	if b == nil {
		return
	}
	if b.freed {
		panic("buffer: released twice")
	}
	b.freed = true
	full := b.B[:cap(b.B)]
	if poison.Load() {
		for i := range full {
			full[i] = PoisonByte
		}
	}
	if b.class < 0 || cap(b.B) != 1<<(int(b.class)+minShift) {
		return // grown by append beyond its class, or never pooled
	}
	b.B = full[:0]
	pools[b.class].Put(b)
}

// Grow returns a buffer that holds b's bytes and has room for at least n in all. It releases b where it makes another.
func (b *Buffer) Grow(n int) *Buffer {
	if cap(b.B) >= n {
		return b
	}
	g := Get(n)
	g.B = append(g.B, b.B...)
	b.Release()
	return g
}

func classOf(n int) int {
	if n <= 1<<minShift {
		return 0
	}
	if n > 1<<maxShift {
		return -1
	}
	return bits.Len(uint(n-1)) - minShift
}
