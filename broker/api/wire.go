package api

import "encoding/binary"

// wireReader walks over a request's bytes without making anything of them. After bad is set every call is a no-op.
type wireReader struct {
	b    []byte
	flex bool
	bad  bool
}

func (r *wireReader) skip(n int) {
	if r.bad || n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return
	}
	r.b = r.b[n:]
}

func (r *wireReader) uvarint() int {
	n, w := binary.Uvarint(r.b)
	if w <= 0 || n > 1<<31 {
		r.bad, r.b = true, nil
		return 0
	}
	r.skip(w)
	return int(n)
}

func (r *wireReader) int32() int {
	if len(r.b) < 4 {
		r.bad, r.b = true, nil
		return 0
	}
	n := int32(binary.BigEndian.Uint32(r.b))
	r.skip(4)
	return int(n)
}

// arrayLen is the length of an array, 0 for null.
func (r *wireReader) arrayLen() int {
	var n int
	if r.flex {
		n = r.uvarint() - 1
	} else {
		n = r.int32()
	}
	if n > len(r.b) {
		r.bad, r.b = true, nil
	}
	if r.bad || n < 0 {
		return 0
	}
	return n
}

func (r *wireReader) skipString() {
	switch {
	case r.flex:
		r.skip(max(r.uvarint()-1, 0))
	case len(r.b) < 2:
		r.bad, r.b = true, nil
	default:
		n := int(int16(binary.BigEndian.Uint16(r.b)))
		r.skip(2)
		r.skip(max(n, 0))
	}
}

func (r *wireReader) skipBytes() {
	if r.flex {
		r.skip(max(r.uvarint()-1, 0))
		return
	}
	r.skip(max(r.int32(), 0))
}

// skipTags passes over tagged fields, in flexible versions.
func (r *wireReader) skipTags() {
	if !r.flex {
		return
	}
	for range r.uvarint() {
		if r.bad {
			return
		}
		r.uvarint()
		r.skip(r.uvarint())
	}
}
