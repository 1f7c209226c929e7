package tiering

import (
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tiering/manifest"
)

// Env is what a Store needs from its surroundings.
type Env struct {
	Bucket    objstore.Bucket // wrapped in the decorators wanted; the Store does not close it
	ClusterID string
	BrokerID  int32
	// Incarnation ranks this cluster's life on the bucket. Zero takes what the catalog says.
	Incarnation int64
	// TakeOver makes Open raise the incarnation and take a bucket that another cluster owned.
	TakeOver bool
	// ReadOnly opens an existing bucket without writing anything to it.
	ReadOnly bool
	// MustExist: the cluster has segments in its bucket, so that one without anything of Varve's is another: ErrOtherBucket.
	MustExist bool
	// SingleWriter accepts a store that ignores conditional writes; fencing then rests on the controller alone.
	SingleWriter bool
	Config       Config
	Clock        func() time.Time      // nil: time.Now
	Log          *slog.Logger          // nil: discard
	Metrics      prometheus.Registerer // nil: none
}

// PartitionID names a partition for its whole life.
type PartitionID struct {
	Topic     string
	TopicID   kafka.UUID
	Partition int32
}

// Segment is a sealed local segment to copy. The readers and slices stay the caller's and must not change during Copy.
type Segment struct {
	BaseOffset, LastOffset int64 // LastOffset is inclusive
	LeaderEpoch            int32 // of the writer
	Log                    io.ReaderAt
	LogBytes               int64
	OffsetIndex, TimeIndex []byte // Kafka's bytes; may be empty
	TxnIndex               []byte
	ProducerSnapshot       []byte              // state at the segment's end; may be empty
	Epochs                 []record.EpochEntry // lineage up to the segment's end, oldest first
	Records                int64
	FirstTimestamp         int64
	MaxTimestamp           int64
}

// SegmentInfo describes one remote segment.
type SegmentInfo = manifest.Segment

// TimestampOffset is an answer of a timestamp lookup.
type TimestampOffset struct {
	Offset, Timestamp int64
	LeaderEpoch       int32
}
