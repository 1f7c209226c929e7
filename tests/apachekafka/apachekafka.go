// Package apachekafka runs Apache Kafka for tests that compare Varve with it: one broker in KRaft mode, from the jars that
// tests/tools/kafka.sh installs, on loopback and over a throw-away folder. It ends with the process that started it.
package apachekafka

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ClusterID is the id of every cluster started here.
const ClusterID = "YXBhY2hlLWthZmthLTQuNA"

// ErrNotInstalled means that the jars are missing.
var ErrNotInstalled = errors.New("apachekafka: not installed: run tests/tools/kafka.sh install")

const (
	startTimeout = 4 * time.Minute
	stopTimeout  = 20 * time.Second
)

// Options say what is started. The zero value is a broker with Kafka's own settings but for what one node needs.
type Options struct {
	// Dir holds the data, the settings and server.log; empty: a temporary folder that Stop removes.
	Dir string
	// Properties are further settings of server.properties; they win.
	Properties map[string]string
	// Heap is the JVM's heap, as -Xmx takes it; empty: 512m.
	Heap string
}

// Broker is a running broker. Its methods are not safe for concurrent use.
type Broker struct {
	// Bootstrap is the address that clients connect to.
	Bootstrap string
	// Dir is Options.Dir or the temporary folder.
	Dir string

	temporary bool
	cmd       *exec.Cmd
	done      chan struct{}
}

// Script is the path of tests/tools/kafka.sh.
func Script() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("apachekafka: not inside the module")
		}
		dir = up
	}
	script := filepath.Join(dir, "tests", "tools", "kafka.sh")
	if err := exec.Command(script, "installed").Run(); err != nil {
		return "", ErrNotInstalled
	}
	return script, nil
}

// Start formats a data folder where there is none, starts a broker on it and returns once it serves.
func Start(ctx context.Context, o Options) (*Broker, error) {
	script, err := Script()
	if err != nil {
		return nil, err
	}
	b := &Broker{Dir: o.Dir, temporary: o.Dir == ""}
	if b.temporary {
		if b.Dir, err = os.MkdirTemp("", "varve-kafka-"); err != nil {
			return nil, err
		}
	}
	if err := b.start(ctx, script, o); err != nil {
		return nil, errors.Join(err, b.Stop())
	}
	return b, nil
}

// ForTest starts a broker that ends with the test.
func ForTest(t testing.TB, o Options) *Broker {
	t.Helper()
	b, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *Broker) start(ctx context.Context, script string, o Options) error {
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	b.Bootstrap = fmt.Sprintf("127.0.0.1:%d", ports[0])
	conf := filepath.Join(b.Dir, "server.properties")
	if err := os.WriteFile(conf, []byte(properties(b, ports, o)), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(b.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own descriptor
	cmd := exec.Command(script, "broker", conf, ClusterID)
	heap := o.Heap
	if heap == "" {
		heap = "512m"
	}
	cmd.Env = append(os.Environ(), "KAFKA_HEAP="+heap)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttr()
	if err := cmd.Start(); err != nil {
		return err
	}
	b.cmd, b.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(b.done)
	return b.wait(ctx)
}

// properties is the content of server.properties.
func properties(b *Broker, ports []int, o Options) string {
	all := map[string]string{
		"process.roles":                            "broker,controller",
		"node.id":                                  "1",
		"controller.quorum.voters":                 fmt.Sprintf("1@127.0.0.1:%d", ports[1]),
		"listeners":                                fmt.Sprintf("PLAINTEXT://%s,CONTROLLER://127.0.0.1:%d", b.Bootstrap, ports[1]),
		"advertised.listeners":                     "PLAINTEXT://" + b.Bootstrap,
		"controller.listener.names":                "CONTROLLER",
		"log.dirs":                                 b.DataDir(),
		"offsets.topic.replication.factor":         "1",
		"transaction.state.log.replication.factor": "1",
		"transaction.state.log.min.isr":            "1",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",
		"group.initial.rebalance.delay.ms":                 "0",
	}
	for k, v := range o.Properties {
		all[k] = v
	}
	lines := make([]string, 0, len(all))
	for k, v := range all {
		lines = append(lines, k+"="+v+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// wait asks for the metadata until the broker has registered.
func (b *Broker) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Bootstrap))
	if err != nil {
		return err
	}
	defer client.Close()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for client.Ping(ctx) != nil {
		select {
		case <-tick.C:
		case <-b.done:
			return fmt.Errorf("apachekafka: the broker ended at its start:\n%s", b.LogTail(40))
		case <-ctx.Done():
			return fmt.Errorf("apachekafka: the broker does not answer: %w\n%s", ctx.Err(), b.LogTail(40))
		}
	}
	return nil
}

// DataDir is the broker's log.dirs.
func (b *Broker) DataDir() string { return filepath.Join(b.Dir, "data") }

// PID is the id of the broker's process, for figures of its use of the machine.
func (b *Broker) PID() int { return b.cmd.Process.Pid }

func (b *Broker) logFile() string { return filepath.Join(b.Dir, "server.log") }

// LogTail gives the last lines of what the broker has printed.
func (b *Broker) LogTail(lines int) string {
	f, err := os.Open(b.logFile())
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }() // only read
	var tail []string
	for s := bufio.NewScanner(f); s.Scan(); {
		if tail = append(tail, s.Text()); len(tail) > lines {
			tail = tail[1:]
		}
	}
	return strings.Join(tail, "\n")
}

// Stop ends the broker and removes a temporary folder. It is idempotent.
func (b *Broker) Stop() error {
	if b.cmd != nil {
		if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		timer := time.NewTimer(stopTimeout)
		defer timer.Stop()
		select {
		case <-b.done:
		case <-timer.C:
			_ = b.cmd.Process.Kill() // it may have ended meanwhile
			<-b.done
		}
		b.cmd = nil
	}
	if b.temporary {
		return os.RemoveAll(b.Dir)
	}
	return nil
}

// freePorts finds ports that were free a moment ago.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
