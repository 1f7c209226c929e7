package assignor

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/varvehq/varve/internal/kafka"
)

// partition is one partition of the group's topics.
type partition struct {
	topic kafka.UUID
	index int32
}

// uniform is one assignment being made.
type uniform struct {
	members  []Member
	by       map[kafka.UUID][]int
	owner    map[partition]int
	has      []map[partition]struct{}
	eligible []map[kafka.UUID]bool
}

// Uniform is the assignor of that name.
func Uniform(members []Member, partitions func(kafka.UUID) int32) []Set {
	u := &uniform{members: members, owner: map[partition]int{}}
	var topics []kafka.UUID
	u.by, topics = subscribers(members, partitions)
	u.has = make([]map[partition]struct{}, len(members))
	u.eligible = make([]map[kafka.UUID]bool, len(members))
	for i := range members {
		u.has[i], u.eligible[i] = map[partition]struct{}{}, map[kafka.UUID]bool{}
		for _, t := range members[i].Topics {
			u.eligible[i][t] = partitions(t) > 0
		}
	}
	var all []partition
	for _, t := range topics {
		for p := range partitions(t) {
			all = append(all, partition{t, p})
		}
	}
	u.keep(partitions)
	if u.alike() {
		u.level(all)
	} else {
		u.fill(all)
		u.balance()
	}
	return u.result()
}

// keep leaves partitions with the members that had them.
func (u *uniform) keep(partitions func(kafka.UUID) int32) {
	for i, m := range u.members {
		for t, ps := range m.Target {
			if !u.eligible[i][t] {
				continue
			}
			for _, p := range ps {
				at := partition{t, p}
				if _, taken := u.owner[at]; !taken && p < partitions(t) {
					u.give(at, i)
				}
			}
		}
	}
}

func (u *uniform) give(p partition, to int) {
	if from, ok := u.owner[p]; ok {
		delete(u.has[from], p)
	}
	u.owner[p] = to
	u.has[to][p] = struct{}{}
}

func (u *uniform) take(p partition) {
	delete(u.has[u.owner[p]], p)
	delete(u.owner, p)
}

// alike reports whether all members have the same subscription.
func (u *uniform) alike() bool {
	for i := range u.members {
		if !slices.Equal(u.members[i].Topics, u.members[0].Topics) {
			return false
		}
	}
	return true
}

// sorted lists what a member has, in order.
func (u *uniform) sorted(i int) []partition {
	ps := make([]partition, 0, len(u.has[i]))
	for p := range u.has[i] {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b partition) int {
		return cmp.Or(Compare(a.topic, b.topic), cmp.Compare(a.index, b.index))
	})
	return ps
}

// level is for members that are alike: each has its share, the first ones among those that have most the odd partitions.
func (u *uniform) level(all []partition) {
	if len(u.members) == 0 {
		return
	}
	share, odd := len(all)/len(u.members), len(all)%len(u.members)
	order := make([]int, len(u.members))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(u.has[b]), len(u.has[a])) })
	quota := make([]int, len(u.members))
	for at, i := range order {
		if quota[i] = share; at < odd {
			quota[i]++
		}
		for _, p := range u.sorted(i)[min(quota[i], len(u.has[i])):] {
			u.take(p)
		}
	}
	next := 0
	for _, p := range all {
		if _, taken := u.owner[p]; taken {
			continue
		}
		for len(u.has[order[next]]) >= quota[order[next]] {
			next++
		}
		u.give(p, order[next])
	}
}

// fill gives each free partition to the reader that has least.
func (u *uniform) fill(all []partition) {
	heaps := map[kafka.UUID]*readers{}
	for _, p := range all {
		if _, taken := u.owner[p]; taken {
			continue
		}
		h := heaps[p.topic]
		if h == nil || h.stale {
			h = &readers{u: u, ids: slices.Clone(u.by[p.topic])}
			heap.Init(h)
			for _, other := range heaps {
				other.stale = true
			}
			heaps[p.topic] = h
		}
		u.give(p, h.ids[0])
		heap.Fix(h, 0)
	}
}

// readers is a heap of a topic's members by how much they have.
type readers struct {
	u     *uniform
	ids   []int
	stale bool // another topic's partitions were given since
}

func (r *readers) Len() int { return len(r.ids) }
func (r *readers) Less(i, j int) bool {
	a, b := r.ids[i], r.ids[j]
	return cmp.Or(cmp.Compare(len(r.u.has[a]), len(r.u.has[b])), cmp.Compare(a, b)) < 0
}
func (r *readers) Swap(i, j int) { r.ids[i], r.ids[j] = r.ids[j], r.ids[i] }
func (r *readers) Push(any)      {}
func (r *readers) Pop() any      { return nil }

// balance moves partitions to readers that have at least two less. Every move makes the numbers more even, so that it ends.
func (u *uniform) balance() {
	for moved := true; moved; {
		moved = false
		for i := range u.members {
			for _, p := range u.sorted(i) {
				least := i
				for _, r := range u.by[p.topic] {
					if len(u.has[r]) < len(u.has[least]) {
						least = r
					}
				}
				if len(u.has[least]) < len(u.has[i])-1 {
					u.give(p, least)
					moved = true
				}
			}
		}
	}
}

func (u *uniform) result() []Set {
	out := make([]Set, len(u.members))
	for i := range u.members {
		out[i] = Set{}
		for _, p := range u.sorted(i) {
			out[i][p.topic] = append(out[i][p.topic], p.index)
		}
	}
	return out
}
