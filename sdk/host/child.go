package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// child is a plugin's process, as go-plugin's runner. It owns the pipes and the one Wait, so that exit status and the end
// of the process are known whatever the pipes do.
type child struct {
	cmd            *exec.Cmd
	stdin          *os.File // kept open as long as the host lives: its end is the plugin's end
	stdout, stderr *os.File
	exited         chan struct{}
	once           sync.Once
	pid            atomic.Int64 // 0 until started
	unwanted       atomic.Bool  // killed before it was started
}

// drainAfterExit bounds how long output is read of a process that is gone: a grandchild may hold the pipes.
const drainAfterExit = time.Second

func newChild(cmd *exec.Cmd) *child { return &child{cmd: cmd, exited: make(chan struct{})} }

// Start starts the process on a thread of its own, which then waits for it: the kernel's parent death signal is tied to
// the thread that forked, and Go ends threads at will.
func (c *child) Start(context.Context) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.spawn()
		if err == nil {
			c.pid.Store(int64(c.cmd.Process.Pid))
		}
		started <- err
		if err != nil {
			close(c.exited)
			return
		}
		if c.unwanted.Load() {
			killGroup(c.cmd)
		}
		awaitExit(c.cmd)
		killGroup(c.cmd) // what it may have left behind
		_ = c.cmd.Wait() // the status is in ProcessState
		end := time.Now().Add(drainAfterExit)
		_ = c.stdout.SetReadDeadline(end)
		_ = c.stderr.SetReadDeadline(end)
		_ = c.stdin.Close()
		close(c.exited)
	}()
	return <-started
}

func (c *child) spawn() error {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	pipe := func() (r, w *os.File, err error) { return os.Pipe() }
	in, stdin, err1 := pipe()
	stdout, out, err2 := pipe()
	stderr, errw, err3 := pipe()
	c.stdin, c.stdout, c.stderr = stdin, stdout, stderr
	theirs = []*os.File{in, out, errw}
	err := errors.Join(err1, err2, err3)
	if err == nil {
		c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = in, out, errw
		ownGroup(c.cmd)
		err = c.cmd.Start()
	}
	if err != nil {
		for _, f := range []*os.File{stdin, stdout, stderr} {
			_ = f.Close()
		}
	}
	return err
}

// hangUp closes the plugin's standard input, on which it exits.
func (c *child) hangUp() { c.once.Do(func() { _ = c.stdin.Close() }) }

func (c *child) Wait(context.Context) error {
	<-c.exited
	if st := c.cmd.ProcessState; st != nil && !st.Success() {
		return errors.New(st.String())
	}
	return nil
}

func (c *child) Kill(context.Context) error {
	c.unwanted.Store(true)
	if c.pid.Load() == 0 {
		return nil
	}
	select {
	case <-c.exited: // its number may be somebody else's by now
	default:
		killGroup(c.cmd)
	}
	<-c.exited
	return nil
}

func (c *child) Stdout() io.ReadCloser { return c.stdout }
func (c *child) Stderr() io.ReadCloser { return c.stderr }
func (c *child) Name() string          { return c.cmd.Path }

func (c *child) ID() string {
	if pid := c.pid.Load(); pid != 0 {
		return strconv.FormatInt(pid, 10)
	}
	return ""
}

func (c *child) Diagnose(context.Context) string {
	return "A plugin must print nothing to standard output before the handshake. Is " + c.cmd.Path + " a Varve connector?"
}

func (c *child) PluginToHost(network, addr string) (string, string, error) { return network, addr, nil }
func (c *child) HostToPlugin(network, addr string) (string, string, error) { return network, addr, nil }

// status says how the process ended; only once it has.
func (c *child) status() string {
	select {
	case <-c.exited:
	default:
		return "it still runs"
	}
	if c.cmd.ProcessState == nil {
		return "it could not be started"
	}
	return c.cmd.ProcessState.String()
}

// stderrTail keeps the end of what a plugin wrote to stderr, and slows a plugin down that writes without measure: its
// writes then wait for the pipe, so that nothing is lost and the host is not kept busy.
type stderrTail struct {
	exited <-chan struct{}
	slowed func(time.Duration)

	mu struct {
		sync.Mutex
		tail   []byte
		budget float64
		last   time.Time
	}
}

const (
	tailBytes = 4 << 10
	logRate   = 512 << 10 // bytes a second
	logBurst  = 2 << 20
	lineCost  = 128 // what a line costs beside its bytes
)

func newStderrTail(exited <-chan struct{}, slowed func(time.Duration)) *stderrTail {
	t := &stderrTail{exited: exited, slowed: slowed}
	t.mu.budget, t.mu.last = logBurst, time.Now()
	return t
}

// Write takes a line, or its end, as go-plugin reads them.
func (t *stderrTail) Write(b []byte) (int, error) {
	t.mu.Lock()
	t.mu.tail = append(t.mu.tail, b...)
	if over := len(t.mu.tail) - tailBytes; over > tailBytes {
		t.mu.tail = append(t.mu.tail[:0], t.mu.tail[over:]...)
	}
	now := time.Now()
	t.mu.budget = min(logBurst, t.mu.budget+now.Sub(t.mu.last).Seconds()*logRate) - float64(len(b)) - lineCost/2
	t.mu.last = now
	debt := -t.mu.budget
	t.mu.Unlock()
	if debt <= 0 {
		return len(b), nil
	}
	wait := time.Duration(debt / logRate * float64(time.Second))
	t.slowed(wait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.exited:
	}
	return len(b), nil
}

// Tail is the last lines, for an error's text.
func (t *stderrTail) Tail() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.mu.tail
	if len(b) > tailBytes {
		b = b[len(b)-tailBytes:]
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			b = b[i+1:]
		}
	}
	var out []string
	for line := range strings.Lines(string(bytes.TrimSpace(b))) {
		out = append(out, readable(strings.TrimSuffix(line, "\n")))
	}
	return strings.Join(out, "\n")
}

// readable makes a line of text of a log line in JSON.
func readable(line string) string {
	var m struct {
		Level   string `json:"@level"`
		Message string `json:"@message"`
		Err     string `json:"err"`
	}
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &m) != nil || m.Message == "" {
		return line
	}
	if m.Err != "" {
		m.Message += ": " + m.Err
	}
	return m.Level + ": " + m.Message
}

// died is the error of everything that was going on in a plugin whose process has ended.
func (c *child) died(tail *stderrTail, why error) error {
	words := ""
	if s := tail.Tail(); s != "" {
		words = "; its last output:\n" + s
	}
	if why != nil {
		return fmt.Errorf("%w: %s, %w%s", ErrDied, c.status(), why, words)
	}
	return fmt.Errorf("%w: %s%s", ErrDied, c.status(), words)
}
