package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/varvehq/varve/tests/harness"
	"github.com/varvehq/varve/tests/postgres"
	"github.com/varvehq/varve/tests/s3server"
)

// TestMainJob is the demo in small: each of its steps proves itself, so that it ends well is the outcome.
func TestMainJob(t *testing.T) {
	if testing.Short() {
		t.Skip("starts PostgreSQL, an S3 server and the binary")
	}
	bin, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	pg, err := postgres.Start(t.Context(), postgres.Options{Settings: map[string]string{"wal_level": "logical"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pg.Stop() }()
	s3 := s3server.ForTest(t, s3server.Options{})
	for name, bucket := range map[string]string{"s3": s3.URL("e2e"), "folder": ""} {
		t.Run(name, func(t *testing.T) {
			args := []string{"demo", "--postgres", pg.URL(), "--rows", "20000", "--changes", "10000", "--partitions", "1", "-o", "json"}
			if bucket != "" {
				args = append(args, "--bucket", bucket)
			}
			cmd := exec.CommandContext(t.Context(), bin, args...)
			cmd.Env = append(os.Environ(), s3.Env()...)
			var out, progress bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &progress
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s", err, progress.String())
			}
			var report struct {
				Records      int64 `json:"records"`
				RemoteBytes  int64 `json:"remote_bytes"`
				ParquetFiles int   `json:"parquet_files"`
				Counts       struct{ Snapshot, Tombstones int }
			}
			if err := json.Unmarshal(out.Bytes(), &report); err != nil {
				t.Fatal(err)
			}
			if report.Counts.Snapshot != 20000 || report.Records != int64(30000+report.Counts.Tombstones) || report.RemoteBytes == 0 || report.ParquetFiles == 0 {
				t.Errorf("report: %s", out.String())
			}
		})
	}
}
