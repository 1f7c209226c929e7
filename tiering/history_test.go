package tiering_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/fault"
	"github.com/varvehq/varve/internal/objstore/mem"
	. "github.com/varvehq/varve/tiering"
	"github.com/varvehq/varve/tiering/archive"
	"github.com/varvehq/varve/tiering/tieringtest"
)

// broker is one of several that lead a partition by turns. A deposed one goes on as if it led.
type broker struct {
	store  *Store
	part   *Partition
	faults *fault.Bucket
	epoch  int32
	log    log   // its epochs as it knows them
	end    int64 // its log's end when it was deposed; -1: it leads
}

// history runs one seed: brokers that copy, expire and clean the same log, with faults, changes of leader and late writers.
type history struct {
	t       *testing.T
	rng     *rand.Rand
	bucket  *mem.Bucket
	line    *lineBucket
	log     log
	brokers []*broker
	leader  *broker
	epoch   int32
	acked   int64 // all below was told to be in the bucket
	start   int64
	fenced  int   // calls of writers of an older epoch that were told so
	err     error // promises that were not kept on the way
}

// newHistory makes the brokers. bad, where it is not nil, is a store that does not keep its promises.
func newHistory(t *testing.T, seed uint64, bad func(objstore.Bucket) objstore.Bucket) *history {
	h := &history{t: t, rng: rand.New(rand.NewPCG(seed, 7)), bucket: mem.New(nil), log: newLog(0)}
	h.line = &lineBucket{Bucket: h.bucket, manifests: map[string]string{}}
	store := objstore.Bucket(h.line)
	if bad != nil {
		store = bad(store)
	}
	for i := range 3 {
		f := fault.New(store, fault.Random(seed*3+uint64(i), 0.25, storeFaults...))
		f.Stop() // opening a store is not what is tested here
		cfg := objstore.RetryConfig{Attempts: 2, Base: time.Second, Max: time.Second, Timeout: 10 * time.Second, MinBytesPerSecond: 1 << 20}
		s, err := Open(t.Context(), Env{Bucket: objstore.WithRetry(f, cfg), ClusterID: "c", BrokerID: int32(i), Config: testConfig()})
		if err != nil {
			t.Fatal(err)
		}
		h.brokers = append(h.brokers, &broker{store: s, part: s.Partition(testID, 0), faults: f, epoch: -1})
		f.Start()
	}
	return h
}

func (h *history) close() {
	for _, b := range h.brokers {
		b.store.Close()
	}
}

// elect makes another broker, or the same, the leader of the next epoch.
func (h *history) elect() {
	if h.leader != nil {
		h.leader.end = h.log.Next
		h.leader.log = h.known(h.log.Next)
	}
	h.epoch++
	h.leader = h.brokers[h.rng.IntN(len(h.brokers))]
	h.leader.epoch, h.leader.end = h.epoch, -1
	h.log.Add(h.epoch, 1+h.rng.IntN(4), 1+h.rng.IntN(3), 50)
	// Where this fails, its writes fail until the next election; readers do not mind.
	_ = h.leader.part.Open(h.t.Context(), h.epoch, h.log.Epochs)
}

// known is the log as a broker knows it that was deposed at an offset.
func (h *history) known(end int64) log {
	l := newLog(0)
	*l.Log = *h.log.Log
	l.Epochs = nil
	for _, e := range h.log.Epochs {
		if e.StartOffset < end {
			l.Epochs = append(l.Epochs, e)
		}
	}
	return l
}

// copyOne copies what the broker takes for its next segment, cut anywhere.
func (h *history) copyOne(b *broker) error {
	end := h.log.Next
	if b.end >= 0 {
		end = b.end
	}
	borders := h.borders(end)
	from := -1
	for i, o := range borders {
		if o <= b.part.EndOffset() {
			from = i
		}
	}
	if from < 0 || from == len(borders)-1 {
		return nil
	}
	to := from + 1 + h.rng.IntN(len(borders)-from-1)
	from = max(0, from-h.rng.IntN(3))
	if err := b.part.Copy(h.t.Context(), h.log.Segment(h.t, borders[from], borders[to])); err != nil {
		return err
	}
	h.acked = max(h.acked, borders[to])
	if got := b.part.EndOffset(); got < borders[to] {
		h.err = errors.Join(h.err, fmt.Errorf("copied up to %d, but the end is %d", borders[to], got))
	}
	return nil
}

// borders gives the offsets at which batches start, and the end.
func (h *history) borders(end int64) []int64 {
	var out []int64
	for _, o := range h.log.Borders() {
		if o <= end {
			out = append(out, o)
		}
	}
	return out
}

