package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of CPU times in /proc, on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// process is a server under measurement, with all its children.
type process struct {
	name    string
	cmd     *exec.Cmd
	log     string
	done    chan struct{}
	started time.Time
}

// startProcess starts a program whose output goes to the file log.
func startProcess(name, log string, env []string, argv ...string) (*process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the program has its own descriptor
	p := &process{name: name, log: log, done: make(chan struct{}), cmd: exec.Command(argv[0], argv[1:]...)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = f, f
	p.started = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// stop ends the program in order, or by force after half a minute. A nil process may be stopped, and a process twice.
func (p *process) stop() error {
	if p == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(30 * time.Second):
		err := p.cmd.Process.Kill()
		<-p.done
		return errors.Join(fmt.Errorf("%s did not end when asked", p.name), err)
	}
}

// await repeats f until it succeeds, the program ends or the time is up.
func (p *process) await(ctx context.Context, limit, every time.Duration, what string, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended while waiting for %s\n%s", p.name, what, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s: %s did not come: %w\n%s", p.name, what, err, p.tail())
		case <-time.After(every):
		}
	}
}

// tail is the end of the program's output.
func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-3000):])
}

// tree lists the program and all its descendants.
func (p *process) tree() []int { return treeOf(p.cmd.Process.Pid) }

func treeOf(pid int) []int {
	all := []int{pid}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return all
	}
	for _, t := range tasks { // a child belongs to the thread that started it
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		if err != nil {
			continue
		}
		for _, c := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(c); err == nil {
				all = append(all, treeOf(child)...)
			}
		}
	}
	return all
}

// cpu is the processor time of the tree so far, with that of children which have ended.
func (p *process) cpu() time.Duration {
	sum := int64(0)
	for _, pid := range p.tree() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended, and its parent has its time
		}
		sum += ticksOf(string(b))
	}
	return time.Duration(sum) * tick
}

// ticksOf sums utime, stime, cutime and cstime of a line of /proc/PID/stat.
func ticksOf(stat string) (sum int64) {
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(f) < 15 {
		return 0
	}
	for _, v := range f[11:15] {
		n, _ := strconv.ParseInt(v, 10, 64) // the kernel writes numbers
		sum += n
	}
	return sum
}

// memory is what the tree has in memory, and the sum of its members' peaks, in MB. Pages that members share count in each.
func (p *process) memory() (now, peak float64) {
	for _, pid := range p.tree() {
		now += kilobytes(pid, "VmRSS") / 1000
		peak += kilobytes(pid, "VmHWM") / 1000
	}
	return now, peak
}

// resetPeak makes the peak begin anew.
func (p *process) resetPeak() error {
	for _, pid := range p.tree() {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func kilobytes(pid int, field string) float64 {
	kb, _ := strconv.ParseFloat(strings.TrimSuffix(fieldOf(fmt.Sprintf("/proc/%d/status", pid), field), " kB"), 64)
	return kb * 1.024
}

// freeAddress is a loopback address that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
