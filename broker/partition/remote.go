package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tiering"
)

// Remote is the remote tier of one partition, as package tiering has it. Its methods may be called concurrently, Copy,
// Expire and AdvanceStart one at a time.
type Remote interface {
	// Open makes this broker the partition's writer in a leader epoch. lineage are the local log's epochs, oldest first.
	Open(ctx context.Context, leaderEpoch int32, lineage []record.EpochEntry) error
	// Load makes what is in the bucket known to a reader.
	Load(ctx context.Context) error
	StartOffset() int64
	EndOffset() int64 // exclusive
	// Manifest is the number of the newest manifest known.
	Manifest() int64
	Copy(ctx context.Context, s tiering.Segment) error
	Read(ctx context.Context, offset int64, maxBytes int) (batches []byte, release func(), err error)
	// AbortedTxns gives the aborted transactions in [from, to); not complete: the local log's index has the rest.
	AbortedTxns(ctx context.Context, from, to int64) (txns []record.TxnIndexEntry, complete bool, err error)
	OffsetForTimestamp(ctx context.Context, ts int64) (found bool, at tiering.TimestampOffset, err error)
	// MaxTimestamp finds the first record with the largest timestamp.
	MaxTimestamp(ctx context.Context) (found bool, at tiering.TimestampOffset, err error)
	// Expire tells the log start that total retention asks for; localOnlyBytes are those that the bucket does not hold.
	// Negative limits are none.
	Expire(ctx context.Context, now time.Time, retentionMs, retentionBytes, localOnlyBytes int64) (int64, error)
	// AdvanceStart condemns what lies below the log start. Clean removes what was condemned long enough ago.
	AdvanceStart(ctx context.Context, logStart int64) error
	Clean(ctx context.Context) error
	// Collect deletes objects that no manifest names and that are older than any upload.
	Collect(ctx context.Context, dryRun bool) ([]tiering.Orphan, error)
}

// remoteLinger is how long a finished read waits for somebody to take it.
const remoteLinger = 3 * time.Second

// errBusy: more reads wait for the remote tier than may.
var errBusy = errors.New("too many remote reads are pending")

// remoteReads are the reads of one partition that run or wait to be taken, by offset.
type remoteReads struct {
	mu       sync.Mutex
	byOffset map[int64]*remoteFetch
}

// remoteFetch is one read of the remote tier, shared by all who want the same offset.
type remoteFetch struct {
	p      *Partition
	offset int64

	// Guarded by the partition's reads.mu.
	done    bool
	err     error
	data    []byte
	free    func()
	aborted []AbortedTxn
	refs    int // running read, users, records taken
	taken   bool
	users   map[*RemoteRead]*Signal
}

// RemoteRead is one request's interest in a read of the remote tier. Its owner calls Detach once.
type RemoteRead struct{ f *remoteFetch }

// ReadRemote begins to read records from offset in the remote tier, or joins a read of that offset that is under way. The
// read goes on when nobody is interested any more: what it brings waits a little for the next request.
func (p *Partition) ReadRemote(offset int64, maxBytes int, committed bool) *RemoteRead {
	r := &p.reads
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.byOffset[offset]
	if f == nil {
		f = &remoteFetch{p: p, offset: offset, refs: 1, users: map[*RemoteRead]*Signal{}}
		if r.byOffset == nil {
			r.byOffset = map[int64]*remoteFetch{}
		}
		r.byOffset[offset] = f
		if !p.m.goRemote(func(ctx context.Context) { f.run(ctx, maxBytes, committed) }) {
			f.finish(nil, nil, nil, errBusy)
		}
	}
	f.refs++
	u := &RemoteRead{f: f}
	f.users[u] = nil
	return u
}

func (f *remoteFetch) run(ctx context.Context, maxBytes int, committed bool) {
	data, free, aborted, err := f.read(ctx, maxBytes, committed)
	f.p.reads.mu.Lock()
	defer f.p.reads.mu.Unlock()
	f.finish(data, free, aborted, err)
}

