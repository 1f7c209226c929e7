package demo

import (
	"fmt"
	"io"
	"time"

	"github.com/varvehq/varve/cmd/varve/demo/job"
	"github.com/varvehq/varve/cmd/varve/internal/cli"
)

type timing struct {
	Step    string  `json:"step"`
	Seconds float64 `json:"seconds"`
}

// report is what the demo has proved.
type report struct {
	Counts         job.Counts  `json:"counts"`
	Events         int64       `json:"events"`
	Records        int64       `json:"records"`
	Digest         string      `json:"digest"`
	Table          job.Content `json:"table"`
	Topic          job.Content `json:"topic"`
	Parquet        job.Content `json:"parquet"`
	ParquetFiles   int         `json:"parquet_files"`
	ParquetRows    int64       `json:"parquet_rows"`
	Tiers          []job.Tier  `json:"tiers"`
	RemoteBytes    int64       `json:"remote_bytes"`
	Archive        string      `json:"archive"`
	StartMillis    int64       `json:"start_millis"`
	StreamSeconds  float64     `json:"stream_seconds"`
	ReplaySeconds  float64     `json:"replay_seconds"`
	ParquetSeconds float64     `json:"parquet_seconds"`
	Seconds        float64     `json:"seconds"`
	Steps          []timing    `json:"steps"`
}

func (r *report) step(name string, took time.Duration) {
	r.Steps = append(r.Steps, timing{name, took.Seconds()})
}

func (r *report) print(w io.Writer, out *cli.Output) error {
	if out.JSON() {
		return out.Print(w, r, nil, nil)
	}
	rows := [][]string{
		{"events, each once and in order per key", r.Counts.String()},
		{"table, folded topic", fmt.Sprintf("%s = %s", r.Table, r.Topic)},
	}
	for _, t := range r.Tiers {
		rows = append(rows, []string{fmt.Sprintf("partition %d", t.Partition),
			fmt.Sprintf("bucket [%d, %d), local from %d", t.Start, t.TieredEnd, t.LocalStart)})
	}
	rows = append(rows,
		[]string{"replay by a new group, cold cache", fmt.Sprintf("%d records, sha256 %.16s, %d bytes from the bucket", r.Records, r.Digest, r.RemoteBytes)})
	if r.Parquet.Rows > 0 {
		rows = append(rows, []string{"Parquet, folded by DuckDB", fmt.Sprintf("%d rows in %d files fold to %s", r.ParquetRows, r.ParquetFiles, r.Parquet)})
	} else {
		rows = append(rows, []string{"Parquet", fmt.Sprintf("%d files, not folded (no --duckproof)", r.ParquetFiles)})
	}
	rows = append(rows, []string{"archive verify", r.Archive})
	for _, s := range r.Steps {
		rows = append(rows, []string{"  " + s.Step, fmt.Sprintf("%.1f s", s.Seconds)})
	}
	rows = append(rows, []string{"all", fmt.Sprintf("%.1f s", r.Seconds)})
	return out.Print(w, r, []string{"PROVED", ""}, rows)
}
