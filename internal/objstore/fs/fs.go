// Package fs keeps a bucket in a folder: a key is a path below it. An object is written to a temporary file, synced and
// then linked (put-if-absent) or renamed to its name, and the folder is synced, so that an object is seen whole or not at
// all, also after a power loss and also by other processes. All files go through vfs.
package fs

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/vfs"
)

const (
	tmpFolder = ".tmp"
	// tmpAge is how old a temporary file must be before Open takes it for one that a crash left.
	tmpAge = 24 * time.Hour
)

// Bucket is a bucket in a folder.
type Bucket struct {
	fs   vfs.FS
	root string
	// tree is held for reading while a name is made, and for writing while empty folders are removed. durable holds the
	// folders whose own entries are synced.
	tree    sync.RWMutex
	durable sync.Map
}

// Open opens the bucket in a folder. The folder is made by the first Put, so that reading changes nothing.
func Open(fsys vfs.FS, root string) (*Bucket, error) {
	b := &Bucket{fs: fsys, root: path.Clean(root)}
	if info, err := fsys.Stat(b.root); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("fs: open bucket %s: it is a file", root)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, wrap("open", root, err)
	}
	b.cleanTmp()
	return b, nil
}

// cleanTmp removes what a crash left. What fails is left for the next start.
func (b *Bucket) cleanTmp() {
	tmp := path.Join(b.root, tmpFolder)
	entries, err := b.fs.ReadDir(tmp)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > tmpAge {
			_ = b.fs.Remove(path.Join(tmp, e.Name()))
		}
	}
}

func (b *Bucket) path(key string) string { return path.Join(b.root, key) }

// Put stores an object.
func (b *Bucket) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objstore.PutOptions) error {
	if err := objstore.CheckKey(key); err != nil {
		return err
	}
	err := b.put(ctx, key, body, size, opts)
	if errors.Is(err, fs.ErrExist) {
		err = objstore.ErrExists
	}
	return wrap("put", key, err)
}

func (b *Bucket) put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objstore.PutOptions) error {
	if _, err := b.fs.Stat(b.path(key)); opts.IfAbsent && err == nil {
		return objstore.ErrExists // saves the writing; the link below is what decides
	}
	if err := b.makeRoot(); err != nil {
		return err
	}
	var nonce [12]byte
	_, _ = rand.Read(nonce[:]) // never fails
	tmp := path.Join(b.root, tmpFolder, hex.EncodeToString(nonce[:]))
	if err := b.write(ctx, tmp, body, size, opts.CRC32C); err != nil {
		return errors.Join(err, ignoreAbsent(b.fs.Remove(tmp)))
	}
	err := b.publish(tmp, b.path(key), opts.IfAbsent)
	// After a rename the temporary name is gone; what remains of a link is cleaned at the next start at the latest.
	_ = b.fs.Remove(tmp)
	return err
}

