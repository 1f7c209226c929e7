package parquet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/sdk"
)

// Keys of a file's own metadata.
const (
	metaConnector = "varve.connector"
	metaTopic     = "varve.topic"
	metaPartition = "varve.partition"
	metaTopicID   = "varve.topic_id" // absent where the cluster has none
	metaFirst     = "varve.first_offset"
	metaLast      = "varve.last_offset"
)

// openFile is a file that still grows, in memory.
type openFile struct {
	layout *layout
	start  int64 // the offset in its name: what the file before it ended at, plus one
	last   int64
	rows   int
	bytes  int64 // of the records' values, what the rotation by size counts before compression
	opened time.Time
	out    bytes.Buffer
	w      *parquet.GenericWriter[any]
	row    *rowWriter
	batch  []parquet.Row
}

// rowGroupBytes bounds what the encoder holds outside out.
const rowGroupBytes = 16 << 20

func newOpenFile(cfg *config, l *layout, start int64, now time.Time) *openFile {
	f := &openFile{layout: l, start: start, opened: now, row: newRowWriter(l.width())}
	f.w = parquet.NewGenericWriter[any](&f.out, l.schema,
		parquet.Compression(cfg.codec()),
		parquet.CreatedBy("varve", "1", ""),
		parquet.PageBufferSize(256<<10),
		parquet.DataPageStatistics(true))
	return f
}

// add appends the row that the layout has put into f.row for rec.
func (f *openFile) add(rec *sdk.Record) error {
	f.batch = append(f.batch[:0], f.row.values())
	if _, err := f.w.WriteRows(f.batch); err != nil {
		return err
	}
	before := f.bytes / rowGroupBytes
	f.bytes += int64(len(rec.Key.Data) + len(rec.Value.Data) + 32)
	f.last = rec.Offset
	f.rows++
	if f.bytes/rowGroupBytes > before {
		return f.w.Flush()
	}
	return nil
}

// memory is about how many bytes the file holds.
func (f *openFile) memory() int64 { return int64(f.out.Len()) + min(f.bytes, 2*rowGroupBytes) }

// seal ends the file and returns its content.
func (f *openFile) seal(connector string, from sdk.Assignment) (*sealedFile, error) {
	tp := from.TopicPartition
	f.w.SetKeyValueMetadata(metaConnector, connector)
	f.w.SetKeyValueMetadata(metaTopic, tp.Topic)
	f.w.SetKeyValueMetadata(metaPartition, strconv.Itoa(int(tp.Partition)))
	if from.TopicID != "" {
		f.w.SetKeyValueMetadata(metaTopicID, from.TopicID)
	}
	f.w.SetKeyValueMetadata(metaFirst, strconv.FormatInt(f.start, 10))
	f.w.SetKeyValueMetadata(metaLast, strconv.FormatInt(f.last, 10))
	if err := f.w.Close(); err != nil {
		return nil, err
	}
	return &sealedFile{start: f.start, last: f.last, rows: f.rows, data: f.out.Bytes()}, nil
}

// sealedFile is a whole file that is not in the bucket yet.
type sealedFile struct {
	start, last int64
	rows        int
	data        []byte
}

// store is the sink's view of the bucket.
type store struct {
	bucket objstore.Bucket
	dir    string
}

// folder is where the files of a partition are. The topic's name is a component of its own, so that it can be as long as
// Kafka allows.
func (s *store) folder(tp sdk.TopicPartition) string {
	dir := strings.Trim(s.dir, "/")
	if dir != "" {
		dir += "/"
	}
	return fmt.Sprintf("%s%s/partition=%d/", dir, tp.Topic, tp.Partition)
}

func (s *store) key(tp sdk.TopicPartition, start int64) string {
	return fmt.Sprintf("%s%020d.parquet", s.folder(tp), start)
}

// starts lists the first offsets of a partition's files, in order.
func (s *store) starts(ctx context.Context, tp sdk.TopicPartition) ([]int64, error) {
	var out []int64
	folder := s.folder(tp)
	err := s.bucket.List(ctx, folder, objstore.ListOptions{}, func(i objstore.Info) error {
		name, ok := strings.CutSuffix(strings.TrimPrefix(i.Key, folder), ".parquet")
		if n, err := strconv.ParseInt(name, 10, 64); ok && err == nil && len(name) == 20 {
			out = append(out, n)
		}
		return nil
	})
	return out, err
}

// errOtherTopic marks a file of an earlier topic of the same name.
var errOtherTopic = errors.New("another topic")

// last reads the last offset of a file from its metadata. errOtherTopic where its records are not of the topic of from.
func (s *store) last(ctx context.Context, from sdk.Assignment, start int64) (int64, error) {
	key := s.key(from.TopicPartition, start)
	info, err := s.bucket.Stat(ctx, key)
	if err != nil {
		return 0, err
	}
	f, err := parquet.OpenFile(readerAt{ctx, s.bucket, key}, info.Size,
		parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.FileReadMode(parquet.ReadModeAsync))
	if err != nil {
		return 0, fmt.Errorf("%s/%s is not a Parquet file that this connector can read; move it away: %w", s.bucket.Name(), key, err)
	}
	id, _ := f.Lookup(metaTopicID)
	if err := from.SameTopic(id); err != nil {
		return 0, fmt.Errorf("%w: %s/%s: %w", errOtherTopic, s.bucket.Name(), key, err)
	}
	v, _ := f.Lookup(metaLast)
	last, err := strconv.ParseInt(v, 10, 64)
	if err != nil || last < start {
		return 0, fmt.Errorf("%s/%s has no usable %s in its metadata; another program wrote it: move it away", s.bucket.Name(), key, metaLast)
	}
	return last, nil
}

// put stores a file. Where the name is taken it returns the last offset of what stands there, which may be our own file
// after a lost reply, or that of another task.
func (s *store) put(ctx context.Context, from sdk.Assignment, f *sealedFile) (last int64, ours bool, err error) {
	err = s.bucket.Put(ctx, s.key(from.TopicPartition, f.start), bytes.NewReader(f.data), int64(len(f.data)), objstore.PutOptions{IfAbsent: true})
	if err == nil {
		return f.last, true, nil
	}
	if !errors.Is(err, objstore.ErrExists) {
		return 0, false, err
	}
	last, err = s.last(ctx, from, f.start)
	return last, false, err
}

// readerAt reads ranges of an object.
type readerAt struct {
	ctx    context.Context
	bucket objstore.Bucket
	key    string
}

func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	body, err := r.bucket.Get(r.ctx, r.key, off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	n, err := io.ReadFull(body, p)
	if cerr := body.Close(); err == nil {
		err = cerr
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}
