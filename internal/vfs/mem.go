package vfs

import (
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is a file system in memory. Besides what an FS does, it knows what a power loss would leave: CrashClone.
//
// What counts as durable is the strictest reading of POSIX: a file's bytes after Sync of that file, a folder's entries
// after SyncDir of that folder, everything after SyncFS.
type Mem struct {
	mu       sync.Mutex
	root     *memNode
	locks    map[string]bool
	used     int64
	capacity int64
	clock    func() time.Time
}

// memNode is a file or a folder. For files, data is the present content, synced the durable one, dirty the 4 KiB pages in
// which they may differ. For folders, entries are the present ones, synced ones are durable, and pending are the changes
// between them in order.
type memNode struct {
	dir     bool
	links   int // names of a file
	modTime time.Time

	data, synced []byte
	dirty        map[int64]struct{}
	lastWrite    struct{ off, n int64 }

	entries, durable map[string]*memNode
	pending          []dirChange
}

// dirChange is one atomic change of a folder: drop one name, set another, or both (a rename inside the folder).
type dirChange struct {
	drop string
	set  string
	node *memNode
}

const memPage = 4096

// NewMem returns an empty file system whose root "/" and whose relative names share one tree.
func NewMem() *Mem {
	return &Mem{root: newMemDir(time.Time{}), locks: map[string]bool{}, capacity: math.MaxInt64, clock: time.Now}
}

func newMemDir(now time.Time) *memNode {
	return &memNode{dir: true, modTime: now, entries: map[string]*memNode{}, durable: map[string]*memNode{}}
}

// SetClock sets the clock of modification times.
func (m *Mem) SetClock(clock func() time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock = clock
}

// SetCapacity limits the bytes of all files; writes past it write what fits and fail with ENOSPC.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = bytes
}

// Used is the number of bytes in all files.
func (m *Mem) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

