// Command bench measures Varve side by side with Apache Kafka, and its Postgres source side by side with Debezium, on one
// machine and on loopback.
//
// It starts every server itself, in a temporary folder, and ends it; the peers' programs come from tests/tools and
// tests/postgres. Both sides get the same requests from the same load generator, in turns, for several rounds after one that
// is not counted. What it prints are medians over the rounds; every single value goes into raw.json beside the table. It
// judges nothing: docs/benchmarks.md says what the figures mean.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	part   string
	rounds int
	quick  bool
	only   string
	side   string
	out    string
	root   string // of the repository
	work   string // folder of data and logs, removed at the end
	keep   bool
}

func main() {
	var o options
	flag.StringVar(&o.part, "part", "kafka", "kafka, debezium, coordinators or compaction")
	flag.IntVar(&o.rounds, "rounds", 5, "counted rounds")
	flag.BoolVar(&o.quick, "quick", false, "short runs and little data, to try the harness")
	flag.StringVar(&o.only, "only", "", "run the scenarios whose name contains this")
	flag.StringVar(&o.side, "side", "", "measure only the side whose name contains this, for a profile")
	flag.StringVar(&o.out, "out", "", "folder for raw.json and table.md; empty: bench/results/DATE-PART")
	flag.BoolVar(&o.keep, "keep", false, "keep data and logs of the servers")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.rounds < 1 {
		return errors.New("-rounds must be at least 1")
	}
	if o.root, err = os.Getwd(); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(o.root, "bin", "varve")); err != nil {
		return fmt.Errorf("run it in the repository after `make build`: %w", err)
	}
	if o.work, err = os.MkdirTemp("", "varve-bench-"); err != nil {
		return err
	}
	if o.keep {
		fmt.Fprintln(os.Stderr, "data and logs stay in", o.work)
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(o.work)) }()
	}
	res := &results{Machine: readMachine(), Started: time.Now().UTC().Format(time.RFC3339), Rounds: o.rounds, Quick: o.quick}
	switch o.part {
	case "kafka":
		err = runKafka(ctx, &o, res)
	case "debezium":
		err = runDebezium(ctx, &o, res)
	case "coordinators":
		err = runCoordinators(ctx, &o, res)
	case "compaction":
		err = runCompaction(ctx, &o, res)
	default:
		return fmt.Errorf("-part %q is none of kafka, debezium, coordinators and compaction", o.part)
	}
	if len(res.Samples) == 0 {
		return err
	}
	if o.out == "" {
		o.out = filepath.Join("bench", "results", time.Now().UTC().Format("2006-01-02")+"-"+o.part)
	}
	res.Complete = err == nil // what was measured before an error is kept
	if err := errors.Join(err, res.write(o.out)); err != nil {
		return err
	}
	fmt.Print(res.table())
	return nil
}

// selected reports whether a scenario is to be run.
func (o *options) selected(scenario string) bool { return strings.Contains(scenario, o.only) }

// measures reports whether a side is to be measured.
func (o *options) measures(side string) bool { return strings.Contains(side, o.side) }
