package serve

import (
	"os"

	"golang.org/x/sys/unix"
)

// dieWithHost has the kernel kill this process when its parent dies. The host sets the same at the start; this covers
// other hosts, and the moment in which the parent died before.
func dieWithHost() {
	parent := os.Getppid()
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	if os.Getppid() != parent {
		os.Exit(0)
	}
}
