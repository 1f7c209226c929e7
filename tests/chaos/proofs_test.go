//go:build chaos

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/cmd/varve/demo/job"
	"github.com/varvehq/varve/tiering/archive"
)

// prove holds topic, bucket and Parquet files against the table.
func (r *run) prove() {
	ctx := r.t.Context()
	table, err := r.job.Source.Table(ctx)
	r.check(err)
	_, err = r.job.WaitTiered(ctx)
	r.check(err)
	r.server.Stop(r.t) // so that no cache is warm
	wantGone(r.t, r.mark)
	r.server.Restart(r.t)

	f, end := job.NewFold(r.job.Source, true), map[int32][]uint64{}
	digest, err := r.job.Read(ctx, "chaos-replay", f, func(rec *kgo.Record) {
		end[rec.Partition] = append(end[rec.Partition], r.watch.sum(rec))
	})
	r.check(err)
	r.check(f.Check(r.job.Source, table))
	r.log("the topic has every change: %s; repeated: %s", f.Counts, f.Repeated)
	if f.Repeated.Snapshot == 0 {
		r.t.Error("no row was read twice: the first kill was not in the snapshot")
	}
	r.wait("the reader that was there all the time", func() (bool, error) { return r.watch.records() >= digest.Records, nil })
	r.watch.stop()
	r.check(r.watch.compare(end))

	files, err := r.job.Download(ctx)
	r.check(err)
	r.summary = append(r.summary,
		[2]string{"topic, every change in order", f.Counts.String()},
		[2]string{"repeated, as at-least-once allows", f.Repeated.String()},
		[2]string{"a reader over all kills", fmt.Sprintf("saw %d records, each still at its offset", r.watch.records())},
		[2]string{"table, folded topic", fmt.Sprintf("%s = %s", table, f.Content())})
	r.proveParquet(files, f, table)
	found, err := r.job.VerifyArchive(ctx)
	r.check(err)
	r.proveOrphans(found)
}

// proveParquet folds the files, and then shows that the same check finds a file that is there twice and one that is lost.
func (r *run) proveParquet(files []string, f *job.Fold, table job.Content) {
	ctx := r.t.Context()
	if r.job.Prover == "" {
		r.t.Fatal("-duckproof is missing: make chaos gives it")
	}
	p, err := r.job.FoldParquet(ctx, f, table)
	r.check(err)
	r.summary = append(r.summary, [2]string{"Parquet, read by DuckDB", fmt.Sprintf("%d rows in %d files, each record once, fold to %s", p.Rows, len(files), p.Content)})

	victim := files[r.rng.Intn(len(files))]
	twin := filepath.Join(filepath.Dir(victim), "twin.parquet")
	data, err := os.ReadFile(victim)
	r.check(err)
	r.check(os.WriteFile(twin, data, 0o644))
	if _, err := r.job.FoldParquet(ctx, f, table); err == nil || !strings.Contains(err.Error(), "more than once") || strings.Contains(err.Error(), " 0 are there more than once") {
		r.t.Errorf("with %s there twice: %v", victim, err)
	}
	r.check(os.Remove(twin))
	r.check(os.Remove(victim))
	if _, err := r.job.FoldParquet(ctx, f, table); err == nil || !strings.Contains(err.Error(), "missing") || strings.Contains(err.Error(), ": 0 records of the topic are missing") {
		r.t.Errorf("without %s: %v", victim, err)
	}
}

// proveOrphans: the segment whose manifest was never written is left over, and harmless.
func (r *run) proveOrphans(found *archive.Report) {
	for i, line := range r.summary {
		if line[0] != orphaned {
			continue
		}
		if !slices.ContainsFunc(found.Orphans, func(o archive.Object) bool { return strings.HasSuffix(o.Key, line[1]) }) {
			r.t.Errorf("%s is not among the orphans %v", line[1], found.Orphans)
		}
		r.summary[i][1] += ", an orphan"
	}
	r.summary = append(r.summary, [2]string{"archive verify", fmt.Sprintf("%d segments, %d records: %d faults, %d orphans",
		found.Segments, found.Records, len(found.Faults), len(found.Orphans))})
}

// print shows what was done and proved.
func (r *run) print() {
	if r.t.Failed() {
		return
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "PROVED, seed %d\t%.1f s\n", r.seed, time.Since(r.began).Seconds())
	for i, k := range r.kills {
		_, _ = fmt.Fprintf(w, "kill %d at %.1f s\t%s\n", i+1, k.at.Seconds(), k.point)
		_, _ = fmt.Fprintf(w, "  in flight\t%s\n", k.inFlight)
		_, _ = fmt.Fprintf(w, "  plugins\t%d, all gone after %s; the server was back after %s\n", k.plugins, k.gone.Round(time.Millisecond), k.back.Round(time.Millisecond))
	}
	for _, line := range r.summary {
		_, _ = fmt.Fprintf(w, "%s\t%s\n", line[0], line[1])
	}
	_ = w.Flush()
	r.t.Logf("\n%s", out.String())
}
