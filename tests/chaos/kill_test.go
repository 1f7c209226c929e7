//go:build chaos

package chaos

import (
	"context"
	"encoding/binary"
	"flag"
	"math/rand"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/tests/harness"
)

var (
	kills = flag.Int("kills", 20, "how often the server is killed")
	seed  = flag.Int64("seed", 0, "seed of what is left to chance; 0 takes the clock")
)

// runSeed is the seed that is asked for, or a new one.
func runSeed() int64 {
	if *seed == 0 {
		return time.Now().UnixNano()
	}
	return *seed
}

// record is what one acknowledged record must be found as.
type record struct {
	partition int32
	offset    int64
	seq       uint64
}

// TestKill9UnderLoad kills the server by SIGKILL while producers with acks=all write to tiered partitions of small segments,
// and starts it again. In the end every acknowledged record is at its offset, and every partition holds its sequence
// without a gap, a repetition or a change of order.
func TestKill9UnderLoad(t *testing.T) {
	seed := runSeed()
	rng := rand.New(rand.NewSource(seed))
	t.Logf("seed %d, %d kills", seed, *kills)
	p := harness.StartProcess(t, harness.ProcessOptions{Roles: "broker,controller", Config: `broker:
  properties:
    log.retention.check.interval.ms: "500"
    remote.log.manager.task.interval.ms: "500"
`})
	const partitions = 8
	createTopic(t, p.Kafka, partitions)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	var acked sync.Map // of partition: *[]record
	var total atomic.Int64
	var wg sync.WaitGroup
	for part := range int32(partitions) {
		wg.Go(func() { total.Add(int64(produce(ctx, t, p.Kafka, part, &acked))) })
	}
	for i := range *kills {
		time.Sleep(time.Duration(200+rng.Intn(1500)) * time.Millisecond) // the load runs for this long
		p.Kill9()
		t.Logf("kill %d", i+1)
		p.Restart(t)
	}
	cancel()
	wg.Wait()
	read := readAll(t, p.Kafka, partitions)
	n := 0
	acked.Range(func(k, v any) bool {
		part := k.(int32)
		for _, r := range *v.(*[]record) {
			n++
			if r.offset >= int64(len(read[part])) || read[part][r.offset] != r.seq {
				t.Errorf("partition %d: record %d, acknowledged at offset %d, is not there", part, r.seq, r.offset)
				return false
			}
		}
		return true
	})
	all := 0
	for part, seqs := range read {
		for i, s := range seqs {
			if s != uint64(i) {
				t.Errorf("partition %d: offset %d holds record %d: lost, repeated or out of order", part, i, s)
				break
			}
		}
		all += len(seqs)
	}
	if n == 0 {
		t.Fatal("nothing was acknowledged")
	}
	t.Logf("%d records acknowledged over %d kills; %d are there, each once and in order", n, *kills, all)
}

func createTopic(t *testing.T, addr string, partitions int32) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	v := func(s string) *string { return &s }
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), partitions, 1, map[string]*string{
		"segment.bytes": v("1048576"), "remote.storage.enable": v("true"), "local.retention.bytes": v("1048576"),
	}, "load"); err != nil {
		t.Fatal(err)
	}
}

// produce writes a running number to one partition until ctx ends, and notes what was acknowledged where.
func produce(ctx context.Context, t *testing.T, addr string, part int32, acked *sync.Map) int {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("load"),
		kgo.ProducerBatchMaxBytes(64<<10), kgo.MaxBufferedRecords(2000), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Error(err)
		return 0
	}
	defer cl.Close()
	var mu sync.Mutex
	list := &[]record{}
	acked.Store(part, list)
	filler := make([]byte, 500)
	seq := uint64(0)
	for ; ctx.Err() == nil; seq++ {
		n := seq
		// Without ctx: a record that is given up would leave a gap in the sequence.
		cl.Produce(context.Background(), &kgo.Record{Partition: part, Value: append(binary.BigEndian.AppendUint64(nil, n), filler...)},
			func(r *kgo.Record, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("partition %d record %d: %v", part, n, err)
					return
				}
				*list = append(*list, record{part, r.Offset, n})
			})
	}
	flush, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := cl.Flush(flush); err != nil {
		t.Error(err)
	}
	return int(seq)
}

// readAll reads every partition from offset 0 to its end.
func readAll(t *testing.T, addr string, partitions int) map[int32][]uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics("load"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, "load")
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[int32][]uint64)
	left := 0
	ends.Each(func(o kadm.ListedOffset) {
		out[o.Partition] = nil
		if o.Offset > 0 {
			left++
		}
	})
	if len(out) != partitions {
		t.Fatalf("%d partitions", len(out))
	}
	for left > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		for it := fs.RecordIter(); !it.Done(); {
			r := it.Next()
			if r.Offset != int64(len(out[r.Partition])) {
				t.Fatalf("partition %d: offset %d after %d records", r.Partition, r.Offset, len(out[r.Partition]))
			}
			out[r.Partition] = append(out[r.Partition], binary.BigEndian.Uint64(r.Value))
			if o, _ := ends.Lookup("load", r.Partition); r.Offset == o.Offset-1 {
				left--
			}
		}
	}
	return out
}
