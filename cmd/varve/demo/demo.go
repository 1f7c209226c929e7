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

	"github.com/varvehq/varve/cmd/varve/internal/cli"
)

type options struct {
	postgres string
	bucket   string
	rows     int
	changes  int
	parts    int32
	seed     int64
	prover   string
	keep     bool
	dir      string
	out      cli.Output
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
			if o.postgres == "" {
				return errors.New("--postgres is missing: the URL of a PostgreSQL with wal_level=logical, for a user that may replicate")
			}
			if err := o.out.Check(); err != nil {
				return err
			}
			return run(cmd.Context(), o, cmd.ErrOrStderr(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.postgres, "postgres", os.Getenv("VARVE_DEMO_POSTGRES"), "URL of the database (VARVE_DEMO_POSTGRES)")
	f.StringVar(&o.bucket, "bucket", "", "URL of an empty bucket or prefix; default a folder in the scratch folder")
	f.IntVar(&o.rows, "rows", 100_000, "rows in the table before the connector starts")
	f.IntVar(&o.changes, "changes", 50_000, "changes while it runs")
	f.Int32Var(&o.parts, "partitions", 4, "partitions of the topic; each must fill a segment of 1 MiB")
	f.Int64Var(&o.seed, "seed", 1, "seed of the rows and changes")
	f.StringVar(&o.prover, "duckproof", "", "program that folds the Parquet files with DuckDB (make demo builds it)")
	f.BoolVar(&o.keep, "keep", false, "keep the scratch folder and the server's log")
	f.StringVar(&o.dir, "dir", "", "scratch folder; default a new one under the system's")
	o.out.Bind(cmd)
	return cmd
}

// Names of what the demo makes.
const (
	slotName  = "varve_demo"
	tableName = "varve_demo_orders"
	prefix    = "shop"
	topicName = prefix + ".public." + tableName
)

// demo is one run.
type demo struct {
	*options
	progress io.Writer
	started  time.Time
	server   *server
	source   *source
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
		if d.source != nil {
			err = errors.Join(err, d.source.close(context.WithoutCancel(ctx)))
		}
		if err != nil || o.keep {
			_, _ = fmt.Fprintf(progress, "the scratch folder stays: %s\n", o.dir)
			return
		}
		err = os.RemoveAll(o.dir)
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

func (d *demo) prepare() error {
	var err error
	if d.dir == "" {
		d.dir, err = os.MkdirTemp("", "varve-demo-")
	} else {
		err = os.MkdirAll(d.dir, 0o755)
	}
	if err != nil {
		return err
	}
	if d.bucket == "" {
		folder, err := filepath.Abs(filepath.Join(d.dir, "bucket"))
		if err != nil {
			return err
		}
		d.bucket = "file://" + filepath.ToSlash(folder)
	}
	return nil
}

func (d *demo) startServer(ctx context.Context) error {
	s, err := startServer(ctx, d.dir, d.bucket)
	if err != nil {
		return err
	}
	d.server = s
	d.say("server up in %s: Kafka %s, Connect %s, admin %s", s.took.Round(time.Millisecond), s.kafka, s.connect, s.admin)
	d.report.StartMillis = s.took.Milliseconds()
	return nil
}
