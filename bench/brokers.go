package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// broker is one of the two sides.
type broker struct {
	name  string // "varve" or "kafka"
	addr  string
	admin string // where metrics are, or ""
	proc  *process
	fsync map[string]string // topic configs that make an acknowledgement mean "synced"
	os    map[string]string // topic configs that leave the sync to the operating system
}

// topicConfig is the broker's way to say when it syncs.
func (b *broker) topicConfig(fsync bool) map[string]string {
	if fsync {
		return b.fsync
	}
	return b.os
}

// starter starts one side on data of its own; a folder that does not exist is a first start.
// Props are settings by Kafka's names.
type starter func(o *options, dir string, props map[string]string) (*broker, error)

// bothSides start with Varve.
var bothSides = []struct {
	name  string
	start starter
}{{"varve", startVarve}, {"kafka", startKafka}}

func startVarve(o *options, dir string, props map[string]string) (*broker, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	admin, err := freeAddress()
	if err != nil {
		return nil, err
	}
	args := []string{filepath.Join(o.root, "bin", "varve"), "server", "--roles", "broker,controller",
		"--data-dir", filepath.Join(dir, "data"), "--listen", addr, "--admin-listen", admin}
	if len(props) > 0 {
		file := filepath.Join(dir, "varve.yaml")
		conf, err := json.Marshal(map[string]any{"broker": map[string]any{"properties": props}}) // JSON is YAML
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, conf, 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--config", file)
	}
	p, err := startProcess("varve", filepath.Join(dir, "server.log"), nil, args...)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "varve: pid %d, profiles at http://%s/debug/pprof/\n", p.cmd.Process.Pid, admin)
	return &broker{name: "varve", addr: addr, admin: admin, proc: p,
		fsync: map[string]string{"flush.policy": "fsync"}, os: map[string]string{"flush.policy": "os"}}, nil
}

// kafkaHeap is what kafka-server-start.sh sets.
var kafkaHeap = []string{"-Xms1g", "-Xmx1g"}

// jvmFlags are those of kafka-run-class.sh.
var jvmFlags = []string{"-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
	"-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"}

// kafkaCommand is a Java command line with the jars of Apache Kafka.
func kafkaCommand(o *options, heap []string, args ...string) []string {
	argv := append([]string{"java"}, heap...)
	argv = append(argv, jvmFlags...)
	argv = append(argv, "-Dlog4j2.configurationFile="+filepath.Join(o.root, "tests", "tools", "log4j2.properties"),
		"-cp", filepath.Join(o.root, ".cache", "tools", "kafka-"+kafkaVersion, "*"))
	return append(argv, args...)
}

const kafkaVersion = "4.4.0"

// startKafka starts one Apache Kafka in KRaft mode, with its default settings but for what a single node needs, and for the
// delay after which a deleted topic's files go, so that one scenario does not write back what the one before has left.
func startKafka(o *options, dir string, extra map[string]string) (*broker, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	ctl, err := freeAddress()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	data, conf := filepath.Join(dir, "data"), filepath.Join(dir, "server.properties")
	props := []string{
		"process.roles=broker,controller", "node.id=1", "controller.quorum.voters=1@" + ctl,
		"listeners=PLAINTEXT://" + addr + ",CONTROLLER://" + ctl, "advertised.listeners=PLAINTEXT://" + addr,
		"controller.listener.names=CONTROLLER", "log.dirs=" + data,
		"offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
		"share.coordinator.state.topic.replication.factor=1", "share.coordinator.state.topic.min.isr=1",
		"log.segment.delete.delay.ms=0",
	}
	for name, value := range extra {
		props = append(props, name+"="+value)
	}
	if err := os.WriteFile(conf, []byte(strings.Join(props, "\n")+"\n"), 0o600); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(data, "meta.properties")); err != nil {
		format := kafkaCommand(o, kafkaHeap, "kafka.tools.StorageTool", "format", "-t", "dmFydmUtYmVuY2gta2Fma2E", "-c", conf)
		if out, err := exec.Command(format[0], format[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("format Kafka's storage: %w\n%s", err, out)
		}
	}
	p, err := startProcess("kafka", filepath.Join(dir, "server.log"), nil, kafkaCommand(o, kafkaHeap, "kafka.Kafka", conf)...)
	if err != nil {
		return nil, err
	}
	return &broker{name: "kafka", addr: addr, proc: p, fsync: map[string]string{"flush.messages": "1"}}, nil
}

// installPeer runs a script of tests/tools.
func installPeer(ctx context.Context, o *options, script string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(o.root, "tests", "tools", script), "install")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}

// pollEvery is the resolution of the time that a start takes. More often would slow the start down.
const pollEvery = 5 * time.Millisecond

// ready waits until the broker has accepted a record, and returns the time since its start.
func (b *broker) ready(ctx context.Context) (time.Duration, error) {
	err := b.proc.await(ctx, time.Minute, pollEvery, "a port", func() error {
		nc, err := net.Dial("tcp", b.addr)
		if err != nil {
			return err
		}
		return nc.Close()
	})
	if err != nil {
		return 0, err
	}
	var took time.Duration
	err = b.proc.await(ctx, time.Minute, pollEvery, "a first record", func() error {
		c, err := dial(b.addr)
		if err != nil {
			return err
		}
		defer c.close()
		if err := c.createTopic("ready", 1, nil); err != nil {
			return err
		}
		if err := c.produceOne(newBatch(200, 100), "ready", 0); err != nil {
			return err
		}
		took = time.Since(b.proc.started)
		return c.deleteTopic("ready")
	})
	return took, err
}

// syncs is the number of sync calls that the group commit has made so far; ok is false where the broker does not tell.
func (b *broker) syncs() (n float64, ok bool, err error) {
	if b.admin == "" {
		return 0, false, nil
	}
	resp, err := http.Get("http://" + b.admin + "/metrics")
	if err != nil {
		return 0, false, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, false, err
	}
	for line := range strings.Lines(string(text)) {
		if v, found := strings.CutPrefix(line, "varve_partition_syncs_total "); found {
			n, err = strconv.ParseFloat(strings.TrimSpace(v), 64)
			return n, err == nil, err
		}
	}
	return 0, false, fmt.Errorf("%w: no varve_partition_syncs_total among the metrics", errAnswer)
}
