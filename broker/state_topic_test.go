package broker

import (
	"context"
	"testing"
	"time"

	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/broker/coordinator"
	"github.com/varvehq/varve/broker/coordinator/coordinatortest"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/vfs"
)

// TestStateLogKeepsItsPromises runs the conformance suite of coordinator.Log over the partitions of a real broker.
func TestStateLogKeepsItsPromises(t *testing.T) {
	open := func(t *testing.T, fs vfs.FS) *Broker {
		cfg := DefaultConfig()
		cfg.DataDir = "/data"
		cfg.Listeners = []Listener{{Name: "PLAINTEXT", Address: "127.0.0.1:0"}}
		b, err := Open(t.Context(), cfg, Env{FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeBroker(t, b) })
		if _, err := b.ctl.EnsureTopic(t.Context(), kafka.ConsumerOffsetsTopic); err != nil {
			t.Fatal(err)
		}
		return b
	}
	log := func(b *Broker) coordinator.Log {
		return b.stateLog(kafka.ConsumerOffsetsTopic)
	}
	coordinatortest.RunLogSuite(t, func(t *testing.T) coordinatortest.LogUnderTest {
		fs := vfs.NewMem()
		b := open(t, fs)
		return coordinatortest.LogUnderTest{
			Log: log(b),
			Resign: func(t *testing.T) { // a broker that registers anew leads in new epochs
				reg := controller.Registration{ID: b.cfg.NodeID, Incarnation: kafka.NewUUID()}
				if _, err := b.ctl.RegisterBroker(t.Context(), reg); err != nil {
					t.Fatal(err)
				}
			},
			Reopen: func(t *testing.T) coordinator.Log {
				closeBroker(t, b)
				return log(open(t, fs))
			},
		}
	})
}

func closeBroker(t *testing.T, b *Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Error(err)
	}
}
