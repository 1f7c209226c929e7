package commitlog

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/varvehq/varve/internal/vfs"
)

// openFile is a descriptor shared by its users. The last release closes it.
type openFile struct {
	vfs.File
	refs   atomic.Int32
	recent atomic.Bool // used since the cache's hand passed
	slot   *fileSlot
	ro     bool // opened for reading only
}

// retain takes a reference unless the file is already closing.
func (o *openFile) retain() bool {
	for {
		n := o.refs.Load()
		if n == 0 {
			return false
		}
		if o.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (o *openFile) release() error {
	if o.refs.Add(-1) == 0 {
		return o.Close()
	}
	return nil
}

// fileSlot is the place of one file that may be open.
type fileSlot struct {
	open atomic.Pointer[openFile]
}

// use returns the open file with a reference, or nil.
func (s *fileSlot) use() *openFile {
	if o := s.open.Load(); o != nil && o.retain() {
		o.recent.Store(true)
		return o
	}
	return nil
}

// drop takes the file out of the slot; users that hold it keep it.
func (s *fileSlot) drop() error {
	if o := s.open.Swap(nil); o != nil {
		return o.release()
	}
	return nil
}

// FileCache bounds the descriptors of a data directory's files: past the limit the ones not used recently are closed.
// Files in use (a Slice on its way, un-synced data) do not close until they are let go, so the limit can be exceeded by
// them.
type FileCache struct {
	max int
	mu  struct {
		sync.Mutex
		ring []*openFile // every file in a slot, in no order; hand goes round
		hand int
	}
}

// NewFileCache returns a cache of at most max files.
func NewFileCache(max int) *FileCache { return &FileCache{max: max} }

// acquire returns s's file, opening it where it is not open. The caller releases it.
func (c *FileCache) acquire(s *fileSlot, ro bool, open func() (vfs.File, error)) (*openFile, error) {
	if o := s.use(); o != nil {
		return o, nil
	}
	f, err := open()
	if err != nil {
		return nil, err
	}
	o := &openFile{File: f, slot: s, ro: ro}
	o.refs.Store(2) // the slot's and the caller's
	if !s.open.CompareAndSwap(nil, o) {
		if other := s.use(); other != nil { // someone else opened it first
			return other, f.Close()
		}
		o.refs.Store(1) // the other one is closing: keep ours to ourselves
		o.slot = nil
		return o, nil
	}
	c.add(o)
	return o, nil
}

func (c *FileCache) add(o *openFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.ring) < c.max {
		c.mu.ring = append(c.mu.ring, o)
		return
	}
	for range 2 * len(c.mu.ring) { // two rounds: the first may only clear marks
		i := c.mu.hand
		c.mu.hand = (c.mu.hand + 1) % len(c.mu.ring)
		old := c.mu.ring[i]
		if old.slot.open.Load() == old && old.recent.Swap(false) {
			continue
		}
		if old.slot.open.CompareAndSwap(old, nil) {
			_ = old.release() // a file that is only read, or whose data is synced
		}
		c.mu.ring[i] = o
		return
	}
	c.mu.ring = append(c.mu.ring, o)
}

// Close closes every file that nobody uses.
func (c *FileCache) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, o := range c.mu.ring {
		if o.slot.open.CompareAndSwap(o, nil) {
			errs = append(errs, o.release())
		}
	}
	c.mu.ring = nil
	return errors.Join(errs...)
}
