package archive

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvehq/varve/tiering/archive"
)

// errFaults makes the exit code non-zero.
var errFaults = errors.New("the bucket has faults")

func (c *command) verify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify [TOPIC[/PARTITION]…]",
		Short: "Read every byte of the bucket and check it",
		Long: "Read every manifest and every byte of every segment: checksums, record batches, contiguous offsets, indexes, the\n" +
			"chain of manifests, and that nothing they name is missing. Faults make the exit code 1. Orphans (objects that\n" +
			"nothing names) are reported and are no fault.",
		RunE: func(cmd *cobra.Command, args []string) error {
			a, done, err := c.open(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			partitions, err := selectPartitions(cmd.Context(), a, args)
			if err != nil {
				return err
			}
			show := progress{w: cmd.ErrOrStderr(), tty: isTerminal(cmd.ErrOrStderr())}
			report, err := a.Verify(cmd.Context(), partitions, show.update)
			show.end()
			if err != nil {
				return err
			}
			if err := c.printReport(cmd.OutOrStdout(), report); err != nil {
				return err
			}
			if n := len(report.Faults); n > 0 {
				return fmt.Errorf("%w: %d found in %d segments", errFaults, n, report.Segments)
			}
			return nil
		},
	}
}

func (c *command) printReport(w io.Writer, r *archive.Report) error {
	if c.out.JSON() {
		return c.out.Print(w, r, nil, nil)
	}
	var rows [][]string
	for _, f := range r.Faults {
		rows = append(rows, []string{"FAULT", f.Partition, f.Error})
	}
	for _, o := range r.Orphans {
		rows = append(rows, []string{"orphan", size(o.Bytes), o.Key})
	}
	rows = append(rows, []string{fmt.Sprintf("%d partitions, %d manifests, %d segments, %d batches, %d records, %s read: %d faults, %d orphans, %d waiting for deletion",
		r.Partitions, r.Manifests, r.Segments, r.Batches, r.Records, size(r.Bytes), len(r.Faults), len(r.Orphans), r.Condemned)})
	return c.out.Print(w, r, nil, rows)
}

// progress writes a line that replaces itself on a terminal, and one every ten seconds elsewhere.
type progress struct {
	w     io.Writer
	tty   bool
	last  time.Time
	start time.Time
	shown bool
}

func (p *progress) update(s archive.Progress) {
	now := time.Now()
	if p.start.IsZero() {
		p.start, p.last = now, now
	}
	every := 10 * time.Second
	if p.tty {
		every = 200 * time.Millisecond
	}
	if now.Sub(p.last) < every {
		return
	}
	p.last = now
	percent := int64(100)
	if s.TotalBytes > 0 {
		percent = 100 * s.Bytes / s.TotalBytes
	}
	rate := int64(float64(s.Bytes) / now.Sub(p.start).Seconds())
	text := fmt.Sprintf("%s: %d segments, %s of %s (%d %%), %s/s, %d faults", s.Partition, s.Segments, size(s.Bytes), size(s.TotalBytes), percent, size(rate), s.Faults)
	if p.tty {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s", text) // progress that cannot be shown is no reason to stop
		p.shown = true
		return
	}
	_, _ = fmt.Fprintln(p.w, text)
}

func (p *progress) end() {
	if p.shown {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
