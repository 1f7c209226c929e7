package assignor

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/varvehq/varve/internal/kafka"
)

// uniform is one assignment being made. It numbers the partitions of the group's topics through, by topic and partition: the
// coordinator assigns with every member that joins.
type uniform struct {
	members []Member
	topics  []topicSpan
	at      map[kafka.UUID]int // index in topics
	owner   []int              // by partition, free for none
	has     []int              // by member, how many partitions
	same    []bool             // by member, whether it has just what was its target
}

// topicSpan is one topic with its partitions' numbers: from first to first+count-1.
type topicSpan struct {
	id           kafka.UUID
	first, count int
	readers      []int // in order
}

const free = -1

// Uniform is the assignor of that name.
func Uniform(members []Member, partitions func(kafka.UUID) int32) []Set {
	u := &uniform{members: members, at: map[kafka.UUID]int{}, has: make([]int, len(members))}
	by, topics := subscribers(members, partitions)
	total := 0
	for i, t := range topics {
		n := int(partitions(t))
		u.topics = append(u.topics, topicSpan{id: t, first: total, count: n, readers: by[t]})
		u.at[t] = i
		total += n
	}
	u.owner = slices.Repeat([]int{free}, total)
	u.same = make([]bool, len(members))
	u.keep()
	if u.alike() {
		u.level()
	} else {
		u.fill()
		u.balance()
	}
	return u.result()
}

// keep leaves partitions with the members that had them.
func (u *uniform) keep() {
	for i, m := range u.members {
		for t, ps := range m.Target {
			at, exists := u.at[t]
			if _, reads := slices.BinarySearchFunc(m.Topics, t, Compare); !exists || !reads {
				continue
			}
			for _, p := range ps {
				span := &u.topics[at]
				if int(p) < span.count && u.owner[span.first+int(p)] == free {
					u.give(span.first+int(p), i)
				}
			}
		}
	}
	for i, m := range u.members {
		u.same[i] = m.Target != nil && u.has[i] == m.Target.size()
	}
}

// give gives a partition to a member, or to nobody.
func (u *uniform) give(p, to int) {
	if from := u.owner[p]; from != free {
		u.has[from]--
		u.same[from] = false
	}
	if u.owner[p] = to; to != free {
		u.has[to]++
		u.same[to] = false
	}
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

// level is for members that are alike: each has its share, the first ones among those that have most the odd partitions.
func (u *uniform) level() {
	if len(u.members) == 0 {
		return
	}
	share, odd := len(u.owner)/len(u.members), len(u.owner)%len(u.members)
	order := make([]int, len(u.members))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(u.has[b], u.has[a]) })
	quota := make([]int, len(u.members))
	for at, i := range order {
		if quota[i] = share; at < odd {
			quota[i]++
		}
	}
	kept := make([]int, len(u.members))
	for p, i := range u.owner {
		if i == free {
			continue
		}
		if kept[i]++; kept[i] > quota[i] {
			u.give(p, free)
		}
	}
	next := 0
	for p, i := range u.owner {
		if i != free {
			continue
		}
		for u.has[order[next]] >= quota[order[next]] {
			next++
		}
		u.give(p, order[next])
	}
}

// fill gives each free partition to the reader that has least.
func (u *uniform) fill() {
	for _, t := range u.topics {
		h := &readers{has: u.has, ids: slices.Clone(t.readers)}
		heap.Init(h)
		for p := t.first; p < t.first+t.count; p++ {
			if u.owner[p] == free {
				u.give(p, h.ids[0])
				heap.Fix(h, 0)
			}
		}
	}
}

// readers is a heap of a topic's members by how much they have.
type readers struct{ has, ids []int }

func (r *readers) Len() int { return len(r.ids) }
func (r *readers) Less(i, j int) bool {
	a, b := r.ids[i], r.ids[j]
	return cmp.Or(cmp.Compare(r.has[a], r.has[b]), cmp.Compare(a, b)) < 0
}
func (r *readers) Swap(i, j int) { r.ids[i], r.ids[j] = r.ids[j], r.ids[i] }
func (r *readers) Push(any)      {}
func (r *readers) Pop() any      { return nil }

// balance moves partitions to readers that have at least two less. Every move makes the numbers more even, so that it ends.
func (u *uniform) balance() {
	for moved := true; moved; {
		moved = false
		for _, t := range u.topics {
			for p := t.first; p < t.first+t.count; p++ {
				least := slices.MinFunc(t.readers, func(a, b int) int { return cmp.Compare(u.has[a], u.has[b]) })
				if u.has[least] < u.has[u.owner[p]]-1 {
					u.give(p, least)
					moved = true
				}
			}
		}
	}
}

func (u *uniform) result() []Set {
	out := make([]Set, len(u.members))
	for i := range out {
		if out[i] = u.members[i].Target; !u.same[i] {
			out[i] = Set{}
		}
	}
	for _, t := range u.topics {
		for p := range t.count {
			if i := u.owner[t.first+p]; i != free && !u.same[i] {
				out[i][t.id] = append(out[i][t.id], int32(p))
			}
		}
	}
	return out
}