func (h *history) step() {
	b := h.leader
	if h.rng.IntN(3) == 0 {
		b = h.brokers[h.rng.IntN(len(h.brokers))] // perhaps a late writer
	}
	if b.epoch < 0 {
		return
	}
	var err error
	switch h.rng.IntN(12) {
	case 0:
		h.elect()
	case 1:
		if b == h.leader && b.part.EndOffset() > h.start {
			next := h.start + h.rng.Int64N(b.part.EndOffset()-h.start)
			if err = b.part.AdvanceStart(h.t.Context(), next); err == nil {
				h.start = max(h.start, b.part.StartOffset())
			}
		}
	case 2:
		err = b.part.Clean(h.t.Context())
	case 3:
		time.Sleep(time.Duration(h.rng.IntN(60)) * time.Minute)
		if h.rng.IntN(4) == 0 {
			time.Sleep(26 * time.Hour)
		}
	case 4:
		_, err = b.part.Collect(h.t.Context(), false)
	case 5:
		h.log.Add(h.epoch, 1+h.rng.IntN(5), 1+h.rng.IntN(3), 50)
	default:
		err = h.copyOne(b)
	}
	if errors.Is(err, ErrFenced) {
		h.fenced++
	}
	if err != nil && b == h.leader && errors.Is(err, ErrFenced) {
		h.err = errors.Join(h.err, fmt.Errorf("the leader of the newest epoch was fenced: %w", err))
	}
	if err != nil && (IsFault(err) || errors.Is(err, ErrGap)) {
		h.err = errors.Join(h.err, err)
	}
}

// settle ends the faults, lets the leader copy the rest, and looks at the outcome.
func (h *history) settle() error {
	for _, b := range h.brokers {
		b.faults.Stop()
	}
	h.elect()
	ctx := h.t.Context()
	if err := h.leader.part.Open(ctx, h.epoch, h.log.Epochs); err != nil {
		return err
	}
	if end := h.leader.part.EndOffset(); end < h.acked {
		return fmt.Errorf("acknowledged up to %d, the bucket ends at %d", h.acked, end)
	}
	if start := h.leader.part.StartOffset(); start < h.start {
		return fmt.Errorf("the log start went back from %d to %d", h.start, start)
	}
	for h.leader.part.EndOffset() < h.log.Next {
		if err := h.copyOne(h.leader); err != nil {
			return err
		}
	}
	if err := h.log.Compare(ctx, h.leader.part, h.leader.part.StartOffset(), h.log.Next, 500); err != nil {
		return err
	}
	if err := h.verify(-1); err != nil {
		return err
	}
	time.Sleep(26 * time.Hour)
	if _, err := h.leader.part.Collect(ctx, false); err != nil {
		return err
	}
	if err := h.leader.part.Clean(ctx); err != nil {
		return err
	}
	if err := h.verify(0); err != nil {
		return err
	}
	return h.log.Compare(ctx, h.brokers[0].part, h.leader.part.StartOffset(), h.log.Next, 500)
}

// verify reads every byte; orphans negative means any number.
func (h *history) verify(orphans int) error {
	return verifyBucket(h.t, h.bucket, orphans)
}

func verifyBucket(t *testing.T, b objstore.Bucket, orphans int) error {
	a, err := archive.Open(t.Context(), b)
	if err != nil {
		return err
	}
	defer a.Close()
	topic, err := a.Find(t.Context(), testID.Topic)
	if err != nil {
		return err
	}
	r, err := a.Verify(t.Context(), topic.Partitions, nil)
	if err != nil {
		return err
	}
	if len(r.Faults) > 0 || orphans >= 0 && len(r.Orphans) != orphans {
		return fmt.Errorf("verify: faults %v, orphans %v", r.Faults, r.Orphans)
	}
	return nil
}

// run is one whole history. It counts the faults that hit.
func (h *history) run(hits map[string]int) error {
	defer h.close()
	h.elect()
	for range 80 {
		h.step()
	}
	err := errors.Join(h.settle(), h.err, h.line.err)
	for _, b := range h.brokers {
		for k, n := range b.faults.Hits() {
			hits[k.String()] += n
		}
	}
	hits["number taken"] += h.line.races
	hits["older writer fenced"] += h.fenced
	return err
}

var (
	historySeed  = flag.Uint64("histories.seed", 0, "the first seed of TestHistories")
	historySeeds = flag.Int("histories.seeds", 0, "how many seeds to run; 0 is the short form")
)

