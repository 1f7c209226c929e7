// Package chaos kills the real binary under load and checks that what it acknowledged is there, once and in order. Build tag
// chaos; make chaos runs it.
package chaos
