package api

import (
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/broker/quota"
)

// Throttling as Kafka does it (KIP-13, KIP-124, KIP-219, KIP-599): the answer tells the time at once, and the connection takes
// no further request until it has passed. Request time is what decoding and handling take before an answer waits for disk or
// data; Kafka also counts its network threads.

// User is the name of the principal, as quotas name it.
func (c *ConnInfo) User() string {
	if c == nil {
		return ""
	}
	return strings.TrimPrefix(c.Principal, "User:")
}

// Charge counts a dispatched request of size bytes that took busy so far against its client's quotas, and tells how long the
// client is to be kept from sending more.
func (h *Handlers) Charge(info *ConnInfo, hdr Header, size int, busy time.Duration) time.Duration {
	if !h.Quotas.Active() {
		return 0
	}
	client := ""
	if hdr.ClientID != nil {
		client = *hdr.ClientID
	}
	now := h.Clock()
	d := h.Quotas.Record(quota.Request, info.User(), client, 100*busy.Seconds(), now)
	if hdr.Key == int16(kmsg.Produce) {
		d = max(d, h.Quotas.Record(quota.Produce, info.User(), client, float64(size), now))
	}
	return d
}

// Throttle puts a throttle time into a response that has a field for it and does not tell a longer one, and returns the longer
// of both.
func Throttle(resp kmsg.Response, d time.Duration) time.Duration {
	t, ok := resp.(kmsg.ThrottleResponse)
	if !ok {
		return d
	}
	if ms, _ := t.Throttle(); time.Duration(ms)*time.Millisecond >= d {
		return time.Duration(ms) * time.Millisecond
	}
	resp.(kmsg.SetThrottleResponse).SetThrottle(int32(d.Milliseconds()))
	return d
}

// mutations charges one request with the partitions that it makes or deletes.
type mutations struct {
	h      *Handlers
	user   string
	client string
	strict bool // what is above the quota is refused, rather than made to wait afterwards
	wait   time.Duration
}

func (h *Handlers) mutationsOf(r *Request, strictSince int16) *mutations {
	return &mutations{h: h, user: r.Conn.User(), client: r.Client(), strict: r.Version >= strictSince}
}

// take charges n partitions, or answers THROTTLING_QUOTA_EXCEEDED.
func (m *mutations) take(n int) error {
	if !m.h.Quotas.Active() {
		return nil
	}
	wait, ok := m.h.Quotas.Mutate(m.user, m.client, n, m.strict, m.h.Clock())
	m.wait = max(m.wait, wait)
	if !ok {
		return &explained{kerr.ThrottlingQuotaExceeded, "The throttling quota has been exceeded."}
	}
	return nil
}

// giveBack is for what was neither made nor deleted.
func (m *mutations) giveBack(n int) {
	if m.h.Quotas.Active() {
		m.h.Quotas.Unmutate(m.user, m.client, n, m.h.Clock())
	}
}

func (m *mutations) millis() int32 { return int32(m.wait.Milliseconds()) }

// newPartitions is how many partitions a new topic gets.
func (h *Handlers) newPartitions(t *controller.NewTopic) int {
	switch {
	case len(t.Assignments) > 0:
		return len(t.Assignments)
	case t.Partitions > 0:
		return int(t.Partitions)
	}
	return int(h.Controller.Configs().Broker(h.Controller.Image().Dynamic(h.NodeID)).NumPartitions)
}
