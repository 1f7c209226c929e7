//go:build differential

package requests

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// settler waits until Kafka's broker has taken over what its controller has decided. In a cycle it sets a quota and waits until
// the broker tells it. The broker takes the next image of the metadata when it has done all that the last one asks for: what
// was decided before the first of two cycles began holds when the second ends. Cycles are shared by all who wait.
type settler struct {
	kafka peer

	mu              sync.Mutex
	turn            *sync.Cond
	wanted, begun   int
	finished        int
	closed, stopped bool
}

// settleName is the user whose quota is set; nothing else names it.
const settleName = "r-settle"

// settleTime bounds a cycle.
const settleTime = 5 * time.Second

func newSettler(addr string) *settler {
	s := &settler{kafka: peer{addr: addr}}
	s.turn = sync.NewCond(&s.mu)
	go s.run()
	return s
}

func (s *settler) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	target := s.begun + 2
	s.wanted = max(s.wanted, target)
	s.turn.Broadcast()
	for s.finished < target && !s.stopped {
		s.turn.Wait()
	}
}

func (s *settler) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.turn.Broadcast()
	for !s.stopped {
		s.turn.Wait()
	}
	s.kafka.close()
}

func (s *settler) run() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for s.wanted <= s.finished && !s.closed {
			s.turn.Wait()
		}
		if s.closed {
			s.stopped = true
			s.turn.Broadcast()
			return
		}
		s.begun++
		n := s.begun
		s.mu.Unlock()
		s.cycle(float64(n))
		s.mu.Lock()
		s.finished = n
		s.turn.Broadcast()
	}
}

func (s *settler) cycle(value float64) {
	name := settleName
	set := kmsg.NewPtrAlterClientQuotasRequest()
	e := kmsg.NewAlterClientQuotasRequestEntry()
	n := kmsg.NewAlterClientQuotasRequestEntryEntity()
	n.Type, n.Name = "user", &name
	o := kmsg.NewAlterClientQuotasRequestEntryOp()
	o.Key, o.Value = "request_percentage", value
	e.Entity, e.Ops = append(e.Entity, n), append(e.Ops, o)
	set.Entries = append(set.Entries, e)
	set.SetVersion(1)
	if !s.kafka.wait(s.kafka.ask(set), answerTimeout) {
		return
	}
	get := kmsg.NewPtrDescribeClientQuotasRequest()
	c := kmsg.NewDescribeClientQuotasRequestComponent()
	c.EntityType, c.Match = "user", &name
	get.Components = append(get.Components, c)
	get.SetVersion(1)
	for end := time.Now().Add(settleTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		a := s.kafka.ask(get)
		if !s.kafka.wait(a, answerTimeout) || a.got.err != nil {
			return
		}
		q := a.got.resp.(*kmsg.DescribeClientQuotasResponse).Entries
		if len(q) == 1 && len(q[0].Values) == 1 && q[0].Values[0].Value == value {
			return
		}
	}
}
