// Package formats proves that the documented formats can be read by another language.
package formats

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/objstore/fs"
	"github.com/varvehq/varve/internal/vfs"
	"github.com/varvehq/varve/tiering"
	"github.com/varvehq/varve/tiering/tieringtest"
)

// TestPythonReadsABucket writes a bucket with pages, leader epochs and an expired start, and lets the reader that was
// written from the documentation check every byte of it.
func TestPythonReadsABucket(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	dir := t.TempDir()
	b, err := fs.Open(vfs.OS(), dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg := tiering.DefaultConfig()
	cfg.PageSegments = 5
	s, err := tiering.Open(t.Context(), tiering.Env{Bucket: b, ClusterID: "c", Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := tieringtest.NewLog(0).Add(0, 30, 2, 40).Add(3, 30, 2, 9000)
	p := s.Partition(tiering.PartitionID{Topic: "orders", TopicID: kafka.UUID{1, 2}, Partition: 4}, 0)
	if err := p.Open(t.Context(), 3, l.Epochs); err != nil {
		t.Fatal(err)
	}
	for from := int64(0); from < 120; from += 10 {
		if err := p.Copy(t.Context(), l.Segment(t, from, from+10)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.AdvanceStart(t.Context(), 25); err != nil {
		t.Fatal(err)
	}
	out := python3(t, python, dir)
	if want := "offsets 25 to 119, 10 segments, 100 records"; !strings.Contains(out, want) {
		t.Errorf("read_bucket.py says %q, want %q", out, want)
	}
	if out = python3(t, python, dir, "--records"); !strings.Contains(out, `"offset": 30, "timestamp": 1700000000310, "key": "key-30"`) {
		t.Errorf("read_bucket.py --records:\n%s", out)
	}
}

func python3(t *testing.T, python string, args ...string) string {
	t.Helper()
	cmd := exec.Command(python, append([]string{"read_bucket.py"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(errors.Join(err, fmt.Errorf("%s", stderr.String())))
	}
	return string(out)
}