func (f *remoteFetch) read(ctx context.Context, maxBytes int, committed bool) ([]byte, func(), []AbortedTxn, error) {
	remote, err := f.p.loadRemote(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	data, free, err := remote.Read(ctx, f.offset, maxBytes)
	if err != nil {
		return nil, nil, nil, f.p.remoteError(f.offset, err)
	}
	if !committed {
		return data, free, nil, nil
	}
	end := f.offset
	it := record.NewBatchIterator(data)
	for h, _, ok := it.Next(); ok; h, _, ok = it.Next() {
		end = h.NextOffset()
	}
	entries, complete, err := remote.AbortedTxns(ctx, f.offset, end)
	if l := f.p.log.Load(); err == nil && !complete && l != nil {
		var rest []record.TxnIndexEntry
		rest, err = l.AbortedTxns(f.offset, end)
		entries = append(entries, rest...)
	}
	if err != nil {
		free()
		return nil, nil, nil, err
	}
	return data, free, abortedOf(entries), nil
}

// remoteError sorts an error of the remote tier. An offset that the log has, and the tier does not find, is not out of range:
// a client that was told so would go to the log's end and miss everything between.
func (p *Partition) remoteError(offset int64, err error) error {
	if !errors.Is(err, tiering.ErrOffsetOutOfRange) {
		return err
	}
	if offset < p.LogStart() {
		return fmt.Errorf("%w: deleted meanwhile", ErrOffsetOutOfRange)
	}
	p.reopenTier() // what this broker knows of the bucket may be old
	return fmt.Errorf("%w: offset %d is in neither tier: %s", ErrRemoteUnavailable, offset, err.Error())
}

// finish records the outcome and wakes who waits. reads.mu is held.
func (f *remoteFetch) finish(data []byte, free func(), aborted []AbortedTxn, err error) {
	f.done, f.data, f.free, f.aborted, f.err = true, data, free, aborted, err
	for _, sig := range f.users {
		if sig != nil {
			sig.Fire()
		}
	}
	f.unref()
}

// unref drops one reference. Without any, what nobody took lingers, and the rest goes. reads.mu is held.
func (f *remoteFetch) unref() {
	f.refs--
	if f.refs > 0 {
		return
	}
	if f.taken || f.err != nil {
		f.drop()
		return
	}
	time.AfterFunc(remoteLinger, func() {
		f.p.reads.mu.Lock()
		defer f.p.reads.mu.Unlock()
		if f.refs == 0 {
			f.drop()
		}
	})
}

// drop forgets the read and frees its bytes. reads.mu is held.
func (f *remoteFetch) drop() {
	if f.p.reads.byOffset[f.offset] == f {
		delete(f.p.reads.byOffset, f.offset)
	}
	if f.free != nil {
		f.free()
		f.free, f.data = nil, nil
	}
}

// Notify fires sig when the read has ended, at once where it has; nil takes an earlier signal back.
func (u *RemoteRead) Notify(sig *Signal) {
	f := u.f
	f.p.reads.mu.Lock()
	defer f.p.reads.mu.Unlock()
	f.users[u] = sig
	if sig != nil && f.done {
		sig.Fire()
	}
}

// Take gives the records where the read has ended well. The caller releases them; they may be taken more than once.
func (u *RemoteRead) Take() (records Records, aborted []AbortedTxn, done bool, err error) {
	f := u.f
	f.p.reads.mu.Lock()
	defer f.p.reads.mu.Unlock()
	if errors.Is(f.err, errBusy) {
		return Records{}, nil, false, nil // the next request tries again
	}
	if !f.done || f.err != nil {
		return Records{}, nil, f.done, f.err
	}
	f.refs++
	f.taken = true
	return Records{Data: f.data, free: func() {
		f.p.reads.mu.Lock()
		defer f.p.reads.mu.Unlock()
		f.unref()
	}}, f.aborted, true, nil
}

// Detach ends the interest.
func (u *RemoteRead) Detach() {
	f := u.f
	f.p.reads.mu.Lock()
	defer f.p.reads.mu.Unlock()
	delete(f.users, u)
	f.unref()
}

func abortedOf(entries []record.TxnIndexEntry) []AbortedTxn {
	if len(entries) == 0 {
		return nil
	}
	out := make([]AbortedTxn, len(entries))
	for i, e := range entries {
		out[i] = AbortedTxn{ProducerID: e.ProducerID, FirstOffset: e.FirstOffset}
	}
	return out
}
