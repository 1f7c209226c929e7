package quota

import (
	"math"
	"time"
)

// Windows is over what a rate is measured.
type Windows struct {
	Num  int // windows, the present one among them
	Size time.Duration
}

// span is all of the windows together.
func (w Windows) span() time.Duration { return time.Duration(w.Num) * w.Size }

// sample is what one window saw.
type sample struct {
	start, last time.Time
	sum         float64
}

// meter measures a rate as Kafka's Rate over a WindowedSum does: over all but one whole windows and what has passed of the
// present one, however new the meter is.
type meter struct {
	samples []sample
	current int
}

// record adds value (which may be negative, to take something back) at a time.
func (m *meter) record(w Windows, value float64, now time.Time) {
	if len(m.samples) == 0 {
		m.samples = append(m.samples, sample{start: now, last: now})
	}
	if s := &m.samples[m.current]; now.Sub(s.start) >= w.Size {
		m.current = (m.current + 1) % (w.Num + 1) // one more than counts, for the window that overlaps the start
		if m.current < len(m.samples) {
			m.samples[m.current] = sample{start: now, last: now}
		} else {
			m.samples = append(m.samples, sample{start: now, last: now})
			m.current = len(m.samples) - 1
		}
	}
	s := &m.samples[m.current]
	s.sum += value
	s.last = now
}

// measure gives the rate per second and the time that it is measured over.
func (m *meter) measure(w Windows, now time.Time) (rate float64, over time.Duration) {
	oldest, sum := now, 0.0
	for i := range m.samples {
		s := &m.samples[i]
		if now.Sub(s.last) >= w.span() {
			*s = sample{start: now, last: now}
		}
		if s.start.Before(oldest) {
			oldest = s.start
		}
		sum += s.sum
	}
	over = now.Sub(oldest)
	if missing := w.Num - 1 - int(over/w.Size); missing > 0 {
		over += time.Duration(missing) * w.Size
	}
	over = max(over, time.Millisecond)
	return sum / over.Seconds(), over
}

// throttle is how long nothing may come until the rate is back at the limit.
func (m *meter) throttle(w Windows, limit float64, now time.Time) time.Duration {
	rate, over := m.measure(w, now)
	if rate <= limit {
		return 0
	}
	return millis((rate - limit) / limit * float64(over.Milliseconds()))
}

// bucket is a token bucket that fills by the limit each second, up to what all windows together allow.
type bucket struct {
	tokens float64
	last   time.Time
}

func (b *bucket) fill(w Windows, limit float64, now time.Time) {
	burst := limit * w.span().Seconds()
	if b.last.IsZero() {
		b.tokens, b.last = burst, now
		return
	}
	b.tokens = min(burst, b.tokens+limit*now.Sub(b.last).Seconds())
	b.last = now
}

// take takes value tokens, which may leave less than none.
func (b *bucket) take(w Windows, limit, value float64, now time.Time) {
	b.fill(w, limit, now)
	b.tokens = min(limit*w.span().Seconds(), b.tokens-value)
}

// throttle is how long it takes until no tokens are owed.
func (b *bucket) throttle(w Windows, limit float64, now time.Time) time.Duration {
	if b.fill(w, limit, now); b.tokens >= 0 {
		return 0
	}
	return millis(-b.tokens / limit * 1000)
}

// millis rounds milliseconds as throttle times go over the wire: 32 bits.
func millis(ms float64) time.Duration {
	return time.Duration(math.Min(math.Round(ms), math.MaxInt32)) * time.Millisecond
}
