//go:build !linux

package s3server

import "syscall"

func childAttr() *syscall.SysProcAttr { return nil }
