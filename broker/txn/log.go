package txn

import "context"

// Log is the __transaction_state topic as this node has it. Its methods may be called concurrently, those that name a
// partition concurrently for different partitions.
type Log interface {
	// Partitions is the number of the topic's partitions, 0 while there is no such topic.
	Partitions() int32
	// PartitionFor is the partition of a transactional id among n.
	PartitionFor(id string, n int32) int32
	// Leads tells whether this node leads the partition, and in which leader epoch.
	Leads(partition int32) (epoch int32, ok bool)
	// Load calls f with every batch of the partition's log in order, up to its end. A batch is valid during the call only.
	Load(ctx context.Context, partition int32, f func(batch []byte) error) error
	// Append appends one batch, of which it may change the header in place, and returns when it is committed. At most one
	// call runs per partition.
	//
	// The error wraps ErrNotCoordinator where this node does not lead the partition in that epoch any more, ErrNotWritten
	// where the log certainly has nothing of the batch. After any other error the partition is loaded again.
	Append(ctx context.Context, partition, epoch int32, batch []byte) error
}

// MarkerWriter writes the ends of transactions to their partitions.
type MarkerWriter interface {
	// WriteMarkers writes the marker to every partition that still exists and returns when all are durable. It may be called
	// again for the same transaction.
	WriteMarkers(ctx context.Context, m Markers) error
}
