// Package broker is one Varve broker: the listeners and the connection loop, and the wiring of the rooms below it (commit
// log, partitions, tiering, controller, group coordinator, API handlers).
//
// It owns the sockets and the order of start and stop. It promises that responses of a connection come in the order of its
// requests, that a connection costs at most two goroutines and bounded memory whatever its peer sends, and that Close leaves
// a clean data directory. It decides nothing of what a request means: that is package api.
package broker
