package host

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/varvehq/varve/sdk"
)

func TestSinkThatHangs(t *testing.T) {
	p := start(t, testOptions(t, "sink"))
	ctx := bounded(t)
	task, err := p.OpenSink(ctx, sdk.SinkEnv{Env: sdk.Env{Config: sdk.Config{"mode": "hangs"}}})
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := task.Write(short, []sdk.Record{{Topic: "a"}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Write: %v", err)
	}
	if _, err := task.Flush(ctx); !errors.Is(err, ErrHung) {
		t.Errorf("Flush after a hung Write: %v", err)
	}
	// The sink heeds its context, so closing gets through and costs no process.
	if err := task.Close(ctx); err != nil {
		t.Error(err)
	}
	select {
	case <-p.Done():
		t.Error("the process was killed")
	default:
	}
}

func TestKilledPlugin(t *testing.T) {
	p := start(t, testOptions(t, "source"))
	other := start(t, testOptions(t, "source"))
	ctx := bounded(t)
	task, err := p.OpenSource(ctx, env(sdk.Config{"count": "10"}))
	if err != nil {
		t.Fatal(err)
	}
	bystander, err := other.OpenSource(ctx, env(sdk.Config{"count": "10"}))
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, task, 0, 10)
	if err := syscall.Kill(int(p.(*remote).child.pid.Load()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := task.Read(ctx); !errors.Is(err, ErrDied) || !strings.Contains(err.Error(), "killed") {
		t.Errorf("Read: %v", err)
	}
	if err := task.Ack(ctx, at(1)); !errors.Is(err, ErrDied) {
		t.Errorf("Ack: %v", err)
	}
	if _, err := p.Spec(ctx); !errors.Is(err, ErrDied) {
		t.Errorf("Spec: %v", err)
	}
	if err := task.Close(ctx); err != nil {
		t.Error(err)
	}
	readAll(t, bystander, 0, 10)
	if err := bystander.Close(ctx); err != nil {
		t.Error(err)
	}
}

func TestPluginThatExits(t *testing.T) {
	p := start(t, testOptions(t, "source"))
	ctx := bounded(t)
	task, err := p.OpenSource(ctx, env(sdk.Config{"count": "10", "mode": "exits"}))
	if err == nil { // the first Read runs ahead, and may end it before Open's answer is out
		_, err = task.Read(ctx)
		defer func() { _ = task.Close(ctx) }()
	}
	if !errors.Is(err, ErrDied) || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "out of luck") {
		t.Errorf("Read: %v", err)
	}
}

func TestStoppedPluginIsKilled(t *testing.T) {
	opts := testOptions(t, "source")
	opts.PingInterval, opts.PingTimeout = 100*time.Millisecond, 3*time.Second
	p := start(t, opts)
	ctx := bounded(t)
	task, err := p.OpenSource(ctx, env(sdk.Config{"count": "10"}))
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, task, 0, 10)
	if err := syscall.Kill(int(p.(*remote).child.pid.Load()), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := task.Read(ctx); !errors.Is(err, ErrHung) || !errors.Is(err, ErrDied) {
		t.Errorf("Read: %v", err)
	}
}

func TestTaskThatDoesNotStop(t *testing.T) {
	for _, mode := range []string{"ignores-context", "close-hangs"} {
		t.Run(mode, func(t *testing.T) {
			p := start(t, testOptions(t, "source"))
			ctx := bounded(t)
			task, err := p.OpenSource(ctx, env(sdk.Config{"count": "10", "mode": mode}))
			if err != nil {
				t.Fatal(err)
			}
			sibling, err := p.OpenSource(ctx, sdk.SourceEnv{Env: sdk.Env{Task: 2, Config: sdk.Config{"count": "0"}}})
			if err != nil {
				t.Fatal(err)
			}
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			if err := task.Close(short); !errors.Is(err, ErrHung) {
				t.Errorf("Close: %v", err)
			}
			if _, err := sibling.Read(ctx); !errors.Is(err, ErrDied) || !strings.Contains(err.Error(), "task 1 did not stop") {
				t.Errorf("Read of the sibling: %v", err)
			}
		})
	}
}

func TestOpenThatHangs(t *testing.T) {
	p := start(t, testOptions(t, "source"))
	short, cancel := context.WithTimeout(bounded(t), 100*time.Millisecond)
	defer cancel()
	if _, err := p.OpenSource(short, env(sdk.Config{"count": "10", "mode": "open-hangs"})); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Open: %v", err)
	}
	<-p.Done()
}

