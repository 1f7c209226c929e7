package group

import (
	"errors"
	"fmt"
	"time"
)

// Config holds the coordinator's settings; the comments give Kafka's names.
type Config struct {
	// InitialRebalanceDelay is how long the first rebalance of an empty group waits for more members
	// (group.initial.rebalance.delay.ms).
	InitialRebalanceDelay time.Duration
	// MinSessionTimeout and MaxSessionTimeout bound what members may ask for (group.min/max.session.timeout.ms).
	MinSessionTimeout, MaxSessionTimeout time.Duration
	// MaxSize is the largest number of members (group.max.size).
	MaxSize int
	// NewMemberJoinTimeout is when a member that never heard of its generation is given up.
	NewMemberJoinTimeout time.Duration
	// OffsetMetadataMax is the largest commit metadata in characters (offset.metadata.max.bytes).
	OffsetMetadataMax int
	// OffsetsRetention is how long offsets outlive the last member (offsets.retention.minutes), and
	// RetentionCheckInterval how often that is looked at (offsets.retention.check.interval.ms).
	OffsetsRetention, RetentionCheckInterval time.Duration
	// MaxBatchBytes is the largest batch written to __consumer_offsets, at most its max.message.bytes.
	MaxBatchBytes int
}

// DefaultConfig has Kafka's defaults.
func DefaultConfig() Config {
	return Config{
		InitialRebalanceDelay:  3 * time.Second,
		MinSessionTimeout:      6 * time.Second,
		MaxSessionTimeout:      30 * time.Minute,
		MaxSize:                1<<31 - 1,
		NewMemberJoinTimeout:   5 * time.Minute,
		OffsetMetadataMax:      4096,
		OffsetsRetention:       7 * 24 * time.Hour,
		RetentionCheckInterval: 10 * time.Minute,
		MaxBatchBytes:          1 << 20,
	}
}

// Validate names what is wrong.
func (c Config) Validate() error {
	var errs []error
	bad := func(ok bool, field, rule string) {
		if !ok {
			errs = append(errs, fmt.Errorf("group.%s %s", field, rule))
		}
	}
	bad(c.InitialRebalanceDelay >= 0, "InitialRebalanceDelay", "is negative")
	bad(c.MinSessionTimeout > 0, "MinSessionTimeout", "is not positive")
	bad(c.MaxSessionTimeout >= c.MinSessionTimeout, "MaxSessionTimeout", "is below MinSessionTimeout")
	bad(c.MaxSize > 0, "MaxSize", "is not positive")
	bad(c.NewMemberJoinTimeout > 0, "NewMemberJoinTimeout", "is not positive")
	bad(c.OffsetMetadataMax >= 0, "OffsetMetadataMax", "is negative")
	bad(c.OffsetsRetention > 0, "OffsetsRetention", "is not positive")
	bad(c.RetentionCheckInterval > 0, "RetentionCheckInterval", "is not positive")
	bad(c.MaxBatchBytes >= 1024, "MaxBatchBytes", "is below 1024")
	return errors.Join(errs...)
}
