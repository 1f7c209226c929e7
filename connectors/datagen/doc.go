// Package datagen is the source connector that makes records up, for trying things out and for load. Record n of a task
// depends on the seed, the task and n alone, so a restarted task goes on exactly where it was, and two runs agree. It
// reads nothing and keeps nothing.
package datagen
