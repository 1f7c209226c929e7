package badinput

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/varvehq/varve/tests/harness"
)

// segments are the log files of a topic's first partition, oldest first.
func segments(t *testing.T, p *harness.Process, topic string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(p.Dir, "data", "logs", topic+"-0", "*.log"))
	if err != nil || len(names) < 3 {
		t.Fatal(names, err)
	}
	slices.Sort(names)
	return names
}

// flip changes a bit at a position of a file, from its end where it is negative.
func flip(t *testing.T, name string, at int64) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if at < 0 {
		at += int64(len(b))
	}
	b[at] ^= 1
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, name string) {
	t.Helper()
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedLogsAfterAKill: what was done to the files of a killed server is named, nothing of it is served or cut, and the
// other partitions go on.
func TestDamagedLogsAfterAKill(t *testing.T) {
	t.Parallel()
	p := harness.StartProcess(t, harness.ProcessOptions{Roles: "broker,controller", Config: "broker:\n  properties:\n    log.segment.bytes: 1048576\n"})
	victims := map[string]string{} // topic → the file that its problem names
	damage := map[string]func(files []string) string{
		"middle-gone": func(f []string) string { remove(t, f[1]); return f[0] },
		"first-gone":  func(f []string) string { remove(t, f[0]); return f[1] },
		"flipped":     func(f []string) string { flip(t, f[1], 5000); return f[1] },
		"end-flipped": func(f []string) string { flip(t, f[len(f)-1], -20); return f[len(f)-1] },
	}
	for topic := range damage {
		must(t, p, rows(3500), "produce", topic)
	}
	must(t, p, "fine\n", "produce", "sound")
	p.Kill9()
	for topic, harm := range damage {
		victims[topic] = harm(segments(t, p, topic))
	}
	p.Restart(t)
	if got := metric(t, p, "varve_partition_offline"); got != fmt.Sprint(len(damage)) {
		t.Errorf("varve_partition_offline %s", got)
	}
	for topic, file := range victims {
		has(t, must(t, p, "", "topic", "describe", topic), "partition 0: ", filepath.Base(file))
		has(t, p.LogTail(1000), topic+"-0/"+filepath.Base(file))
		cut, err := filepath.Glob(filepath.Join(p.Dir, "data", "logs", topic+"-0", "*cut*"))
		if err != nil || len(cut) > 0 {
			t.Error(cut, err)
		}
	}
	if out := must(t, p, "", "consume", "sound", "-e"); out != "fine\n" {
		t.Errorf("consumed %q", out)
	}
	out, err := varve(t, p, "one\n", "produce", "flipped")
	if err == nil {
		t.Error("a damaged partition took a record")
	}
	has(t, out, "KAFKA_STORAGE_ERROR", "varve topic describe flipped")
}

// TestMetadataThatIsGone: a server whose metadata is lost or damaged does not start as a new cluster.
func TestMetadataThatIsGone(t *testing.T) {
	t.Parallel()
	p := harness.StartProcess(t, harness.ProcessOptions{Roles: "broker,controller"})
	must(t, p, "one\n", "produce", "t")
	p.Stop(t)
	metadata := filepath.Join(p.Dir, "data", "metadata")
	kept := metadata + ".kept"
	if err := os.Rename(metadata, kept); err != nil {
		t.Fatal(err)
	}
	has(t, serverEnds(t, p), "metadata.snapshot is missing", "restore the folder metadata")
	remove(t, metadata)
	if err := os.Rename(kept, metadata); err != nil {
		t.Fatal(err)
	}
	flip(t, filepath.Join(metadata, "metadata.log"), -1)
	has(t, serverEnds(t, p), "metadata.log", "damaged", "restore the folder metadata")
	flip(t, filepath.Join(metadata, "metadata.log"), -1)
	p.Restart(t)
	if out := must(t, p, "", "consume", "t", "-e"); out != "one\n" {
		t.Errorf("consumed %q", out)
	}
}

// TestDamagedLogStartCheckpoint: the server starts and serves.
func TestDamagedLogStartCheckpoint(t *testing.T) {
	t.Parallel()
	p := harness.StartProcess(t, harness.ProcessOptions{Roles: "broker,controller"})
	must(t, p, "one\n", "produce", "t")
	p.Kill9()
	if err := os.WriteFile(filepath.Join(p.Dir, "data", "logs", "log-start-offset-checkpoint"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Restart(t)
	if out := must(t, p, "", "consume", "t", "-e"); out != "one\n" {
		t.Errorf("consumed %q", out)
	}
	has(t, p.LogTail(1000), "log start checkpoint is damaged", "log-start-offset-checkpoint.damaged-")
}

// TestSecondServerOnAFolder: the folder is what is named, though the addresses are taken too.
func TestSecondServerOnAFolder(t *testing.T) {
	t.Parallel()
	p := harness.StartProcess(t, harness.ProcessOptions{Roles: "broker,controller"})
	has(t, serverEnds(t, p), "another varve server runs on this folder", filepath.Join(p.Dir, "data"))
}

// TestBadConfigFile: the start is refused, and file, line and key are named.
func TestBadConfigFile(t *testing.T) {
	t.Parallel()
	p := &harness.Process{Dir: t.TempDir(), Kafka: "127.0.0.1:0", Connect: "127.0.0.1:0", Admin: "127.0.0.1:0"}
	for content, want := range map[string][]string{
		"listen: 127.0.0.1:0\nbrokr: {}\n":                                {"brokr", "[2:1]"},
		"broker:\n  node_id: one\n":                                       {"node_id", "[2:"},
		"broker:\n  properties:\n    num.partitions: many\n":              {"num.partitions", "many", "line 3"},
		"connect:\n  properties:\n    no.such.thing: \"1\"\n":             {"no.such.thing", "line 3"},
		"connect:\n  properties:\n    offset.flush.interval.ms: sooner\n": {"offset.flush.interval.ms", "sooner", "line 3"},
	} {
		file := filepath.Join(p.Dir, "varve.yaml")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		out := serverEnds(t, p, "--config", file)
		has(t, out, append(want, file)...)
		if strings.Contains(out, "level=INFO") {
			t.Errorf("something was started:\n%s", out)
		}
	}
	if _, err := os.Stat(filepath.Join(p.Dir, "data")); !os.IsNotExist(err) {
		t.Errorf("the data folder was made: %v", err)
	}
}