func pathError(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

func split(name string) []string {
	name = strings.Trim(path.Clean("/"+name), "/")
	if name == "" {
		return nil
	}
	return strings.Split(name, "/")
}

// find returns the node of name, or nil.
func (m *Mem) find(name string) *memNode {
	n := m.root
	for _, part := range split(name) {
		if n == nil || !n.dir {
			return nil
		}
		n = n.entries[part]
	}
	return n
}

// parent returns the folder that holds name and name's last part.
func (m *Mem) parent(op, name string) (*memNode, string, error) {
	d := m.find(path.Dir(path.Clean("/" + name)))
	base := path.Base(path.Clean("/" + name))
	if d == nil || base == "/" {
		return nil, "", pathError(op, name, fs.ErrNotExist)
	}
	if !d.dir {
		return nil, "", pathError(op, name, syscall.ENOTDIR)
	}
	return d, base, nil
}

func (d *memNode) change(c dirChange) {
	c.apply(d.entries)
	d.pending = append(d.pending, c)
}

func (c dirChange) apply(entries map[string]*memNode) {
	if c.drop != "" {
		delete(entries, c.drop)
	}
	if c.set != "" {
		entries[c.set] = c.node
	}
}

func (m *Mem) open(op, name string, create, truncate, write bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parent(op, name)
	if err != nil {
		return nil, err
	}
	n := d.entries[base]
	switch {
	case n == nil && !create:
		return nil, pathError(op, name, fs.ErrNotExist)
	case n == nil:
		n = &memNode{links: 1, modTime: m.clock(), dirty: map[int64]struct{}{}}
		d.change(dirChange{set: base, node: n})
	case n.dir && write:
		return nil, pathError(op, name, syscall.EISDIR)
	case truncate:
		m.truncate(n, 0)
	}
	return &memFile{m: m, n: n, name: name, write: write}, nil
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) { return m.open("create", name, true, true, true) }

// Open implements FS.
func (m *Mem) Open(name string) (File, error) { return m.open("open", name, false, false, false) }

// OpenReadWrite implements FS.
func (m *Mem) OpenReadWrite(name string) (File, error) {
	return m.open("open", name, true, false, true)
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parent("remove", name)
	if err != nil {
		return err
	}
	n := d.entries[base]
	if n == nil {
		return pathError("remove", name, fs.ErrNotExist)
	}
	if n.dir && len(n.entries) > 0 {
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	m.unlink(n)
	d.change(dirChange{drop: base})
	return nil
}

// RemoveAll implements FS.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parent("removeall", name)
	if err != nil || d.entries[base] == nil {
		return nil
	}
	m.unlink(d.entries[base])
	d.change(dirChange{drop: base})
	return nil
}

// unlink takes one name away from n, or all of the names in a folder, and frees what has none left.
func (m *Mem) unlink(n *memNode) {
	for _, c := range n.entries {
		m.unlink(c)
	}
	if n.links--; n.links == 0 {
		m.used -= int64(len(n.data))
	}
}

// Link implements FS.
func (m *Mem) Link(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(oldname)
	to, base, err := m.parent("link", newname)
	switch {
	case err != nil:
		return err
	case n == nil:
		return pathError("link", oldname, fs.ErrNotExist)
	case n.dir:
		return pathError("link", oldname, syscall.EPERM)
	case to.entries[base] != nil:
		return pathError("link", newname, fs.ErrExist)
	}
	n.links++
	to.change(dirChange{set: base, node: n})
	return nil
}

// Rename implements FS.
func (m *Mem) Rename(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, oldbase, err := m.parent("rename", oldname)
	if err != nil {
		return err
	}
	to, newbase, err := m.parent("rename", newname)
	if err != nil {
		return err
	}
	n := from.entries[oldbase]
	if n == nil {
		return pathError("rename", oldname, fs.ErrNotExist)
	}
	if old := to.entries[newbase]; old != nil && old != n {
		if old.dir && len(old.entries) > 0 {
			return pathError("rename", newname, syscall.ENOTEMPTY)
		}
		if old.dir != n.dir {
			return pathError("rename", newname, fs.ErrExist)
		}
		m.unlink(old)
	}
	if from == to {
		from.change(dirChange{drop: oldbase, set: newbase, node: n})
		return nil
	}
	to.change(dirChange{set: newbase, node: n})
	from.change(dirChange{drop: oldbase})
	return nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for _, part := range split(dir) {
		next := n.entries[part]
		if next == nil {
			next = newMemDir(m.clock())
			n.change(dirChange{set: part, node: next})
		}
		if !next.dir {
			return pathError("mkdir", dir, syscall.ENOTDIR)
		}
		n = next
	}
	return nil
}

// ReadDir implements FS.
func (m *Mem) ReadDir(dir string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(dir)
	if n == nil {
		return nil, pathError("open", dir, fs.ErrNotExist)
	}
	if !n.dir {
		return nil, pathError("readdir", dir, syscall.ENOTDIR)
	}
	out := make([]fs.DirEntry, 0, len(n.entries))
	for name, c := range n.entries {
		out = append(out, fs.FileInfoToDirEntry(c.info(name)))
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name() < out[j].Name() })
	return out, nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil {
		return nil, pathError("stat", name, fs.ErrNotExist)
	}
	return n.info(path.Base(path.Clean("/" + name))), nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(dir)
	if n == nil || !n.dir {
		return pathError("sync", dir, fs.ErrNotExist)
	}
	n.syncEntries()
	return nil
}

func (n *memNode) syncEntries() {
	for _, c := range n.pending {
		c.apply(n.durable)
	}
	n.pending = nil
}

// SyncFS implements FS.
func (m *Mem) SyncFS(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.find(dir) == nil {
		return pathError("syncfs", dir, fs.ErrNotExist)
	}
	m.root.syncTree()
	return nil
}

func (n *memNode) syncTree() {
	if !n.dir {
		n.syncData()
		return
	}
	n.syncEntries()
	for _, c := range n.entries {
		c.syncTree()
	}
}

// Lock implements FS.
func (m *Mem) Lock(name string) (io.Closer, error) {
	f, err := m.OpenReadWrite(name)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[path.Clean(name)] {
		return nil, pathError("lock", name, ErrLocked)
	}
	m.locks[path.Clean(name)] = true
	return &memLock{File: f, m: m}, nil
}

type memLock struct {
	File
	m    *Mem
	once sync.Once
}

func (l *memLock) Close() error {
	l.once.Do(func() {
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		delete(l.m.locks, path.Clean(l.Name()))
	})
	return l.File.Close()
}

// Free implements FS.
func (m *Mem) Free(string) (free, total uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return uint64(max(0, m.capacity-m.used)), uint64(m.capacity), nil
}

