package controller

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/varvehq/varve/internal/vfs"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

const (
	logName      = "metadata.log"
	snapshotName = "metadata.snapshot"
)

// store keeps the Raft log, the hard state and the newest snapshot on disk, and the entries after the snapshot in memory. It
// belongs to one goroutine. After a failed write or fsync it must not be used any more.
type store struct {
	*raft.MemoryStorage // entries after the snapshot; its snapshot has no data

	fs   vfs.FS
	dir  string
	file vfs.File
	size int64
	// headSize is the size right after the last compaction, from which growth is counted.
	headSize int64
	snapshot logPosition
	// snapshotSize is the size of the snapshot file.
	snapshotSize int64
	state        *raftpb.HardState
	buf          []byte
}

// openStore opens what dir holds. A folder without a snapshot is new: it gets the first snapshot, with what bootstrap makes.
// The returned snapshot's records are for the caller to apply.
func openStore(env *Env, bootstrap func() *snapshotContent) (*store, *snapshotContent, error) {
	fsys, dir := env.FS, env.Dir
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, nil, err
	}
	if err := fsys.SyncDir(path.Dir(dir)); err != nil {
		return nil, nil, err
	}
	s := &store{MemoryStorage: raft.NewMemoryStorage(), fs: fsys, dir: dir}
	snap, err := s.readSnapshot()
	if errors.Is(err, fs.ErrNotExist) && env.MustExist {
		return nil, nil, fmt.Errorf("%w: %s is missing, though there are partitions of its topics", ErrCorrupt, s.path(snapshotName))
	}
	if errors.Is(err, fs.ErrNotExist) {
		snap, err = s.create(bootstrap())
	}
	if err != nil {
		return nil, nil, err
	}
	if err := s.load(snap, env.Complete); err != nil {
		if s.file != nil {
			err = errors.Join(err, s.file.Close())
		}
		return nil, nil, err
	}
	return s, snap, nil
}

func (s *store) path(name string) string { return path.Join(s.dir, name) }

func (s *store) readSnapshot() (*snapshotContent, error) {
	b, err := vfs.ReadFile(s.fs, s.path(snapshotName))
	if err != nil {
		return nil, err
	}
	s.snapshotSize = int64(len(b))
	return decodeSnapshot(b)
}

// create writes the log first: a snapshot then always has its log, and a folder with a log of entries but no snapshot has
// lost it.
func (s *store) create(snap *snapshotContent) (*snapshotContent, error) {
	if b, err := vfs.ReadFile(s.fs, s.path(logName)); err == nil {
		if c, err := readLog(b); err != nil || len(c.entries) > 0 {
			return nil, fmt.Errorf("%w: %s holds entries, but %s is missing", ErrCorrupt, s.path(logName), snapshotName)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := vfs.WriteFileAtomic(s.fs, s.path(logName), encodeLogHeader(snap.at)); err != nil {
		return nil, err
	}
	return snap, vfs.WriteFileAtomic(s.fs, s.path(snapshotName), snap.encode())
}

// load reads the log behind a snapshot and cuts off a torn tail.
func (s *store) load(snap *snapshotContent, complete bool) error {
	b, err := vfs.ReadFile(s.fs, s.path(logName))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is missing", ErrCorrupt, s.path(logName))
	} else if err != nil {
		return err
	}
	c, err := readLog(b)
	if err != nil {
		return fmt.Errorf("%s: %w", s.path(logName), err)
	}
	if complete && !frameBegins(b[c.size:]) {
		return fmt.Errorf("%w: %s is damaged at byte %d: nothing that was written there can have been lost", ErrCorrupt, s.path(logName), c.size)
	}
	if c.base.index > snap.at.index {
		return fmt.Errorf("%w: the log begins after entry %d, the snapshot ends at %d", ErrCorrupt, c.base.index, snap.at.index)
	}
	if s.file, err = s.fs.OpenReadWrite(s.path(logName)); err != nil {
		return err
	}
	s.size, s.headSize = c.size, logHeaderSize
	if c.size < int64(len(b)) {
		if err := errors.Join(s.file.Truncate(c.size), s.file.Sync()); err != nil {
			return err
		}
	}
	return s.adopt(snap, c)
}

// adopt puts what was read into memory, and ends a compaction that a crash broke off.
func (s *store) adopt(snap *snapshotContent, c *logContent) error {
	tail := c.entries[min(snap.at.index-c.base.index, uint64(len(c.entries))):]
	last := snap.at.index + uint64(len(tail))
	commit := min(max(c.state.GetCommit(), snap.at.index), last)
	term := max(c.state.GetTerm(), snap.at.term)
	vote := c.state.GetVote()
	if term != c.state.GetTerm() {
		vote = 0
	}
	s.state = &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
	if err := s.ApplySnapshot(raftSnapshot(snap.at, snap.conf)); err != nil {
		return err
	}
	if err := errors.Join(s.SetHardState(s.state), s.Append(tail)); err != nil {
		return err
	}
	s.snapshot = snap.at
	if c.base.index < snap.at.index {
		return s.rewriteLog(tail)
	}
	return nil
}

func raftSnapshot(at logPosition, conf *raftpb.ConfState) *raftpb.Snapshot {
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &at.index, Term: &at.term, ConfState: conf}}
}

