//go:build chaos

package chaos

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// marker is an environment variable that the server under test and, since it is named in its configuration, all its plugins
// have: so each can be found, also one that no longer has a parent.
const marker = "VARVE_CHAOS_RUN"

// marked lists the processes with the marker's value, but for those given.
func marked(t *testing.T, value string, but ...int) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("there is no /proc: plugin processes cannot be found here")
	}
	for _, f := range files {
		env, err := os.ReadFile(f) // it may have ended, or be another user's
		if err != nil || !slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool { return string(v) == marker+"="+value }) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			t.Fatal(err)
		}
		if pid != os.Getpid() && !slices.Contains(but, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// pluginGrace bounds how long a plugin may be seen after its server is gone: the kernel ends it on its own time.
const pluginGrace = 5 * time.Second

// wantGone fails the test where a process with the marker outlives its server, which has ended. It returns how long the last
// one was seen.
func wantGone(t *testing.T, value string) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		left := marked(t, value)
		took := time.Since(began)
		if len(left) == 0 {
			return took
		}
		if took > pluginGrace {
			t.Fatalf("processes outlive their server by %s: %s", pluginGrace, describe(left))
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func describe(pids []int) string {
	out := ""
	for _, pid := range pids {
		cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		out += fmt.Sprintf("%d (%s) ", pid, bytes.ReplaceAll(cmd, []byte{0}, []byte{' '}))
	}
	return out
}

// TestPluginsAreFound: a process that has the marker is found although it is no child of the server.
func TestPluginsAreFound(t *testing.T) {
	value := fmt.Sprintf("test-%d", os.Getpid())
	cmd := exec.Command("sleep", "60")
	cmd.Env = append(os.Environ(), marker+"="+value)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); len(marked(t, value)) == 0; { // between fork and exec it still has our environment
		if time.Since(began) > pluginGrace {
			t.Fatal("it is not found")
		}
	}
	if got := marked(t, value, cmd.Process.Pid); len(got) != 0 {
		t.Errorf("left out, but found: %s", describe(got))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	wantGone(t, value)
}
