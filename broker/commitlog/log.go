package commitlog

import (
	"errors"
	"fmt"
	"log/slog"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
)

// Log is one partition's local log. All methods may be called concurrently. Offsets named "end" are exclusive.
type Log struct {
	env     Env
	dir     string
	topicID kafka.UUID
	cfg     atomic.Pointer[Config]

	// segs is the present list, ascending; never changed in place. Empty before the first append.
	segs       atomic.Pointer[[]*segment]
	start      atomic.Int64
	savedStart atomic.Int64 // the start that is durable
	localStart atomic.Int64
	end        atomic.Int64
	flushed    atomic.Int64
	failed     atomic.Pointer[error]
	failedOnce sync.Once
	recovery   atomic.Int64 // everything below is on disk with its indexes; changed under mu
	exists     atomic.Bool  // the folder is there; changed under mu
	cursors    cursorCache
	asides     atomic.Int64 // numbers the names of files set aside
	cleaned    atomic.Int64 // everything below is compacted

	// compacting is full while a compaction runs. It is taken before deleteMu, and is no mutex since a compaction rests between
	// its pieces of work: the time of a synctest bubble passes where a channel is waited for.
	compacting chan struct{}
	stopping   atomic.Bool // no compaction goes on

	// deleteMu is held while segments are removed, by retention or truncation. It is taken before mu.
	deleteMu sync.Mutex
	// undeleted are segments that retention took out of the log and could not remove yet, oldest first. They go before any
	// newer one, or a restart would find them with a hole behind. Guarded by deleteMu.
	undeleted []*segment

	mu struct {
		sync.Mutex
		closed    bool
		producers producerTable
		epochs    epochCache
		durable   int64 // everything below is on disk
		want      int64 // asked for by Flush
		queued    bool  // in the syncer's queue
		truncates int   // counts truncations, which void syncs under way
		dirGen    int   // counts changes of the folder's entries
		dirSynced int
		// parentDirty: the folder is new, its name and its metadata file are not durable yet.
		parentDirty bool
	}
}

// Open opens the log in dir; where there is no folder the log is empty and the folder is made by the first append. After
// an unclean stop it validates what lies above the recovery point. Errors are of the class ErrCorrupt where bytes that
// had been acknowledged are damaged, and ErrTopicID where the folder belongs to another topic.
func Open(env Env, dir string, topicID kafka.UUID, cfg Config) (*Log, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if env.Clock == nil {
		env.Clock = time.Now
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	if env.Files == nil {
		env.Files = NewFileCache(16)
	}
	l := &Log{env: env, dir: dir, topicID: topicID, compacting: make(chan struct{}, 1)}
	l.cfg.Store(&cfg)
	l.segs.Store(&[]*segment{})
	l.mu.producers.snapshotAt = -1
	if err := l.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open log %s: %w", dir, err), l.closeFiles())
	}
	return l, nil
}

// SetConfig changes the configuration from now on.
func (l *Log) SetConfig(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	l.cfg.Store(&cfg)
	return nil
}

// Config is the present configuration.
func (l *Log) Config() Config { return *l.cfg.Load() }

// TopicID is the id that partition.metadata has.
func (l *Log) TopicID() kafka.UUID { return l.topicID }

// FlushedOffset is the end of what an append may be acknowledged for: on disk with FlushSync, written with FlushOS.
func (l *Log) FlushedOffset() int64 { return l.flushed.Load() }

// StartOffset is the log start: the first offset that clients may read, wherever it is stored.
func (l *Log) StartOffset() int64 { return l.start.Load() }

// LocalStartOffset is the first offset that is read from this log's files.
func (l *Log) LocalStartOffset() int64 { return l.localStart.Load() }

// EndOffset is the offset that the next record gets.
func (l *Log) EndOffset() int64 { return l.end.Load() }

// Failed is the error that latched the log, or nil.
func (l *Log) Failed() error {
	if p := l.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// LastStableOffset is the offset below which every transaction is decided, and its marker below the high watermark.
func (l *Log) LastStableOffset(highWatermark int64) int64 {
	if l.mu.producers.unstable.Load() == 0 {
		return highWatermark
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.producers.lastStable(highWatermark)
}

// Size is the bytes of the local .log files.
func (l *Log) Size() int64 {
	var n int64
	for _, s := range *l.segs.Load() {
		n += s.size.Load()
	}
	return n
}

// EpochEntries are the leader epochs of the log.
func (l *Log) EpochEntries() []record.EpochEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]record.EpochEntry(nil), l.mu.epochs.entries...)
}

// LatestEpoch is the newest leader epoch, or record.NoEpoch.
func (l *Log) LatestEpoch() int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.epochs.latest()
}

// EndOffsetForEpoch answers OffsetsForLeaderEpoch: the largest epoch at or below the requested one, and the offset where
// it ends. (-1, -1) where the requested epoch is newer than all known ones.
func (l *Log) EndOffsetForEpoch(epoch int32) (e int32, end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.epochs.endOffset(epoch, l.end.Load())
}

// EpochForOffset is the leader epoch in which an offset was written.
func (l *Log) EpochForOffset(offset int64) (epoch int32, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.epochs.forOffset(offset)
}

// AssignEpoch records that a leader epoch starts at an offset, usually EndOffset when a leader takes over. It is durable
// with the first record of the epoch.
func (l *Log) AssignEpoch(epoch int32, start int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	if epoch < l.mu.epochs.latest() {
		return fmt.Errorf("%w: %d, the log has %d", ErrStaleEpoch, epoch, l.mu.epochs.latest())
	}
	l.mu.epochs.assign(epoch, start)
	return nil
}

// writable is the first check of every change. The caller holds mu.
func (l *Log) writable() error {
	if l.mu.closed {
		return ErrClosed
	}
	if err := l.Failed(); err != nil {
		return fmt.Errorf("%w: %w", ErrFailed, err)
	}
	return nil
}

// latch refuses all further writes. The first error counts. OnFailed hears of it from the syncer, since the caller may
// hold mu.
func (l *Log) latch(err error) {
	if !l.failed.CompareAndSwap(nil, &err) {
		return
	}
	if l.env.Syncer != nil {
		l.env.Syncer.enqueue(l)
	}
}

// tellFailed calls OnFailed once after the log was latched.
func (l *Log) tellFailed() {
	err := l.Failed()
	if err == nil || errors.Is(err, ErrClosed) || l.env.OnFailed == nil {
		return
	}
	l.failedOnce.Do(func() { l.env.OnFailed(fmt.Errorf("%w: %s: %w", ErrFailed, l.dir, err)) })
}

// active is the last segment, or nil. The caller holds mu, or takes what it gets.
func (l *Log) active() *segment {
	if segs := *l.segs.Load(); len(segs) > 0 {
		return segs[len(segs)-1]
	}
	return nil
}

// find returns the index in segs of the segment that may hold offset: the last whose base is at or below it; -1 where
// all are above.
func find(segs []*segment, offset int64) int {
	return sort.Search(len(segs), func(i int) bool { return segs[i].base > offset }) - 1
}

func (l *Log) closeFiles() error {
	var errs []error
	for _, s := range *l.segs.Load() {
		errs = append(errs, s.closeFiles())
	}
	return errors.Join(errs...)
}
