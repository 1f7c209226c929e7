package apacheconnect

import "syscall"

// childAttr makes the worker end with the process that started it.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
