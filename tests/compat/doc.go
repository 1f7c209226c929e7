// Package compat runs other people's clients against the built binary, each as its own program. Build tag compat; make
// compat installs what they need. The folder clients has a driver for each client library, all with one contract
// (clients/golang/contract), in the language of the library and, for Go, in a module of its own.
package compat