func TestBrokenRules(t *testing.T) {
	for mode, want := range map[string]string{
		"oversized":          "larger than max",
		"slightly-oversized": "a frame of 1048577 bytes",
		"endless":            "longer than max.record.bytes",
		"no-credit":          "records without credit",
		"garbage":            "malformed block",
		"leaves":             "ended the task's stream",
	} {
		t.Run(mode, func(t *testing.T) {
			opts := testOptions(t, "raw")
			opts.Credit = 60 << 20
			if mode == "no-credit" {
				opts.Credit = 2 << 20
			}
			p := start(t, opts)
			ctx := bounded(t)
			task, err := p.OpenSource(ctx, env(sdk.Config{"mode": mode}))
			if err != nil {
				t.Fatal(err)
			}
			if mode == "no-credit" { // nobody reads
				<-task.(*remoteSource).failed
			}
			for err == nil {
				_, err = task.Read(ctx)
			}
			if !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), want) {
				t.Errorf("Read: %v", err)
			}
			if err := task.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLateMessagesAreDropped(t *testing.T) {
	p := start(t, testOptions(t, "raw"))
	ctx := bounded(t)
	task, err := p.OpenSource(ctx, env(sdk.Config{"mode": "late"}))
	if err != nil {
		t.Fatal(err)
	}
	recs, err := task.Read(ctx)
	if err != nil || len(recs) != 1 || string(recs[0].Value.Data) != "new" {
		t.Errorf("Read: %v %v", recs, err)
	}
	if err := task.Close(ctx); err != nil {
		t.Error(err)
	}
}

func TestHandshake(t *testing.T) {
	for name, want := range map[string]string{
		"prints":  "print nothing to standard output before the handshake",
		"exits":   "no licence key",
		"version": "incompatible API version",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Launch(bounded(t), testOptions(t, name))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Launch: %v", err)
			}
		})
	}
	opts := testOptions(t, "source")
	opts.Path = "/nonexistent"
	if _, err := Launch(bounded(t), opts); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Launch: %v", err)
	}
	opts = testOptions(t, "source")
	opts.Checksum = make([]byte, 32)
	if _, err := Launch(bounded(t), opts); err == nil || !strings.Contains(err.Error(), "has changed") {
		t.Errorf("Launch: %v", err)
	}
}

// beHost is the part of a host in a process of its own, to be killed: it starts a plugin, prints its process id and waits.
func beHost() {
	exe, _ := os.Executable()
	p, err := Launch(context.Background(), Options{Path: exe, Args: []string{"source"}})
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString(p.(*remote).child.ID() + "\n")
	select {}
}

func TestPluginEndsWithItsHost(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "VARVE_TEST_HOST=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 32)
	n, err := out.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		t.Fatal(err)
	}
	handle, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for handle.Signal(syscall.Signal(0)) == nil && alive(pid) {
			time.Sleep(time.Millisecond) // a process that is not our child can only be polled
		}
	}()
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Errorf("plugin %d outlives its host", pid)
		_ = handle.Kill()
	}
}

func TestFoldersOfKilledHostsAreSwept(t *testing.T) {
	base := t.TempDir()
	for _, name := range []string{"dead", "unlocked", "mine"} {
		if err := os.MkdirAll(filepath.Join(base, socketDirPrefix+name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	held := map[string]*os.File{}
	for _, name := range []string{"dead", "mine"} {
		f, err := os.Create(filepath.Join(base, socketDirPrefix+name, socketDirLock))
		if err != nil {
			t.Fatal(err)
		}
		held[name] = f
	}
	if err := errors.Join(held["dead"].Close(), lockFile(held["mine"])); err != nil {
		t.Fatal(err)
	}
	sweepSocketDirs(base)
	left, err := filepath.Glob(filepath.Join(base, "*"))
	want := []string{filepath.Join(base, socketDirPrefix+"mine"), filepath.Join(base, socketDirPrefix+"unlocked")}
	if diff := cmp.Diff(want, left); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if err := held["mine"].Close(); err != nil {
		t.Error(err)
	}
}

// alive is false for a zombie, which a container without init may never reap.
func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}
