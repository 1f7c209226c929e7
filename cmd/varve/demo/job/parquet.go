package job

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/open"
)

// parquetURL is beside the archive in the same store, so that one bucket is enough.
func (j *Job) parquetURL() string {
	base, query, has := strings.Cut(j.Bucket, "?")
	base = strings.TrimSuffix(base, "/") + "-parquet"
	if strings.HasPrefix(j.Bucket, "s3://") {
		base = strings.TrimSuffix(strings.Split(j.Bucket, "?")[0], "/") + "/parquet"
	}
	if has {
		base += "?" + query
	}
	return base
}

// StartSink makes the connector that writes the topic as Parquet files of at most so many records.
func (j *Job) StartSink(ctx context.Context, records int) error {
	cfg := map[string]string{
		"connector.class": "parquet", "topics": Topic, "tasks.max": "1",
		"url": j.parquetURL(), "rotate.interval.ms": "2000", "flush.size": fmt.Sprint(records),
	}
	maps.Copy(cfg, j.SinkConfig)
	return j.create(ctx, SinkJob, cfg)
}

// WaitSink waits until the sink has committed the end of every partition.
func (j *Job) WaitSink(ctx context.Context) error {
	adm, err := j.Admin()
	if err != nil {
		return err
	}
	defer adm.Close()
	return Until(ctx, "the Parquet sink to commit every offset", func() (bool, error) {
		if err := j.Failed(ctx, SinkJob); err != nil {
			return false, err
		}
		end, err := adm.ListEndOffsets(ctx, Topic)
		if err != nil {
			return false, err
		}
		committed, err := adm.FetchOffsets(ctx, "connect-"+SinkJob)
		if err != nil {
			return false, err
		}
		done := true
		end.Each(func(o kadm.ListedOffset) {
			c, ok := committed.Lookup(o.Topic, o.Partition)
			done = done && (o.Offset == 0 || ok && c.At == o.Offset)
		})
		return done, nil
	})
}

// ParquetDir is where Download puts the files.
func (j *Job) ParquetDir() string { return filepath.Join(j.Dir, "parquet-copy") }

// Download copies the Parquet files to the scratch folder, where DuckDB reads them without network, and returns their paths.
func (j *Job) Download(ctx context.Context) (files []string, err error) {
	b, err := open.Bucket(ctx, j.parquetURL())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	err = b.List(ctx, "", objstore.ListOptions{}, func(i objstore.Info) error {
		if path.Ext(i.Key) != ".parquet" {
			return nil
		}
		body, err := b.Get(ctx, i.Key, 0, -1)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(body)
		if err = errors.Join(err, body.Close()); err != nil {
			return err
		}
		file := filepath.Join(j.ParquetDir(), filepath.FromSlash(i.Key))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		files = append(files, file)
		return os.WriteFile(file, data, 0o644)
	})
	return files, err
}

// Parquet is what DuckDB reads in the Parquet files.
type Parquet struct {
	Rows    int64
	Content Content
}

// FoldParquet lets DuckDB read the downloaded files: they must hold every record with a value that is in the topic, by
// partition and offset, each once, and fold to the table's content.
func (j *Job) FoldParquet(ctx context.Context, topic *Fold, table Content) (*Parquet, error) {
	offsets := filepath.Join(j.Dir, "parquet-offsets.tsv")
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, j.Prover, "-files", filepath.Join(j.ParquetDir(), "**", "*.parquet"), "-key", "id", "-offsets", offsets,
		"-columns", "id;version;customer;amount;paid;strftime(placed, '%Y-%m-%d %H:%M:%S.%f');note")
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", j.Prover, err, errs.String())
	}
	var keys, distinct int64
	p := &Parquet{}
	if _, err := fmt.Sscanf(errs.String(), "rows=%d keys=%d distinct_offsets=%d", &p.Rows, &keys, &distinct); err != nil {
		return nil, fmt.Errorf("%s said %q", j.Prover, errs.String())
	}
	listed, err := os.ReadFile(offsets)
	if err != nil {
		return nil, err
	}
	if err := sameOffsets(topic.values, string(listed)); err != nil {
		return nil, fmt.Errorf("the Parquet files have %d rows with %d distinct offsets: %w", p.Rows, distinct, err)
	}
	h := newHasher()
	for line := range strings.Lines(out.String()) {
		h.add(strings.TrimSuffix(line, "\n"))
	}
	if p.Content = h.content(); p.Content != table {
		return nil, fmt.Errorf("DuckDB folds the Parquet files to %s; the table has %s", p.Content, table)
	}
	return p, nil
}

// sameOffsets compares the topic's records that have a value with lines of partition and offset, in order.
func sameOffsets(topic map[int32][]int64, lines string) error {
	type at struct {
		partition int32
		offset    int64
	}
	rows := map[at]int{}
	n := 0
	for line := range strings.Lines(lines) {
		var a at
		if _, err := fmt.Sscanf(line, "%d\t%d", &a.partition, &a.offset); err != nil {
			return fmt.Errorf("line %q: %w", line, err)
		}
		rows[a]++
		n++
	}
	var missing, repeated []string
	for partition, offsets := range topic {
		for _, o := range offsets {
			a := at{partition, o}
			switch times := rows[a]; {
			case times == 0:
				missing = append(missing, fmt.Sprintf("%d/%d", partition, o))
			case times > 1:
				repeated = append(repeated, fmt.Sprintf("%d/%d", partition, o))
			}
			delete(rows, a)
		}
	}
	if len(missing)+len(repeated)+len(rows) == 0 {
		return nil
	}
	slices.Sort(missing)
	slices.Sort(repeated)
	return fmt.Errorf("%d records of the topic are missing (partition/offset %s), %d are there more than once (%s), %d rows are of no record",
		len(missing), first(missing), len(repeated), first(repeated), len(rows))
}

// first are the first few of a list, as text.
func first(list []string) string {
	if len(list) > 5 {
		return strings.Join(list[:5], " ") + " …"
	}
	return strings.Join(list, " ")
}
