package api

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varvehq/varve/broker/commitlog"
	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tiering"
)

// DataEnv is what the handlers of records need.
type DataEnv interface {
	// Partition finds a partition by name: partition.ErrUnknown where there is none.
	Partition(topic string, index int32) (*partition.Partition, error)
	// PartitionByID finds a partition by topic id: partition.ErrUnknownID where no topic has it.
	PartitionByID(id kafka.UUID, index int32) (*partition.Partition, error)
	// AllocateProducerID draws a producer id that nobody was given before.
	AllocateProducerID(ctx context.Context) (int64, error)
	// Endpoint is the address of a broker for clients of a listener.
	Endpoint(node int32, listener string) (host string, port int32, ok bool)
}

// Errors of requests for records that no partition has seen.
var (
	errRequiredAcks     = errors.New("acks must be 0, 1 or -1")
	errInternalTopic    = errors.New("clients may not write to an internal topic")
	errNoKey            = errors.New("records without a key in a compacted topic")
	errOneBatch         = errors.New("a partition's records must be exactly one record batch")
	errMagic            = errors.New("only record batches of magic 2 are accepted")
	errZstd             = errors.New("zstd needs Produce version 7 or later")
	errControlBatch     = errors.New("clients may not write control batches")
	errBaseOffset       = errors.New("a batch that is produced begins at offset 0")
	errNoSequence       = errors.New("a producer's batch needs a sequence number")
	errSeveralProducers = errors.New("transactional records contained more than one producer id")
	errProducerID       = errors.New("a transactional batch needs the request to have a transactional id, and a producer id")
)

// dataErrors maps the errors of partitions and logs.
var dataErrors = []errorCode{
	{errRequiredAcks, kerr.InvalidRequiredAcks},
	{errInternalTopic, kerr.InvalidTopicException},
	{errOneBatch, kerr.InvalidRecord},
	{errNoKey, kerr.InvalidRecord},
	{errOnlyCompacted, kerr.PolicyViolation},
	{errMagic, kerr.InvalidRecord},
	{errControlBatch, kerr.InvalidRecord},
	{errZstd, kerr.UnsupportedCompressionType},
	{errBaseOffset, kerr.InvalidRecord},
	{errNoSequence, kerr.InvalidRecord},
	{errSeveralProducers, kerr.InvalidProducerIDMapping},
	{errProducerID, kerr.TransactionalIDAuthorizationFailed},
	{commitlog.ErrInvalidRecord, kerr.InvalidRecord},
	{commitlog.ErrInvalidTimestamp, kerr.InvalidTimestamp},
	{commitlog.ErrTooLarge, kerr.MessageTooLarge},
	{commitlog.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber},
	{commitlog.ErrInvalidProducerEpoch, kerr.InvalidProducerEpoch},
	{commitlog.ErrInvalidTxnState, kerr.InvalidTxnState},
	{commitlog.ErrCoordinatorFenced, kerr.TransactionCoordinatorFenced},
	{commitlog.ErrStaleEpoch, kerr.NotLeaderForPartition},
	{partition.ErrUnknown, kerr.UnknownTopicOrPartition},
	{partition.ErrUnknownID, kerr.UnknownTopicID},
	{partition.ErrNotLeader, kerr.NotLeaderForPartition},
	{partition.ErrFencedEpoch, kerr.FencedLeaderEpoch},
	{partition.ErrUnknownEpoch, kerr.UnknownLeaderEpoch},
	{partition.ErrOffsetOutOfRange, kerr.OffsetOutOfRange},
	{partition.ErrNotEnoughReplicas, kerr.NotEnoughReplicas},
	{partition.ErrClosed, kerr.NotLeaderForPartition},
	{partition.ErrStorage, kerr.KafkaStorageError},
	{partition.ErrRemoteUnavailable, kerr.KafkaStorageError},
	{tiering.ErrOffsetOutOfRange, kerr.OffsetOutOfRange},
	{tiering.ErrCorrupt, kerr.KafkaStorageError},
	{tiering.ErrGap, kerr.KafkaStorageError},
	{commitlog.ErrOffsetOutOfRange, kerr.OffsetOutOfRange},
	{commitlog.ErrFailed, kerr.KafkaStorageError},
	{commitlog.ErrClosed, kerr.NotLeaderForPartition},
	{record.ErrCorrupt, kerr.CorruptMessage}, // also commitlog.ErrCorrupt
}

// dataAPIs lists the keys of records: Produce, Fetch, ListOffsets, InitProducerId, OffsetForLeaderEpoch, and ApiVersions.
func (h *Handlers) dataAPIs() []Entry {
	return []Entry{
		{Key: 0, Name: "Produce", Min: 0, Accept: 3, Max: 13, FrameLimit: MaxFrameLimit, ReusesFrame: true, Begin: h.produce,
			CheckFrame: checkProduceFrame,
			Note:       "Told from version 0, as Kafka does, since librdkafka looks for it; versions below 3 are refused"},
		{Key: 1, Name: "Fetch", Min: 4, Max: 18, ReusesFrame: true, Begin: h.fetch},
		{Key: 2, Name: "ListOffsets", Min: 1, Max: 11, ReusesFrame: true, Begin: h.listOffsets},
		{Key: 18, Name: "ApiVersions", Min: 0, Max: 5, Handle: h.apiVersions, FrameLimit: PreAuthFrameLimit},
		{Key: 21, Name: "DeleteRecords", Min: 0, Max: 2, Handle: h.deleteRecords},
		{Key: 22, Name: "InitProducerId", Min: 0, Max: 5, Handle: h.initProducerID},
		{Key: 23, Name: "OffsetForLeaderEpoch", Min: 2, Max: 4, ReusesFrame: true, Handle: h.offsetForLeaderEpoch},
	}
}

// partitionFor finds a partition by id for versions from ids on, by name for older ones.
func (h *Handlers) partitionFor(version, ids int16, topic string, id kafka.UUID, index int32) (*partition.Partition, error) {
	if version >= ids {
		return h.Data.PartitionByID(id, index)
	}
	return h.Data.Partition(topic, index)
}
