package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/varvehq/varve/internal/vfs"
	"github.com/varvehq/varve/sdk"
)

// source follows one file or the files of a folder, in order of name.
type source struct {
	fs     vfs.FS
	cfg    sourceConfig
	env    sdk.SourceEnv
	stored map[string]position // of files not open yet
	files  map[string]*tail
	names  []string // of files, sorted
	recs   []sdk.Record
	lag    atomic.Int64
}

// position is the offset of a source partition.
type position struct {
	Position int64 `json:"position"`
	// Head is the fingerprint of the file's first HeadBytes bytes; none where Kafka's FileStreamSource wrote the offset.
	Head      uint32 `json:"head,omitempty"`
	HeadBytes int64  `json:"head_bytes,omitempty"`
}

func (s *source) Open(ctx context.Context, env sdk.SourceEnv) error {
	s.env = env
	if errs := env.Config.Decode(&s.cfg); len(errs) > 0 {
		return errs[0]
	}
	return s.Rewind(ctx, env.Offsets)
}

// Rewind goes back to the stored positions.
func (s *source) Rewind(_ context.Context, offsets []sdk.PartitionOffset) error {
	s.closeFiles()
	s.stored, s.files, s.names = map[string]position{}, map[string]*tail{}, nil
	for _, o := range offsets {
		name, err := filename(o)
		if err != nil {
			return err
		}
		if s.stored[name], err = parsePosition(o); err != nil {
			return err
		}
	}
	return nil
}

// filename is the file that a source partition means.
func filename(o sdk.PartitionOffset) (string, error) {
	var part struct{ Filename string }
	if o.Source == nil || json.Unmarshal(o.Source.JSON, &part) != nil || part.Filename == "" {
		return "", errors.New("a source partition of this connector is {\"filename\": …}")
	}
	return part.Filename, nil
}

func parsePosition(o sdk.PartitionOffset) (position, error) {
	at := position{Position: -1}
	if err := json.Unmarshal(o.Offset, &at); err != nil || at.Position < 0 {
		return at, fmt.Errorf("offset %s: the value for the 'position' key is expected to be a number, not negative", o.Offset)
	}
	return at, nil
}

// Read returns lines as soon as there are any, and looks again every poll interval.
func (s *source) Read(ctx context.Context) ([]sdk.Record, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := s.discover(); err != nil {
			return nil, err
		}
		s.recs = s.recs[:0]
		for _, name := range s.names {
			t := s.files[name]
			if err := s.readLines(t); err != nil {
				return nil, err
			}
			if len(s.recs) >= s.cfg.Batch {
				break
			}
		}
		if err := s.measure(); err != nil {
			return nil, err
		}
		if len(s.recs) > 0 {
			return s.recs, nil
		}
		timer := time.NewTimer(s.cfg.Poll)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// discover opens files that are new, and notes those that were replaced.
func (s *source) discover() error {
	names, err := s.list()
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, name := range names {
		there[name] = true
		t := s.files[name]
		if t == nil {
			if t, err = s.open(name); err != nil {
				return err
			}
			if t == nil { // gone since
				continue
			}
			s.files[name] = t
		} else if err := t.check(s.fs); err != nil {
			return err
		}
	}
	s.names = s.names[:0]
	for _, name := range names {
		if s.files[name] != nil {
			s.names = append(s.names, name)
		}
	}
	for name, t := range s.files {
		if there[name] {
			continue
		}
		t.replaced = true // read what is left, then let go
		s.names = append(s.names, name)
	}
	return nil
}

func (s *source) list() ([]string, error) {
	st, err := s.fs.Stat(s.cfg.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !st.IsDir():
		return []string{s.cfg.File}, nil
	}
	entries, err := s.fs.ReadDir(s.cfg.File)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if ok, _ := filepath.Match(s.cfg.Pattern, e.Name()); ok && e.Type().IsRegular() {
			names = append(names, filepath.Join(s.cfg.File, e.Name()))
		}
	}
	return names, nil
}

// open starts a file at its stored position, or at its start where it is no longer the file that it was.
func (s *source) open(name string) (*tail, error) {
	t, err := openTail(s.fs, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	at, known := s.stored[name]
	delete(s.stored, name)
	if !known {
		return t, nil
	}
	same, err := t.resume(at)
	if err != nil {
		_ = t.close()
		return nil, err
	}
	if !same {
		s.env.Log.Warn("the file was truncated or replaced: reading it from its start", "file", name, "position", at.Position)
	}
	return t, nil
}

// readLines adds lines of one file, and moves on to its successor where it was replaced.
func (s *source) readLines(t *tail) error {
	for len(s.recs) < s.cfg.Batch {
		line, ok, err := t.line(s.cfg.MaxLine)
		if err != nil {
			return err
		}
		if ok {
			if err := s.add(t, line); err != nil {
				return err
			}
			continue
		}
		if !t.replaced {
			return nil
		}
		s.env.Log.Info("the file was replaced: its end is reached", "file", t.name, "position", t.next)
		delete(s.files, t.name)
		return t.close()
	}
	return nil
}

func (s *source) add(t *tail, line []byte) error {
	at := position{Position: t.next}
	at.HeadBytes, at.Head = t.head()
	offset, err := json.Marshal(at)
	if err != nil {
		return err
	}
	v := sdk.Value{Data: append([]byte{}, line...)}
	switch s.cfg.Format {
	case "text":
		v.Schema = sdk.TextSchema
	case "json":
		v.Schema = sdk.JSONSchema
		if !json.Valid(line) {
			return fmt.Errorf("%s: the line before byte %d is no JSON document", t.name, t.next)
		}
	}
	s.recs = append(s.recs, sdk.Record{
		Topic: s.cfg.Topic, Partition: sdk.AnyPartition, Value: v, Source: t.part, SourceOffset: offset,
	})
	return nil
}

// Lag is how many bytes of the known files were unread after the last Read.
func (s *source) Lag() (int64, string) { return s.lag.Load(), "bytes" }

func (s *source) measure() error {
	var lag int64
	for _, t := range s.files {
		size, err := t.file.Size()
		if err != nil {
			return err
		}
		lag += max(0, size-t.next)
	}
	s.lag.Store(lag)
	return nil
}

// Ack needs nothing: files forget nothing.
func (s *source) Ack(context.Context, sdk.PartitionOffset) error { return nil }

func (s *source) closeFiles() {
	for _, t := range s.files {
		_ = t.close() // opened for reading only
	}
}

func (s *source) Close(context.Context) error {
	s.closeFiles()
	s.files = nil
	return nil
}
