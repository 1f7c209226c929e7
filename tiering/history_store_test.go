package tiering_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/fault"
	"github.com/varvehq/varve/internal/objstore/fs"
	"github.com/varvehq/varve/internal/objstore/mem"
	"github.com/varvehq/varve/internal/vfs"
	"github.com/varvehq/varve/tiering/manifest"
)

// storeFaults are what stores do.
var storeFaults = []fault.Kind{fault.Refuse, fault.Busy, fault.Conflict, fault.Stall, fault.LostReply, fault.TornBody, fault.ShortBody}

// lineBucket watches the manifests that are stored: each number once, and each the successor of the one before.
type lineBucket struct {
	objstore.Bucket
	mu        sync.Mutex
	manifests map[string]string // key → SHA-256
	races     int               // uploads of a number that was taken
	err       error
}

func (b *lineBucket) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objstore.PutOptions) error {
	err := b.Bucket.Put(ctx, key, body, size, opts)
	if !strings.Contains(key, "/"+manifest.ManifestFolder) {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.Is(err, objstore.ErrExists) {
		b.races++
	}
	if err == nil {
		b.err = errors.Join(b.err, b.stored(ctx, key))
	}
	return err
}

func (b *lineBucket) stored(ctx context.Context, key string) error {
	data, err := objstore.ReadAll(ctx, b.Bucket, key, 0, -1, 1<<20)
	if err != nil {
		return nil //nolint:nilerr // another call has deleted it meanwhile
	}
	m, err := manifest.Decode(data)
	if err != nil {
		return err
	}
	if _, twice := b.manifests[key]; twice {
		return fmt.Errorf("%s was written twice", key)
	}
	b.manifests[key] = manifest.SHA256(data)
	if m.Number == 1 {
		return nil
	}
	before := path.Dir(path.Dir(key)) + "/" + manifest.ManifestName(m.Number-1)
	if m.Previous == nil || b.manifests[before] != m.Previous.SHA256 {
		return fmt.Errorf("%s does not follow %s", key, before)
	}
	return nil
}

// brokenStores are stores that break a promise of objstore.Bucket.
func brokenStores() map[string]func(objstore.Bucket) objstore.Bucket {
	matching := func(part string) func(string) bool {
		return func(key string) bool { return strings.Contains(key, part) }
	}
	return map[string]func(objstore.Bucket) objstore.Bucket{
		"ignores conditions": func(b objstore.Bucket) objstore.Bucket {
			return &brokenStore{Bucket: b, overwrites: matching("/manifest/")}
		},
		"loses segments":  func(b objstore.Bucket) objstore.Bucket { return &brokenStore{Bucket: b, loses: matching("/segments/")} },
		"loses manifests": func(b objstore.Bucket) objstore.Bucket { return &brokenStore{Bucket: b, loses: matching("/manifest/")} },
		"cuts segments":   func(b objstore.Bucket) objstore.Bucket { return &brokenStore{Bucket: b, cuts: matching("/segments/")} },
	}
}

// brokenStore does so now and then.
type brokenStore struct {
	objstore.Bucket
	overwrites, loses, cuts func(key string) bool
	mu                      sync.Mutex
	n                       int
}

func (b *brokenStore) now(match func(string) bool, key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if match == nil || !match(key) {
		return false
	}
	b.n++
	return b.n%3 == 0
}

func (b *brokenStore) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objstore.PutOptions) error {
	switch {
	case b.now(b.loses, key):
		return nil
	case b.now(b.cuts, key):
		return b.Bucket.Put(ctx, key, body, size/2, objstore.PutOptions{IfAbsent: opts.IfAbsent})
	case b.overwrites != nil && b.overwrites(key):
		opts.IfAbsent = false
	}
	return b.Bucket.Put(ctx, key, body, size, opts)
}

// readByPython lets the independent reader, which was written from docs/formats alone, check and count what the bucket holds.
func readByPython(t *testing.T, from *mem.Bucket, start, end int64) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Log("python3 is not installed: no independent reader")
		return
	}
	dir := t.TempDir()
	to, err := fs.Open(vfs.OS(), dir)
	if err != nil {
		t.Fatal(err)
	}
	err = from.List(t.Context(), "", objstore.ListOptions{}, func(i objstore.Info) error {
		data, err := objstore.ReadAll(t.Context(), from, i.Key, 0, -1, 64<<20)
		if err != nil {
			return err
		}
		return to.Put(t.Context(), i.Key, strings.NewReader(string(data)), int64(len(data)), objstore.PutOptions{})
	})
	if err != nil {
		t.Fatal(err)
	}
	for script, want := range map[string]string{
		"read_bucket.py": fmt.Sprintf("offsets %d to %d,", start, end-1),
		"tiny_reader.py": fmt.Sprintf("orders 3 offsets %d to %d", start, end-1),
	} {
		out, err := exec.Command(python, "../tests/formats/"+script, dir).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s\nwant %q", script, err, out, want)
		}
	}
}
