//go:build compat

package compat

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDumpLogReadsBothTiers lets Apache Kafka's own tool read every file of the local log, the active segment too, and every
// segment object cut at the log's length.
func TestDumpLogReadsBothTiers(t *testing.T) {
	p := start(t)
	java(t, "", topics, "--bootstrap-server", p.Kafka, "--create", "--topic", "dump", "--partitions", "1",
		"--config", "segment.bytes=1048576", "--config", "remote.storage.enable=true", "--config", "local.retention.bytes=1")
	java(t, "", topics, "--bootstrap-server", p.Kafka, "--create", "--topic", "kept", "--partitions", "2", "--config", "segment.bytes=1048576")
	big := numbered(strings.Repeat("0123456789abcdef", 16), 20000)
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		run(t, big, "kcat", "-b", p.Kafka, "-P", "-t", "dump", "-z", codec, "-X", "batch.num.messages=500")
		run(t, big, "kcat", "-b", p.Kafka, "-P", "-t", "kept", "-z", codec, "-K", "9")
	}
	objects := waitObjects(t, filepath.Join(p.Dir, "data", "bucket"))
	p.Stop(t)

	var files, cut []string
	for _, f := range glob(t, filepath.Join(p.Dir, "data"), ".log", ".index", ".timeindex") {
		if !strings.Contains(f, "bucket") && (strings.Contains(f, "dump-0") || strings.Contains(f, "kept-") || strings.Contains(f, "__consumer_offsets")) {
			files = append(files, f)
		}
	}
	dir := t.TempDir()
	for _, o := range objects {
		data, err := os.ReadFile(o)
		if err != nil {
			t.Fatal(err)
		}
		tail := data[len(data)-40:]
		if string(tail[32:]) != "VARVESEG" {
			t.Fatalf("%s does not end with the magic of a segment object", o)
		}
		path := filepath.Join(dir, filepath.Base(o)[:20]+".log")
		if err := os.WriteFile(path, data[:binary.BigEndian.Uint64(tail)], 0o600); err != nil {
			t.Fatal(err)
		}
		cut = append(cut, path)
	}
	if len(files) < 6 || len(cut) < 3 {
		t.Fatalf("%d local files and %d segment objects: too few to prove anything", len(files), len(cut))
	}
	out := java(t, "", dumpLog, "--deep-iteration", "--files", strings.Join(append(files, cut...), ","))
	// The tool prints this of every file that does not begin at offset 0, Apache Kafka's own too.
	out = strings.ReplaceAll(out, "Non-consecutive offsets, -1 is followed by", "begins at")
	for _, complaint := range []string{"isvalid: false", "isValid: false", "Found", "Exception", "mismatch", "corrupt", "out of order", "Non-consecutive"} {
		if strings.Contains(out, complaint) {
			t.Errorf("dump-log complains: %s", excerpt(out, complaint))
		}
	}
	if n := strings.Count(out, "Dumping "); n != len(files)+len(cut) {
		t.Errorf("dump-log read %d of %d files", n, len(files)+len(cut))
	}
	t.Logf("dump-log read %d local files and %d segment objects", len(files), len(cut))
}

func excerpt(text, at string) string {
	i := strings.Index(text, at)
	return text[max(0, i-200):min(len(text), i+300)]
}

func glob(t *testing.T, root string, suffixes ...string) []string {
	t.Helper()
	var out []string
	err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		for _, s := range suffixes {
			if strings.HasSuffix(path, s) {
				out = append(out, path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// waitObjects waits until the number of segment objects no longer grows and at least three are there.
func waitObjects(t *testing.T, bucket string) []string {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	var last []string
	stable := 0
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		var now []string
		if _, err := os.Stat(bucket); err == nil {
			now = glob(t, bucket, ".seg")
		}
		if len(now) == len(last) && len(now) >= 3 {
			if stable++; stable == 4 {
				return now
			}
		} else {
			stable = 0
		}
		last = now
		if time.Now().After(deadline) {
			t.Fatalf("after a minute there are %d segment objects", len(now))
		}
	}
	return nil
}
