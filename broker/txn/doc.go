// Package txn is the transaction coordinator: it decides, for every transactional id, which producer id and epoch it has,
// which partitions are in its transaction, and how the transaction ends.
//
// Coordinator is the state machine of one partition of __transaction_state. It is pure: Step takes an event and a time and
// returns effects (replies, records to write, markers to write). Manager runs the coordinators of the partitions that this
// node leads with broker/coordinator, and has the markers written.
//
// Promises: a change is answered only once its record is committed. A transaction whose end is decided (PrepareCommit or
// PrepareAbort is in the log) ends so, after any number of restarts. Markers are written only once no append that was let
// through for the transaction is under way, so that no record comes behind the marker of its own transaction (KIP-890); in
// transactions of version 2 the marker also bumps the epoch. A transaction older than its timeout is aborted and its producer
// fenced.
//
// It never writes to a data partition itself (see Markers), and knows no Kafka error codes.
//
// Records have Kafka's schemas TransactionLogKey and TransactionLogValue (kmsg TxnMetadataKey, TxnMetadataValue): the flexible
// version 1 of the value is written, as Kafka does with transaction.version 2, and 0 and 1 are read.
package txn
