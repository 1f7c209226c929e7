package tiering

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/selftest"
	"github.com/varvehq/varve/tiering/cache"
	"github.com/varvehq/varve/tiering/manifest"
)

// Store is a bucket as one broker uses it. All methods may be called concurrently.
type Store struct {
	env         Env
	cfg         Config
	incarnation atomic.Int64
	blocks      *cache.Cache[blockKey, []byte]
	objects     *cache.Cache[blockKey, *Object]
	pages       *cache.Cache[pageKey, *manifest.Page]
	metrics     *storeMetrics
	catalogMu   sync.Mutex // one PutCatalog at a time
	mu          struct {
		sync.Mutex
		partitions map[PartitionID]*Partition
		catalog    *manifest.Catalog // newest known; nil: none
		catalogAt  time.Time         // when the bucket was last asked for it
	}
}

// Open checks that the bucket does what Varve rests on and belongs to the cluster, and marks a new one.
func Open(ctx context.Context, env Env) (*Store, error) {
	if env.Clock == nil {
		env.Clock = time.Now
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	if env.Config == (Config{}) {
		env.Config = DefaultConfig()
	}
	if err := env.Config.Validate(); err != nil {
		return nil, err
	}
	s := &Store{env: env, cfg: env.Config}
	s.mu.partitions = map[PartitionID]*Partition{}
	if err := s.prepare(ctx); err != nil {
		return nil, fmt.Errorf("tiering: open %s: %w", env.Bucket.Name(), err)
	}
	s.blocks = cache.New[blockKey, []byte](s.cfg.CacheBytes, s.cfg.Downloads)
	s.objects = cache.New[blockKey, *Object](max(s.cfg.CacheBytes/8, 1<<20), s.cfg.Downloads)
	s.pages = cache.New[pageKey, *manifest.Page](max(s.cfg.CacheBytes/16, 1<<20), 4)
	var err error
	if s.metrics, err = newStoreMetrics(env.Metrics, s); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends all downloads. The bucket stays open.
func (s *Store) Close() {
	s.blocks.Close()
	s.objects.Close()
	s.pages.Close()
}

// Incarnation ranks this cluster's life on the bucket.
func (s *Store) Incarnation() int64 { return s.incarnation.Load() }

func (s *Store) prepare(ctx context.Context) error {
	if !s.env.ReadOnly {
		err := selftest.Run(ctx, s.env.Bucket, manifest.SelftestDir)
		if errors.Is(err, selftest.ErrNoConditions) && s.env.SingleWriter {
			s.env.Log.Warn("the bucket ignores conditional writes; in single-writer mode nothing stops a second cluster or a late writer", "bucket", s.env.Bucket.Name())
		} else if err != nil {
			return err
		}
	}
	root, err := s.root(ctx)
	if err != nil {
		return err
	}
	cat, err := s.readCatalog(ctx, 0)
	if err != nil {
		return err
	}
	return s.own(ctx, root, cat)
}

// root reads varve.json, and writes it where there is none.
func (s *Store) root(ctx context.Context) (*manifest.Root, error) {
	data, err := objstore.ReadAll(ctx, s.env.Bucket, manifest.RootKey, 0, -1, maxJSON)
	switch {
	case err == nil:
		return manifest.DecodeRoot(data)
	case !errors.Is(err, objstore.ErrNotFound):
		return nil, err
	case s.env.ReadOnly:
		return nil, fmt.Errorf("%s is missing: this is no Varve bucket, or the prefix in its URL is another: %w", manifest.RootKey, err)
	}
	if s.env.MustExist {
		return nil, fmt.Errorf("%w: %s has no %s", ErrOtherBucket, s.env.Bucket.Name(), manifest.RootKey)
	}
	root := &manifest.Root{Format: manifest.Format, ClusterID: s.env.ClusterID, Created: s.now()}
	if data, err = root.Encode(); err != nil {
		return nil, err
	}
	if err = s.put(ctx, manifest.RootKey, data); err == nil {
		return root, nil
	}
	if !errors.Is(err, objstore.ErrExists) {
		return nil, err
	}
	if data, err = objstore.ReadAll(ctx, s.env.Bucket, manifest.RootKey, 0, -1, maxJSON); err != nil {
		return nil, err
	}
	return manifest.DecodeRoot(data)
}

// own finds out whose the bucket is, and takes it where the environment says so.
func (s *Store) own(ctx context.Context, root *manifest.Root, cat *manifest.Catalog) error {
	owner, incarnation := root.ClusterID, int64(0)
	if cat != nil {
		owner, incarnation = cat.ClusterID, cat.Incarnation
	}
	s.noteCatalog(cat)
	switch {
	case s.env.ReadOnly:
		s.incarnation.Store(incarnation)
		return nil
	case s.env.TakeOver:
		s.incarnation.Store(incarnation + 1)
		var topics []manifest.CatalogTopic
		if cat != nil {
			topics = cat.Topics
		}
		return s.PutCatalog(ctx, topics)
	case owner != s.env.ClusterID:
		return fmt.Errorf("%w: it is of %s, this cluster is %s; choose another prefix for this one", ErrForeignCluster, owner, s.env.ClusterID)
	case s.env.Incarnation > 0 && s.env.Incarnation < incarnation:
		return fmt.Errorf("%w: the bucket is in incarnation %d, this cluster in %d", ErrFenced, incarnation, s.env.Incarnation)
	}
	s.incarnation.Store(max(incarnation, s.env.Incarnation))
	return nil
}

func (s *Store) now() time.Time { return s.env.Clock().UTC() }

// put stores a small file that must not exist. ErrExists may mean that a lost reply was ours.
func (s *Store) put(ctx context.Context, key string, data []byte) error {
	return s.putBody(ctx, key, bytes.NewReader(data), int64(len(data)), objstore.CRC32C(data))
}

func (s *Store) putBody(ctx context.Context, key string, body io.ReadSeeker, size int64, crc uint32) error {
	return s.env.Bucket.Put(ctx, key, body, size, objstore.PutOptions{IfAbsent: true, CRC32C: &crc})
}

// Partition gives the handle of a partition. knownManifest is the highest manifest number that the metadata knows, or 0.
// Nothing is read before the first use.
func (s *Store) Partition(id PartitionID, knownManifest int64) *Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.mu.partitions[id]
	if p == nil {
		p = newPartition(s, id, knownManifest)
		s.mu.partitions[id] = p
	}
	return p
}

// Forget drops the handle of a partition that is gone from this broker.
func (s *Store) Forget(id PartitionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.partitions, id)
}

// DeleteTopic removes all objects of a topic, manifests last, so that a run that was cut short can be repeated and finds
// what is left. It returns nil once nothing is there.
func (s *Store) DeleteTopic(ctx context.Context, topic string, id kafka.UUID) error {
	s.mu.Lock()
	for pid := range s.mu.partitions {
		if pid.TopicID == id {
			delete(s.mu.partitions, pid)
		}
	}
	s.mu.Unlock()
	dir := manifest.TopicDir(topic, id)
	if err := deleteAll(ctx, s.env.Bucket, dir); err != nil {
		return fmt.Errorf("tiering: delete topic %s (%s): %w", topic, id, err)
	}
	return nil
}

func deleteAll(ctx context.Context, b objstore.Bucket, dir string) error {
	var rest, manifests []string
	err := b.List(ctx, dir, objstore.ListOptions{}, func(i objstore.Info) error {
		if isManifest(i.Key) {
			manifests = append(manifests, i.Key)
		} else {
			rest = append(rest, i.Key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range append(rest, manifests...) {
		if err := b.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

func newNonce() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}
