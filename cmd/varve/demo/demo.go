// Package demo is `varve demo`: the main job from one end to the other on a real PostgreSQL and a real bucket, with a proof
// of every step. It starts a server of its own in a scratch folder, streams a table into a topic while the table changes,
// waits until the sealed segments live in the bucket only, reads all of it back with a new consumer group after a restart,
// writes Parquet, and compares counts and content hashes taken at both ends. It holds nothing that the product needs.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvehq/varve/cmd/varve/demo/job"
	"github.com/varvehq/varve/cmd/varve/internal/cli"
)

type options struct {
	job.Job
	rows    int
	changes int
	seed    int64
	keep    bool
	out     cli.Output
}

// Command returns `varve demo`.
func Command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use: "demo", Short: "Run the main job on a PostgreSQL and a bucket, and prove every step", Args: cobra.NoArgs,
		Long: "Runs the main job: Postgres CDC into a topic, the topic into the bucket, a replay from the bucket, Parquet out.\n" +
			"It makes a table, a publication and a replication slot named varve_demo in the database, and removes them at the end.\n" +
			"`make demo` in a clone of the repository sets up a PostgreSQL and an S3 server for it.",
		Example: "  varve demo --postgres postgres://postgres@127.0.0.1:5432/postgres --bucket file:///tmp/varve-demo-bucket",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Postgres == "" {
				return errors.New("--postgres is missing: the URL of a PostgreSQL with wal_level=logical, for a user that may replicate")
			}
			if err := o.out.Check(); err != nil {
				return err
			}
			return run(cmd.Context(), o, cmd.ErrOrStderr(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Postgres, "postgres", os.Getenv("VARVE_DEMO_POSTGRES"), "URL of the database (VARVE_DEMO_POSTGRES)")
	f.StringVar(&o.Bucket, "bucket", "", "URL of an empty bucket or prefix; default a folder in the scratch folder")
	f.IntVar(&o.rows, "rows", 100_000, "rows in the table before the connector starts")
	f.IntVar(&o.changes, "changes", 50_000, "changes while it runs")
	f.Int32Var(&o.Partitions, "partitions", 4, "partitions of the topic; each must fill a segment of 1 MiB")
	f.Int64Var(&o.seed, "seed", 1, "seed of the rows and changes")
	f.StringVar(&o.Prover, "duckproof", "", "program that folds the Parquet files with DuckDB (make demo builds it)")
	f.BoolVar(&o.keep, "keep", false, "keep the scratch folder and the server's log")
	f.StringVar(&o.Dir, "dir", "", "scratch folder; default a new one under the system's")
	o.out.Bind(cmd)
	return cmd
}

// demo is one run.
type demo struct {
	*options
	progress io.Writer
	started  time.Time
	server   *server
	topic    *job.Fold
	report   report
}

func run(ctx context.Context, o *options, progress, out io.Writer) (err error) {
	d := &demo{options: o, progress: progress, started: time.Now()}
	if err := d.prepare(); err != nil {
		return err
	}
	defer func() {
		if d.server != nil {
			err = errors.Join(err, d.server.stop())
		}
		if d.Source != nil {
			err = errors.Join(err, d.Source.Close(context.WithoutCancel(ctx)))
		}
		if err != nil || o.keep {
			_, _ = fmt.Fprintf(progress, "the scratch folder stays: %s\n", o.Dir)
			return
		}
		err = os.RemoveAll(o.Dir)
	}()
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"server", d.startServer},
		{"table", d.loadTable},
		{"snapshot and stream", d.stream},
		{"topic against table", d.proveTopic},
		{"tiering", d.proveTiering},
		{"replay by a new group, cold cache", d.proveReplay},
		{"parquet", d.proveParquet},
		{"archive verify", d.proveArchive},
	} {
		began := time.Now()
		d.say("%s …", step.name)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		d.report.step(step.name, time.Since(began))
	}
	d.report.Seconds = time.Since(d.started).Seconds()
	return d.report.print(out, &o.out)
}

func (d *demo) say(format string, args ...any) {
	_, _ = fmt.Fprintf(d.progress, "[%5.1fs] %s\n", time.Since(d.started).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) prepare() (err error) {
	if d.Binary, err = os.Executable(); err != nil {
		return err
	}
	if d.Dir == "" {
		d.Dir, err = os.MkdirTemp("", "varve-demo-")
	} else {
		err = os.MkdirAll(d.Dir, 0o755)
	}
	if err != nil {
		return err
	}
	if d.Bucket == "" {
		folder, err := filepath.Abs(filepath.Join(d.Dir, "bucket"))
		if err != nil {
			return err
		}
		d.Bucket = "file://" + filepath.ToSlash(folder)
	}
	return nil
}

func (d *demo) startServer(ctx context.Context) error {
	s, err := startServer(ctx, d.Binary, d.Dir, d.Bucket)
	if err != nil {
		return err
	}
	d.server = s
	d.Kafka, d.Connect = s.kafka, s.connect
	d.say("server up in %s: Kafka %s, Connect %s, admin %s", s.took.Round(time.Millisecond), s.kafka, s.connect, s.admin)
	d.report.StartMillis = s.took.Milliseconds()
	return nil
}
