// Package postgrescdc is the postgres-cdc source connector: it captures the changes of PostgreSQL tables through logical
// replication (pgoutput) and emits Debezium's change events, under Debezium's config names, topic names and offsets.
//
// It owns its replication slot and, where it may, its publication. It promises: a snapshot that is consistent with the
// start of the stream, so that no change is missed or repeated between them; the order of commits; a position of (commit
// LSN, event within the transaction), so that a restart goes on exactly behind the last record whose offset was stored;
// that the slot is confirmed only up to the end of transactions whose records and offsets are durable. Snapshot and stream
// decode every type by the same code.
//
// It never skips a change because it could not read it: what it cannot decode or find ends the task with a message.
//
// The parts: config.go and connector.go (configuration), catalog.go (what the database says about tables and types),
// column.go and text.go (PostgreSQL's text form of a value to the encoded form), table.go and event.go (schemas and
// records), wire.go and pgoutput.go (protocol), offset.go (positions), slot.go (slot and publication), snapshot.go, catchup.go
// (what an older slot holds from before a snapshot), stream.go, task.go (the Source).
package postgrescdc
