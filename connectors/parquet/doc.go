// Package parquet is the sink connector that turns topics into Parquet files in an S3-compatible bucket or a folder.
//
// One file is open per topic partition. A file's name is its topic, its partition and the offset it starts at; it is put
// only where that name is free, and the next file starts behind its last offset. So the files of a partition form a chain
// that a restarted or a second task can only continue: every offset is in exactly one file, whatever the group committed.
//
// Values with a struct schema become typed columns; change events (Debezium's envelope) become the row's columns with the
// operation and the source position beside it. Values without a schema become a column of bytes or JSON: types are never
// guessed. The package never speaks to a broker.
package parquet
