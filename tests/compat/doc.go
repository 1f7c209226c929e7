// Package compat runs other people's clients against the built binary, each as its own program. Build tag compat; make
// compat installs what they need.
package compat
