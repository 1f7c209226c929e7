//go:build !race

package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvehq/varve/broker/controller"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/objstore/mem"
	"github.com/varvehq/varve/internal/vfs"
)

// world is one run of the simulation: one broker with all its parts but the network, on one disk and one bucket, that lives
// several times. It runs in a synctest bubble. The schedule follows from the seed: between two steps everything has come to rest,
// but for group commits, whose syncs wait until the schedule lets them go.
type world struct {
	t      *testing.T
	rng    *rand.Rand
	plant  *plant
	disk   *vfs.Mem
	bucket *mem.Bucket
	model  *model
	stats  stats
	books  sync.Mutex // of mLog.recs, where clients write beside the schedule

	life   int
	p      *power
	edge   *simBucket
	b      *Broker
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // clients
	// maintaining says that work in the background is under way.
	maintaining bool

	mu struct {
		sync.Mutex
		trace []string
		err   error
	}
}

// stats counts what a run did, so that a simulation that does nothing is seen.
type stats map[string]int

// runPowerLoss runs one seed and returns the first promise that was not kept, with the schedule up to it.
func runPowerLoss(t *testing.T, seed uint64, p *plant) (stats, error) {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 11)), plant: p, disk: vfs.NewMem(), bucket: mem.New(nil), stats: stats{}}
	w.model = newModel(w)
	lives := 2 + w.rng.IntN(4)
	for w.life = range lives {
		w.live()
		if w.failed() != nil {
			break
		}
	}
	if w.failed() == nil {
		w.lastLife()
	}
	if err := w.failed(); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.stats, fmt.Errorf("%w\nschedule:\n  %s", err, strings.Join(w.mu.trace, "\n  "))
	}
	return w.stats, nil
}

// violate notes that a promise was broken. The first counts.
func (w *world) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.err == nil {
		w.mu.err = fmt.Errorf("life %d: "+format, append([]any{w.life}, args...)...)
	}
}

func (w *world) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.err
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.trace = append(w.mu.trace, fmt.Sprintf(format, args...))
}

// count counts something that worked.
func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats[what]++
}

// begin gives a new life its power.
func (w *world) begin() {
	w.p = newPower(rand.New(rand.NewPCG(w.rng.Uint64(), 12)), w.disk)
	if w.plant != nil {
		w.plant.pending = nil
	}
	w.maintaining = false
	w.edge = &simBucket{Bucket: w.bucket, p: w.p, plant: w.plant}
	w.ctx, w.cancel = context.WithCancel(context.Background())
}

// live is one life: a start, some work, and one of the ends.
func (w *world) live() {
	w.begin()
	end := w.rng.IntN(10)
	w.p.kill = end == 0
	switch w.rng.IntN(6) {
	case 0: // perhaps while starting
		w.p.ops = w.rng.IntN(60)
	case 1, 2:
		w.p.ops = 40 + w.rng.IntN(700)
	case 3:
		w.p.puts = 8 + w.rng.IntN(30) // the start alone makes some
	}
	w.note("life %d: kill %v, power for %d changes, %d uploads", w.life, w.p.kill, w.p.ops, w.p.puts)
	if w.start() {
		for range 20 + w.rng.IntN(110) {
			if w.p.isOff() || w.failed() != nil {
				break
			}
			w.step()
			synctest.Wait()
		}
	}
	if end == 1 && !w.p.isOff() {
		w.note("clean stop")
		w.p.setGates(false)
		w.wg.Wait()
		w.p.live(w.model.allFlushed)
		w.p.ops, w.p.puts = -1, -1
	} else {
		w.note("power off, with %d syncs under way", len(w.p.gates))
		w.p.cutNow()
	}
	w.end()
}

// lastLife starts once more, looks at everything, and lets the remote tier come to rest.
func (w *world) lastLife() {
	w.life++
	w.note("last life")
	w.begin()
	if w.start() {
		w.settle()
	}
	w.end()
}

// end stops the broker, whether or not it has power, and takes the disk as it is left.
func (w *world) end() {
	clean := !w.p.isOff()
	w.p.setGates(false)
	w.cancel()
	err := w.stop()
	w.wg.Wait()
	if clean {
		if err != nil {
			w.violate("clean stop: %w", err)
		}
		if w.rng.IntN(2) == 0 { // and then the power goes after all
			w.p.cutNow()
			w.disk = w.p.left
		}
		return
	}
	w.disk = w.p.left
	if err := w.edge.forget(context.Background()); err != nil {
		w.violate("bucket: %w", err)
	}
}

// stop is Broker.Close for a broker without network.
func (w *world) stop() error {
	if w.b == nil {
		return nil
	}
	ctx := context.Background()
	if w.p.isOff() {
		dead, cancel := context.WithCancel(ctx)
		cancel()
		ctx = dead
	}
	return w.b.Close(ctx)
}

// start opens the broker and checks what it found. It returns false where the power went before it served.
func (w *world) start() bool {
	cfg := DefaultConfig()
	cfg.NodeID, cfg.DataDir = 1, "/data"
	cfg.MetadataSnapshotBytes = 600
	cfg.Kafka = map[string]string{"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2",
		"log.cleaner.dedupe.buffer.size": "1048576"}
	cfg.Tiering.ManifestCount = 10
	w.b = &Broker{cfg: cfg, draining: make(chan struct{}), env: Env{FS: &simDisk{w.disk, w.p, w.plant}, Bucket: w.edge,
		BucketConfigured: true, Clock: time.Now, Log: w.logger()}}
	w.b.ctx, w.b.cancel = context.WithCancel(context.Background())
	for _, step := range []func(context.Context) error{
		w.b.openStorage, w.b.openPartitions, w.register, w.b.openGroups, w.b.openTransactions,
	} {
		if err := step(w.ctx); err != nil {
			if !w.p.isOff() {
				w.violate("the broker does not start: %w", err)
			}
			return false
		}
	}
	synctest.Wait()
	for _, name := range []string{kafka.ConsumerOffsetsTopic, kafka.TransactionStateTopic} {
		if _, err := w.b.ctl.EnsureTopic(w.ctx, name); err != nil && !w.p.isOff() {
			w.violate("create %s: %w", name, err)
		}
	}
	synctest.Wait()
	w.p.setGates(true)
	w.model.check()
	return !w.p.isOff() && w.failed() == nil
}

// logger puts what the broker warns of into the schedule.
func (w *world) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(traceWriter{w}, &slog.HandlerOptions{Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
}

type traceWriter struct{ w *world }

func (t traceWriter) Write(b []byte) (int, error) {
	t.w.note("    %s", strings.TrimSpace(string(b)))
	return len(b), nil
}

// register is Broker.register without addresses, and without the background work, which the schedule does.
func (w *world) register(ctx context.Context) error {
	_, err := w.b.ctl.RegisterBroker(ctx, controller.Registration{ID: 1, Incarnation: kafka.NewUUID()})
	return err
}

// goClient runs one client's wait beside the schedule.
func (w *world) goClient(f func()) {
	w.wg.Add(1)
	go func() {
		defer w.wg.Done()
		f()
	}()
}

// gone reports whether an error is the end of the life's, and no broken promise.
func (w *world) gone(err error) bool {
	return w.p.isOff() || w.ctx.Err() != nil || errors.Is(err, context.Canceled)
}
