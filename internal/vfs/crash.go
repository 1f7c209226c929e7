package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// CrashClone returns what a power loss at this moment could leave, as a file system of its own in which all is durable.
// The choice is rng's: of every file's un-synced bytes any subset of its 4 KiB pages survives, the last write may be
// torn at a multiple of 512 bytes, and the size is one that fits; of every folder's un-synced changes either a prefix or
// any subset survives. m is not changed and stays usable.
func (m *Mem) CrashClone(rng *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMem()
	c.clock = m.clock
	c.capacity = m.capacity
	seen := map[*memNode]*memNode{}
	c.root = m.root.crash(rng, seen)
	for _, n := range seen {
		c.used += int64(len(n.data))
	}
	return c
}

// crash copies a node as it would be found. A node with two names stays one node.
func (n *memNode) crash(rng *rand.Rand, seen map[*memNode]*memNode) *memNode {
	if c := seen[n]; c != nil {
		c.links++
		return c
	}
	if !n.dir {
		data := n.crashData(rng)
		c := &memNode{links: 1, modTime: n.modTime, data: data, synced: slices.Clone(data), dirty: map[int64]struct{}{}}
		seen[n] = c
		return c
	}
	entries := maps.Clone(n.durable)
	if len(n.pending) > 0 && rng.IntN(3) == 0 { // as a journal loses them: the last ones
		for _, c := range n.pending[:rng.IntN(len(n.pending)+1)] {
			c.apply(entries)
		}
	} else {
		for _, c := range n.pending {
			if rng.IntN(2) == 0 {
				c.apply(entries)
			}
		}
	}
	c := newMemDir(n.modTime)
	seen[n] = c
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		c.entries[name] = entries[name].crash(rng, seen)
	}
	c.durable = maps.Clone(c.entries)
	return c
}

func (n *memNode) crashData(rng *rand.Rand) []byte {
	if len(n.dirty) == 0 {
		return slices.Clone(n.synced)
	}
	out := slices.Clone(n.synced)
	keep := 2
	if rng.IntN(2) == 0 { // half of the crashes lose little, so that deep states are reached
		keep = 8
	}
	for _, p := range slices.Sorted(maps.Keys(n.dirty)) {
		if rng.IntN(keep) == 0 {
			continue
		}
		from, to := p*memPage, min(p*memPage+memPage, int64(len(n.data)))
		if from >= to {
			continue
		}
		to = n.tear(rng, from, to)
		if grow := to - int64(len(out)); grow > 0 {
			out = append(out, make([]byte, grow)...)
		}
		copy(out[from:to], n.data[from:to])
	}
	if size := int64(len(n.data)); size < int64(len(n.synced)) && rng.IntN(2) == 0 {
		out = out[:min(size, int64(len(out)))]
	}
	return out
}

// tear cuts the surviving part of a page where the last write ends in it, at a multiple of 512 bytes.
func (n *memNode) tear(rng *rand.Rand, from, to int64) int64 {
	start, end := n.lastWrite.off, n.lastWrite.off+n.lastWrite.n
	if n.lastWrite.n == 0 || end <= from || start >= to || rng.IntN(2) == 0 {
		return to
	}
	lo := max(from, start) / 512 * 512
	cut := lo + 512*rng.Int64N((to-lo)/512+1)
	if cut <= max(from, start) {
		return max(from, min(start, to))
	}
	return min(cut, to)
}

// Crash is CrashClone by seed.
func (m *Mem) Crash(seed uint64) *Mem {
	return m.CrashClone(rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)))
}