type memInfo struct {
	name string
	size int64
	dir  bool
	mod  time.Time
}

func (n *memNode) info(name string) fs.FileInfo {
	return memInfo{name, int64(len(n.data)), n.dir, n.modTime}
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) ModTime() time.Time { return i.mod }
func (i memInfo) IsDir() bool        { return i.dir }
func (i memInfo) Sys() any           { return nil }
func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}

// truncate sets the size of a file and marks what changed.
func (m *Mem) truncate(n *memNode, size int64) {
	old := int64(len(n.data))
	m.charge(n, size-old)
	if size < old {
		n.data = n.data[:size]
		clear(n.data[size:old])
	} else {
		n.data = slices.Grow(n.data, int(size-old))[:size]
		clear(n.data[old:])
	}
	for p := min(size, old) / memPage; p*memPage <= max(size, old); p++ {
		n.dirty[p] = struct{}{}
	}
	n.lastWrite.n = 0
	n.modTime = m.clock()
}

// charge counts the growth of a file that still has a name.
func (m *Mem) charge(n *memNode, grow int64) {
	if n.links > 0 {
		m.used += grow
	}
}

func (n *memNode) syncData() {
	size := int64(len(n.data))
	if int64(len(n.synced)) > size {
		n.synced = n.synced[:size]
	} else {
		n.synced = append(n.synced, make([]byte, size-int64(len(n.synced)))...)
	}
	for p := range n.dirty {
		if from := p * memPage; from < size {
			copy(n.synced[from:], n.data[from:min(from+memPage, size)])
		}
	}
	clear(n.dirty)
	n.lastWrite.n = 0
}

// memFile is an open file of a Mem. It stays usable after the file was removed or renamed, as on POSIX.
type memFile struct {
	m      *Mem
	n      *memNode
	name   string
	write  bool
	closed bool
}

func (f *memFile) Name() string { return f.name }

func (f *memFile) check(op string, write bool) error {
	if f.closed {
		return pathError(op, f.name, fs.ErrClosed)
	}
	if write && !f.write {
		return pathError(op, f.name, syscall.EBADF)
	}
	if f.n.dir {
		return pathError(op, f.name, syscall.EISDIR)
	}
	return nil
}

func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("read", f.name, syscall.EINVAL)
	}
	n := 0
	if off < int64(len(f.n.data)) {
		n = copy(b, f.n.data[off:])
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(b []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("write", true); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("write", f.name, syscall.EINVAL)
	}
	n := f.n
	old := int64(len(n.data))
	var full error
	if grow := max(off+int64(len(b)), old) - old; grow > f.m.capacity-f.m.used {
		room := max(f.m.capacity-f.m.used, 0)
		b = b[:max(0, min(int64(len(b)), old+room-off))]
		full = pathError("write", f.name, syscall.ENOSPC)
	}
	if end := off + int64(len(b)); end > old && len(b) > 0 {
		f.m.charge(n, end-old)
		n.data = slices.Grow(n.data, int(end-old))[:end]
		clear(n.data[old:end])
	}
	copy(n.data[min(off, int64(len(n.data))):], b)
	if len(b) > 0 {
		for p := min(off, old) / memPage; p <= (off+int64(len(b))-1)/memPage; p++ {
			n.dirty[p] = struct{}{}
		}
		n.lastWrite.off, n.lastWrite.n = off, int64(len(b))
		n.modTime = f.m.clock()
	}
	return len(b), full
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return pathError("close", f.name, fs.ErrClosed)
	}
	f.closed = true
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("stat", false); err != nil {
		return 0, err
	}
	return int64(len(f.n.data)), nil
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("truncate", true); err != nil {
		return err
	}
	if size < 0 {
		return pathError("truncate", f.name, syscall.EINVAL)
	}
	f.m.truncate(f.n, size)
	return nil
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("sync", false); err != nil {
		return err
	}
	f.n.syncData()
	return nil
}

func (f *memFile) Preallocate(offset, length int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.check("fallocate", true)
}

// Fd implements File: there is none.
func (f *memFile) Fd() (uintptr, bool) { return 0, false }

func (f *memFile) SetModTime(t time.Time) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("chtimes", false); err != nil {
		return err
	}
	f.n.modTime = t
	return nil
}
