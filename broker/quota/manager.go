package quota

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvehq/varve/broker/controller"
)

// Config is over what the rates are measured.
type Config struct {
	Client     Windows // quota.window.num and quota.window.size.seconds
	Controller Windows // controller.quota.window.num and controller.quota.window.size.seconds
}

// DefaultConfig is Kafka's: ten whole windows of a second and the present one.
func DefaultConfig() Config {
	w := Windows{Num: 11, Size: time.Second}
	return Config{Client: w, Controller: w}
}

// Validate names the field that cannot be.
func (c *Config) Validate() error {
	var errs []error
	for name, w := range map[string]Windows{"Client": c.Client, "Controller": c.Controller} {
		if w.Num < 1 || w.Size < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s: %d windows of %v", name, w.Num, w.Size))
		}
	}
	return errors.Join(errs...)
}

// idleExpiry is how long what a client used is remembered after its last request.
const idleExpiry = time.Hour

// Manager measures all clients of a broker. Its methods may be called concurrently. A nil Manager limits nothing.
type Manager struct {
	cfg    Config
	limits atomic.Pointer[limits] // nil: there is no limit, and nothing is measured

	mu struct {
		sync.Mutex
		usage map[usageKey]*usage
		swept time.Time
	}
}

type usageKey struct {
	kind   Kind
	holder holder
}

type usage struct {
	meter  meter
	bucket bucket
	last   time.Time
}

// NewManager makes a Manager without limits.
func NewManager(cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("quota: %w", err)
	}
	m := &Manager{cfg: cfg}
	m.mu.usage = map[usageKey]*usage{}
	return m, nil
}

// SetQuotas takes over the quotas of the metadata. What was used so far still counts.
func (m *Manager) SetQuotas(quotas map[controller.QuotaEntity]map[string]float64) {
	m.limits.Store(newLimits(quotas))
}

// limit gives the limit of a client and locks its usage; the caller unlocks m.mu where ok.
func (m *Manager) limit(k Kind, user, client string, now time.Time) (u *usage, limit float64, ok bool) {
	if m == nil {
		return nil, 0, false
	}
	l := m.limits.Load()
	if l == nil {
		return nil, 0, false
	}
	limit, h, ok := l.find(k, user, client)
	if !ok {
		return nil, 0, false
	}
	m.mu.Lock()
	m.sweep(now)
	key := usageKey{k, h}
	if u = m.mu.usage[key]; u == nil {
		u = &usage{}
		m.mu.usage[key] = u
	}
	u.last = now
	return u, limit, true
}

// sweep forgets clients that are long gone. The caller holds m.mu.
func (m *Manager) sweep(now time.Time) {
	if now.Sub(m.mu.swept) < idleExpiry/2 {
		return
	}
	m.mu.swept = now
	for k, u := range m.mu.usage {
		if now.Sub(u.last) >= idleExpiry {
			delete(m.mu.usage, k)
		}
	}
}

// Active reports whether there is any limit at all.
func (m *Manager) Active() bool { return m != nil && m.limits.Load() != nil }

// Record counts value of Produce or Fetch bytes, or of request percent-seconds, and tells how long the client is to be kept
// from sending more. Throttling for request time never is longer than one window.
func (m *Manager) Record(k Kind, user, client string, value float64, now time.Time) time.Duration {
	u, limit, ok := m.limit(k, user, client, now)
	if !ok {
		return 0
	}
	defer m.mu.Unlock()
	u.meter.record(m.cfg.Client, value, now)
	d := u.meter.throttle(m.cfg.Client, limit, now)
	if k == Request {
		d = min(d, m.cfg.Client.Size)
	}
	return d
}

// Unrecord takes back what Record counted.
func (m *Manager) Unrecord(k Kind, user, client string, value float64, now time.Time) {
	if u, _, ok := m.limit(k, user, client, now); ok {
		u.meter.record(m.cfg.Client, -value, now)
		m.mu.Unlock()
	}
}

// MaxBytes is the most that one answer may have for a client of Kind k: what all whole windows together allow.
func (m *Manager) MaxBytes(k Kind, user, client string) int {
	if m == nil {
		return math.MaxInt
	}
	l := m.limits.Load()
	if l == nil {
		return math.MaxInt
	}
	limit, _, ok := l.find(k, user, client)
	if n := limit * float64(m.cfg.Client.Num-1) * m.cfg.Client.Size.Seconds(); ok && n < math.MaxInt32 {
		return int(n)
	}
	return math.MaxInt
}

// Mutate takes n partitions made or deleted from a client's tokens. Where tokens are owed already it takes nothing if strict,
// reports false, and tells how long until none are. Not strict it always takes, and tells how long to keep the client waiting.
func (m *Manager) Mutate(user, client string, n int, strict bool, now time.Time) (wait time.Duration, taken bool) {
	u, limit, ok := m.limit(Mutation, user, client, now)
	if !ok {
		return 0, true
	}
	defer m.mu.Unlock()
	w := m.cfg.Controller
	if strict {
		if wait = u.bucket.throttle(w, limit, now); wait > 0 {
			return wait, false
		}
		u.bucket.take(w, limit, float64(n), now)
		return 0, true
	}
	u.bucket.take(w, limit, float64(n), now)
	return u.bucket.throttle(w, limit, now), true
}

// Unmutate gives back tokens for partitions that were neither made nor deleted.
func (m *Manager) Unmutate(user, client string, n int, now time.Time) {
	if u, limit, ok := m.limit(Mutation, user, client, now); ok {
		u.bucket.take(m.cfg.Controller, limit, float64(-n), now)
		m.mu.Unlock()
	}
}
