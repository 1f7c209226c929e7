package commitlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/vfs"
)

// Names in a data directory.
const (
	lockFile          = ".lock"
	cleanFile         = ".kafka_cleanshutdown"
	metaFile          = "meta.properties"
	recoveryFile      = "recovery-point-offset-checkpoint"
	startFile         = "log-start-offset-checkpoint"
	highWatermarkFile = "replication-offset-checkpoint"
	cleanerFile       = "cleaner-offset-checkpoint"
	suffixDeleteDir   = "-delete"
	suffixStrayDir    = "-stray"
)

// DirEnv is what a data directory needs.
type DirEnv struct {
	FS    vfs.FS
	Clock func() time.Time
	Log   *slog.Logger
	// ClusterID is compared with meta.properties and written to a new one; "" where it is not known yet.
	ClusterID string
	NodeID    int32
	// BootID names the run of the operating system (vfs.BootID). Where it is the one of the run before, that ended as a
	// process only, and nothing that it wrote is lost. "" is not known: every unclean stop may have been a power loss.
	BootID string
	// MaxOpenFiles bounds the descriptors kept for files that are not in use; 0 is 4096.
	MaxOpenFiles int
}

// Hooks are the callbacks of one log; see Env.
type Hooks struct {
	OnFlushed func(flushed int64)
	OnFailed  func(error)
	ScrubPace func(n int) error
	// Remote: the log's beginning may be in a remote tier only, though the log is not tiered any more.
	Remote bool
}

// Dir is a data directory: it owns meta.properties, the lock, the checkpoints, the group commit and the open logs. All
// methods may be called concurrently.
type Dir struct {
	env    DirEnv
	root   string
	lock   io.Closer
	syncer *Syncer
	files  *FileCache
	clean  bool
	killed bool
	// startSaved says that the run before kept the log start checkpoint as this one does, and that it could be read.
	startSaved bool
	meta       metaProperties

	mu struct {
		sync.Mutex
		logs   map[kafka.TopicPartition]*Log
		closed bool
		// What the checkpoints say of logs that are not open.
		recovery, start, highWatermark, cleaned map[kafka.TopicPartition]int64
		// dirty are the logs that were opened in this run and not closed cleanly since.
		dirty map[kafka.TopicPartition]bool
	}
	recoveryWriter, startWriter, highWatermarkWriter, cleanerWriter checkpointWriter
}

// InUse reports vfs.ErrLocked where another process uses the data directory.
func InUse(fsys vfs.FS, root string) error {
	lock, err := fsys.Lock(root + "/" + lockFile)
	if err != nil {
		return fmt.Errorf("data directory %s: %w", root, err)
	}
	return lock.Close()
}

// OpenDir locks and reads a data directory, making it where there is none. Logs are opened one by one with OpenLog.
// ErrMeta where it belongs to another cluster or node; vfs.ErrLocked where another process uses it.
func OpenDir(env DirEnv, root string) (*Dir, error) {
	if env.Clock == nil {
		env.Clock = time.Now
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	if env.MaxOpenFiles == 0 {
		env.MaxOpenFiles = 4096
	}
	d := &Dir{env: env, root: path.Clean(root), files: NewFileCache(env.MaxOpenFiles)}
	d.mu.logs, d.mu.dirty = map[kafka.TopicPartition]*Log{}, map[kafka.TopicPartition]bool{}
	if err := env.FS.MkdirAll(d.root); err != nil {
		return nil, err
	}
	lock, err := env.FS.Lock(d.root + "/" + lockFile)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", root, err)
	}
	d.lock = lock
	if err := d.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s: %w", root, err), lock.Close())
	}
	d.syncer = NewSyncer(env.FS, d.root, env.Log)
	return d, nil
}

func (d *Dir) open() error {
	if err := d.openMeta(); err != nil {
		return err
	}
	if err := d.openBoot(); err != nil {
		return err
	}
	if err := d.readCheckpoints(); err != nil {
		return err
	}
	clean := d.root + "/" + cleanFile
	switch err := d.env.FS.Remove(clean); {
	case err == nil:
		d.clean = true
	case !vfs.IsNotExist(err):
		return err
	}
	entries, err := d.env.FS.ReadDir(d.root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasSuffix(e.Name(), suffixDeleteDir) {
			if err := d.env.FS.RemoveAll(d.root + "/" + e.Name()); err != nil {
				return err
			}
		}
	}
	// One sync of everything makes what a killed process had written durable, so that logs need none of their own; it
	// also makes the removal of the marker durable.
	return d.env.FS.SyncFS(d.root)
}

