package quota

import (
	"testing"
	"time"

	"github.com/varvehq/varve/broker/controller"
)

type quotas = map[controller.QuotaEntity]map[string]float64

func named(s string) controller.QuotaName {
	return controller.QuotaName{Kind: controller.NamedQuota, Name: s}
}

var (
	byDefault = controller.QuotaName{Kind: controller.DefaultQuota}
	t0        = time.UnixMilli(1_700_000_000_000)
)

func manager(t *testing.T, q quotas) *Manager {
	t.Helper()
	m, err := NewManager(DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	m.SetQuotas(q)
	return m
}

func TestTheMostSpecificQuotaHolds(t *testing.T) {
	rate := func(v float64) map[string]float64 { return map[string]float64{controller.ProducerByteRate: v} }
	q := quotas{
		{User: named("u"), ClientID: named("c")}:     rate(1),
		{User: named("u"), ClientID: byDefault}:      rate(2),
		{User: named("u")}:                           rate(3),
		{User: byDefault, ClientID: named("c")}:      rate(4),
		{User: byDefault, ClientID: byDefault}:       rate(5),
		{User: byDefault}:                            rate(6),
		{ClientID: named("c")}:                       rate(7),
		{ClientID: byDefault}:                        rate(8),
		{IP: named("127.0.0.1")}:                     {controller.ConnectionCreationRate: 9},
		{User: named("w"), ClientID: named("other")}: rate(10),
	}
	order := []controller.QuotaEntity{
		{User: named("u"), ClientID: named("c")}, {User: named("u"), ClientID: byDefault}, {User: named("u")},
		{User: byDefault, ClientID: named("c")}, {User: byDefault, ClientID: byDefault}, {User: byDefault},
		{ClientID: named("c")}, {ClientID: byDefault},
	}
	holders := []holder{{"u", "c"}, {"u", "c"}, {"u", ""}, {"u", "c"}, {"u", "c"}, {"u", ""}, {"", "c"}, {"", "c"}}
	for i, e := range order {
		limit, h, ok := newLimits(q).find(Produce, "u", "c")
		if limit != float64(i+1) || h != holders[i] || !ok {
			t.Errorf("step %d: limit %v shared by %v", i, limit, h)
		}
		delete(q, e)
	}
	if _, _, ok := newLimits(q).find(Produce, "u", "c"); ok {
		t.Error("a limit though none is left")
	}
	if newLimits(quotas{{IP: byDefault}: {controller.ConnectionCreationRate: 1}}) != nil {
		t.Error("limits of addresses are none of clients")
	}
}

func TestByteRateThrottlesBackToTheLimit(t *testing.T) {
	m := manager(t, quotas{{ClientID: named("c")}: {controller.ProducerByteRate: 100}})
	// Ten whole windows count, however new the client is: 1000 bytes are the limit, and a tenth more is a second.
	if d := m.Record(Produce, "u", "c", 1000, t0); d != 0 {
		t.Errorf("at the limit: %v", d)
	}
	if d := m.Record(Produce, "u", "c", 100, t0); d != time.Second {
		t.Errorf("a tenth above: %v, not 1 s", d)
	}
	// As in Kafka a new client's windows count as whole ones, so the first second changes nothing for it.
	if d := m.Record(Produce, "someone", "c", 0, t0.Add(time.Second)); d != time.Second {
		t.Errorf("after a second: %v", d)
	}
	if d := m.Record(Produce, "u", "other", 1<<40, t0); d != 0 {
		t.Errorf("a client without quota: %v", d)
	}
	if d := m.Record(Produce, "u", "c", 1000, t0.Add(12*time.Second)); d != 0 {
		t.Errorf("after all windows have passed: %v", d)
	}
	m.Unrecord(Produce, "u", "c", 1000, t0.Add(12*time.Second))
	if d := m.Record(Produce, "u", "c", 1000, t0.Add(12*time.Second)); d != 0 {
		t.Errorf("after taking back: %v", d)
	}
	m.SetQuotas(nil)
	if m.Active() || m.Record(Produce, "u", "c", 1<<40, t0) != 0 {
		t.Error("a limit though all were removed")
	}
}

func TestASteadyRateAtTheLimitIsNeverThrottled(t *testing.T) {
	m := manager(t, quotas{{User: byDefault}: {controller.ConsumerByteRate: 1000}})
	now := t0
	for range 1000 {
		if d := m.Record(Fetch, "u", "c", 90, now); d != 0 {
			t.Fatalf("%v after the start: throttled for %v", now.Sub(t0), d)
		}
		now = now.Add(100 * time.Millisecond)
	}
	total, end := 0.0, now.Add(60*time.Second)
	for now.Before(end) { // one who waits as told gets the limit
		d := m.Record(Fetch, "u", "c", 5000, now)
		total += 5000
		now = now.Add(max(d, time.Millisecond))
	}
	if total < 50_000 || total > 80_000 {
		t.Errorf("%v bytes in a minute at 1000 bytes a second", total)
	}
}

func TestRequestTimeIsThrottledForOneWindowAtMost(t *testing.T) {
	m := manager(t, quotas{{User: named("u")}: {controller.RequestPercentage: 1}})
	if d := m.Record(Request, "u", "c", 10_000, t0); d != time.Second {
		t.Errorf("throttled for %v", d)
	}
}

func TestMaxBytesIsWhatTheWindowsAllow(t *testing.T) {
	m := manager(t, quotas{{User: named("u")}: {controller.ConsumerByteRate: 100}})
	if n := m.MaxBytes(Fetch, "u", "c"); n != 1000 {
		t.Errorf("%d bytes", n)
	}
	if n := m.MaxBytes(Fetch, "v", "c"); n < 1<<40 {
		t.Errorf("%d bytes without quota", n)
	}
	if n := (*Manager)(nil).MaxBytes(Fetch, "v", "c"); n < 1<<40 {
		t.Errorf("%d bytes without manager", n)
	}
}

func TestMutationsTakeTokens(t *testing.T) {
	m := manager(t, quotas{{User: named("u")}: {controller.ControllerMutationRate: 2}})
	if wait, ok := m.Mutate("u", "c", 30, true, t0); wait != 0 || !ok { // the last that is allowed may go below
		t.Errorf("first: %v %v", wait, ok)
	}
	if wait, ok := m.Mutate("u", "d", 1, true, t0); wait != 4*time.Second || ok { // 22 − 30 = −8 tokens at 2 a second
		t.Errorf("strict, with tokens owed: %v %v", wait, ok)
	}
	if wait, ok := m.Mutate("u", "c", 2, false, t0); wait != 5*time.Second || !ok {
		t.Errorf("permissive: %v %v", wait, ok)
	}
	m.Unmutate("u", "c", 2, t0)
	if wait, ok := m.Mutate("u", "c", 1, true, t0.Add(4*time.Second)); wait != 0 || !ok {
		t.Errorf("after the wait: %v %v", wait, ok)
	}
	if _, ok := m.Mutate("v", "c", 1<<20, true, t0); !ok {
		t.Error("refused without quota")
	}
}

func TestClientsThatAreGoneAreForgotten(t *testing.T) {
	m := manager(t, quotas{{ClientID: byDefault}: {controller.ProducerByteRate: 1}})
	for i := range 100 {
		m.Record(Produce, "u", string(rune('a'+i)), 1, t0)
	}
	m.Record(Produce, "u", "late", 1, t0.Add(2*idleExpiry))
	if n := len(m.mu.usage); n != 1 {
		t.Errorf("%d clients are remembered", n)
	}
}
