package controller

import "iter"

// shardCount splits a map so that a change copies one part only: with 10,000 topics a shard holds some 40.
const shardCount = 256

// shardMap is an immutable map in shardCount parts. A shardEditor makes a changed copy that shares the untouched parts.
type shardMap[K comparable, V any] struct {
	shards [shardCount]*shard[K, V]
	size   int
}

type shard[K comparable, V any] struct{ m map[K]V }

func (s *shardMap[K, V]) get(hash uint32, k K) (V, bool) {
	if p := s.shards[hash%shardCount]; p != nil {
		v, ok := p.m[k]
		return v, ok
	}
	var zero V
	return zero, false
}

func (s *shardMap[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, p := range s.shards {
			if p == nil {
				continue
			}
			for k, v := range p.m {
				if !yield(k, v) {
					return
				}
			}
		}
	}
}

// shardEditor is a shardMap under change. Each shard is copied at its first change only.
type shardEditor[K comparable, V any] struct {
	next  shardMap[K, V]
	owned [shardCount]bool
}

func (e *shardEditor[K, V]) own(i uint32) map[K]V {
	if p := e.next.shards[i]; e.owned[i] {
		return p.m
	} else if p == nil {
		e.next.shards[i] = &shard[K, V]{m: make(map[K]V)}
	} else {
		m := make(map[K]V, len(p.m)+1)
		for k, v := range p.m {
			m[k] = v
		}
		e.next.shards[i] = &shard[K, V]{m: m}
	}
	e.owned[i] = true
	return e.next.shards[i].m
}

func (e *shardEditor[K, V]) set(hash uint32, k K, v V) {
	m := e.own(hash % shardCount)
	before := len(m)
	m[k] = v
	e.next.size += len(m) - before
}

func (e *shardEditor[K, V]) remove(hash uint32, k K) {
	if _, ok := e.next.get(hash, k); !ok {
		return
	}
	delete(e.own(hash%shardCount), k)
	e.next.size--
}

// hashString is FNV-1a.
func hashString(s string) uint32 {
	h := uint32(2166136261)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h ^ h>>16
}

func hashID(id [16]byte) uint32 {
	h := uint32(2166136261)
	for _, b := range id {
		h = (h ^ uint32(b)) * 16777619
	}
	return h ^ h>>16
}
