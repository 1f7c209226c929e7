package commitlog

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testRoot = "/data"

var testTP = kafka.TopicPartition{Topic: "t", Partition: 0}

var testID = kafka.UUID{1, 2, 3}

// env is a data directory with one log, on a file system and a clock of the test's.
type env struct {
	t    testing.TB
	fs   vfs.FS
	now  time.Time
	dir  *Dir
	log  *Log
	cfg  Config
	wait *flushWait
	// bootID is the run of the operating system that start tells the directory.
	bootID string
}

// flushWait waits for OnFlushed and OnFailed.
type flushWait struct {
	mu   sync.Mutex
	cond *sync.Cond
	err  error
}

func (w *flushWait) onFlushed(int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cond.Broadcast()
}

func (w *flushWait) onFailed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	w.cond.Broadcast()
}

func (w *flushWait) until(l *Log, n int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l.FlushedOffset() < n && w.err == nil {
		w.cond.Wait()
	}
	return w.err
}

func newEnv(t testing.TB, fs vfs.FS, cfg Config) *env {
	e := &env{t: t, fs: fs, cfg: cfg, now: time.UnixMilli(1_700_000_000_000)}
	return e
}

// start opens directory and log.
func (e *env) start() error {
	e.wait = &flushWait{}
	e.wait.cond = sync.NewCond(&e.wait.mu)
	var err error
	e.dir, err = OpenDir(DirEnv{FS: e.fs, Clock: func() time.Time { return e.now }, ClusterID: "c", NodeID: 1, BootID: e.bootID}, testRoot)
	if err != nil {
		return err
	}
	e.log, err = e.dir.OpenLog(testTP, testID, e.cfg, Hooks{OnFlushed: e.wait.onFlushed, OnFailed: e.wait.onFailed})
	return err
}

func (e *env) mustStart() *env {
	e.t.Helper()
	if err := e.start(); err != nil {
		e.t.Fatal(err)
	}
	return e
}

// kill ends the run as a killed process does: nothing is written, goroutines and descriptors go.
func (e *env) kill() {
	if e.dir == nil {
		return
	}
	_ = e.dir.syncer.Close()
	if e.log != nil {
		_ = e.log.discard()
	}
	_ = e.dir.files.Close()
	_ = e.dir.lock.Close()
	e.dir, e.log = nil, nil
}

func (e *env) stop() {
	e.t.Helper()
	if err := e.dir.Close(nil); err != nil {
		e.t.Fatal(err)
	}
	e.dir, e.log = nil, nil
}

// flush waits until everything so far is durable.
func (e *env) flush() error {
	end := e.log.EndOffset()
	if e.log.Flush(end) {
		return nil
	}
	return e.wait.until(e.log, end)
}

func (e *env) append(values ...string) (AppendInfo, error) {
	return e.log.Append(makeBatch(e.now, values...), 0)
}

func (e *env) mustAppend(values ...string) AppendInfo {
	e.t.Helper()
	info, err := e.append(values...)
	if err != nil {
		e.t.Fatal(err)
	}
	return info
}

func makeBatch(now time.Time, values ...string) []byte {
	b := record.NewBuilder(record.BuilderOptions{})
	for _, v := range values {
		b.Append(now.UnixMilli(), nil, []byte(v), nil)
	}
	return b.Batch(0)
}

// readAll reads values by offset from the local start to upTo.
func readAll(l *Log, from, upTo, maxBytes int64) (map[int64]string, error) {
	out := map[int64]string{}
	for off := from; off < upTo; {
		s, err := l.Read(off, maxBytes, upTo, true)
		if err != nil {
			return out, err
		}
		if s.Length == 0 {
			return out, fmt.Errorf("empty read at %d of %d", off, upTo)
		}
		b := make([]byte, s.Length)
		err = s.ReadAll(b)
		next := s.NextOffset
		s.Release()
		if err != nil {
			return out, err
		}
		it := record.NewBatchIterator(b)
		last := off - 1
		for h, batch, ok := it.Next(); ok; h, batch, ok = it.Next() {
			if err := record.VerifyBatch(batch); err != nil {
				return out, err
			}
			if err := record.ForEachRecord(batch, 1<<20, func(r *record.Record) error {
				if _, twice := out[r.Offset]; twice && r.Offset >= off {
					return fmt.Errorf("offset %d twice", r.Offset)
				}
				out[r.Offset] = string(r.Value)
				return nil
			}); err != nil {
				return out, err
			}
			last = h.LastOffset()
		}
		if it.Err() != nil {
			return out, it.Err()
		}
		if last+1 != next || last < off {
			return out, fmt.Errorf("read at %d ends at %d, slice says %d", off, last+1, next)
		}
		off = next
	}
	return out, nil
}

func smallConfig() Config {
	c := DefaultConfig()
	c.SegmentBytes = 4096
	c.IndexIntervalBytes = 200
	return c
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}
