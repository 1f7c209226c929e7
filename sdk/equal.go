package sdk

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"
)

// Equal reports whether s and o describe the same values in the same words: types, names, versions, documentation,
// parameters, defaults and fields in order.
func (s *Schema) Equal(o *Schema) bool {
	if s == o {
		return true
	}
	if s == nil || o == nil {
		return false
	}
	return s.Type == o.Type && s.Optional == o.Optional && s.Name == o.Name && s.Version == o.Version && s.Doc == o.Doc &&
		maps.Equal(s.Parameters, o.Parameters) &&
		(s.Default == nil) == (o.Default == nil) && bytes.Equal(s.Default, o.Default) &&
		slices.EqualFunc(s.Fields, o.Fields, func(a, b Field) bool { return a.Name == b.Name && a.Schema.Equal(b.Schema) }) &&
		s.Elem.Equal(o.Elem)
}

// Fingerprint is a hash of all that Equal compares, stable over processes and versions. Equal schemas have equal
// fingerprints; compare with Equal where a collision would matter.
func (s *Schema) Fingerprint() uint64 {
	h := fnv.New64a()
	_, _ = h.Write(s.canonical(nil))
	return h.Sum64()
}

func (s *Schema) canonical(b []byte) []byte {
	text := func(t string) { b = append(binary.AppendUvarint(b, uint64(len(t))), t...) }
	if s == nil {
		return append(b, 0)
	}
	b = append(b, byte(s.Type))
	if s.Optional {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	text(s.Name)
	b = binary.AppendVarint(b, int64(s.Version))
	text(s.Doc)
	b = binary.AppendUvarint(b, uint64(len(s.Parameters)))
	for _, k := range slices.Sorted(maps.Keys(s.Parameters)) {
		text(k)
		text(s.Parameters[k])
	}
	if s.Default == nil {
		b = append(b, 0)
	} else {
		b = append(b, 1)
		text(string(s.Default))
	}
	b = binary.AppendUvarint(b, uint64(len(s.Fields)))
	for _, f := range s.Fields {
		text(f.Name)
		b = f.Schema.canonical(b)
	}
	return s.Elem.canonical(b)
}
