package tiering

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/tiering/manifest"
)

// CatalogTopic is one topic as the catalog lists it.
type CatalogTopic = manifest.CatalogTopic

// maxRaces bounds how often a writer goes on behind others' numbers in one call.
const maxRaces = 64

// PutCatalog writes the next catalog. A catalog of a higher incarnation is ErrFenced.
func (s *Store) PutCatalog(ctx context.Context, topics []CatalogTopic) error {
	if s.env.ReadOnly {
		return fmt.Errorf("tiering: put catalog: %w", ErrNotWriter)
	}
	s.catalogMu.Lock()
	defer s.catalogMu.Unlock()
	if err := s.putCatalog(ctx, topics); err != nil {
		return fmt.Errorf("tiering: put catalog: %w", err)
	}
	return nil
}

func (s *Store) putCatalog(ctx context.Context, topics []CatalogTopic) error {
	number, readAt := s.catalogNumber()
	if s.now().Sub(readAt) > tailMaxAge { // older numbers may have been deleted, and must not be made anew
		if _, err := s.Catalog(ctx); err != nil {
			return err
		}
		number, _ = s.catalogNumber()
	}
	for range maxRaces {
		number++
		cat := &manifest.Catalog{
			Format: manifest.Format, Number: number, ClusterID: s.env.ClusterID, Incarnation: s.Incarnation(),
			Nonce: fmt.Sprintf("%016x", newNonce()), Time: s.now(), Topics: topics,
		}
		data, err := cat.Encode()
		if err != nil {
			return err
		}
		err = s.put(ctx, manifest.CatalogKey(number), data)
		if errors.Is(err, objstore.ErrExists) {
			var other *manifest.Catalog
			if other, err = s.getCatalog(ctx, number); err != nil {
				return err
			}
			if other.Nonce != cat.Nonce {
				if other.Incarnation > s.Incarnation() {
					return fmt.Errorf("%w: catalog %d is of cluster %s in incarnation %d", ErrFenced, number, other.ClusterID, other.Incarnation)
				}
				continue
			}
		}
		if err != nil {
			return err
		}
		s.noteCatalog(cat)
		if keep := int64(s.cfg.ManifestCount); number%keep == 0 {
			return deleteNumbered(ctx, s.env.Bucket, manifest.CatalogPrefix, number-keep, s.now().Add(-s.cfg.ManifestAge))
		}
		return nil
	}
	return fmt.Errorf("another writer was faster %d times", maxRaces)
}

// Catalog reads the newest catalog, or nil where there is none.
func (s *Store) Catalog(ctx context.Context) (*manifest.Catalog, error) {
	known, _ := s.catalogNumber()
	cat, err := s.readCatalog(ctx, known)
	if err != nil {
		return nil, fmt.Errorf("tiering: read catalog: %w", err)
	}
	s.noteCatalog(cat)
	return cat, nil
}

// catalogNumber tells the newest catalog known, and when the bucket was last asked.
func (s *Store) catalogNumber() (int64, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.catalog == nil {
		return 0, s.mu.catalogAt
	}
	return s.mu.catalog.Number, s.mu.catalogAt
}

func (s *Store) noteCatalog(cat *manifest.Catalog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.catalogAt = s.now()
	if cat != nil && (s.mu.catalog == nil || cat.Number > s.mu.catalog.Number) {
		s.mu.catalog = cat
	}
}

func (s *Store) readCatalog(ctx context.Context, known int64) (*manifest.Catalog, error) {
	return NewestCatalog(ctx, s.env.Bucket, known)
}

func (s *Store) getCatalog(ctx context.Context, number int64) (*manifest.Catalog, error) {
	return readCatalog(ctx, s.env.Bucket, number)
}

// NewestCatalog reads a bucket's newest catalog, or nil where there is none. known is a number to start from, or 0.
func NewestCatalog(ctx context.Context, b objstore.Bucket, known int64) (*manifest.Catalog, error) {
	number, err := newestNumber(ctx, b, manifest.CatalogPrefix, known)
	if err != nil || number == 0 {
		return nil, err
	}
	return readCatalog(ctx, b, number)
}

func readCatalog(ctx context.Context, b objstore.Bucket, number int64) (*manifest.Catalog, error) {
	key := manifest.CatalogKey(number)
	data, err := objstore.ReadAll(ctx, b, key, 0, -1, maxJSON)
	if err != nil {
		return nil, err
	}
	cat, err := manifest.DecodeCatalog(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	if cat.Number != number {
		return nil, fmt.Errorf("%s: %w: it says it is number %d", key, manifest.ErrMalformed, cat.Number)
	}
	return cat, nil
}

// newestNumber finds the highest number in a folder of numbered files: by probing forward from a known one, by a list
// where nothing is known or the known one is gone. Zero means that there is none.
func newestNumber(ctx context.Context, b objstore.Bucket, folder string, known int64) (int64, error) {
	name := func(n int64) string { return fmt.Sprintf("%s%020d.json", folder, n) }
	if known > 0 {
		ok, err := exists(ctx, b, name(known))
		if err != nil {
			return 0, err
		}
		if !ok {
			known = 0
		}
	}
	if known == 0 {
		if err := b.List(ctx, folder, objstore.ListOptions{}, func(i objstore.Info) error {
			if n, ok := manifest.ParseNumber(i.Key); ok && path.Dir(i.Key)+"/" == folder {
				known = max(known, n)
			}
			return nil
		}); err != nil || known == 0 {
			return 0, err
		}
	}
	return probe(known, func(n int64) (bool, error) { return exists(ctx, b, name(n)) })
}

// probe finds the end of a contiguous row of numbers that holds known: by steps that double, then by halves.
func probe(known int64, exists func(int64) (bool, error)) (int64, error) {
	low, step := known, int64(1)
	for {
		ok, err := exists(low + step)
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		low += step
		step *= 2
	}
	for high := low + step; high-low > 1; {
		mid := low + (high-low)/2
		ok, err := exists(mid)
		if err != nil {
			return 0, err
		}
		if ok {
			low = mid
		} else {
			high = mid
		}
	}
	return low, nil
}

// exists tells a missing object from a store that does not answer.
func exists(ctx context.Context, b objstore.Bucket, key string) (bool, error) {
	_, err := b.Stat(ctx, key)
	if errors.Is(err, objstore.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func isManifest(key string) bool { return strings.Contains(key, "/"+manifest.ManifestFolder) }
