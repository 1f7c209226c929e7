package partition

import (
	"fmt"
	"time"

	"github.com/varvehq/varve/broker/commitlog"
	"github.com/varvehq/varve/broker/config"
)

// Config is how a Manager works.
type Config struct {
	// SweepInterval is how often partitions with new data are looked at: sealing, uploads.
	SweepInterval time.Duration
	// RetentionInterval is how often all partitions are looked at (log.retention.check.interval.ms).
	RetentionInterval time.Duration
	// CheckpointInterval is how often high watermarks and recovery points are written.
	CheckpointInterval time.Duration
	// RecoveryThreads is how many logs are opened at one time at the start (num.recovery.threads.per.data.dir).
	RecoveryThreads int
	// TierWorkers is how many partitions upload and expire at one time.
	TierWorkers int
	// RemoteReads is how many reads of the remote tier run at one time, RemotePending how many may wait besides.
	RemoteReads, RemotePending int
	// RetryBackoff and RetryBackoffMax bound the pause after a failed upload.
	RetryBackoff, RetryBackoffMax time.Duration
	// ScrubInterval is how often every local byte is read and checked; 0 never. ScrubRate bounds it in bytes per second.
	ScrubInterval time.Duration
	ScrubRate     int
	// CompactInterval is how often logs are looked at for compaction (log.cleaner.backoff.ms), CompactWorkers how many are
	// compacted at one time (log.cleaner.threads); 0 compacts none.
	CompactInterval time.Duration
	CompactWorkers  int
	// CompactMapBytes is the memory for keys over all workers (log.cleaner.dedupe.buffer.size).
	CompactMapBytes int64
	// CompactRate bounds the bytes per second that compaction reads and writes (log.cleaner.io.max.bytes.per.second); 0 is
	// no limit.
	CompactRate int64
	// ProducerExpiry is producer.id.expiration.ms.
	ProducerExpiry time.Duration
}

// DefaultConfig gives Kafka's intervals where it has them.
func DefaultConfig() Config {
	return Config{
		SweepInterval:      time.Second,
		RetentionInterval:  5 * time.Minute,
		CheckpointInterval: time.Minute,
		RecoveryThreads:    2,
		TierWorkers:        4,
		RemoteReads:        10,
		RemotePending:      100,
		RetryBackoff:       500 * time.Millisecond,
		RetryBackoffMax:    30 * time.Second,
		ScrubInterval:      24 * time.Hour,
		ScrubRate:          8 << 20,
		CompactInterval:    15 * time.Second,
		CompactWorkers:     1,
		CompactMapBytes:    128 << 20,
		ProducerExpiry:     24 * time.Hour,
	}
}

// Validate names the field that cannot be.
func (c *Config) Validate() error {
	switch {
	case c.SweepInterval <= 0:
		return fmt.Errorf("SweepInterval: %v is not positive", c.SweepInterval)
	case c.RetentionInterval <= 0:
		return fmt.Errorf("RetentionInterval: %v is not positive", c.RetentionInterval)
	case c.CheckpointInterval <= 0:
		return fmt.Errorf("CheckpointInterval: %v is not positive", c.CheckpointInterval)
	case c.RecoveryThreads <= 0:
		return fmt.Errorf("RecoveryThreads: %d is not positive", c.RecoveryThreads)
	case c.TierWorkers <= 0:
		return fmt.Errorf("TierWorkers: %d is not positive", c.TierWorkers)
	case c.RemoteReads <= 0:
		return fmt.Errorf("RemoteReads: %d is not positive", c.RemoteReads)
	case c.RemotePending < 0:
		return fmt.Errorf("RemotePending: %d is negative", c.RemotePending)
	case c.RetryBackoff <= 0 || c.RetryBackoffMax < c.RetryBackoff:
		return fmt.Errorf("RetryBackoff: %v to %v is no range", c.RetryBackoff, c.RetryBackoffMax)
	case c.CompactWorkers < 0:
		return fmt.Errorf("CompactWorkers: %d is negative", c.CompactWorkers)
	case c.CompactWorkers > 0 && (c.CompactInterval <= 0 || c.CompactMapBytes <= 0):
		return fmt.Errorf("CompactInterval, CompactMapBytes: %v and %d are not positive", c.CompactInterval, c.CompactMapBytes)
	case c.CompactRate < 0:
		return fmt.Errorf("CompactRate: %d is negative", c.CompactRate)
	case c.ScrubInterval < 0 || c.ScrubInterval > 0 && c.ScrubRate <= 0:
		return fmt.Errorf("ScrubRate: %d bytes per second every %v", c.ScrubRate, c.ScrubInterval)
	}
	return nil
}

// maxDuration is longer than any log lives, and can be added to a time.
const maxDuration = 100 * 365 * 24 * time.Hour

// logConfig is what the local log needs of a topic's effective configs.
func logConfig(t *config.Topic, producerExpiry time.Duration) commitlog.Config {
	c := commitlog.DefaultConfig()
	c.SegmentBytes = t.SegmentBytes
	c.SegmentAge = t.SegmentAge
	c.SegmentIndexBytes = int64(t.SegmentIndexBytes)
	c.IndexIntervalBytes = int64(t.IndexIntervalBytes)
	c.RetentionBytes = t.RetentionBytes
	c.RetentionAge = t.RetentionAge
	c.LocalRetentionBytes = t.LocalBytes
	c.LocalRetentionAge = t.LocalRetention
	c.MaxMessageBytes = int64(t.MaxMessageBytes)
	c.TimestampType = commitlog.TimestampType(t.TimestampType)
	c.TimestampBeforeMax = t.TimestampBeforeMax
	c.TimestampAfterMax = t.TimestampAfterMax
	if t.FlushPolicy == config.FlushOS {
		c.FlushPolicy = commitlog.FlushOS
	}
	c.Delete = t.Delete
	c.Compact = t.Compact
	c.DeleteRetention = max(t.DeleteRetention, 0)
	if t.DeleteRetention == config.Unlimited {
		c.DeleteRetention = maxDuration
	}
	c.MinCompactionLag = t.MinCompactionLag
	if t.MinCompactionLag == config.Unlimited {
		c.MinCompactionLag = maxDuration
	}
	c.MaxCompactionLag = t.MaxCompactionLag
	if t.Compact && t.MaxCompactionLag > 0 {
		c.SegmentAge = min(c.SegmentAge, t.MaxCompactionLag) // only sealed segments are compacted
	}
	c.DecompressLimit = min(c.DecompressLimit, max(int(t.MaxDecompressed), 1))
	c.Tiered = t.Tiered
	c.ProducerExpiry = producerExpiry
	// A batch of few records is bounded by what one record may take; one of many by the log's own limit.
	c.DecompressLimit = max(1, min(c.DecompressLimit, int(t.MaxDecompressed)))
	return c
}
