package s3server

import "syscall"

// childAttr makes the server end with the process that started it.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
