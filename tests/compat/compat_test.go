//go:build compat

package compat

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varvehq/varve/tests/harness"
)

// Main classes of Apache Kafka's tools.
const (
	topics          = "org.apache.kafka.tools.TopicCommand"
	configs         = "org.apache.kafka.tools.ConfigCommand"
	consumerGroups  = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
	consoleProducer = "org.apache.kafka.tools.ConsoleProducer"
	consoleConsumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
	getOffsets      = "org.apache.kafka.tools.GetOffsetShell"
	dumpLog         = "org.apache.kafka.tools.DumpLogSegments"
	brokerVersions  = "org.apache.kafka.tools.BrokerApiVersionsCommand"
)

// config seals small segments and lets them leave for the bucket at once.
const config = `broker:
  properties:
    log.retention.check.interval.ms: "500"
    remote.log.manager.task.interval.ms: "500"
    group.initial.rebalance.delay.ms: "0"
connect: {}
`

// start runs a broker.
func start(t *testing.T) *harness.Process {
	t.Helper()
	return harness.StartProcess(t, harness.ProcessOptions{Roles: "broker,controller", Config: config})
}

// run runs a program with a standard input and returns its standard output; it fails the test when the program fails.
func run(t *testing.T, stdin string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

// java runs one of Apache Kafka's tools.
func java(t *testing.T, stdin, class string, args ...string) string {
	t.Helper()
	script, err := filepath.Abs("../tools/kafka.sh")
	if err != nil {
		t.Fatal(err)
	}
	return run(t, stdin, script, append([]string{"tool", class}, args...)...)
}

// want fails unless every part is in the text.
func want(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in:\n%s", p, text)
		}
	}
}

// numbered is n lines, prefix0 to prefix n-1.
func numbered(prefix string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s%d\n", prefix, i)
	}
	return b.String()
}

func sameLines(t *testing.T, got, expect string) {
	t.Helper()
	if got == expect {
		return
	}
	g, e := strings.Split(got, "\n"), strings.Split(expect, "\n")
	for i := range min(len(g), len(e)) {
		if g[i] != e[i] {
			t.Fatalf("line %d of %d is %q, want %q", i+1, len(g), g[i], e[i])
		}
	}
	t.Fatalf("%d lines, want %d", len(g), len(e))
}
