// Package server is `varve server`: it reads the configuration, composes broker, controller and Connect worker, and runs
// them until it is told to stop. It holds wiring only.
package server
