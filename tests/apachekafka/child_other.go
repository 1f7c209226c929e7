//go:build !linux

package apachekafka

import "syscall"

func childAttr() *syscall.SysProcAttr { return nil }