func (b *Bucket) write(ctx context.Context, tmp string, body io.ReadSeeker, size int64, crc *uint32) error {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	f, err := b.fs.Create(tmp)
	if err != nil {
		return err
	}
	err = copyTo(ctx, f, objstore.CheckedReader(body, size, crc))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func copyTo(ctx context.Context, f vfs.File, r io.Reader) error {
	buf := make([]byte, 256<<10)
	for at := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := r.Read(buf)
		if n > 0 {
			if _, err := f.WriteAt(buf[:n], at); err != nil {
				return err
			}
			at += int64(n)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// publish gives a synced file its name, durably. Another process may remove an empty folder between its making and its
// use, hence the attempts.
func (b *Bucket) publish(tmp, name string, ifAbsent bool) error {
	b.tree.RLock()
	defer b.tree.RUnlock()
	dir := path.Dir(name)
	var err error
	for range 8 {
		if err = b.makeDir(dir); err != nil {
			return err
		}
		if ifAbsent {
			err = b.fs.Link(tmp, name)
		} else {
			err = b.fs.Rename(tmp, name)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		b.durable.Delete(dir)
	}
	if err != nil {
		return err
	}
	return b.fs.SyncDir(dir)
}

func (b *Bucket) makeDir(dir string) error {
	if _, ok := b.durable.Load(dir); ok {
		return nil
	}
	if err := b.fs.MkdirAll(dir); err != nil {
		return err
	}
	for d := dir; len(d) > len(b.root); d = path.Dir(d) {
		if err := b.fs.SyncDir(path.Dir(d)); err != nil {
			return err
		}
	}
	b.durable.Store(dir, nil)
	return nil
}

// makeRoot makes the root and the folder of temporary files, and syncs the entries of the root and of its parents, any of
// which may be new. A parent that may not be opened is somebody else's and was there.
func (b *Bucket) makeRoot() error {
	if _, ok := b.durable.Load(b.root); ok {
		return nil
	}
	if err := b.fs.MkdirAll(path.Join(b.root, tmpFolder)); err != nil {
		return err
	}
	for dir := b.root; ; dir = path.Dir(dir) {
		if err := b.fs.SyncDir(dir); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		if dir == path.Dir(dir) {
			b.durable.Store(b.root, nil)
			return nil
		}
	}
}

// Get reads a range of an object.
func (b *Bucket) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, wrap("get", key, err)
	}
	f, err := b.fs.Open(b.path(key))
	if err != nil {
		return nil, wrap("get", key, err)
	}
	size, err := f.Size()
	if err != nil {
		return nil, wrap("get", key, errors.Join(err, f.Close()))
	}
	from, to, err := objstore.CutRange(size, offset, length)
	if err != nil {
		return nil, wrap("get", key, errors.Join(err, f.Close()))
	}
	return &reader{io.NewSectionReader(f, from, to-from), f, ctx}, nil
}

type reader struct {
	*io.SectionReader
	f   vfs.File
	ctx context.Context // of the Get: a reader ends with it
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.SectionReader.Read(p)
}

func (r *reader) Close() error { return r.f.Close() }

// Stat describes an object.
func (b *Bucket) Stat(ctx context.Context, key string) (objstore.Info, error) {
	if err := ctx.Err(); err != nil {
		return objstore.Info{}, wrap("stat", key, err)
	}
	info, err := b.fs.Stat(b.path(key))
	if err == nil && info.IsDir() {
		err = objstore.ErrNotFound
	}
	if err != nil {
		return objstore.Info{}, wrap("stat", key, err)
	}
	return objstore.Info{Key: key, Size: info.Size(), Modified: info.ModTime()}, nil
}

// List calls f for objects in order of key.
func (b *Bucket) List(ctx context.Context, prefix string, opts objstore.ListOptions, f func(objstore.Info) error) error {
	if opts.Delimiter != "" && opts.Delimiter != "/" {
		return fmt.Errorf("fs: list %s: delimiter %q", prefix, opts.Delimiter)
	}
	dir := prefix[:strings.LastIndexByte(prefix, '/')+1]
	return b.list(ctx, dir, prefix, opts, f)
}

func (b *Bucket) list(ctx context.Context, dir, prefix string, opts objstore.ListOptions, f func(objstore.Info) error) error {
	if err := ctx.Err(); err != nil {
		return wrap("list", prefix, err)
	}
	entries, err := b.fs.ReadDir(path.Join(b.root, dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return wrap("list", prefix, err)
	}
	names := make([]string, 0, len(entries))
	byName := make(map[string]fs.DirEntry, len(entries))
	for _, e := range entries {
		name := e.Name()
		if name[0] == '.' {
			continue
		}
		if e.IsDir() {
			name += "/" // as a store sorts: by whole key
		}
		names = append(names, name)
		byName[name] = e
	}
	sort.Strings(names)
	for _, name := range names {
		key := dir + name
		if err := b.visit(ctx, key, byName[name], prefix, opts, f); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bucket) visit(ctx context.Context, key string, e fs.DirEntry, prefix string, opts objstore.ListOptions, f func(objstore.Info) error) error {
	if !e.IsDir() {
		if !strings.HasPrefix(key, prefix) || key <= opts.After {
			return nil
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted meanwhile
		}
		if err != nil {
			return wrap("list", prefix, err)
		}
		return f(objstore.Info{Key: key, Size: info.Size(), Modified: info.ModTime()})
	}
	switch {
	case !strings.HasPrefix(key, prefix) && !strings.HasPrefix(prefix, key),
		key < opts.After && !strings.HasPrefix(opts.After, key):
		return nil
	case opts.Delimiter != "" && strings.HasPrefix(key, prefix):
		if key <= opts.After {
			return nil
		}
		holds, err := b.holdsObject(ctx, key)
		if err != nil || !holds {
			return err
		}
		return f(objstore.Info{Key: key})
	}
	return b.list(ctx, key, prefix, opts, f)
}

var errFound = errors.New("found")

func (b *Bucket) holdsObject(ctx context.Context, dir string) (bool, error) {
	err := b.list(ctx, dir, dir, objstore.ListOptions{}, func(objstore.Info) error { return errFound })
	if errors.Is(err, errFound) {
		return true, nil
	}
	return false, err
}

// Delete removes an object and the folders it leaves empty.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if err := errors.Join(objstore.CheckKey(key), ctx.Err()); err != nil {
		return wrap("delete", key, err)
	}
	b.tree.Lock()
	defer b.tree.Unlock()
	name := b.path(key)
	if err := b.fs.Remove(name); err != nil {
		return wrap("delete", key, ignoreAbsent(err))
	}
	dir := path.Dir(name)
	for ; len(dir) > len(b.root); dir = path.Dir(dir) {
		if entries, err := b.fs.ReadDir(dir); err != nil || len(entries) > 0 {
			break
		}
		b.durable.Delete(dir)
		if b.fs.Remove(dir) != nil {
			break // another process has put something into it
		}
	}
	return wrap("delete", key, ignoreAbsent(b.fs.SyncDir(dir)))
}

// Name is a file URL.
func (b *Bucket) Name() string { return "file://" + b.root }

// Close does nothing: no file stays open.
func (b *Bucket) Close() error { return nil }

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// wrap names the call and key, and turns a missing file into the sentinel.
func wrap(op, key string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%w: %w", objstore.ErrNotFound, err)
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("%w: %w", objstore.ErrForbidden, err)
	}
	return fmt.Errorf("fs: %s %s: %w", op, key, err)
}
