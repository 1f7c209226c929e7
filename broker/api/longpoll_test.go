package api

import (
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/commitlog"
	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// partitionsOnly is a DataEnv of one manager's partitions.
type partitionsOnly struct {
	DataEnv
	m *partition.Manager
}

func (e partitionsOnly) Partition(topic string, index int32) (*partition.Partition, error) {
	return e.m.Get(topic, index)
}

// dataHandlers are handlers over real partitions in memory, of the topic t.
func dataHandlers(t *testing.T, partitions int32) *Handlers {
	t.Helper()
	r, err := config.NewResolver(config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctl, err := controller.Open(controller.Env{FS: vfs.NewMem(), Dir: "meta", NodeID: 1, Configs: r})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := commitlog.OpenDir(commitlog.DirEnv{FS: vfs.NewMem(), NodeID: 1, ClusterID: ctl.Image().ClusterID}, "data")
	if err != nil {
		t.Fatal(err)
	}
	m, err := partition.NewManager(partition.DefaultConfig(), partition.Env{NodeID: 1, Dir: dir, Resolve: r.Topic})
	if err != nil {
		t.Fatal(err)
	}
	cancel := ctl.Subscribe(m.Apply)
	t.Cleanup(func() {
		cancel()
		m.Close()
		if err := dir.Close(nil); err != nil {
			t.Error(err)
		}
		if err := ctl.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := m.Recover(t.Context(), ctl.Image()); err != nil {
		t.Fatal(err)
	}
	if _, err := ctl.RegisterBroker(t.Context(), controller.Registration{ID: 1, Incarnation: kafka.NewUUID()}); err != nil {
		t.Fatal(err)
	}
	res, err := ctl.CreateTopics(t.Context(), []controller.NewTopic{{Name: "t", Partitions: partitions, ReplicationFactor: 1}}, false)
	if err != nil || res[0].Err != nil {
		t.Fatal(err, res)
	}
	return New(Env{NodeID: 1, Data: partitionsOnly{m: m}})
}

// cpuTime is the processor time of this process so far.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestIdleLongPollsCostNothing parks a thousand fetches for ten minutes of virtual time, in which the process does nothing else
// than what it takes to wait. Ten wake-ups a second of each would be six million.
func TestIdleLongPollsCostNothing(t *testing.T) {
	const polls, wait, atMost = 1000, 10 * time.Minute, time.Second
	synctest.Test(t, func(t *testing.T) {
		h := dataHandlers(t, 10)
		var wg sync.WaitGroup
		answered := make(chan int, polls)
		for i := range polls {
			req := kmsg.NewPtrFetchRequest()
			req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 12, int32((2*wait)/time.Millisecond), 1, 1<<20, -1
			rt := kmsg.NewFetchRequestTopic()
			rt.Topic = "t"
			rp := kmsg.NewFetchRequestTopicPartition()
			rp.Partition, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = int32(i%10), 1<<20, -1
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			later, err := h.fetch(t.Context(), &Request{Key: 1, Version: 12, Body: req, Received: h.Clock()})
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				resp, err := later.Wait(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				n := 0
				for j := range resp.(*fetchResponse).parts {
					n += resp.(*fetchResponse).parts[j].records.Size()
				}
				resp.(*fetchResponse).Release()
				answered <- n
			})
		}
		synctest.Wait()
		before := cpuTime(t)
		time.Sleep(wait)
		synctest.Wait()
		if used := cpuTime(t) - before; used > atMost {
			t.Errorf("%d idle fetches took %v of the processor in %v", polls, used, wait)
		}
		if n := len(answered); n > 0 {
			t.Errorf("%d fetches were answered although there was nothing", n)
		}
		for i := range int32(10) { // they are alive: a record wakes those of its partition
			p, err := h.Data.Partition("t", i)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Append(oneRecord(), partition.AppendOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		wg.Wait()
		for range polls {
			if n := <-answered; n == 0 {
				t.Fatal("an answer without the record")
			}
		}
	})
}

func oneRecord() []byte {
	b := record.NewBuilder(record.BuilderOptions{})
	b.Append(time.Now().UnixMilli(), nil, []byte("value"), nil)
	return b.Batch(0)
}
