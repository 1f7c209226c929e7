package assignor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvehq/varve/internal/kafka"
)

func topic(n byte) kafka.UUID { return kafka.UUID{15: n} }

// counts is how many partitions topics have.
type counts map[kafka.UUID]int32

func (c counts) of(t kafka.UUID) int32 { return c[t] }

type partition struct {
	topic kafka.UUID
	index int32
}

// check tells what is wrong with an assignment: every partition that somebody is subscribed to has one owner, who is.
func check(members []Member, c counts, out []Set) error {
	owner := map[partition]string{}
	for i, m := range members {
		for t, ps := range out[i] {
			if !slices.Contains(m.Topics, t) {
				return fmt.Errorf("%s has %v of a topic that it is not subscribed to", m.ID, t)
			}
			for _, p := range ps {
				at := partition{t, p}
				if owner[at] != "" || p < 0 || p >= c[t] {
					return fmt.Errorf("%v is %s's and %s's", at, owner[at], m.ID)
				}
				owner[at] = m.ID
			}
		}
	}
	by, topics := subscribers(members, c.of)
	want := 0
	for _, t := range topics {
		if len(by[t]) > 0 {
			want += int(c[t])
		}
	}
	if len(owner) != want {
		return fmt.Errorf("%d of %d partitions have an owner", len(owner), want)
	}
	return nil
}

// world makes members that are alike or not, with the targets that an assignment before gave them.
func world(r *rand.Rand, alike bool) ([]Member, counts) {
	c := counts{}
	var topics []kafka.UUID
	for i := range 1 + r.IntN(5) {
		topics = append(topics, topic(byte(i+1)))
		c[topics[i]] = r.Int32N(12)
	}
	members := make([]Member, 1+r.IntN(7))
	for i := range members {
		members[i] = Member{ID: fmt.Sprint("m", i), Topics: slices.Clone(topics)}
		if !alike {
			members[i].Topics = slices.DeleteFunc(members[i].Topics, func(kafka.UUID) bool { return r.IntN(2) == 0 })
		}
	}
	return members, c
}

func TestAssignments(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		alike := seed%2 == 0
		members, c := world(r, alike)
		for name, assign := range ByName {
			out := assign(members, c.of)
			if err := check(members, c, out); err != nil {
				t.Fatalf("seed %d, %s: %v", seed, name, err)
			}
		}
		out := Uniform(members, c.of)
		if err := even(members, out); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i := range members {
			members[i].Target = out[i]
		}
		if again := Uniform(members, c.of); cmp.Diff(out, again) != "" {
			t.Fatalf("seed %d: an assignment that is good is changed:\n%s", seed, cmp.Diff(out, again))
		}
		left := members[1:]
		moved := 0
		for i, s := range Uniform(left, c.of) {
			if alike && len(left) > 0 {
				moved += missing(left[i].Target, s)
			}
		}
		if moved > 0 {
			t.Fatalf("seed %d: %d partitions move away from members that stay, although one has left", seed, moved)
		}
	}
}

// even tells where a partition could go from a member to one that has at least two less.
func even(members []Member, out []Set) error {
	for i := range members {
		for j := range members {
			for t := range out[i] {
				if slices.Contains(members[j].Topics, t) && out[j].size() < out[i].size()-1 {
					return fmt.Errorf("%s has %d and %s has %d", members[i].ID, out[i].size(), members[j].ID, out[j].size())
				}
			}
		}
	}
	return nil
}

func missing(before, after Set) (n int) {
	for t, ps := range before {
		for _, p := range ps {
			if !slices.Contains(after[t], p) {
				n++
			}
		}
	}
	return n
}

func TestRangeKeepsEqualKeysTogether(t *testing.T) {
	c := counts{topic(1): 5, topic(2): 5}
	both := []kafka.UUID{topic(1), topic(2)}
	members := []Member{{ID: "z", Instance: "x", Topics: both}, {ID: "b", Topics: both}}
	got := Range(members, c.of)
	want := []Set{{topic(1): {0, 1, 2}, topic(2): {0, 1, 2}}, {topic(1): {3, 4}, topic(2): {3, 4}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// One more member of many joins: what the coordinator computes with every join.
func BenchmarkUniform(b *testing.B) {
	topic := kafka.UUID{1}
	members := make([]Member, 1000)
	for i := range members {
		members[i] = Member{ID: fmt.Sprintf("member-%04d", i), Topics: []kafka.UUID{topic}}
	}
	partitions := func(kafka.UUID) int32 { return 1000 }
	for i, set := range Uniform(members[:999], partitions) {
		members[i].Target = set
	}
	b.ReportAllocs()
	for b.Loop() {
		Uniform(members, partitions)
	}
}
