package commitlog

import (
	"crypto/sha256"
	"encoding/binary"
)

// offsetMap keeps the last offset of each key in bounded memory. Keys are known by 16 bytes of their SHA-256, so that nobody
// can make two of them meet.
type offsetMap struct {
	slots []mapSlot
	max   int // entries it takes
	n     int
}

type mapSlot struct {
	hash [16]byte
	next int64 // the offset plus one; 0 is an empty slot
}

const (
	mapSlotSize   = 24
	mapLoadFactor = 0.9 // log.cleaner.io.buffer.load.factor
)

// newOffsetMap makes a map of at most bytes for at most records entries.
func newOffsetMap(bytes, records int64) *offsetMap {
	n := max(bytes/mapSlotSize, 2)
	if need := records + records/8 + 2; need < n && need > 0 { // an eighth more keeps it under the load factor
		n = need
	}
	return &offsetMap{slots: make([]mapSlot, n), max: max(int(float64(n)*mapLoadFactor), 1)}
}

// slot finds the place of a key: its own, or the empty one where it belongs.
func (m *offsetMap) slot(key []byte) (*mapSlot, [16]byte) {
	sum := sha256.Sum256(key)
	hash := [16]byte(sum[:16])
	n := uint64(len(m.slots))
	for i := binary.BigEndian.Uint64(hash[:]) % n; ; i = (i + 1) % n {
		if s := &m.slots[i]; s.next == 0 || s.hash == hash {
			return s, hash
		}
	}
}

// put notes that a key's last offset is at least offset; false where the map is full and the key new.
func (m *offsetMap) put(key []byte, offset int64) bool {
	s, hash := m.slot(key)
	if s.next == 0 {
		if m.n >= m.max {
			return false
		}
		m.n++
		s.hash = hash
	}
	s.next = max(s.next, offset+1)
	return true
}

// last is the last offset of a key, -1 where it is not known.
func (m *offsetMap) last(key []byte) int64 {
	s, _ := m.slot(key)
	return s.next - 1
}
