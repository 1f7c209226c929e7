package coordinator

import "context"

// Log is a coordinator's topic as this node has it. Its methods may be called concurrently, those that name a partition
// concurrently for different partitions.
type Log interface {
	// Partitions is the number of the topic's partitions, 0 while there is no such topic.
	Partitions() int32
	// Leads tells whether this node leads the partition, and in which leader epoch.
	Leads(partition int32) (epoch int32, ok bool)
	// Load calls f with every batch of the partition's log in order, up to its end. A batch is valid during the call only.
	// An error of f ends the load and is returned.
	Load(ctx context.Context, partition int32, f func(batch []byte) error) error
	// Append appends one batch, of which it may change the header in place, and returns when it is committed: durable, and
	// on as many replicas as the topic asks for. At most one call runs per partition.
	//
	// The error wraps ErrNotCoordinator where this node does not lead the partition in that epoch any more, ErrNotWritten
	// where the log certainly has nothing of the batch (and ErrRecordTooLarge or ErrProducerFenced where that is why). After
	// any other error the coordinator forgets the partition's state and loads it again.
	Append(ctx context.Context, partition, epoch int32, batch []byte) error
}
