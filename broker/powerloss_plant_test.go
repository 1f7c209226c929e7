//go:build !race

package broker

import (
	"context"
	"io"
	"path"
	"strings"
	"sync"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/vfs"
)

// plant is a fault put in on purpose, at the edge to the disk or to the bucket, to see that the simulation would find it. A nil
// plant is none.
type plant struct {
	name string
	// skip reports a change of the disk as done without doing it.
	skip func(op vfs.Op, name string) bool
	// late does a change only after the next sync of a folder.
	late func(op vfs.Op, name string) bool
	// half writes only the first half of what is written, and reports all of it.
	half func(name string) bool
	// lose reports an upload as done without storing anything.
	lose func(key string) bool
	// volatile keeps an upload in memory: a power loss takes it back.
	volatile func(key string) bool

	mu      sync.Mutex
	pending []func() error
}

func (p *plant) disk(op vfs.Op, name string, do func() error) error {
	if p == nil {
		return do()
	}
	p.mu.Lock()
	skip := p.skip != nil && p.skip(op, name)
	if p.late != nil && p.late(op, name) {
		p.pending = append(p.pending, do)
		skip = true
	}
	p.mu.Unlock()
	if skip {
		return nil
	}
	err := do()
	if op == vfs.OpSyncDir || op == vfs.OpSyncFS {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, f := range p.pending {
			_ = f() // the file may be closed; then it never is done
		}
		p.pending = nil
	}
	return err
}

func (p *plant) short(name string, n int) int {
	if p == nil || p.half == nil || !p.half(name) {
		return n
	}
	return n / 2
}

// syncOf matches the sync of files of a suffix under a folder.
func syncOf(dir, suffix string) func(vfs.Op, string) bool {
	return func(op vfs.Op, name string) bool {
		return op == vfs.OpSync && strings.Contains(name, dir) && strings.HasSuffix(name, suffix)
	}
}

// plants are the faults, each of which the simulation must find.
func plants() []*plant {
	logs := "/data/logs/"
	return []*plant{
		{name: "sync of a log skipped", skip: syncOf(logs, ".log")},
		{name: "sync of the offsets log skipped", skip: syncOf(logs+"__consumer_offsets", ".log")},
		{name: "sync of the transaction log skipped", skip: syncOf(logs+"__transaction_state", ".log")},
		{name: "sync of a log after the answer", late: syncOf(logs, ".log")},
		{name: "sync of a partition's folder skipped", skip: func(op vfs.Op, name string) bool {
			return op == vfs.OpSyncDir && strings.HasPrefix(name, logs)
		}},
		{name: "sync of the data folder skipped", skip: func(op vfs.Op, name string) bool {
			return op == vfs.OpSyncDir && name+"/" == logs
		}},
		{name: "sync of the metadata log skipped", skip: syncOf("/data/metadata/", "metadata.log")},
		{name: "snapshot of the metadata renamed before its sync", late: syncOf("/data/metadata/", "metadata.snapshot.tmp")},
		{name: "metadata log replaced before its sync", late: syncOf("/data/metadata/", "metadata.log.tmp")},
		{name: "log starts renamed before their sync", late: syncOf(logs, "log-start-offset-checkpoint.tmp")},
		{name: "replaced log starts never made durable", skip: func() func(op vfs.Op, name string) bool {
			renamed := false
			return func(op vfs.Op, name string) bool {
				if op == vfs.OpRename && strings.HasSuffix(name, "log-start-offset-checkpoint") {
					renamed = true
				}
				skip := renamed && op == vfs.OpSyncDir && name+"/" == logs
				renamed = renamed && !skip
				return skip
			}
		}()},
		{name: "truncation of a log lost", skip: func(op vfs.Op, name string) bool { return op == vfs.OpTruncate && isLog(name) }},
		{name: "half a write reported as whole", half: func(name string) bool { return isLog(name) }},
		{name: "sync of everything at the start and at the end skipped", skip: func(op vfs.Op, _ string) bool { return op == vfs.OpSyncFS }},
		{name: "oldest segments removed last", skip: func() func(op vfs.Op, name string) bool {
			deleted := false
			return func(op vfs.Op, name string) bool {
				if op == vfs.OpRename && strings.HasSuffix(name, ".deleted") {
					deleted = true
				}
				skip := deleted && op == vfs.OpSyncDir && path.Dir(name)+"/" == logs
				deleted = deleted && !skip
				return skip
			}
		}()},
		{name: "upload of a segment lost", lose: func(key string) bool { return strings.Contains(key, "/segments/") }},
		{name: "manifest lost", lose: isManifestKey},
		{name: "manifest acknowledged before it is stored", volatile: isManifestKey},
	}
}

func isManifestKey(key string) bool { return strings.Contains(key, "/manifest/") }

// simBucket is the bucket as one life of the broker sees it: it outlives the power, but what is under way when that goes may or
// may not arrive.
type simBucket struct {
	objstore.Bucket
	p     *power
	plant *plant
	mu    sync.Mutex
	kept  []string // objects that a power loss takes back
}

func (b *simBucket) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objstore.PutOptions) error {
	return b.p.spend(&b.p.puts, func() error {
		if b.plant != nil && b.plant.lose != nil && b.plant.lose(key) {
			return nil
		}
		err := b.Bucket.Put(ctx, key, body, size, opts)
		if err == nil && b.plant != nil && b.plant.volatile != nil && b.plant.volatile(key) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.kept = append(b.kept, key)
		}
		return err
	})
}

// forget takes back what was never stored for good.
func (b *simBucket) forget(ctx context.Context) error {
	for _, key := range b.kept {
		if err := b.Bucket.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

func (b *simBucket) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if b.p.isOff() {
		return nil, errPowerOff
	}
	return b.Bucket.Get(ctx, key, offset, length)
}

func (b *simBucket) Stat(ctx context.Context, key string) (objstore.Info, error) {
	if b.p.isOff() {
		return objstore.Info{}, errPowerOff
	}
	return b.Bucket.Stat(ctx, key)
}

func (b *simBucket) List(ctx context.Context, prefix string, opts objstore.ListOptions, f func(objstore.Info) error) error {
	if b.p.isOff() {
		return errPowerOff
	}
	return b.Bucket.List(ctx, prefix, opts, f)
}

func (b *simBucket) Delete(ctx context.Context, key string) error {
	return b.p.spend(&b.p.puts, func() error { return b.Bucket.Delete(ctx, key) })
}
