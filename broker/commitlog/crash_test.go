package commitlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// model is what the log should hold.
type model struct {
	values  map[int64]string
	start   int64
	end     int64
	flushed int64
	serial  int
}

// step does one random operation on the log and the model. An error leaves the model where the log must still be; what an
// operation that failed may or may not have done is allowed for by the caller.
func (m *model) step(e *env, rng *rand.Rand) error {
	e.now = e.now.Add(time.Duration(rng.IntN(1000)) * time.Millisecond)
	switch n := rng.IntN(100); {
	case n < 55:
		return m.append(e, rng)
	case n < 80:
		if err := e.flush(); err != nil {
			return err
		}
		m.flushed = min(m.end, e.log.FlushedOffset())
		return nil
	case n < 85:
		return e.log.Roll()
	case n < 90:
		to := m.start
		if m.flushed > m.start {
			to += rng.Int64N(m.flushed - m.start + 1)
		}
		if _, err := e.log.DeleteSegmentsBefore(to); err != nil {
			return err
		}
		m.start = e.log.StartOffset()
		return nil
	case n < 92 && m.flushed > m.start:
		to := m.start + rng.Int64N(m.flushed-m.start+1)
		if err := e.log.AdvanceStart(to); err != nil {
			return err
		}
		m.start = e.log.StartOffset()
		return nil
	case n < 94 && m.end > m.start:
		to := m.start + rng.Int64N(m.end-m.start+1)
		err := e.log.TruncateTo(to)
		if err == nil {
			m.truncate(e.log.EndOffset())
		} else {
			m.flushed = min(m.flushed, to, e.log.FlushedOffset()) // what was asked for may be gone
		}
		return err
	default:
		return e.dir.Checkpoint(nil)
	}
}

func (m *model) truncate(end int64) {
	for o := range m.values {
		if o >= end {
			delete(m.values, o)
		}
	}
	m.end, m.flushed = end, min(m.flushed, end)
}

func (m *model) append(e *env, rng *rand.Rand) error {
	b := record.NewBuilder(record.BuilderOptions{Codec: record.Codec(rng.IntN(5))})
	n := 1 + rng.IntN(4)
	var values []string
	for range n {
		m.serial++
		v := fmt.Sprintf("%d:%s", m.serial, strings.Repeat(string(rune('a'+rng.IntN(26))), rng.IntN(700)))
		values = append(values, v)
		b.Append(e.now.UnixMilli(), nil, []byte(v), nil)
	}
	info, err := e.log.Append(b.Batch(0), 0)
	if err != nil {
		return err
	}
	if info.FirstOffset != m.end {
		return fmt.Errorf("append got offset %d, expected %d", info.FirstOffset, m.end)
	}
	for i, v := range values {
		m.values[info.FirstOffset+int64(i)] = v
	}
	m.end = info.LastOffset + 1
	return nil
}

// check compares a log opened after a crash with the model, and takes over what the log has.
func (m *model) check(e *env) error {
	start, end := e.log.StartOffset(), e.log.EndOffset()
	if start > m.start {
		return fmt.Errorf("start %d, was %d", start, m.start)
	}
	if end < m.flushed {
		return fmt.Errorf("end %d, flushed was %d", end, m.flushed)
	}
	if end > m.end {
		return fmt.Errorf("end %d, was %d", end, m.end)
	}
	if e.log.FlushedOffset() != end {
		return fmt.Errorf("flushed %d after opening, end %d", e.log.FlushedOffset(), end)
	}
	got, err := readAll(e.log, max(start, e.log.LocalStartOffset()), end, 3000)
	if err != nil {
		return err
	}
	for o := m.start; o < end; o++ {
		if got[o] != m.values[o] {
			return fmt.Errorf("offset %d: %.20q, was %.20q", o, got[o], m.values[o])
		}
	}
	m.truncate(end)
	m.flushed = end
	m.start = start
	for o, v := range got { // segments whose removal was not durable are back
		m.values[o] = v
	}
	return nil
}

func crashConfig(rng *rand.Rand) Config {
	c := smallConfig()
	c.SegmentBytes = 8192 << rng.IntN(4)
	c.IndexIntervalBytes = int64(rng.IntN(3000))
	return c
}

// crashSeeds is the number of runs of TestCrash. Raise it to look deeper after a change of recovery.
const crashSeeds = uint64(400)

// TestCrash: whatever a power loss leaves, what was flushed is there, and the log goes on from it.
func TestCrash(t *testing.T) {
	for seed := range crashSeeds {
		if err := crashRun(t, seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func crashRun(t *testing.T, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 1))
	disk := vfs.NewMem()
	e := newEnv(t, disk, crashConfig(rng))
	defer func() { e.kill() }()
	m := &model{values: map[int64]string{}}
	for round := range 4 {
		if err := e.start(); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if err := m.check(e); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		for i := range 10 + rng.IntN(60) {
			if err := m.step(e, rng); err != nil {
				return fmt.Errorf("round %d step %d: %w", round, i, err)
			}
		}
		switch rng.IntN(5) {
		case 0: // the process alone
			e.kill()
		case 1:
			e.stop()
			m.flushed = m.end
			if rng.IntN(2) == 0 {
				disk = disk.CrashClone(rng)
			}
		default:
			after := disk.CrashClone(rng)
			e.kill()
			disk = after
		}
		e.fs = disk
	}
	return nil
}

// TestNthError: every operation of the file system fails once, at every point of a run; nothing acknowledged is lost, and
// a log that latched opens again.
func TestNthError(t *testing.T) {
	fired := 0
	for n := range 400 {
		for _, mutating := range []bool{true, false} {
			did, err := nthErrorRun(t, n, mutating)
			if err != nil {
				t.Fatalf("operation %d (mutating %v): %v", n, mutating, err)
			}
			if did {
				fired++
			}
		}
	}
	if fired < 400 {
		t.Fatalf("only %d errors were injected", fired)
	}
}

func nthErrorRun(t *testing.T, n int, mutating bool) (fired bool, err error) {
	rng := rand.New(rand.NewPCG(uint64(n), 2))
	disk := vfs.NewMem()
	fail, did := vfs.NthError(n, func(op vfs.Op, _ string) bool { return op.Mutates() == mutating })
	e := newEnv(t, vfs.InjectErrors(disk, fail), crashConfig(rng))
	defer func() { e.kill() }()
	m := &model{values: map[int64]string{}}
	if err := e.start(); err == nil {
		for range 120 {
			if err := m.step(e, rng); err != nil && !errors.Is(err, vfs.ErrInjected) && !errors.Is(err, ErrFailed) {
				return did(), err
			}
		}
		if rng.IntN(2) == 0 {
			if err := e.dir.Close(nil); err == nil {
				m.flushed = m.end
			}
		}
	} else if !errors.Is(err, vfs.ErrInjected) {
		return did(), err
	}
	// What the failed step did is not known; what is on disk may be behind only in what was not flushed.
	after := disk.CrashClone(rng)
	e.kill()
	e.fs = after
	if err := e.start(); err != nil {
		return did(), err
	}
	m.start = max(m.start, e.log.StartOffset())
	return did(), m.check(e)
}
