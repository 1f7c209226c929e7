// Package connect compares Varve's Connect worker with Apache Kafka Connect: its REST interface call by call
// (testdata/calls.txt), and postgres-cdc with Debezium record by record (testdata/types.sql). Varve's worker runs against
// Apache Kafka there, and Debezium against Varve's broker. What differs is listed with its reason in testdata/*.differences:
// a difference that is not listed fails the test, and so does one that is listed and does not occur.
//
// It needs what tests/tools/connect.sh installs, and runs by `make differential-connect`.
package connect