func (d *Dir) readCheckpoints() (err error) {
	if err := d.readStarts(); err != nil {
		return err
	}
	for name, to := range map[string]*map[kafka.TopicPartition]int64{recoveryFile: &d.mu.recovery, highWatermarkFile: &d.mu.highWatermark, cleanerFile: &d.mu.cleaned} {
		*to, err = readCheckpoint(d.env.FS, d.root+"/"+name)
		if errors.Is(err, ErrCorrupt) {
			d.env.Log.Warn("checkpoint is passed over: all logs are validated or compacted from the start", "error", err)
			*to, err = map[kafka.TopicPartition]int64{}, nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readStarts reads the log starts. A damaged checkpoint is kept beside, and the logs begin with their first segment: a record
// that DeleteRecords took out of that segment can be read again, which is less than a broker that does not start.
func (d *Dir) readStarts() (err error) {
	name := d.root + "/" + startFile
	d.mu.start, err = readCheckpoint(d.env.FS, name)
	if !errors.Is(err, ErrCorrupt) {
		return err
	}
	kept := fmt.Sprintf("%s.damaged-%d", name, d.env.Clock().UnixNano())
	d.env.Log.Error("log start checkpoint is damaged: logs begin with their first segment, so that records deleted by DeleteRecords may be read again",
		"error", err, "kept_as", kept)
	d.mu.start, d.startSaved = map[kafka.TopicPartition]int64{}, false
	return d.env.FS.Rename(name, kept)
}

// WasClean reports whether the last stop was clean.
func (d *Dir) WasClean() bool { return d.clean }

// WasComplete reports that nothing that was written before the last stop can be missing: the stop was clean, or only the
// process ended.
func (d *Dir) WasComplete() bool { return d.clean || d.killed }

// Free tells the bytes left and the total on the directory's file system.
func (d *Dir) Free() (free, total uint64, err error) { return d.env.FS.Free(d.root) }

// SyncStats counts the group commits.
func (d *Dir) SyncStats() SyncStats { return d.syncer.Stats() }

func (d *Dir) path(tp kafka.TopicPartition) string { return d.root + "/" + tp.String() }

// OpenLog opens a partition's log; nothing is on disk before its first append. ErrTopicID where the folder belongs to
// another topic id: DeleteLog or SetAside it first.
func (d *Dir) OpenLog(tp kafka.TopicPartition, topicID kafka.UUID, cfg Config, hooks Hooks) (*Log, error) {
	d.mu.Lock()
	if d.mu.closed || d.mu.logs[tp] != nil {
		defer d.mu.Unlock()
		if d.mu.closed {
			return nil, ErrClosed
		}
		return nil, fmt.Errorf("log %s is already open", tp)
	}
	known, wasDirty := d.mu.dirty[tp]
	env := Env{
		FS: d.env.FS, Syncer: d.syncer, Files: d.files, Clock: d.env.Clock, Log: d.env.Log,
		OnFlushed: hooks.OnFlushed, OnFailed: d.failed(hooks.OnFailed), ScrubPace: hooks.ScrubPace,
		State: State{
			RecoveryPoint: d.mu.recovery[tp], LogStart: d.mu.start[tp], Cleaned: d.mu.cleaned[tp],
			Clean: d.clean && !known || known && !wasDirty, Synced: !known, Killed: d.killed && !known, StartSaved: d.startSaved && !hooks.Remote,
		},
		SaveStart:         func(offset int64) error { return d.saveOffset(&d.startWriter, d.mu.start, tp, offset) },
		SaveCleaned:       func(offset int64) error { return d.saveOffset(&d.cleanerWriter, d.mu.cleaned, tp, offset) },
		SaveRecoveryPoint: func(offset int64) error { return d.saveOffset(&d.recoveryWriter, d.mu.recovery, tp, offset) },
	}
	d.mu.dirty[tp] = true
	d.mu.Unlock()
	l, err := Open(env, d.path(tp), topicID, cfg)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.logs[tp] != nil || d.mu.closed {
		return nil, errors.Join(fmt.Errorf("log %s was opened twice", tp), l.discard())
	}
	d.mu.logs[tp] = l
	return l, nil
}

// Logs returns the open logs.
func (d *Dir) Logs() map[kafka.TopicPartition]*Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[kafka.TopicPartition]*Log, len(d.mu.logs))
	for tp, l := range d.mu.logs {
		out[tp] = l
	}
	return out
}

// Log returns an open log.
func (d *Dir) Log(tp kafka.TopicPartition) (*Log, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, ok := d.mu.logs[tp]
	return l, ok
}

// HighWatermark is the checkpointed high watermark of a partition, 0 where there is none.
func (d *Dir) HighWatermark(tp kafka.TopicPartition) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.highWatermark[tp]
}

