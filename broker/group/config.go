package group

import (
	"errors"
	"fmt"
	"time"

	"github.com/varvehq/varve/broker/group/assignor"
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
	// Consumer is for groups of the consumer protocol.
	Consumer ConsumerConfig
	// MaxBatchBytes is the largest batch written to __consumer_offsets, at most its max.message.bytes.
	MaxBatchBytes int
}

// ConsumerConfig holds the settings of groups of the consumer protocol (group.consumer.*).
type ConsumerConfig struct {
	// SessionTimeout is when a silent member is given up, and HeartbeatInterval how often members are to be heard.
	SessionTimeout, HeartbeatInterval time.Duration
	// The bounds of what groups may set for themselves.
	MinSessionTimeout, MaxSessionTimeout, MinHeartbeatInterval, MaxHeartbeatInterval time.Duration
	// MaxSize is the largest number of members.
	MaxSize int
	// Assignors are those that members may choose, the default first.
	Assignors []string
	// Migration is how groups with members may change between the protocols (group.consumer.migration.policy).
	Migration Migration
	// Groups are the settings that groups have of their own; 0 is none.
	Groups map[string]ConsumerOverrides
}

// Migration tells how groups with members may change their protocol: Upgrade to the consumer protocol when a member of it joins,
// Downgrade to the classic one when the last member of the consumer protocol is gone. Where there is neither, no member of the
// classic protocol joins a group of the other.
type Migration struct {
	Upgrade, Downgrade bool
}

// ConsumerOverrides are the settings that one group has.
type ConsumerOverrides struct {
	SessionTimeout, HeartbeatInterval time.Duration
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
		Consumer: ConsumerConfig{
			SessionTimeout: 45 * time.Second, MinSessionTimeout: 45 * time.Second, MaxSessionTimeout: time.Minute,
			HeartbeatInterval: 5 * time.Second, MinHeartbeatInterval: 5 * time.Second, MaxHeartbeatInterval: 15 * time.Second,
			MaxSize: 1<<31 - 1, Assignors: []string{"uniform", "range"},
			Migration: Migration{Upgrade: true, Downgrade: true},
		},
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
	cc := &c.Consumer
	bad(cc.SessionTimeout > 0, "Consumer.SessionTimeout", "is not positive")
	bad(cc.HeartbeatInterval > 0, "Consumer.HeartbeatInterval", "is not positive")
	bad(cc.MaxSessionTimeout >= cc.MinSessionTimeout, "Consumer.MaxSessionTimeout", "is below MinSessionTimeout")
	bad(cc.MaxHeartbeatInterval >= cc.MinHeartbeatInterval, "Consumer.MaxHeartbeatInterval", "is below MinHeartbeatInterval")
	bad(cc.MaxSize > 0, "Consumer.MaxSize", "is not positive")
	bad(len(cc.Assignors) > 0, "Consumer.Assignors", "is empty")
	for _, a := range cc.Assignors {
		bad(assignor.ByName[a] != nil, "Consumer.Assignors", fmt.Sprintf("has %q, which there is not", a))
	}
	return errors.Join(errs...)
}
