package controller

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/varvehq/varve/broker/config"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/vfs"
)

// What the calls of a Controller answer. All are wrapped with the particulars; test with errors.Is.
var (
	// ErrTopicExists: the name is taken.
	ErrTopicExists = errors.New("topic exists")
	// ErrUnknownTopic: no topic of that name.
	ErrUnknownTopic = errors.New("unknown topic")
	// ErrUnknownTopicID: no topic of that id.
	ErrUnknownTopicID = errors.New("unknown topic id")
	// ErrInvalidTopic: an illegal name, or one that equals another in metrics ("a.b" and "a_b").
	ErrInvalidTopic = errors.New("invalid topic")
	// ErrTooManyPartitions: more than MaxPartitionsPerCall.
	ErrTooManyPartitions = errors.New("too many partitions")
	// ErrInvalidPartitions: a number of partitions that cannot be.
	ErrInvalidPartitions = errors.New("invalid number of partitions")
	// ErrInvalidReplicationFactor: not positive, or more than there are brokers.
	ErrInvalidReplicationFactor = errors.New("invalid replication factor")
	// ErrInvalidAssignment: a manual assignment with gaps, repeats or unknown brokers.
	ErrInvalidAssignment = errors.New("invalid replica assignment")
	// ErrInvalidConfig: an unknown config name or an illegal value. It is config.ErrInvalid.
	ErrInvalidConfig = config.ErrInvalid
	// ErrInvalidRequest: a request that contradicts itself.
	ErrInvalidRequest = errors.New("invalid request")
	// ErrInvalidFeature: a feature level that cannot be.
	ErrInvalidFeature = errors.New("invalid feature update")
	// ErrUnknownBroker: no broker of that id.
	ErrUnknownBroker = errors.New("unknown broker")
	// ErrDeletionDisabled: delete.topic.enable is false.
	ErrDeletionDisabled = errors.New("topic deletion is disabled")
	// ErrNotLeader: this voter does not lead; try another.
	ErrNotLeader = errors.New("controller does not lead")
	// ErrClosed: the controller was closed.
	ErrClosed = errors.New("controller is closed")
	// ErrFailed: the disk failed; nothing is accepted any more.
	ErrFailed = errors.New("controller failed")
	// ErrCorrupt: the metadata on disk is damaged. Open answers it.
	ErrCorrupt = errors.New("corrupt metadata")
	// ErrClusterID: the folder belongs to another cluster or node than asked for.
	ErrClusterID = errors.New("metadata of another cluster or node")
)

// Env is what a Controller needs of its surroundings. FS, Dir and Configs are required.
type Env struct {
	FS vfs.FS
	// Dir holds the log and the snapshot; it is made where there is none. The caller makes sure that one process uses it.
	Dir string
	// NodeID is this node; 0 and up.
	NodeID int32
	// ClusterID is the cluster's id, or empty: a new cluster draws one, an old one keeps its own.
	ClusterID string
	// Configs validates and resolves configs.
	Configs *config.Resolver
	// Log gets rare events; nil is silent.
	Log *slog.Logger
	// Clock is time.Now where nil.
	Clock func() time.Time
	// NewID draws topic ids; kafka.NewUUID where nil.
	NewID func() kafka.UUID
	// OnFailed is called once, from the controller's goroutine, when the disk failed. It must not call Close.
	OnFailed func(error)
	// Transport carries messages to other voters; nil while this node is the only one.
	Transport Transport
	// SnapshotBytes is how much the log grows before a snapshot replaces it, and never less than the snapshot before; 0 is
	// 4 MiB.
	SnapshotBytes int64
	// Complete: nothing that was written before the last stop can be missing on disk. A log then ends with a whole frame, or
	// with the beginning of one; other bytes are damage.
	Complete bool
	// MustExist: there are records of this cluster, so missing metadata is lost and not new. Open answers ErrCorrupt.
	MustExist bool
}

