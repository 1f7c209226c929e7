//go:build compat

package compat

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestKgo(t *testing.T) {
	p := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	client := func(opts ...kgo.Opt) *kgo.Client {
		cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(p.Kafka)}, opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		return cl
	}
	adm := kadm.NewClient(client())
	if _, err := adm.CreateTopic(ctx, 3, 1, nil, "kgo"); err != nil {
		t.Fatal(err)
	}
	const n = 100_000
	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		prod := client(kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic("kgo"))
		for j := range n / 5 {
			prod.Produce(ctx, kgo.StringRecord(fmt.Sprintf("%d", i*n/5+j)), func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		if err := prod.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	// Three members, one of which leaves without a word.
	seen := make(chan int, n+1000)
	var members []*kgo.Client
	for _, b := range []kgo.GroupBalancer{kgo.CooperativeStickyBalancer(), kgo.CooperativeStickyBalancer(), kgo.CooperativeStickyBalancer()} {
		cl := client(kgo.ConsumerGroup("kgo-group"), kgo.ConsumeTopics("kgo"), kgo.Balancers(b), kgo.SessionTimeout(6*time.Second),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll())
		members = append(members, cl)
		go func() {
			for ctx.Err() == nil {
				fs := cl.PollRecords(ctx, 1000)
				if fs.IsClientClosed() {
					return
				}
				for it := fs.RecordIter(); !it.Done(); {
					var v int
					if _, err := fmt.Sscan(string(it.Next().Value), &v); err != nil {
						t.Error(err)
					}
					seen <- v
				}
				if err := cl.CommitUncommittedOffsets(ctx); err != nil && ctx.Err() == nil {
					t.Logf("commit: %v", err)
				}
				cl.AllowRebalance()
			}
		}()
	}
	got := make(map[int]bool)
	for len(got) < n/2 {
		got[<-seen] = true
	}
	members[0].CloseAllowingRebalance()
	for len(got) < n {
		select {
		case v := <-seen:
			got[v] = true
		case <-ctx.Done():
			t.Fatalf("%d of %d records consumed", len(got), n)
		}
	}
	offsets, err := adm.ListEndOffsets(ctx, "kgo")
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	offsets.Each(func(o kadm.ListedOffset) { total += o.Offset })
	if total != n {
		t.Errorf("end offsets add up to %d, want %d", total, n)
	}
	groups, err := adm.DescribeGroups(ctx, "kgo-group")
	if err != nil || groups["kgo-group"].Protocol != "cooperative-sticky" {
		t.Errorf("group: %+v %v", groups["kgo-group"], err)
	}
	names, err := adm.ListTopics(ctx)
	if err != nil || !slices.Contains(names.Names(), "kgo") {
		t.Errorf("topics: %v %v", names.Names(), err)
	}
}
