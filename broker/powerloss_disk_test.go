//go:build !race

package broker

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/varvehq/varve/internal/vfs"
)

// errPowerOff is what everything answers once the power is off.
var errPowerOff = errors.New("the power is off")

// power is the supply of one life of the simulated machine. It goes off at a moment of the seed's choice; what the disk would
// then hold is taken in the same moment.
type power struct {
	mu   sync.Mutex
	rng  *rand.Rand
	disk *vfs.Mem
	off  bool
	kill bool // only the process ends: the disk keeps what was not synced
	left *vfs.Mem
	// ops and puts are the changes of the disk and the uploads left before the power goes; negative: it stays on.
	ops, puts int
	gates     []*gate
	gating    bool
}

// gate holds one sync of a log back until the schedule lets it go.
type gate struct {
	name string
	open chan struct{}
}

func newPower(rng *rand.Rand, disk *vfs.Mem) *power {
	return &power{rng: rng, disk: disk, ops: -1, puts: -1}
}

// live runs f while the power is on, and tells whether it was. What f notes was so before the disk's remains were taken.
func (p *power) live(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.off {
		f()
	}
	return !p.off
}

func (p *power) isOff() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.off
}

// cut ends the life. The caller holds mu.
func (p *power) cut() {
	if p.off {
		return
	}
	p.off = true
	if p.left = p.disk; !p.kill {
		p.left = p.disk.CrashClone(p.rng)
	}
}

func (p *power) cutNow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

// spend counts down to the cut: before the operation that is asked for, or right after it.
func (p *power) spend(left *int, do func() error) error {
	p.mu.Lock()
	if p.off {
		p.mu.Unlock()
		return errPowerOff
	}
	due := *left == 0
	if *left > 0 {
		*left--
	}
	if !due {
		p.mu.Unlock()
		return do()
	}
	defer p.mu.Unlock()
	if p.rng.IntN(2) == 0 {
		_ = do() // nobody will know
	}
	p.cut()
	return errPowerOff
}

// wait holds the caller at a gate.
func (p *power) wait(name string) {
	p.mu.Lock()
	if !p.gating || p.off {
		p.mu.Unlock()
		return
	}
	g := &gate{name: name, open: make(chan struct{})}
	p.gates = append(p.gates, g)
	p.mu.Unlock()
	<-g.open
}

// release opens the n-th gate in order of name, and tells whether there was one.
func (p *power) release(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.gates) == 0 {
		return false
	}
	slices.SortStableFunc(p.gates, func(a, b *gate) int { return cmp.Compare(a.name, b.name) })
	n %= len(p.gates)
	close(p.gates[n].open)
	p.gates = slices.Delete(p.gates, n, n+1)
	return true
}

// setGates begins to hold syncs back, or ends it and lets all go.
func (p *power) setGates(on bool) {
	p.mu.Lock()
	p.gating = on
	p.mu.Unlock()
	for !on && p.release(0) {
	}
}

// simDisk is the disk of one life: a file system in memory behind the power, with the fault that was planted, if any.
type simDisk struct {
	vfs.FS
	p     *power
	plant *plant
}

// isLog reports whether a name is a segment's data.
func isLog(name string) bool {
	base := path.Base(name)
	return len(base) == 24 && strings.HasSuffix(base, ".log")
}

func (d *simDisk) change(op vfs.Op, name string, do func() error) error {
	return d.p.spend(&d.p.ops, func() error { return d.plant.disk(op, name, do) })
}

func (d *simDisk) look(do func() error) error {
	if d.p.isOff() {
		return errPowerOff
	}
	return do()
}

func (d *simDisk) file(op vfs.Op, name string, open func(string) (vfs.File, error)) (f vfs.File, err error) {
	err = d.change(op, name, func() error {
		f, err = open(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &simFile{f, d}, nil
}

func (d *simDisk) Create(name string) (vfs.File, error) {
	return d.file(vfs.OpCreate, name, d.FS.Create)
}

func (d *simDisk) OpenReadWrite(name string) (vfs.File, error) {
	return d.file(vfs.OpOpenReadWrite, name, d.FS.OpenReadWrite)
}

func (d *simDisk) Open(name string) (f vfs.File, err error) {
	if err := d.look(func() error { f, err = d.FS.Open(name); return err }); err != nil {
		return nil, err
	}
	return &simFile{f, d}, nil
}

func (d *simDisk) Remove(name string) error {
	return d.change(vfs.OpRemove, name, func() error { return d.FS.Remove(name) })
}

func (d *simDisk) RemoveAll(name string) error {
	return d.change(vfs.OpRemoveAll, name, func() error { return d.FS.RemoveAll(name) })
}

func (d *simDisk) MkdirAll(dir string) error {
	return d.change(vfs.OpMkdirAll, dir, func() error { return d.FS.MkdirAll(dir) })
}

func (d *simDisk) SyncDir(dir string) error {
	return d.change(vfs.OpSyncDir, dir, func() error { return d.FS.SyncDir(dir) })
}

func (d *simDisk) SyncFS(dir string) error {
	return d.change(vfs.OpSyncFS, dir, func() error { return d.FS.SyncFS(dir) })
}

func (d *simDisk) Rename(from, to string) error {
	return d.change(vfs.OpRename, from+" "+to, func() error { return d.FS.Rename(from, to) })
}

func (d *simDisk) Link(from, to string) error {
	return d.change(vfs.OpLink, from+" "+to, func() error { return d.FS.Link(from, to) })
}

func (d *simDisk) ReadDir(dir string) (out []fs.DirEntry, err error) {
	err = d.look(func() error { out, err = d.FS.ReadDir(dir); return err })
	return out, err
}

func (d *simDisk) Stat(name string) (out fs.FileInfo, err error) {
	err = d.look(func() error { out, err = d.FS.Stat(name); return err })
	return out, err
}

func (d *simDisk) Lock(name string) (c io.Closer, err error) {
	err = d.look(func() error { c, err = d.FS.Lock(name); return err })
	return c, err
}

// simFile is an open file of a simDisk. Reads and Close need no power.
type simFile struct {
	vfs.File
	d *simDisk
}

func (f *simFile) WriteAt(b []byte, off int64) (n int, err error) {
	if keep := f.d.plant.short(f.Name(), len(b)); keep < len(b) {
		_, err := f.File.WriteAt(b[:keep], off)
		return len(b), err
	}
	err = f.d.change(vfs.OpWrite, f.Name(), func() error {
		n, err = f.File.WriteAt(b, off)
		return err
	})
	return n, err
}

func (f *simFile) Truncate(size int64) error {
	return f.d.change(vfs.OpTruncate, f.Name(), func() error { return f.File.Truncate(size) })
}

// Sync of a log waits for its turn, so that appends, rolls and reads go on while a group commit is under way.
func (f *simFile) Sync() error {
	if isLog(f.Name()) {
		f.d.p.wait(f.Name())
	}
	return f.d.change(vfs.OpSync, f.Name(), func() error { return f.File.Sync() })
}
