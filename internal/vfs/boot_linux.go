package vfs

import (
	"os"
	"strings"
)

// BootID names the present run of the operating system: it is another one after a power loss or a reboot. "" where it cannot be
// told.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
