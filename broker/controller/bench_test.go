package controller

import (
	"context"
	"fmt"
	"testing"

	"github.com/varvehq/varve/internal/vfs"
)

// BenchmarkCreateTopics makes topics one call at a time beside those there are already, on a real disk.
func BenchmarkCreateTopics(b *testing.B) {
	for _, there := range []int{0, 10_000} {
		b.Run(fmt.Sprint("beside=", there), func(b *testing.B) {
			env := testEnv(b, vfs.OS())
			env.Dir = b.TempDir() + "/metadata"
			c := openWithBroker(b, env)
			many := make([]NewTopic, there)
			for i := range many {
				many[i] = topicOf(fmt.Sprint("there-", i), 1)
			}
			mustCreate(b, c, many...)
			n := 0
			for b.Loop() {
				mustCreate(b, c, topicOf(fmt.Sprint("new-", n), 1))
				n++
			}
		})
	}
}

// BenchmarkApply folds the creation of one topic into an image without a disk.
func BenchmarkApply(b *testing.B) {
	for _, there := range []int{0, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint("beside=", there), func(b *testing.B) {
			im := imageOf(b, there)
			records := topicRecords(there)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Apply(im, 3, records); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func topicRecords(n int) []Record {
	id := testID(uint64(n) + 1)
	return appendPartitions([]Record{&TopicRecord{ID: id, Name: fmt.Sprint("topic.", n)}}, id, 0, [][]int32{{0}})
}

func imageOf(tb testing.TB, topics int) *Image {
	var records []Record
	for i := range topics {
		records = append(records, topicRecords(i)...)
	}
	im, err := Apply(nil, 2, records)
	if err != nil {
		tb.Fatal(err)
	}
	return im
}

// BenchmarkTenThousandPartitions makes one topic of 10,000 partitions.
func BenchmarkTenThousandPartitions(b *testing.B) {
	env := testEnv(b, vfs.OS())
	env.Dir = b.TempDir() + "/metadata"
	c := openWithBroker(b, env)
	n := 0
	for b.Loop() {
		name := fmt.Sprint("t", n)
		n++
		mustCreate(b, c, topicOf(name, 10_000))
		b.StopTimer()
		if _, err := c.DeleteTopics(context.Background(), []TopicRef{{Name: name}}); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkOpen starts on 10,000 topics, half in the snapshot, half in the log.
func BenchmarkOpen(b *testing.B) {
	env := testEnv(b, vfs.OS())
	env.Dir = b.TempDir() + "/metadata"
	c, err := Open(env)
	if err != nil {
		b.Fatal(err)
	}
	register(b, c, 0, 1)
	for half := range 2 {
		many := make([]NewTopic, 5_000)
		for i := range many {
			many[i] = topicOf(fmt.Sprint("t-", half, "-", i), 1)
		}
		mustCreate(b, c, many...)
	}
	if err := c.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		c, err := Open(env)
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
