//go:build streams

package streams

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/varvehq/varve/tests/harness"
)

var (
	runs  = flag.Int("runs", 5, "how often the smoke test is run")
	feed  = flag.Duration("feed", 5*time.Minute, "how long a run is fed, and the server is killed")
	every = flag.Duration("every", 20*time.Second, "time between two kills of the server")
)

// verifyLimit bounds what a run may take beyond its feed.
const verifyLimit = 10 * time.Minute

// topics are those the smoke test reads and writes; it expects to find them.
var topics = []string{"echo", "data", "min", "min-suppressed", "min-raw", "max", "sum", "sws-raw", "sws-suppressed", "dif", "cnt", "avg",
	"wcnt", "tagg", "fk"}

// TestSmokeExactlyOnceUnderKill9 runs the smoke test's application with exactly_once_v2 and feeds it while the server is
// killed again and again. The smoke test's own verification says whether every input was counted exactly once.
func TestSmokeExactlyOnceUnderKill9(t *testing.T) {
	for i := range *runs {
		t.Run(fmt.Sprintf("run %d", i+1), smoke)
	}
}

func smoke(t *testing.T) {
	p := harness.StartProcess(t, harness.ProcessOptions{Roles: "broker,controller"})
	createTopics(t, p.Kafka)
	dir := t.ArtifactDir()
	props := filepath.Join(dir, "smoke.properties")
	settings := fmt.Sprintf(`bootstrap.servers=%s
processing.guarantee=exactly_once_v2
application.id=SmokeTest
num.stream.threads=3
replication.factor=1
state.dir=%s
commit.interval.ms=100
acceptable.recovery.lag=%d
`, p.Kafka, filepath.Join(t.TempDir(), "state"), int64(1<<63-1))
	if err := os.WriteFile(props, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), *feed+verifyLimit)
	defer cancel()
	app := start(ctx, t, dir, "application.log", "org.apache.kafka.streams.tests.StreamsSmokeTest", props, "process")
	source, err := filepath.Abs("SmokeFeed.java")
	if err != nil {
		t.Fatal(err)
	}
	driver := start(ctx, t, dir, "driver.log", source, p.Kafka, strconv.Itoa(int(feed.Seconds())))

	kills := killWhileFed(t, p, app, driver)
	out := driver.output(t)
	t.Logf("%d kills by SIGKILL, %v\n%s", kills, driver.err, lastLines(out, 6))
	if driver.err != nil || !bytes.Contains(out, []byte("ALL-RECORDS-DELIVERED")) || !bytes.Contains(out, []byte("SUCCESS")) {
		t.Errorf("the smoke test does not verify:\n%s\napplication:\n%s", lastLines(out, 60), lastLines(app.output(t), 30))
	}
	if *feed > *every && kills == 0 {
		t.Error("the server was never killed")
	}
}

// killWhileFed kills and restarts the server while the driver feeds, waits for the driver's end, and gives the number of
// kills. Verification is left alone: a group that has lost members needs their session timeout, which is longer than the
// time between two kills.
func killWhileFed(t *testing.T, p *harness.Process, app, driver *java) int {
	t.Helper()
	tick, fed := time.NewTicker(*every), time.After(*feed)
	defer tick.Stop()
	for kills := 0; ; {
		select {
		case <-driver.done:
			return kills
		case <-app.done:
			t.Fatalf("the application ended after %d kills: %v\n%s", kills, app.err, lastLines(app.output(t), 60))
		case <-fed:
			tick.Stop()
		case <-tick.C:
			p.Kill9()
			p.Restart(t)
			kills++
		}
	}
}

func createTopics(t *testing.T, bootstrap string) {
	t.Helper()
	resp, err := kadm.NewClient(harness.NewClient(t, bootstrap)).CreateTopics(t.Context(), 5, 1, nil, topics...)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// java is a running Java program.
type java struct {
	log  string
	done chan struct{}
	err  error // once done is closed
}

// start runs a class or a source file with the jars of Kafka Streams; it is killed with ctx or the test.
func start(ctx context.Context, t *testing.T, dir, log string, args ...string) *java {
	t.Helper()
	tool, err := filepath.Abs("../tools/kafka.sh")
	if err != nil {
		t.Fatal(err)
	}
	j := &java{log: filepath.Join(dir, log), done: make(chan struct{})}
	f, err := os.Create(j.log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, tool, append([]string{"streams"}, args...)...)
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		j.err = cmd.Wait()
		_ = f.Close() // written by the process
		close(j.done)
	}()
	t.Cleanup(func() {
		cancel()
		<-j.done
	})
	return j
}

func (j *java) output(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(j.log)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func lastLines(b []byte, n int) string {
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
