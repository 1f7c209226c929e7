// Package badinput shows what a person sees where something is wrong: bad bytes, bad files, a bucket or a database that cannot
// be used, told by the built binary's exit, log, metrics, REST answers and commands.
package badinput
