// Package archtest checks the structure of the tree: which room may import which, that every package says what it owns,
// and how large the rooms have grown. It holds tests only.
package archtest
