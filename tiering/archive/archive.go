// Package archive reads a bucket without a broker: what is in it, whether every byte of it is right, and its records. It
// never writes.
package archive

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/tiering"
	"github.com/varvehq/varve/tiering/manifest"
)

// Errors of this package; test with errors.Is.
var (
	// ErrNoTopic: the bucket has no such topic or partition.
	ErrNoTopic = errors.New("archive: not in the bucket")
	// ErrAmbiguous: several topics of that name are in the bucket.
	ErrAmbiguous = errors.New("archive: several topics have that name")
)

// Archive is an open bucket.
type Archive struct {
	bucket  objstore.Bucket
	store   *tiering.Store
	catalog *manifest.Catalog // nil: none
}

// Open opens a bucket that a cluster has written. The bucket stays the caller's.
func Open(ctx context.Context, b objstore.Bucket) (*Archive, error) {
	store, err := tiering.Open(ctx, tiering.Env{Bucket: b, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	a := &Archive{bucket: b, store: store}
	if a.catalog, err = store.Catalog(ctx); err != nil {
		store.Close()
		return nil, err
	}
	return a, nil
}

// Close ends all downloads.
func (a *Archive) Close() { a.store.Close() }

// Topic is a topic in the bucket.
type Topic struct {
	Name       string      `json:"name"`
	ID         kafka.UUID  `json:"id"`
	Deleted    bool        `json:"deleted,omitempty"` // the catalog says so; what is left is being removed
	Partitions []Partition `json:"partitions"`
}

// Partition is a partition in the bucket.
type Partition struct {
	Topic        string     `json:"topic"`
	TopicID      kafka.UUID `json:"topic_id"`
	Partition    int32      `json:"partition"`
	Manifest     int64      `json:"manifest"` // number of the newest
	LogStart     int64      `json:"log_start_offset"`
	End          int64      `json:"end_offset"` // exclusive
	Segments     int        `json:"segments"`
	Records      int64      `json:"records"` // of all listed segments, those below the log start included
	Bytes        int64      `json:"bytes"`
	MinTimestamp int64      `json:"min_timestamp"` // milliseconds; -1: none
	MaxTimestamp int64      `json:"max_timestamp"`
}

func (p *Partition) id() tiering.PartitionID {
	return tiering.PartitionID{Topic: p.Topic, TopicID: p.TopicID, Partition: p.Partition}
}

// Dir is the partition's folder.
func (p *Partition) Dir() string { return manifest.PartitionDir(p.Topic, p.TopicID, p.Partition) }

func (p *Partition) String() string { return fmt.Sprintf("%s-%d", p.Topic, p.Partition) }

// Topics lists the topics that have something in the bucket, by name, with their partitions.
func (a *Archive) Topics(ctx context.Context) ([]Topic, error) {
	folders, err := a.topicFolders(ctx)
	if err != nil {
		return nil, err
	}
	topics := make([]Topic, 0, len(folders))
	for _, f := range folders {
		t, err := a.topic(ctx, f)
		if err != nil {
			return nil, err
		}
		if len(t.Partitions) > 0 {
			topics = append(topics, t)
		}
	}
	sort.Slice(topics, func(i, j int) bool { return topics[i].Name < topics[j].Name })
	return topics, nil
}

// Find gives the topic of a name or id.
func (a *Archive) Find(ctx context.Context, nameOrID string) (Topic, error) {
	folders, err := a.topicFolders(ctx)
	if err != nil {
		return Topic{}, err
	}
	var found []Topic
	for _, f := range folders {
		if f.id.String() != nameOrID && f.id.Hex() != nameOrID && !strings.HasPrefix(nameOrID, f.name) {
			continue
		}
		t, err := a.topic(ctx, f)
		if err != nil {
			return Topic{}, err
		}
		if t.Name == nameOrID || f.id.String() == nameOrID || f.id.Hex() == nameOrID {
			found = append(found, t)
		}
	}
	switch len(found) {
	case 0:
		return Topic{}, fmt.Errorf("%w: topic %s", ErrNoTopic, nameOrID)
	case 1:
		return found[0], nil
	}
	ids := make([]string, len(found))
	for i, t := range found {
		ids[i] = t.ID.String()
	}
	return Topic{}, fmt.Errorf("%w: %s; name one by its id: %s", ErrAmbiguous, nameOrID, strings.Join(ids, ", "))
}

type topicFolder struct {
	dir, name string // name may be cut
	id        kafka.UUID
}

func (a *Archive) topicFolders(ctx context.Context) ([]topicFolder, error) {
	var out []topicFolder
	err := a.bucket.List(ctx, manifest.TopicsPrefix, objstore.ListOptions{Delimiter: "/"}, func(i objstore.Info) error {
		if name, id, err := manifest.ParseTopicDir(i.Key); err == nil {
			out = append(out, topicFolder{i.Key, name, id})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("archive: list topics: %w", err)
	}
	return out, nil
}

// topic reads the newest manifest of each partition.
func (a *Archive) topic(ctx context.Context, f topicFolder) (Topic, error) {
	t := Topic{Name: f.name, ID: f.id}
	if a.catalog != nil {
		for _, c := range a.catalog.Topics {
			if c.ID == f.id {
				t.Name, t.Deleted = c.Name, c.Deleted
			}
		}
	}
	var numbers []int32
	err := a.bucket.List(ctx, f.dir, objstore.ListOptions{Delimiter: "/"}, func(i objstore.Info) error {
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(i.Key, f.dir), "/"), 10, 32)
		if err == nil {
			numbers = append(numbers, int32(n))
		}
		return nil
	})
	if err != nil {
		return t, fmt.Errorf("archive: list partitions of %s: %w", t.Name, err)
	}
	sort.Slice(numbers, func(i, j int) bool { return numbers[i] < numbers[j] })
	for _, n := range numbers {
		p, err := a.partition(ctx, tiering.PartitionID{Topic: t.Name, TopicID: t.ID, Partition: n})
		if err != nil {
			return t, err
		}
		if p.Manifest > 0 {
			t.Name = p.Topic
			t.Partitions = append(t.Partitions, p)
		}
	}
	return t, nil
}

func (a *Archive) partition(ctx context.Context, id tiering.PartitionID) (Partition, error) {
	tp := a.store.Partition(id, 0)
	if err := tp.Load(ctx); err != nil {
		return Partition{}, fmt.Errorf("archive: %w", err)
	}
	p := Partition{
		Topic: id.Topic, TopicID: id.TopicID, Partition: id.Partition, Manifest: tp.Manifest(),
		LogStart: tp.StartOffset(), End: tp.EndOffset(), Bytes: tp.Bytes(), MinTimestamp: -1, MaxTimestamp: -1,
	}
	if name := tp.TopicName(); name != "" {
		p.Topic = name
	}
	err := tp.Segments(ctx, 0, func(s tiering.SegmentInfo) error {
		p.Segments++
		p.Records += int64(s.Records)
		p.MaxTimestamp = max(p.MaxTimestamp, s.MaxTimestamp)
		if s.FirstTimestamp >= 0 && (p.MinTimestamp < 0 || s.FirstTimestamp < p.MinTimestamp) {
			p.MinTimestamp = s.FirstTimestamp
		}
		return nil
	})
	if err != nil {
		return p, fmt.Errorf("archive: %w", err)
	}
	return p, nil
}

// Segments calls f for the segments of a partition, in order.
func (a *Archive) Segments(ctx context.Context, p Partition, f func(tiering.SegmentInfo) error) error {
	return a.store.Partition(p.id(), p.Manifest).Segments(ctx, 0, f)
}

// Time gives a record's timestamp as a time.
func Time(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
