// Package assignor computes which member of a consumer group reads which partition (KIP-848). Its functions are pure: the same
// members, topics and previous targets give the same result.
//
// Uniform spreads the partitions so that the members' numbers differ as little as their subscriptions allow, and leaves every
// partition where it was as long as that holds. Range gives every member a run of neighbouring partitions of each topic, the
// same run of topics with as many partitions, so that equal keys meet in one member.
package assignor

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/varvehq/varve/internal/kafka"
)

// Set is partitions by topic id, each list in order and without repetition.
type Set map[kafka.UUID][]int32

func (s Set) size() (n int) {
	for _, ps := range s {
		n += len(ps)
	}
	return n
}

// Member is one member of the group.
type Member struct {
	ID       string
	Instance string       // "" where it has none
	Topics   []kafka.UUID // that it is subscribed to, in order and without repetition
	Target   Set          // before this assignment
}

// Func assigns: it returns one Set per member, which may be the member's Target. partitions tells how many a topic has, 0 for one that does not exist.
type Func func(members []Member, partitions func(kafka.UUID) int32) []Set

// ByName are the assignors that a group may use.
var ByName = map[string]Func{"uniform": Uniform, "range": Range}

// Compare orders topic ids.
func Compare(a, b kafka.UUID) int { return bytes.Compare(a[:], b[:]) }

// subscribers lists, for every topic that exists, the indexes of its members, and the topics in order.
func subscribers(members []Member, partitions func(kafka.UUID) int32) (map[kafka.UUID][]int, []kafka.UUID) {
	by := map[kafka.UUID][]int{}
	for i := range members {
		for _, t := range members[i].Topics {
			if partitions(t) > 0 {
				by[t] = append(by[t], i)
			}
		}
	}
	topics := make([]kafka.UUID, 0, len(by))
	for t := range by {
		topics = append(topics, t)
	}
	slices.SortFunc(topics, Compare)
	return by, topics
}

// Range is the assignor of that name. Members with an instance id come first, in its order, then the others in order of their
// member id.
func Range(members []Member, partitions func(kafka.UUID) int32) []Set {
	order := make([]int, len(members))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := &members[i], &members[j]
		if (a.Instance == "") != (b.Instance == "") {
			return cmp.Compare(b.Instance, a.Instance) // none comes last
		}
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.ID, b.ID))
	})
	sorted := make([]Member, len(members))
	for at, i := range order {
		sorted[at] = members[i]
	}
	out := make([]Set, len(members))
	for i := range out {
		out[i] = Set{}
	}
	by, topics := subscribers(sorted, partitions)
	for _, t := range topics {
		readers := int32(len(by[t]))
		each, extra := partitions(t)/readers, partitions(t)%readers
		next := int32(0)
		for at, reader := range by[t] {
			n := each
			if int32(at) < extra {
				n++
			}
			for range n {
				out[order[reader]][t] = append(out[order[reader]][t], next)
				next++
			}
		}
	}
	return out
}
