// Package outside holds the tests of a connector in a Go module of its own, outside of this repository: it passes the
// acceptance suite, and when it misbehaves under the real worker only its own task fails, with a reason, and restarts.
package outside
