//go:build !linux

package apacheconnect

import "syscall"

func childAttr() *syscall.SysProcAttr { return nil }
