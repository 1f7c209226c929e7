package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/varvehq/varve/internal/vfs"
	"github.com/varvehq/varve/sdk"
)

// sink appends lines to one file. What is durable is what the sidecar says: it is replaced after the file was synced.
type sink struct {
	fs   vfs.FS
	cfg  sinkConfig
	env  sdk.SinkEnv
	lock io.Closer
	file vfs.File
	size int64
	buf  []byte
	// next are the offsets to deliver next, of all partitions the file ever had; mine are those assigned now.
	next map[sdk.TopicPartition]int64
	mine map[sdk.TopicPartition]bool
	// ids are the ids of the topics that the lines came from, where they are known.
	ids map[sdk.TopicPartition]string
	// broken is the error after which the file's content is unknown: only a new Open, which truncates, can go on.
	broken error
	dirty  bool
}

// sidecar is the content of FILE.offsets.
type sidecar struct {
	Version int             `json:"version"`
	Length  int64           `json:"length"`
	Offsets []sidecarOffset `json:"offsets"`
}

type sidecarOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Next      int64  `json:"next"`
	TopicID   string `json:"topic_id,omitempty"`
}

const sidecarVersion = 1

func (s *sink) Open(_ context.Context, env sdk.SinkEnv) error {
	s.env = env
	if errs := env.Config.Decode(&s.cfg); len(errs) > 0 {
		return errs[0]
	}
	s.ids = map[sdk.TopicPartition]string{}
	s.next, s.mine = map[sdk.TopicPartition]int64{}, map[sdk.TopicPartition]bool{}
	if err := s.makeFolder(filepath.Dir(s.cfg.File)); err != nil {
		return err
	}
	lock, err := s.fs.Lock(s.cfg.File + ".lock")
	if err != nil {
		return sdk.Retriable(fmt.Errorf("another task writes to %s: %w", s.cfg.File, err))
	}
	s.lock = lock
	side, err := s.load()
	if err != nil {
		return err
	}
	return s.openFile(side)
}

// makeFolder makes the folder and its way there durable, whoever made it.
func (s *sink) makeFolder(dir string) error {
	if err := s.fs.MkdirAll(dir); err != nil {
		return err
	}
	for parent := filepath.Dir(dir); parent != dir; dir, parent = parent, filepath.Dir(parent) {
		err := s.fs.SyncDir(parent)
		if errors.Is(err, fs.ErrPermission) {
			return nil // not ours to read, so not made by us
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sink) load() (sidecar, error) {
	b, err := vfs.ReadFile(s.fs, s.cfg.File+".offsets")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return sidecar{Length: -1}, nil
	case err != nil:
		return sidecar{}, err
	}
	var side sidecar
	if err := json.Unmarshal(b, &side); err != nil {
		return sidecar{}, fmt.Errorf("%s.offsets is not this connector's: %w", s.cfg.File, err)
	}
	if side.Version != sidecarVersion || side.Length < 0 {
		return sidecar{}, fmt.Errorf("%s.offsets is not this connector's, or of version %d", s.cfg.File, side.Version)
	}
	return side, nil
}

// openFile cuts the file to what the sidecar says is durable. Without a sidecar it appends to what there is.
func (s *sink) openFile(side sidecar) error {
	f, err := s.fs.OpenReadWrite(s.cfg.File)
	if err != nil {
		return err
	}
	s.file = f
	if s.size, err = f.Size(); err != nil {
		return err
	}
	switch {
	case side.Length < 0: // from now on there is a length to go back to
		s.dirty = true
		return s.commit()
	case s.size < side.Length:
		return fmt.Errorf("%s has %d bytes, but %d were written: it was changed by somebody else; remove %s.offsets to go on all the same", s.cfg.File, s.size, side.Length, s.cfg.File)
	case s.size > side.Length:
		if err := f.Truncate(side.Length); err != nil {
			return err
		}
		s.size = side.Length
	}
	for _, o := range side.Offsets {
		tp := sdk.TopicPartition{Topic: o.Topic, Partition: o.Partition}
		s.next[tp], s.ids[tp] = o.Next, o.TopicID
	}
	return nil
}

// Assign goes on behind what the file has, whatever the group committed.
func (s *sink) Assign(_ context.Context, parts []sdk.Assignment) error {
	for _, p := range parts {
		if err := p.SameTopic(s.ids[p.TopicPartition]); err != nil {
			return fmt.Errorf("%s: %w", s.cfg.File, err)
		}
		if p.TopicID != "" {
			s.ids[p.TopicPartition] = p.TopicID
		}
		s.mine[p.TopicPartition] = true
		if next, ok := s.next[p.TopicPartition]; ok {
			s.env.Seek(p.TopicPartition, next)
		}
	}
	return nil
}

func (s *sink) Write(_ context.Context, recs []sdk.Record) error {
	if s.broken != nil {
		return s.broken
	}
	s.buf = s.buf[:0]
	for i := range recs {
		r := &recs[i]
		tp := sdk.TopicPartition{Topic: r.Topic, Partition: r.Partition}
		if next, ok := s.next[tp]; ok && r.Offset < next {
			continue // written before: delivered again after a retriable error
		}
		b, err := s.line(s.buf, r)
		if err != nil {
			if err := s.env.Report(r, err); err != nil {
				return err
			}
			b = s.buf
		}
		s.buf = b
	}
	if len(s.buf) > 0 {
		if _, err := s.file.WriteAt(s.buf, s.size); err != nil {
			s.broken = fmt.Errorf("write to %s: %w", s.cfg.File, err)
			return s.broken
		}
	}
	s.size += int64(len(s.buf))
	for i := range recs {
		tp := sdk.TopicPartition{Topic: recs[i].Topic, Partition: recs[i].Partition}
		s.next[tp] = max(s.next[tp], recs[i].Offset+1)
		s.dirty = true
	}
	return nil
}

// Flush makes the lines durable, then the sidecar that counts them, and only then says so.
func (s *sink) Flush(context.Context) (map[sdk.TopicPartition]int64, error) {
	if s.broken != nil {
		return nil, s.broken
	}
	if err := s.commit(); err != nil {
		s.broken = err
		return nil, err
	}
	out := make(map[sdk.TopicPartition]int64, len(s.mine))
	for tp := range s.mine {
		if next, ok := s.next[tp]; ok {
			out[tp] = next
		}
	}
	return out, nil
}

func (s *sink) commit() error {
	if !s.dirty {
		return nil
	}
	if err := s.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", s.cfg.File, err)
	}
	if err := s.fs.SyncDir(filepath.Dir(s.cfg.File)); err != nil {
		return err
	}
	side := sidecar{Version: sidecarVersion, Length: s.size, Offsets: []sidecarOffset{}}
	for tp, next := range s.next {
		side.Offsets = append(side.Offsets, sidecarOffset{tp.Topic, tp.Partition, next, s.ids[tp]})
	}
	b, err := json.Marshal(side)
	if err != nil {
		return err
	}
	if err := vfs.WriteFileAtomic(s.fs, s.cfg.File+".offsets", append(b, '\n')); err != nil {
		return err
	}
	s.dirty = false
	return nil
}

// Revoke keeps the lines of the partitions: Flush came just before, so they are durable and counted.
func (s *sink) Revoke(_ context.Context, parts []sdk.TopicPartition) error {
	for _, tp := range parts {
		delete(s.mine, tp)
	}
	return nil
}

func (s *sink) Close(context.Context) error {
	var errs []error
	if s.file != nil {
		errs = append(errs, s.file.Close())
		s.file = nil
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
		s.lock = nil
	}
	return errors.Join(errs...)
}
