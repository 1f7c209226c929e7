package apachekafka

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Tools runs Kafka's command line tools one after the other in one JVM. It is not safe for concurrent use.
type Tools struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Reader
}

// Result is what a tool printed and how it ended: its exit code, or "timeout".
type Result struct {
	Exit     string
	Out, Err string
}

// StartTools starts the JVM.
func StartTools(ctx context.Context) (*Tools, error) {
	script, err := Script()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, script, "runner")
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, childAttr()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Tools{cmd: cmd, stdin: stdin, lines: bufio.NewReader(stdout)}, nil
}

// ToolsForTest starts a JVM that ends with the test.
func ToolsForTest(t testing.TB) *Tools {
	t.Helper()
	tools, err := StartTools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tools.Close() }) // killed by the end of the test's context
	return tools
}

// Run runs a tool by its main class.
func (t *Tools) Run(limit time.Duration, stdin, class string, args ...string) (Result, error) {
	var call bytes.Buffer
	for i, field := range append([]string{strconv.FormatInt(limit.Milliseconds(), 10), stdin, class}, args...) {
		if i > 0 {
			call.WriteByte(' ')
		}
		call.WriteString(base64.StdEncoding.EncodeToString([]byte(field)))
	}
	call.WriteByte('\n')
	if _, err := t.stdin.Write(call.Bytes()); err != nil {
		return Result{}, fmt.Errorf("apachekafka: the tools' JVM has ended: %w", err)
	}
	line, err := t.lines.ReadString('\n')
	if err != nil {
		return Result{}, fmt.Errorf("apachekafka: the tools' JVM has ended: %w", err)
	}
	fields := strings.Split(strings.TrimSuffix(line, "\n"), " ")
	var parts [3]string
	for i := range parts {
		b, err := base64.StdEncoding.DecodeString(fields[min(i, len(fields)-1)])
		if err != nil || len(fields) != len(parts) {
			return Result{}, fmt.Errorf("apachekafka: the tools' JVM answers %q", line)
		}
		parts[i] = string(b)
	}
	return Result{Exit: parts[0], Out: parts[1], Err: parts[2]}, nil
}

// Close ends the JVM.
func (t *Tools) Close() error {
	if err := t.stdin.Close(); err != nil {
		return err
	}
	return t.cmd.Wait()
}

// RunTool runs a tool in a JVM of its own.
func RunTool(ctx context.Context, stdin, class string, args ...string) (Result, error) {
	script, err := Script()
	if err != nil {
		return Result{}, err
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, script, append([]string{"tool", class}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = strings.NewReader(stdin), &out, &errs, childAttr()
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Result{}, err
	}
	return Result{Exit: strconv.Itoa(cmd.ProcessState.ExitCode()), Out: out.String(), Err: errs.String()}, nil
}
