package api

import (
	"sync"

	"github.com/varvehq/varve/broker/partition"
)

var signals = sync.Pool{New: func() any { return partition.NewSignal() }}

// getSignal returns a signal that nobody waits on. The caller cancels all its waits before putSignal.
func getSignal() *partition.Signal {
	s := signals.Get().(*partition.Signal)
	s.Drain()
	return s
}

func putSignal(s *partition.Signal) { signals.Put(s) }