// NewTopic asks for a topic.
type NewTopic struct {
	Name string
	// ID is drawn where it is zero.
	ID kafka.UUID
	// Partitions is the number of partitions; -1 takes num.partitions, or the number of assignments.
	Partitions int32
	// ReplicationFactor is -1 for default.replication.factor, or where Assignments are given.
	ReplicationFactor int16
	// Assignments are the replicas of each partition, the preferred leader first. Empty: the controller chooses.
	Assignments [][]int32
	Configs     map[string]string
	// Invalid is what is wrong with the topic in the form in which it was asked for. It is told where the name is free.
	Invalid error
	// Internal lets a topic's replication factor shrink to the number of brokers there are, as internal topics need.
	Internal bool
}

// TopicRef names a topic by id where that is set, else by name.
type TopicRef struct {
	Name string
	ID   kafka.UUID
}

// TopicResult is the outcome for one topic of a call; results stand in the order of the call.
type TopicResult struct {
	Name string
	ID   kafka.UUID
	// Topic is the topic as the call left it (as it was, for a deletion), nil with Err.
	Topic *Topic
	Err   error
}

// NewPartitions asks for more partitions of a topic.
type NewPartitions struct {
	Name string
	// Count is the new total.
	Count int32
	// Assignments are the replicas of each added partition; empty: the controller chooses.
	Assignments [][]int32
}

// ResourceType is the kind of thing that has configs.
type ResourceType int8

// The kinds, with Kafka's numbers.
const (
	ResourceTopic  ResourceType = 2
	ResourceBroker ResourceType = 4
	ResourceGroup  ResourceType = 32
)

// ConfigChange changes one config.
type ConfigChange struct {
	Op    config.Change
	Key   string
	Value string // not used by config.Delete
}

// ConfigAlteration changes the configs of one resource.
type ConfigAlteration struct {
	Type ResourceType
	// Name is a topic, or a node id in decimal; an empty broker name means the cluster-wide defaults.
	Name string
	// Changes are applied in order on what is set, or on nothing where Replace is set.
	Changes []ConfigChange
	Replace bool
}

// Registration is what a broker tells of itself when it starts.
type Registration struct {
	ID int32
	// Incarnation is drawn by the broker at each start of its process.
	Incarnation kafka.UUID
	Rack        string
	Listeners   []Listener
}

// ManifestUpdate is the number of a tiering manifest that was written.
type ManifestUpdate struct {
	TopicID   kafka.UUID
	Partition int32
	Manifest  int64
}

// MaxPartitionsPerCall bounds the partitions that one call makes.
const MaxPartitionsPerCall = 100_000

// ProducerIDBlockSize is Kafka's number of producer ids in a block.
const ProducerIDBlockSize = 1000

// API is the whole of what a Controller does, for the doc; users declare the few methods they need.
var _ interface {
	Image() *Image
	Subscribe(f func(old, new *Image)) (cancel func())
	CreateTopics(ctx context.Context, topics []NewTopic, validateOnly bool) ([]TopicResult, error)
	DeleteTopics(ctx context.Context, topics []TopicRef) ([]TopicResult, error)
	CreatePartitions(ctx context.Context, parts []NewPartitions, validateOnly bool) ([]TopicResult, error)
	AlterConfigs(ctx context.Context, alterations []ConfigAlteration, validateOnly bool) ([]error, error)
	AllocateProducerIDs(ctx context.Context, n int64) (first int64, err error)
	RegisterBroker(ctx context.Context, r Registration) (epoch int64, err error)
	SetManifests(ctx context.Context, updates []ManifestUpdate) error
	BucketDeleted(ctx context.Context, ids []kafka.UUID) error
	SetFeatures(ctx context.Context, levels map[string]int16) error
	UpdateFeatures(ctx context.Context, updates []FeatureUpdate, validateOnly bool) error
	AlterQuotas(ctx context.Context, alterations []QuotaAlteration, validateOnly bool) ([]error, error)
	Quorum() Quorum
	Close() error
} = (*Controller)(nil)
