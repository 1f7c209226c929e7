// Package worker runs connectors and their tasks. It owns the herder (one goroutine that brings what runs in line with
// what the config topic says) and the two task loops: sources into topics, topics into sinks.
//
// It promises: at most one live instance of a task, and never a new one before the old one has let go; a source hears Ack
// only after its records and its offsets are durable, in order and never backwards; a sink's offsets are committed only as
// far as its Flush says; a record that cannot be handled stops the task with the reason, unless errors.tolerance says
// otherwise, and then it is counted, logged or put on the dead letter queue as configured; buffers are bounded in bytes.
// It never restarts a failed task by itself and knows nothing of any particular connector.
package worker