// TestHistories: whatever a store does short of losing what it has acknowledged, and however many brokers believe that they lead,
// there is one line of manifests, nothing that it names is missing, and nothing acknowledged is lost.
func TestHistories(t *testing.T) {
	warmCodecs(t)
	seeds := *historySeeds
	if seeds == 0 {
		if seeds = 400; testing.Short() {
			seeds = 40
		}
	}
	hits := map[string]int{}
	for i := range seeds {
		seed := *historySeed + uint64(i)
		var h *history
		synctest.Test(t, func(t *testing.T) {
			h = newHistory(t, seed, nil)
			if err := h.run(hits); err != nil {
				t.Errorf("seed %d (again: go test ./tiering -run 'TestHistories$' -args -histories.seed=%d -histories.seeds=1): %v", seed, seed, err)
			}
		})
		if t.Failed() {
			return
		}
		if i%100 == 0 {
			readByPython(t, h.bucket, h.leader.part.StartOffset(), h.log.Next)
		}
	}
	t.Logf("%d seeds: %v", seeds, hits)
	for _, k := range storeFaults {
		if hits[k.String()] == 0 && seeds >= 40 {
			t.Errorf("no fault of the kind %s", k)
		}
	}
	if seeds >= 40 && (hits["number taken"] == 0 || hits["older writer fenced"] == 0) {
		t.Errorf("no two writers met: %v", hits)
	}
}

// warmCodecs makes the codecs' shared state, which must not be made inside a bubble.
func warmCodecs(t *testing.T) {
	t.Helper()
	if err := newLog(0).add(0, 5, 1, 10).Decode(); err != nil {
		t.Fatal(err)
	}
}

// TestHistoriesFindFaults: a store that breaks a promise is found.
func TestHistoriesFindFaults(t *testing.T) {
	warmCodecs(t)
	const within = 60
	for name, bad := range brokenStores() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(within) {
				var err error
				synctest.Test(t, func(t *testing.T) { err = newHistory(t, seed, bad).run(map[string]int{}) })
				if err != nil {
					t.Logf("seed %d: %.200s", seed, err)
					return
				}
			}
			t.Errorf("not found in %d seeds", within)
		})
	}
}

// TestEveryCallFails fails each call to the store once, in each way, and goes on as a broker does: by calling again.
func TestEveryCallFails(t *testing.T) {
	for _, kind := range []fault.Kind{fault.Refuse, fault.LostReply, fault.TornBody} {
		for n := 1; ; n++ {
			c := tieringtest.NewClock()
			b := mem.New(c.Now)
			openStore(t, b, c, nil) // writes varve.json
			faulty := fault.New(b, fault.Nth(n, kind))
			runAgain(t, fmt.Sprintf("%s of call %d", kind, n), c, faulty)
			if err := verifyBucket(t, b, -1); err != nil {
				t.Fatalf("%s of call %d: %v", kind, n, err)
			}
			if len(faulty.Hits()) == 0 {
				t.Logf("%s: %d calls", kind, n-1)
				break
			}
		}
	}
}

// runAgain does the work of a partition's life, each step until it works.
func runAgain(t *testing.T, what string, c *tieringtest.Clock, b objstore.Bucket) {
	t.Helper()
	ctx := t.Context()
	l := newLog(0).add(0, 40, 1, 100)
	var s *Store
	var p *Partition
	steps := []func() error{
		func() (err error) {
			s, err = Open(ctx, Env{Bucket: b, ClusterID: "cluster-a", BrokerID: 1, Config: testConfig(), Clock: c.Now})
			return err
		},
		func() error { p = s.Partition(testID, 0); return p.Open(ctx, 0, l.Epochs) },
	}
	for i := range int64(12) { // one more than fits into a list without a page
		steps = append(steps, func() error { return p.Copy(ctx, l.Segment(t, i*3, i*3+3)) })
	}
	steps = append(steps,
		func() error { return p.AdvanceStart(ctx, 7) },
		func() error { c.Advance(time.Hour); return p.Clean(ctx) },
		func() error { return l.Compare(ctx, p, 7, 36, 100) },
		func() error { _, _, err := p.OffsetForTimestamp(ctx, tieringtest.FirstTimestamp+150); return err },
	)
	for i, step := range steps {
		err := step()
		if err != nil {
			err = step()
		}
		if err != nil {
			t.Fatalf("%s: step %d fails again: %v", what, i, err)
		}
	}
	defer s.Close()
	if p.EndOffset() != 36 || p.StartOffset() != 7 {
		t.Fatalf("%s: start %d, end %d", what, p.StartOffset(), p.EndOffset())
	}
}
