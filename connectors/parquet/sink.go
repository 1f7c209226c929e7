package parquet

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/sdk"
)

// partition is the state of one assigned topic partition.
type partition struct {
	tp   sdk.TopicPartition
	from sdk.Assignment
	// start is the offset that the next file, or the open one, begins at: everything before it is in the bucket or needs
	// no row. It is what may be committed.
	start int64
	// next is the next offset to take; records before it were taken already.
	next int64
	// ahead are the starts of files past next, as listed at Assign; the chain must not run into them.
	ahead []int64
	file  *openFile
	// sealed waits for its upload.
	sealed *sealedFile
}

// sink is the task. All methods run on one goroutine, as the contract says.
type sink struct {
	open  func(ctx context.Context, url string) (objstore.Bucket, error)
	now   func() time.Time
	cfg   config
	env   sdk.SinkEnv
	store store
	parts map[sdk.TopicPartition]*partition
}

func (s *sink) Open(ctx context.Context, env sdk.SinkEnv) error {
	if errs := env.Config.Decode(&s.cfg); len(errs) > 0 {
		return errs[0]
	}
	bucket, err := s.open(ctx, s.cfg.URL)
	if err != nil {
		return err
	}
	s.env = env
	s.store = store{bucket: bucket, dir: s.cfg.Dir}
	s.parts = make(map[sdk.TopicPartition]*partition)
	return nil
}

// Assign finds where the chain of files of each partition ends and goes on there, whatever the group committed.
func (s *sink) Assign(ctx context.Context, assigned []sdk.Assignment) error {
	for _, a := range assigned {
		p := &partition{tp: a.TopicPartition, from: a, start: a.Offset, next: a.Offset}
		starts, err := s.store.starts(ctx, p.tp)
		if err != nil {
			return retriable(err)
		}
		p.ahead = starts
		if err := s.skipCovered(ctx, p); err != nil {
			return err
		}
		if p.next != a.Offset {
			s.env.Log.Info("files already hold what follows the committed offset", "topic", p.tp.Topic,
				"partition", p.tp.Partition, "committed", a.Offset, "next", p.next)
			s.env.Seek(p.tp, p.next)
		}
		s.parts[p.tp] = p
	}
	return nil
}

// skipCovered moves a partition without an open file past the files that hold its next offset.
func (s *sink) skipCovered(ctx context.Context, p *partition) error {
	for {
		i := sort.Search(len(p.ahead), func(i int) bool { return p.ahead[i] > p.next })
		if i == 0 {
			break
		}
		last, err := s.store.last(ctx, p.from, p.ahead[i-1])
		if err != nil {
			return retriable(err)
		}
		p.ahead = p.ahead[i:]
		if last < p.next {
			break
		}
		p.next = last + 1
	}
	p.start = p.next
	return nil
}

func (s *sink) Write(ctx context.Context, recs []sdk.Record) error {
	for i := range recs {
		if err := s.write(ctx, &recs[i]); err != nil {
			return err
		}
	}
	return s.bound(ctx)
}

func (s *sink) write(ctx context.Context, rec *sdk.Record) error {
	p := s.parts[sdk.TopicPartition{Topic: rec.Topic, Partition: rec.Partition}]
	if p == nil {
		return fmt.Errorf("parquet: record of %s-%d, which is not assigned", rec.Topic, rec.Partition)
	}
	if p.sealed != nil { // an upload failed before; the worker delivers the batch again
		if err := s.upload(ctx, p); err != nil {
			return err
		}
	}
	if rec.Offset < p.next {
		return nil
	}
	if len(p.ahead) > 0 && rec.Offset >= p.ahead[0] {
		if err := s.jump(ctx, p, rec.Offset); err != nil || rec.Offset < p.next {
			return err
		}
	}
	if rec.Value.IsNull() && s.cfg.Nulls != "write" {
		if s.cfg.Nulls == "fail" {
			return s.reject(p, rec, errors.New("record without value, and behavior.on.null.values is fail"))
		}
		s.pass(p, rec.Offset)
		return nil
	}
	return s.append(ctx, p, rec)
}

// jump ends the open file where an older file begins, and goes on behind that one.
func (s *sink) jump(ctx context.Context, p *partition, offset int64) error {
	if err := s.rotate(ctx, p); err != nil {
		return err
	}
	p.next = offset
	if err := s.skipCovered(ctx, p); err != nil {
		return err
	}
	if p.next > offset {
		s.env.Seek(p.tp, p.next)
	}
	return nil
}

// pass takes a record that needs no row.
func (s *sink) pass(p *partition, offset int64) {
	p.next = offset + 1
	if p.file == nil {
		p.start = p.next
	}
}

