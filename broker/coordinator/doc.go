// Package coordinator runs the state machines whose state is a topic: one machine per partition of that topic which this node
// leads. The group and the transaction coordinator are two kinds of it.
//
// It owns the life of the machines: it loads them from the log when the node comes to lead their partition, serves while it
// leads, and gives them up after. It gathers the writes of a machine into batches while the batch before is being made
// durable, and tells the machine what became of each. It promises:
//
//   - A machine hears that a write is durable, or that nothing of it is in the log. Where that is not certain, the state is
//     forgotten and read again from the log.
//   - Every request that was taken is answered once, also when the partition goes to another node or the process ends.
//   - One timer serves all machines; there is no goroutine per key.
//
// It never knows what the records mean, and never touches sockets, files or Kafka error codes: the log is reached by Log.
package coordinator
