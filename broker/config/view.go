package config

import "time"

// Unlimited is what the typed views give for "no limit" (Kafka's -1 and Long.MAX).
const Unlimited = -1

// Topic is the typed view of a topic's effective configs. Ages are never negative except for Unlimited.
type Topic struct {
	Compact, Delete bool   // cleanup.policy
	CompressionType string // producer, uncompressed, gzip, snappy, lz4, zstd
	GzipLevel       int    // -1 is the codec's default
	LZ4Level        int
	ZstdLevel       int

	MaxMessageBytes    int32
	MaxDecompressed    int32 // of one record
	TimestampType      TimestampType
	TimestampBeforeMax time.Duration // Unlimited: not checked
	TimestampAfterMax  time.Duration // Unlimited: not checked

	SegmentBytes       int64
	SegmentAge         time.Duration
	SegmentJitter      time.Duration
	SegmentIndexBytes  int32
	IndexIntervalBytes int32
	Preallocate        bool
	FileDeleteDelay    time.Duration

	RetentionAge   time.Duration // Unlimited: by time nothing goes
	RetentionBytes int64         // Unlimited: by size nothing goes

	FlushPolicy   FlushPolicy
	FlushMessages int64         // Unlimited: left to the policy
	FlushInterval time.Duration // Unlimited: left to the policy

	MinInsyncReplicas     int32
	UncleanLeaderElection bool

	DeleteRetention     time.Duration // tombstones of compacted topics
	MinCompactionLag    time.Duration
	MaxCompactionLag    time.Duration // Unlimited: no bound
	MinCleanableRatio   float64
	LeaderThrottled     []string // partition:broker, or "*"
	FollowerThrottled   []string
	DeadLetterQueueable bool // errors.deadletterqueue.group.enable

	Tiered          bool          // remote.storage.enable
	LocalRetention  time.Duration // local.retention.ms with -2 resolved; Unlimited: no bound
	LocalBytes      int64         // local.retention.bytes with -2 resolved; Unlimited: no bound
	RemoteCopy      bool          // not remote.log.copy.disable
	DeleteOnDisable bool          // remote.log.delete.on.disable
	// RemoteCopyLag and RemoteCopyLagBytes tell when a sealed segment may be copied; CopyEligible reads them. 0 is at once,
	// Unlimited: this one of the two does not count. -1 is resolved.
	RemoteCopyLag      time.Duration
	RemoteCopyLagBytes int64
	RemoteCopyMaxAge   time.Duration // remote.copy.max.age.ms: an open segment of this age is sealed; Unlimited: never
}

// CopyEligible reports whether a sealed segment may go to the bucket: age is that of its newest record, newer the bytes of the
// partition after it. One of the two configs is enough (KIP-1241).
func (t *Topic) CopyEligible(age time.Duration, newer int64) bool {
	return t.RemoteCopy && (t.RemoteCopyLag == 0 || t.RemoteCopyLagBytes == 0 ||
		t.RemoteCopyLag > 0 && age >= t.RemoteCopyLag || t.RemoteCopyLagBytes > 0 && newer >= t.RemoteCopyLagBytes)
}

// TimestampType tells whose clock stamps records.
type TimestampType int8

// The types, with the values of the record batch's attribute bit.
const (
	CreateTime    TimestampType = 0
	LogAppendTime TimestampType = 1
)

// FlushPolicy tells when an append is acknowledged.
type FlushPolicy string

const (
	// FlushFsync acknowledges what is on disk.
	FlushFsync FlushPolicy = "fsync"
	// FlushOS acknowledges what the operating system has, as Kafka does.
	FlushOS FlushPolicy = "os"
)