// save writes what a Ready asks for as one frame and, where Raft needs it, one fsync. A change of the commit index alone
// is not written: it goes along with the next frame, and a restart finds it out again.
func (s *store) save(rd raft.Ready) error {
	if !raft.IsEmptySnap(rd.Snapshot) {
		return errors.New("a snapshot came from another voter, but this build has one voter")
	}
	if !raft.IsEmptyHardState(rd.HardState) {
		s.state = rd.HardState
		if err := s.SetHardState(rd.HardState); err != nil {
			return err
		}
	}
	if !rd.MustSync {
		return nil
	}
	if err := s.writeFrame(rd.Entries); err != nil {
		return err
	}
	return s.Append(rd.Entries)
}

func (s *store) writeFrame(entries []*raftpb.Entry) error {
	s.buf = appendFrame(s.buf[:0], s.size, payloadOf(entries, s.state))
	if _, err := s.file.WriteAt(s.buf, s.size); err != nil {
		return err
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	s.size += int64(len(s.buf))
	if cap(s.buf) > 1<<20 {
		s.buf = nil
	}
	return nil
}

func payloadOf(entries []*raftpb.Entry, state *raftpb.HardState) []byte {
	var b []byte
	for _, e := range entries {
		b = appendItem(b, itemEntry, encodeEntry(e))
	}
	return appendItem(b, itemState, encodeState(state))
}

// grown is how many bytes the log has taken since its last compaction.
func (s *store) grown() int64 { return s.size - s.headSize }

// saveSnapshot makes a snapshot durable. The log still holds everything, so a failure loses nothing.
func (s *store) saveSnapshot(snap *snapshotContent) error {
	b := snap.encode()
	s.snapshotSize = int64(len(b))
	return vfs.WriteFileAtomic(s.fs, s.path(snapshotName), b)
}

// dropBefore removes from the log what a durable snapshot holds.
func (s *store) dropBefore(snap *snapshotContent) error {
	if _, err := s.CreateSnapshot(snap.at.index, snap.conf, nil); err != nil {
		return err
	}
	if err := s.Compact(snap.at.index); err != nil {
		return err
	}
	s.snapshot = snap.at
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	var tail []*raftpb.Entry
	if last > snap.at.index {
		if tail, err = s.Entries(snap.at.index+1, last+1, 1<<62); err != nil {
			return err
		}
	}
	return s.rewriteLog(tail)
}

// rewriteLog replaces the log file by one that begins after the snapshot. Where it fails it is not known which file a
// restart finds, and the open one may be neither: the store is done for then.
func (s *store) rewriteLog(tail []*raftpb.Entry) error {
	b := encodeLogHeader(s.snapshot)
	b = appendFrame(b, logHeaderSize, payloadOf(tail, s.state))
	if err := vfs.WriteFileAtomic(s.fs, s.path(logName), b); err != nil {
		return err
	}
	old := s.file
	file, err := s.fs.OpenReadWrite(s.path(logName))
	if err != nil {
		return err
	}
	s.file, s.size, s.headSize = file, int64(len(b)), int64(len(b))
	return old.Close()
}

var _ io.Closer = (*store)(nil)

// Close closes the log file; all that was acknowledged is on disk already.
func (s *store) Close() error { return s.file.Close() }
