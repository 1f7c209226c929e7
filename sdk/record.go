package sdk

// AnyPartition lets the worker's partitioner choose, by the key where there is one.
const AnyPartition = -1

// Record is one record on its way between a connector and a topic.
type Record struct {
	// Topic is where the record goes. A source may leave it empty in a record that has nothing but Source and SourceOffset:
	// it goes nowhere and only moves the position, e.g. past changes that the connector leaves out.
	Topic     string
	Partition int32 // AnyPartition from a source that does not choose
	// Timestamp in milliseconds since 1970-01-01 UTC; 0 from a source means "now".
	Timestamp int64
	Key       Value
	Value     Value
	Headers   []Header

	// Source and SourceOffset say where a source record came from, so that the task can go on behind it. Records of
	// one Source are acknowledged in the order in which they were read.
	Source       *SourcePartition
	SourceOffset SourceOffset

	// Offset is the record's offset in its topic partition; sinks only.
	Offset int64
}

// Header is a record header. Its value has a schema, as key and value have.
type Header struct {
	Key   string
	Value Value
}

// SourcePartition names an independently ordered part of what a source reads, as a JSON object of primitives (the key in
// Connect's offset topic): {"server":"shop"}. Make one per partition and share the pointer: the wire announces it once.
type SourcePartition struct {
	JSON []byte
}

// NewSourcePartition returns a partition for a JSON object with its keys in the order given by the caller.
func NewSourcePartition(json string) *SourcePartition { return &SourcePartition{JSON: []byte(json)} }

// SourceOffset is a position within a SourcePartition, as a JSON object of primitives (the value in Connect's offset
// topic): {"lsn":123,"snapshot":true}. nil means: no position of its own.
type SourceOffset []byte

// PartitionOffset is a stored or durable position.
type PartitionOffset struct {
	Source *SourcePartition
	Offset SourceOffset
}

// TopicPartition names a partition of a topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}
