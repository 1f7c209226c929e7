//go:build chaos

package chaos

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/cmd/varve/demo/job"
)

// watcher reads the topic from its start all the time, over every kill, and remembers what it saw.
type watcher struct {
	hash   maphash.Seed
	cancel context.CancelFunc
	done   chan struct{}

	mu struct {
		sync.Mutex
		seen map[int32][]uint64 // by partition: a hash of the record at each offset
		err  error
	}
}

// watch starts reading.
func watch(j *job.Job) (*watcher, error) {
	cl, err := j.Client(kgo.ConsumeTopics(job.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{hash: maphash.MakeSeed(), cancel: cancel, done: make(chan struct{})}
	w.mu.seen = map[int32][]uint64{}
	go func() {
		defer close(w.done)
		defer cl.Close()
		for ctx.Err() == nil {
			w.take(cl.PollFetches(ctx))
		}
	}()
	return w, nil
}

func (w *watcher) take(fetches kgo.Fetches) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fetches.EachError(func(_ string, p int32, err error) {
		var lost *kgo.ErrDataLoss
		if errors.As(err, &lost) { // other errors are those of a server that is down
			w.mu.err = fmt.Errorf("partition %d: %w", p, err)
		}
	})
	fetches.EachRecord(func(r *kgo.Record) {
		if n := int64(len(w.mu.seen[r.Partition])); r.Offset != n && w.mu.err == nil {
			w.mu.err = fmt.Errorf("partition %d: offset %d came after %d", r.Partition, r.Offset, n-1)
		}
		w.mu.seen[r.Partition] = append(w.mu.seen[r.Partition], w.sum(r))
	})
}

func (w *watcher) sum(r *kgo.Record) uint64 {
	var h maphash.Hash
	h.SetSeed(w.hash)
	_, _ = fmt.Fprintf(&h, "%d %d %d ", r.Timestamp.UnixMilli(), len(r.Key), len(r.Value))
	_, _ = h.Write(r.Key)
	_, _ = h.Write(r.Value)
	return h.Sum64()
}

// records is how many it has seen.
func (w *watcher) records() (n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.mu.seen {
		n += int64(len(p))
	}
	return n
}

func (w *watcher) stop() {
	w.cancel()
	<-w.done
}

// compare checks that each record it saw is, in the end, at its offset. end has the hashes of the topic's records.
func (w *watcher) compare(end map[int32][]uint64) error {
	if w.mu.err != nil {
		return w.mu.err
	}
	for p, seen := range w.mu.seen {
		if len(seen) > len(end[p]) {
			return fmt.Errorf("partition %d: a reader saw %d records; %d are there", p, len(seen), len(end[p]))
		}
		for i, h := range seen {
			if h != end[p][i] {
				return fmt.Errorf("partition %d: at offset %d a reader saw another record than the one that is there", p, i)
			}
		}
	}
	return nil
}
