// Package tools runs the same calls of Apache Kafka's command line tools against Apache Kafka and against Varve and compares
// what they print and how they end, up to ids, sizes, clocks and paths. What may differ is listed in differences_test.go with
// its reason: another difference fails the test, and so does a listed one that is gone. Build tag differential; make
// differential runs it.
package tools
