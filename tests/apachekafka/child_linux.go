package apachekafka

import "syscall"

// childAttr makes the broker end with the process that started it.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
