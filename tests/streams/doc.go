// Package streams runs Kafka Streams' own smoke test, with exactly_once_v2, against the real binary while the binary is
// killed by SIGKILL and started again. Build tag streams; make streams runs it.
package streams