// reject gives a record that has no form in the file to the worker, which says whether the task may go on.
func (s *sink) reject(p *partition, rec *sdk.Record, cause error) error {
	if err := s.env.Report(rec, cause); err != nil {
		return err
	}
	s.pass(p, rec.Offset)
	return nil
}

func (s *sink) append(ctx context.Context, p *partition, rec *sdk.Record) error {
	if p.file != nil && !p.file.layout.fits(rec) {
		if err := s.rotate(ctx, p); err != nil {
			return err
		}
	}
	if p.file == nil {
		l, err := newLayout(&s.cfg, rec.Key.Schema, rec.Value.Schema)
		if err != nil {
			return s.reject(p, rec, err)
		}
		p.file = newOpenFile(&s.cfg, l, p.start, s.now())
	}
	if err := p.file.layout.write(p.file.row, rec); err != nil {
		return s.reject(p, rec, err)
	}
	if err := p.file.add(rec); err != nil {
		return err
	}
	p.next = rec.Offset + 1
	if p.file.rows >= s.cfg.FlushRecords || p.file.bytes >= s.cfg.FlushBytes {
		return s.rotate(ctx, p)
	}
	return nil
}

// rotate ends the open file of a partition, if there is one, and uploads it.
func (s *sink) rotate(ctx context.Context, p *partition) error {
	if p.file != nil {
		if p.file.rows == 0 {
			p.file = nil
			p.start = p.next
			return nil
		}
		sealed, err := p.file.seal(s.env.Connector, p.from)
		if err != nil {
			return err
		}
		p.file, p.sealed = nil, sealed
	}
	if p.sealed == nil {
		return nil
	}
	return s.upload(ctx, p)
}

// upload stores the sealed file. The offset moves only once the store has it.
func (s *sink) upload(ctx context.Context, p *partition) error {
	last, ours, err := s.store.put(ctx, p.from, p.sealed)
	if err != nil {
		return retriable(fmt.Errorf("storing %s: %w", s.store.key(p.tp, p.sealed.start), err))
	}
	if ours || last == p.sealed.last {
		s.env.Metrics.Add("files", 1)
		s.env.Metrics.Add("file_bytes", float64(len(p.sealed.data)))
		s.env.Metrics.Add("rows", float64(p.sealed.rows))
	} else {
		// Another task stored a file of that name with another end. Its rows stand; ours behind it come again.
		s.env.Log.Warn("another task stored this file; going on behind it", "key", s.store.key(p.tp, p.sealed.start), "last", last)
		p.file = nil
		s.env.Seek(p.tp, last+1)
		p.next = last + 1
	}
	p.sealed = nil
	p.start = last + 1
	if p.file == nil && p.next > p.start {
		p.start = p.next
	}
	return nil
}

// bound closes the largest files while all together are past their memory.
func (s *sink) bound(ctx context.Context) error {
	for {
		var total int64
		var largest *partition
		for _, p := range s.parts {
			if p.file == nil {
				continue
			}
			total += p.file.memory()
			if largest == nil || p.file.memory() > largest.file.memory() {
				largest = p
			}
		}
		s.env.Metrics.Set("buffered_bytes", float64(total))
		if total <= s.cfg.Memory || largest == nil {
			return nil
		}
		if err := s.rotate(ctx, largest); err != nil {
			return err
		}
	}
}

// Tick closes files that have been open long enough, so that idle topics reach the bucket.
func (s *sink) Tick(ctx context.Context) error {
	now := s.now()
	for _, p := range s.parts {
		if p.sealed != nil || p.file != nil && now.Sub(p.file.opened) >= s.cfg.FlushEvery {
			if err := s.rotate(ctx, p); err != nil {
				return err
			}
			s.env.RequestFlush()
		}
	}
	return nil
}

func (s *sink) Flush(context.Context) (map[sdk.TopicPartition]int64, error) {
	out := make(map[sdk.TopicPartition]int64, len(s.parts))
	for tp, p := range s.parts {
		out[tp] = p.start
	}
	return out, nil
}

// Revoke drops what is not stored; whoever has the partition next is given it again.
func (s *sink) Revoke(_ context.Context, parts []sdk.TopicPartition) error {
	for _, tp := range parts {
		delete(s.parts, tp)
	}
	return nil
}

func (s *sink) Close(context.Context) error {
	s.parts = nil
	if s.store.bucket == nil {
		return nil
	}
	err := s.store.bucket.Close()
	s.store.bucket = nil
	return err
}

// retriable marks what a store may get over. Refusals and content that is wrong stay as they are.
func retriable(err error) error {
	if errors.Is(err, objstore.ErrForbidden) || errors.Is(err, objstore.ErrUnsupported) || errors.Is(err, errOtherTopic) {
		return err
	}
	return sdk.Retriable(err)
}
