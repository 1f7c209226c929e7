// Package harness runs Varve for tests: in process (Start), or as the real binary (StartProcess), which can be killed and
// started again on its data. It listens on loopback only and ends with its test.
package harness
