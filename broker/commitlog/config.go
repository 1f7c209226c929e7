package commitlog

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/internal/vfs"
)

// TimestampType says whose clock a record's timestamp is.
type TimestampType int8

// Timestamp types of message.timestamp.type.
const (
	CreateTime TimestampType = iota
	LogAppendTime
)

// FlushPolicy says when an append counts as flushed.
type FlushPolicy int8

// Flush policies of log.flush.policy.
const (
	// FlushSync: after the group commit has synced it.
	FlushSync FlushPolicy = iota
	// FlushOS: as soon as the operating system has it, as Kafka does.
	FlushOS
)

// Unlimited turns a limit in bytes or a Duration off.
const Unlimited = -1

// FollowTotal makes a local retention follow the total one (Kafka's -2).
const FollowTotal = -2

// Config is a partition's configuration; names in comments are the topic configs.
type Config struct {
	SegmentBytes       int64         // segment.bytes
	SegmentAge         time.Duration // segment.ms
	SegmentIndexBytes  int64         // segment.index.bytes
	IndexIntervalBytes int64         // index.interval.bytes
	RetentionBytes     int64         // retention.bytes, or Unlimited
	RetentionAge       time.Duration // retention.ms, or Unlimited
	// LocalRetentionBytes and LocalRetentionAge are local.retention.bytes and .ms: a limit, Unlimited or FollowTotal.
	LocalRetentionBytes int64
	LocalRetentionAge   time.Duration
	MaxMessageBytes     int64         // max.message.bytes, per batch
	TimestampType       TimestampType // message.timestamp.type
	TimestampBeforeMax  time.Duration // message.timestamp.before.max.ms, or Unlimited
	TimestampAfterMax   time.Duration // message.timestamp.after.max.ms, or Unlimited
	FlushPolicy         FlushPolicy   // log.flush.policy
	Delete              bool          // cleanup.policy contains delete
	// Compact: cleanup.policy contains compact. The log is compacted by Compact only.
	Compact          bool
	DeleteRetention  time.Duration // delete.retention.ms
	MinCompactionLag time.Duration // min.compaction.lag.ms
	MaxCompactionLag time.Duration // max.compaction.lag.ms, or Unlimited
	Tiered           bool          // remote.storage.enable: deleting local segments leaves StartOffset where it is
	ProducerExpiry   time.Duration // producer.id.expiration.ms
	// DecompressLimit bounds what one batch may decompress to when records are looked at (timestamp lookup).
	DecompressLimit int
}

// DefaultConfig is Kafka's defaults with our flush policy.
func DefaultConfig() Config {
	return Config{
		SegmentBytes:        1 << 30,
		SegmentAge:          7 * 24 * time.Hour,
		SegmentIndexBytes:   10 << 20,
		IndexIntervalBytes:  4096,
		RetentionBytes:      Unlimited,
		RetentionAge:        7 * 24 * time.Hour,
		LocalRetentionBytes: FollowTotal,
		LocalRetentionAge:   FollowTotal,
		MaxMessageBytes:     1048588,
		TimestampBeforeMax:  Unlimited,
		TimestampAfterMax:   time.Hour,
		Delete:              true,
		DeleteRetention:     24 * time.Hour,
		MaxCompactionLag:    Unlimited,
		ProducerExpiry:      24 * time.Hour,
		DecompressLimit:     64 << 20,
	}
}

// Validate names the field that cannot be.
func (c *Config) Validate() error {
	switch {
	case c.SegmentBytes < record.HeaderSize || c.SegmentBytes > math.MaxInt32:
		return fmt.Errorf("SegmentBytes: %d is not between %d and %d", c.SegmentBytes, record.HeaderSize, math.MaxInt32)
	case c.SegmentAge <= 0:
		return fmt.Errorf("SegmentAge: %v is not positive", c.SegmentAge)
	case c.SegmentIndexBytes < record.TimeIndexEntrySize:
		return fmt.Errorf("SegmentIndexBytes: %d is less than an entry", c.SegmentIndexBytes)
	case c.IndexIntervalBytes < 0:
		return fmt.Errorf("IndexIntervalBytes: %d is negative", c.IndexIntervalBytes)
	case c.MaxMessageBytes < 0:
		return fmt.Errorf("MaxMessageBytes: %d is negative", c.MaxMessageBytes)
	case c.RetentionBytes < Unlimited:
		return fmt.Errorf("RetentionBytes: %d", c.RetentionBytes)
	case c.RetentionAge < Unlimited:
		return fmt.Errorf("RetentionAge: %d", c.RetentionAge)
	case c.LocalRetentionBytes < FollowTotal:
		return fmt.Errorf("LocalRetentionBytes: %d", c.LocalRetentionBytes)
	case c.LocalRetentionAge < FollowTotal:
		return fmt.Errorf("LocalRetentionAge: %d", c.LocalRetentionAge)
	case c.DeleteRetention < 0:
		return fmt.Errorf("DeleteRetention: %v is negative", c.DeleteRetention)
	case c.MinCompactionLag < 0:
		return fmt.Errorf("MinCompactionLag: %v is negative", c.MinCompactionLag)
	case c.MaxCompactionLag < Unlimited:
		return fmt.Errorf("MaxCompactionLag: %d", c.MaxCompactionLag)
	case c.DecompressLimit <= 0:
		return fmt.Errorf("DecompressLimit: %d is not positive", c.DecompressLimit)
	}
	return nil
}

// Env is what a log needs of its surroundings. FS, Syncer and Files are shared by the logs of one data directory; Dir
// fills them in.
type Env struct {
	FS     vfs.FS
	Syncer *Syncer
	Files  *FileCache
	Clock  func() time.Time
	Log    *slog.Logger
	// OnFlushed is called after FlushedOffset has moved to flushed, from the syncer's goroutine and without locks of the
	// log. It must not block.
	OnFlushed func(flushed int64)
	// OnFailed is called once after the log was latched, as OnFlushed is.
	OnFailed func(error)
	// State is what a data directory remembers of the log; the zero value knows nothing: every byte is validated.
	State State
	// SaveStart makes a log start offset durable. nil forgets it.
	SaveStart func(logStart int64) error
	// SaveCleaned makes the offset below which everything is compacted durable. nil forgets it.
	SaveCleaned func(offset int64) error
	// SaveRecoveryPoint durably lowers the recovery point before a truncation. nil where there is none.
	SaveRecoveryPoint func(offset int64) error
	// ScrubPace is called by Scrub before it reads n bytes and may block, to keep it slow. nil runs at full speed.
	ScrubPace func(n int) error
}

// State is what the checkpoints of a data directory say of one log.
type State struct {
	// RecoveryPoint: everything below is on disk, with its indexes. 0 where unknown.
	RecoveryPoint int64
	LogStart      int64
	// Cleaned: everything below is compacted. 0 where unknown.
	Cleaned int64
	// Clean: the log was closed; nothing needs validation.
	Clean bool
	// Synced: what is in the files was made durable after the stop (by one SyncFS for all logs).
	Synced bool
	// Killed: only the process ended, so the files hold all that was ever written to them; what is missing or wrong, but for
	// the end of the last write, is damage.
	Killed bool
	// StartSaved: LogStart was durable before any segment below it was deleted.
	StartSaved bool
}
