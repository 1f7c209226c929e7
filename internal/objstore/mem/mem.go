// Package mem is a bucket in memory, for tests and for trying things out. It keeps every promise of objstore.Bucket but
// durability.
package mem

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/varvehq/varve/internal/objstore"
)

// Bucket is a bucket in memory.
type Bucket struct {
	clock func() time.Time
	mu    struct {
		sync.RWMutex
		objects map[string]object
	}
}

type object struct {
	data     []byte
	modified time.Time
}

// New makes an empty bucket. A nil clock is time.Now.
func New(clock func() time.Time) *Bucket {
	if clock == nil {
		clock = time.Now
	}
	b := &Bucket{clock: clock}
	b.mu.objects = map[string]object{}
	return b
}

// Put stores an object.
func (b *Bucket) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objstore.PutOptions) error {
	if err := objstore.CheckKey(key); err != nil {
		return err
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("mem: put %s: %w", key, err)
	}
	var data []byte
	if size > 0 {
		data = make([]byte, size)
	}
	if _, err := io.ReadFull(body, data); err != nil {
		return fmt.Errorf("mem: put %s: body: %w", key, err)
	}
	if opts.CRC32C != nil && objstore.CRC32C(data) != *opts.CRC32C {
		return fmt.Errorf("mem: put %s: %w", key, objstore.ErrChecksum)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("mem: put %s: %w", key, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, taken := b.mu.objects[key]; taken && opts.IfAbsent {
		return fmt.Errorf("mem: put %s: %w", key, objstore.ErrExists)
	}
	b.mu.objects[key] = object{data, b.clock()}
	return nil
}

func (b *Bucket) get(ctx context.Context, op, key string) (object, error) {
	if err := ctx.Err(); err != nil {
		return object{}, fmt.Errorf("mem: %s %s: %w", op, key, err)
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	o, ok := b.mu.objects[key]
	if !ok {
		return o, fmt.Errorf("mem: %s %s: %w", op, key, objstore.ErrNotFound)
	}
	return o, nil
}

// Get reads a range of an object.
func (b *Bucket) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	o, err := b.get(ctx, "get", key)
	if err != nil {
		return nil, err
	}
	from, to, err := objstore.CutRange(int64(len(o.data)), offset, length)
	if err != nil {
		return nil, fmt.Errorf("mem: get %s: %w", key, err)
	}
	return io.NopCloser(bytes.NewReader(o.data[from:to])), nil
}

// Stat describes an object.
func (b *Bucket) Stat(ctx context.Context, key string) (objstore.Info, error) {
	o, err := b.get(ctx, "stat", key)
	return objstore.Info{Key: key, Size: int64(len(o.data)), Modified: o.modified}, err
}

// List calls f for objects in order.
func (b *Bucket) List(ctx context.Context, prefix string, opts objstore.ListOptions, f func(objstore.Info) error) error {
	b.mu.RLock()
	var infos []objstore.Info
	for k, o := range b.mu.objects {
		if strings.HasPrefix(k, prefix) {
			infos = append(infos, objstore.Info{Key: k, Size: int64(len(o.data)), Modified: o.modified})
		}
	}
	b.mu.RUnlock()
	sort.Slice(infos, func(i, j int) bool { return infos[i].Key < infos[j].Key })
	last := ""
	for _, i := range infos {
		if opts.Delimiter != "" {
			if n := strings.Index(i.Key[len(prefix):], opts.Delimiter); n >= 0 {
				i = objstore.Info{Key: i.Key[:len(prefix)+n+len(opts.Delimiter)]}
			}
		}
		if i.Key <= opts.After || i.Key == last {
			continue
		}
		last = i.Key
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("mem: list %s: %w", prefix, err)
		}
		if err := f(i); err != nil {
			return err
		}
	}
	return nil
}

// Delete removes an object.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("mem: delete %s: %w", key, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.mu.objects, key)
	return nil
}

// Corrupt flips one bit of a stored object, for tests of readers.
func (b *Bucket) Corrupt(key string, at int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.mu.objects[key]
	if !ok || at < 0 || at >= int64(len(o.data)) {
		return fmt.Errorf("mem: corrupt %s at %d: %w", key, at, objstore.ErrNotFound)
	}
	o.data = bytes.Clone(o.data)
	o.data[at] ^= 1
	b.mu.objects[key] = o
	return nil
}

// Name is "mem:".
func (b *Bucket) Name() string { return "mem:" }

// Close does nothing.
func (b *Bucket) Close() error { return nil }
