package config

import "time"

// Broker is the typed view of a node's effective configs, as far as Varve reads them.
type Broker struct {
	NumPartitions            int32
	DefaultReplicationFactor int16
	AutoCreateTopics         bool
	DeleteTopics             bool
	Rack                     string

	MessageMaxBytes               int32
	SocketRequestMaxBytes         int32
	FetchMaxBytes                 int32
	ConnectionsMaxIdle            time.Duration
	MaxConnections                int32
	MaxConnectionsPerIP           int32
	FetchSessionSlots             int32
	MaxRequestPartitions          int32
	FailedAuthenticationDelay     time.Duration
	RetentionCheckInterval        time.Duration
	FlushOffsetCheckpointInterval time.Duration
	RecoveryThreads               int32

	CleanerEnable      bool
	CleanerThreads     int32
	CleanerBackoff     time.Duration
	CleanerDedupeBytes int64
	CleanerBytesPerSec int64 // Unlimited: no limit

	OffsetsTopicPartitions        int32
	OffsetsTopicReplication       int16
	OffsetsTopicSegmentBytes      int64
	OffsetsRetention              time.Duration
	OffsetsRetentionCheckInterval time.Duration
	OffsetMetadataMaxBytes        int32

	GroupMinSessionTimeout     time.Duration
	GroupMaxSessionTimeout     time.Duration
	GroupInitialRebalanceDelay time.Duration
	GroupMaxSize               int32
	GroupConsumer              GroupConsumer

	TransactionTopicPartitions   int32
	TransactionTopicReplication  int16
	TransactionTopicMinISR       int32
	TransactionTopicSegmentBytes int64
	TransactionMaxTimeout        time.Duration
	TransactionSweepInterval     time.Duration
	TransactionalIDExpiration    time.Duration
	ProducerIDExpiration         time.Duration

	QuotaWindows              int32
	QuotaWindowSize           time.Duration
	ControllerQuotaWindows    int32
	ControllerQuotaWindowSize time.Duration

	RemoteTaskInterval     time.Duration
	RemoteCopyThreads      int32
	RemoteReadThreads      int32
	RemoteReadMaxPending   int32
	RemoteRetryBackoff     time.Duration
	RemoteRetryBackoffMax  time.Duration
	RemoteCopyBytesPerSec  int64 // Unlimited: no limit
	RemoteFetchBytesPerSec int64 // Unlimited: no limit
	RemoteFetchMaxWait     time.Duration
}

// GroupConsumer holds what brokers set for groups of the consumer protocol (group.consumer.*).
type GroupConsumer struct {
	SessionTimeout, MinSessionTimeout, MaxSessionTimeout          time.Duration
	HeartbeatInterval, MinHeartbeatInterval, MaxHeartbeatInterval time.Duration
	MaxSize                                                       int32
	Assignors                                                     []string
	MigrationPolicy                                               string // disabled, upgrade, downgrade or bidirectional
}
