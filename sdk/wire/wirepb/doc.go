// Package wirepb is the generated code of the plugin wire's messages and service. It has no behaviour of its own.
package wirepb

//go:generate sh -c "cd ../gen && go run ."