// Written reports whether the checkpoints know of records of a partition, which has a folder then unless that was lost.
func (d *Dir) Written(tp kafka.TopicPartition) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.recovery[tp] > d.mu.start[tp]
}

// Stray counts the folders that SetAside has kept.
func (d *Dir) Stray() (n int, err error) {
	entries, err := d.env.FS.ReadDir(d.root)
	for _, e := range entries {
		if e.IsDir() && strings.HasSuffix(e.Name(), suffixStrayDir) {
			n++
		}
	}
	return n, err
}

// Folder is a partition folder on disk.
type Folder struct {
	TP kafka.TopicPartition
	// TopicID is zero where the folder has none.
	TopicID kafka.UUID
}

// Folders lists the partition folders on disk, those of open logs too, in order of name.
func (d *Dir) Folders() ([]Folder, error) {
	entries, err := d.env.FS.ReadDir(d.root)
	if err != nil {
		return nil, err
	}
	var out []Folder
	for _, e := range entries {
		tp, ok := parseFolder(e.Name())
		if !ok || !e.IsDir() {
			continue
		}
		id, err := readMetadata(d.env.FS, d.path(tp))
		if err != nil && !errors.Is(err, ErrCorrupt) {
			return nil, err
		}
		out = append(out, Folder{tp, id})
	}
	return out, nil
}

// parseFolder reads <topic>-<partition>; folders of deleted, stray and future logs are none.
func parseFolder(name string) (kafka.TopicPartition, bool) {
	i := strings.LastIndexByte(name, '-')
	if i < 1 {
		return kafka.TopicPartition{}, false
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 32)
	tp := kafka.TopicPartition{Topic: name[:i], Partition: int32(n)}
	return tp, err == nil && n >= 0 && tp.String() == name && kafka.ValidateTopicName(tp.Topic) == nil
}

// CloseLog closes one log cleanly; it can be opened again.
func (d *Dir) CloseLog(tp kafka.TopicPartition) error {
	l, err := d.take(tp)
	if err != nil {
		return err
	}
	if err := l.Close(); err != nil {
		return err
	}
	d.mu.Lock()
	d.remember(tp, l)
	d.mu.dirty[tp] = false
	d.mu.Unlock()
	return d.writeCheckpoint(&d.recoveryWriter, recoveryFile, d.recoveryPoints)
}

func (d *Dir) take(tp kafka.TopicPartition) (*Log, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.mu.logs[tp]
	if l == nil {
		return nil, fmt.Errorf("%w: log %s", ErrNotFound, tp)
	}
	delete(d.mu.logs, tp)
	return l, nil
}

// remember keeps what the checkpoints say of a log that is no longer open. The caller holds mu.
func (d *Dir) remember(tp kafka.TopicPartition, l *Log) {
	if l.onDisk() {
		d.mu.recovery[tp] = l.recovery.Load()
	}
	d.mu.start[tp] = l.start.Load()
	d.mu.cleaned[tp] = l.cleaned.Load()
}

// DeleteLog removes a partition's log and folder, open or not; its offsets are forgotten first, so that a topic of the
// same name starts anew. It is no error where there is none.
func (d *Dir) DeleteLog(tp kafka.TopicPartition) error { return d.drop(tp, suffixDeleteDir) }

// SetAside closes a log and renames its folder to *-stray, where nothing touches it again.
func (d *Dir) SetAside(tp kafka.TopicPartition) error { return d.drop(tp, suffixStrayDir) }

