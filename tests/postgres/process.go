package postgres

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// process is the server's main process. A thread of its own starts it and waits for it, since the signal that the kernel
// sends when a parent dies goes by the parent's thread.
type process struct {
	pid  int
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	setServerUser(cmd)
	endWithParent(cmd)
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

func (p *process) signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

func (p *process) killAll() { p.signalAll(syscall.SIGKILL) }

// signalAll reaches the main process first, so that it starts no others, and then its backends.
func (p *process) signalAll(s syscall.Signal) {
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.pid, p.pid))
	_ = p.signal(s)
	for _, f := range strings.Fields(string(children)) {
		if pid, err := strconv.Atoi(f); err == nil {
			_ = syscall.Kill(pid, s)
		}
	}
}

func setServerUser(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = serverUser()
	cmd.SysProcAttr.Setpgid = true
}
