package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/objstore/fs"
	"github.com/varvehq/varve/internal/vfs"
	"github.com/varvehq/varve/tiering"
	"github.com/varvehq/varve/tiering/tieringtest"
)

// folder makes a bucket with one topic of two partitions in a folder.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	b, err := fs.Open(vfs.OS(), dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := tiering.Open(t.Context(), tiering.Env{Bucket: b, ClusterID: "c"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := tieringtest.NewLog(0).Add(0, 20, 2, 40)
	for n := range int32(2) {
		p := s.Partition(tiering.PartitionID{Topic: "orders", TopicID: kafka.UUID{9}, Partition: n}, 0)
		err := errors.Join(p.Open(t.Context(), 0, l.Epochs), p.Copy(t.Context(), l.Segment(t, 0, 20)), p.Copy(t.Context(), l.Segment(t, 20, 40)))
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := Command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&bytes.Buffer{})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := run(t, args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return out
}

func TestLs(t *testing.T) {
	t.Setenv("VARVE_BUCKET", "file://"+folder(t))
	out := must(t, "ls")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[1], "orders  0          0      40   2         40") {
		t.Errorf("ls:\n%s", out)
	}
	var list []map[string]any
	if err := json.Unmarshal([]byte(must(t, "ls", "orders/1", "--segments", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[1]["base_offset"] != 20.0 || list[1]["partition"] != "orders-1" || !strings.HasSuffix(list[1]["key"].(string), ".seg") {
		t.Errorf("%v", list)
	}
}

func TestCat(t *testing.T) {
	dir := folder(t)
	out := must(t, "cat", "orders/0", "--bucket", dir, "--from", "5", "-n", "3")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[0], "0\t5\t2023-11-14 22:13:20\tkey-5\t") {
		t.Errorf("cat:\n%s", out)
	}
	out = must(t, "cat", "orders", "--bucket", dir, "-o", "json", "--to", "2")
	var first struct {
		Key   string            `json:"key"`
		Value map[string][]byte `json:"value"`
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 4 || first.Key != "key-0" || len(first.Value["base64"]) == 0 {
		t.Errorf("cat -o json:\n%s", out)
	}
}

func TestVerify(t *testing.T) {
	dir := folder(t)
	if out := must(t, "verify", "--bucket", dir); !strings.Contains(out, "2 partitions, 4 manifests, 4 segments, 40 batches, 80 records") {
		t.Errorf("verify:\n%s", out)
	}
	found, err := filepath.Glob(filepath.Join(dir, "topics", "*", "1", "segments", "*.seg"))
	if err != nil || len(found) != 2 {
		t.Fatal(found, err)
	}
	data, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	data[100] ^= 1
	if err := os.WriteFile(found[0], data, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, "verify", "orders", "--bucket", dir)
	if !errors.Is(err, errFaults) || !strings.Contains(out, "FAULT") || !strings.Contains(out, filepath.Base(found[0])) {
		t.Errorf("verify of a corrupt bucket: %v\n%s", err, out)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	t.Setenv("VARVE_BUCKET", "")
	dir := folder(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"ls"}, "--bucket URL"},
		{[]string{"ls", "--bucket", "file:///no/such/folder"}, "no such file"},
		{[]string{"ls", "--bucket", "ftp://x"}, "s3://name/prefix"},
		{[]string{"ls", "--bucket", t.TempDir()}, "no Varve bucket"},
		{[]string{"cat", "nothing", "--bucket", dir}, "varve archive ls"},
		{[]string{"cat", "orders/7", "--bucket", dir}, "no partition 7"},
		{[]string{"cat", "orders/x", "--bucket", dir}, "TOPIC/PARTITION"},
		{[]string{"ls", "-o", "yaml", "--bucket", dir}, "table and json"},
	} {
		if _, err := run(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}
