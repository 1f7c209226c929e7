package tiering

import (
	"fmt"
	"time"

	"github.com/varvehq/varve/tiering/manifest"
)

// Config tunes a Store.
type Config struct {
	CacheBytes int64 // memory for downloaded parts of segments
	BlockBytes int64 // of one ranged download; a multiple of 256 KiB
	ReadAhead  int   // blocks to have ready before a sequential reader asks
	Downloads  int   // at the same time
	// PageSegments: when a manifest lists more segments than this, the oldest four fifths are sealed into a page.
	PageSegments int
	// CondemnedGrace is how long the object of a segment that left the list stays for readers that know an older list.
	CondemnedGrace time.Duration
	// ManifestAge and ManifestCount: manifests younger, and the newest so many, are kept.
	ManifestAge   time.Duration
	ManifestCount int
	// OrphanAge is how old an object that no manifest names must be to be deleted. A copy gives up after half of it.
	OrphanAge time.Duration
	// MaxDecompressed bounds the records of one batch when a timestamp is looked up.
	MaxDecompressed int
}

// DefaultConfig is what a broker uses.
func DefaultConfig() Config {
	return Config{
		CacheBytes: 256 << 20, BlockBytes: 2 << 20, ReadAhead: 3, Downloads: 16, PageSegments: 1000,
		CondemnedGrace: 10 * time.Minute, ManifestAge: 24 * time.Hour, ManifestCount: 16, OrphanAge: 24 * time.Hour,
		MaxDecompressed: 128 << 20,
	}
}

// Validate names the field that is wrong.
func (c *Config) Validate() error {
	for _, f := range []struct {
		name string
		bad  bool
	}{
		{"cache_bytes", c.CacheBytes < 0},
		{"block_bytes", c.BlockBytes <= 0 || c.BlockBytes%manifest.ChunkSize != 0},
		{"read_ahead", c.ReadAhead < 0},
		{"downloads", c.Downloads < 1},
		{"page_segments", c.PageSegments < 5},
		{"condemned_grace", c.CondemnedGrace < 0},
		{"manifest_age", c.ManifestAge < 2*tailMaxAge},
		{"manifest_count", c.ManifestCount < 1},
		{"orphan_age", c.OrphanAge <= 0},
		{"max_decompressed", c.MaxDecompressed <= 0},
	} {
		if f.bad {
			return fmt.Errorf("tiering: %s is out of range in %+v", f.name, *c)
		}
	}
	return nil
}

// tailMaxAge is how long a writer may rest on the tail it has read: manifests are deleted after twice that time, and a
// writer that slept longer could create a number that was deleted.
const tailMaxAge = 12 * time.Hour

const (
	maxJSON     = 64 << 20 // of one manifest, page or catalog
	maxSections = 64 << 20 // of all that follows a segment's log
)
