// Package chaos kills the real binary and checks what it has promised: under load, that what it acknowledged is there, once
// and in order (kill_test.go); in the demo's main job, at named moments and with the store down for a while, that the
// proofs of the demo hold (mainjob_test.go). The moments are seen from outside, by proxies in front of the S3 server and
// of PostgreSQL (gate_test.go); the product knows nothing of them. Build tag chaos; make chaos runs it.
package chaos