func (d *Dir) drop(tp kafka.TopicPartition, suffix string) error {
	l, err := d.take(tp)
	if err == nil {
		if err := l.discard(); err != nil {
			d.env.Log.Warn("close of a log that is deleted", "log", tp.String(), "error", err)
		}
	}
	d.mu.Lock()
	delete(d.mu.recovery, tp)
	delete(d.mu.start, tp)
	delete(d.mu.highWatermark, tp)
	cleaned := d.mu.cleaned[tp] > 0
	delete(d.mu.cleaned, tp)
	delete(d.mu.dirty, tp)
	d.mu.Unlock()
	if cleaned {
		if err := d.writeCheckpoint(&d.cleanerWriter, cleanerFile, d.cleanedOffsets); err != nil {
			return err
		}
	}
	if err := d.writeAll(); err != nil {
		return err
	}
	id := fmt.Sprintf("-%d.%s%s", tp.Partition, kafka.NewUUID().Hex(), suffix)
	name := d.root + "/" + tp.Topic[:min(len(tp.Topic), 255-len(id))] + id
	if err := d.env.FS.Rename(d.path(tp), name); err != nil {
		if vfs.IsNotExist(err) {
			return nil
		}
		return err
	}
	if err := d.env.FS.SyncDir(d.root); err != nil || suffix != suffixDeleteDir {
		return err
	}
	return d.removeDeleted(name, l)
}

// removeDeleted removes the folder of a deleted log, the large files in steps; those that a reader of l, nil for a log that was
// not open, still holds stay whole until it is done with them.
func (d *Dir) removeDeleted(name string, l *Log) error {
	entries, err := d.env.FS.ReadDir(name)
	if err != nil {
		return err
	}
	for _, e := range entries {
		base, suffix, ok := parseName(e.Name())
		if !ok || suffix != suffixLog || l != nil && l.mayBeRead(base) {
			continue
		}
		if err := vfs.RemoveInSteps(d.env.FS, name+"/"+e.Name()); err != nil {
			return err
		}
	}
	return d.env.FS.RemoveAll(name)
}

// Checkpoint makes recovery after a crash short: it syncs data, indexes and epochs of the logs that changed, and writes
// the recovery points, log starts and the given high watermarks. Call it every minute or so.
func (d *Dir) Checkpoint(highWatermarks map[kafka.TopicPartition]int64) error {
	var jobs []syncJob
	var errs []error
	for tp, l := range d.Logs() {
		job, ok, err := l.checkpointJob()
		if err != nil {
			errs = append(errs, fmt.Errorf("checkpoint of %s: %w", tp, err))
		} else if ok {
			jobs = append(jobs, job)
		}
	}
	if len(jobs) > 0 {
		d.syncer.commit(jobs)
	}
	d.setHighWatermarks(highWatermarks)
	return errors.Join(append(errs, d.writeAll())...)
}

func (d *Dir) setHighWatermarks(hws map[kafka.TopicPartition]int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for tp, hw := range hws {
		d.mu.highWatermark[tp] = hw
	}
}

// Close closes the logs with one sync for all of them, writes the checkpoints and, where all went well, the marker of a
// clean stop.
func (d *Dir) Close(highWatermarks map[kafka.TopicPartition]int64) error {
	d.mu.Lock()
	if d.mu.closed {
		d.mu.Unlock()
		return nil
	}
	d.mu.closed = true
	logs := make(map[kafka.TopicPartition]*Log, len(d.mu.logs))
	for tp, l := range d.mu.logs {
		logs[tp] = l
	}
	d.mu.Unlock()
	errs := []error{d.syncer.Close()}
	jobs := make(map[kafka.TopicPartition]*syncJob, len(logs))
	for tp, l := range logs {
		job, err := l.prepareClose()
		jobs[tp] = &job
		errs = append(errs, err)
	}
	synced := d.env.FS.SyncFS(d.root)
	d.mu.Lock()
	for tp, l := range logs {
		errs = append(errs, l.finishClose(jobs[tp], synced))
		d.remember(tp, l)
		delete(d.mu.logs, tp)
	}
	d.mu.Unlock()
	d.setHighWatermarks(highWatermarks)
	errs = append(errs, synced, d.files.Close(), d.writeAll())
	err := errors.Join(errs...)
	if err == nil {
		marker, _ := json.Marshal(map[string]int64{"version": 0, "brokerEpoch": -1})
		err = vfs.WriteFileAtomic(d.env.FS, d.root+"/"+cleanFile, marker)
	}
	return errors.Join(err, d.lock.Close())
}
