package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/open"
)

// rest calls the worker's REST interface.
func (d *demo) rest(ctx context.Context, method, path string, body, into any) error {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+d.server.connect+path, in)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return &restError{res.StatusCode, fmt.Sprintf("%s %s: %d %s", method, path, res.StatusCode, data)}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(data, into)
}

// restError is an answer other than 2xx.
type restError struct {
	code int
	text string
}

func (e *restError) Error() string { return e.text }

func (d *demo) createConnector(ctx context.Context, name string, cfg map[string]string) error {
	return d.rest(ctx, http.MethodPost, "/connectors", map[string]any{"name": name, "config": cfg}, nil)
}

// connectorFailed returns the trace of a failed connector or task, nil while all is well.
func (d *demo) connectorFailed(ctx context.Context, name string) error {
	var s struct {
		Connector struct{ State, Trace string }
		Tasks     []struct{ State, Trace string }
	}
	err := d.rest(ctx, http.MethodGet, "/connectors/"+name+"/status", nil, &s)
	var re *restError
	if errors.As(err, &re) && re.code == http.StatusNotFound {
		return nil // created, and no task has told its state yet
	}
	if err != nil {
		return err
	}
	if s.Connector.State == "FAILED" {
		return fmt.Errorf("connector %s failed: %s", name, s.Connector.Trace)
	}
	for _, t := range s.Tasks {
		if t.State == "FAILED" {
			return fmt.Errorf("a task of %s failed: %s", name, t.Trace)
		}
	}
	return nil
}

// varve runs another command of this binary.
func (d *demo) varve(ctx context.Context, args ...string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("varve %s: %w\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}

// parquetURL is beside the archive in the same store, so that one bucket is enough.
func (d *demo) parquetURL() string {
	base, query, has := strings.Cut(d.bucket, "?")
	base = strings.TrimSuffix(base, "/") + "-parquet"
	if strings.HasPrefix(d.bucket, "s3://") {
		base = strings.TrimSuffix(strings.Split(d.bucket, "?")[0], "/") + "/parquet"
	}
	if has {
		base += "?" + query
	}
	return base
}

func (d *demo) proveParquet(ctx context.Context) error {
	cfg := map[string]string{
		"connector.class": "parquet", "topics": topicName, "tasks.max": "1",
		"url": d.parquetURL(), "rotate.interval.ms": "2000", "flush.size": "20000",
	}
	began := time.Now()
	if err := d.createConnector(ctx, "orders-parquet", cfg); err != nil {
		return err
	}
	if err := d.waitParquet(ctx); err != nil {
		return err
	}
	d.report.ParquetSeconds = time.Since(began).Seconds()
	files, err := d.download(ctx)
	if err != nil {
		return err
	}
	d.report.ParquetFiles = files
	if d.prover == "" {
		d.say("%d Parquet files; give --duckproof (make demo builds it) to fold them with DuckDB", files)
		return nil
	}
	return d.foldParquet(ctx)
}

// waitParquet waits until the sink has committed the end of every partition.
func (d *demo) waitParquet(ctx context.Context) error {
	adm, err := d.admin()
	if err != nil {
		return err
	}
	defer adm.Close()
	return until(ctx, "the Parquet sink to commit every offset", func() (bool, error) {
		if err := d.connectorFailed(ctx, "orders-parquet"); err != nil {
			return false, err
		}
		end, err := adm.ListEndOffsets(ctx, topicName)
		if err != nil {
			return false, err
		}
		committed, err := adm.FetchOffsets(ctx, "connect-orders-parquet")
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

func (d *demo) parquetDir() string { return filepath.Join(d.dir, "parquet-copy") }

// download copies the Parquet files to the scratch folder, where DuckDB reads them without network.
func (d *demo) download(ctx context.Context) (int, error) {
	b, err := open.Bucket(ctx, d.parquetURL())
	if err != nil {
		return 0, err
	}
	defer func() { _ = b.Close() }()
	n := 0
	err = b.List(ctx, "", objstore.ListOptions{}, func(i objstore.Info) error {
		if path.Ext(i.Key) != ".parquet" {
			return nil
		}
		n++
		body, err := b.Get(ctx, i.Key, 0, -1)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(body)
		if err = errors.Join(err, body.Close()); err != nil {
			return err
		}
		file := filepath.Join(d.parquetDir(), filepath.FromSlash(i.Key))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		return os.WriteFile(file, data, 0o644)
	})
	return n, err
}

func (d *demo) foldParquet(ctx context.Context) error {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, d.prover, "-files", filepath.Join(d.parquetDir(), "**", "*.parquet"), "-key", "id",
		"-columns", "id;version;customer;amount;paid;strftime(placed, '%Y-%m-%d %H:%M:%S.%f');note")
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", d.prover, err, errs.String())
	}
	h := newHasher()
	for line := range strings.Lines(out.String()) {
		h.add(strings.TrimSuffix(line, "\n"))
	}
	d.report.Parquet = h.content()
	var rows, keys, distinct int64
	if _, err := fmt.Sscanf(errs.String(), "rows=%d keys=%d distinct_offsets=%d", &rows, &keys, &distinct); err != nil {
		return fmt.Errorf("%s said %q", d.prover, errs.String())
	}
	c := d.source.counts
	if want := int64(c.Snapshot + c.Inserts + c.Updates + c.Deletes); rows != want || distinct != want {
		return fmt.Errorf("the Parquet files have %s rows with %d distinct offsets; %d events have a value", strconv.FormatInt(rows, 10), distinct, want)
	}
	if d.report.Parquet != d.report.Table {
		return fmt.Errorf("DuckDB folds the Parquet files to %s; the table has %s", d.report.Parquet, d.report.Table)
	}
	d.report.ParquetRows = rows
	d.say("DuckDB folds %d rows in %d files to the table's content: %s", rows, d.report.ParquetFiles, d.report.Parquet)
	return nil
}
