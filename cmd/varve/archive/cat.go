package archive

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/varvehq/varve/cmd/varve/internal/cli"
	"github.com/varvehq/varve/internal/record"
	"github.com/varvehq/varve/tiering/archive"
)

var errEnough = errors.New("enough")

func (c *command) cat() *cobra.Command {
	opts := archive.CatOptions{}
	limit := int64(-1)
	cmd := &cobra.Command{
		Use:   "cat TOPIC[/PARTITION]…",
		Short: "Print records from the bucket",
		Long: "Print records by offset: as text, one line per record with partition, offset, timestamp, key and value; with -o json,\n" +
			"one JSON object per line, as `varve consume -o json` prints it. Records of\n" +
			"aborted transactions are left out.",
		Args: cobra.MinimumNArgs(1),
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
			w := bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10)
			err = catAll(cmd, a, partitions, opts, c.printer(w), limit)
			return errors.Join(err, w.Flush())
		},
	}
	cmd.Flags().Int64Var(&opts.From, "from", 0, "first offset")
	cmd.Flags().Int64Var(&opts.To, "to", -1, "offset to stop before; -1 is the end of the archive")
	cmd.Flags().Int64VarP(&limit, "max", "n", -1, "records to print; -1 is all")
	cmd.Flags().BoolVar(&opts.Aborted, "aborted", false, "records of aborted transactions too")
	return cmd
}

func catAll(cmd *cobra.Command, a *archive.Archive, partitions []archive.Partition, opts archive.CatOptions,
	emit func(*archive.Partition, *record.Record) error, limit int64) error {
	if limit == 0 {
		return nil
	}
	for i := range partitions {
		p := &partitions[i]
		err := a.Cat(cmd.Context(), *p, opts, func(r *record.Record) error {
			if err := emit(p, r); err != nil {
				return err
			}
			if limit--; limit == 0 {
				return errEnough
			}
			return nil
		})
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *command) printer(w io.Writer) func(*archive.Partition, *record.Record) error {
	if c.out.JSON() {
		enc := cli.RecordEncoder(w)
		return func(p *archive.Partition, r *record.Record) error {
			j := cli.Record{Topic: p.Topic, Partition: p.Partition, Offset: r.Offset, Timestamp: time.UnixMilli(r.Timestamp), Key: r.Key, Value: r.Value}
			for _, h := range r.Headers {
				j.Headers = append(j.Headers, cli.Header{Key: string(h.Key), Value: h.Value})
			}
			return enc(&j)
		}
	}
	return func(p *archive.Partition, r *record.Record) error {
		_, err := fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\n", p.Partition, r.Offset, when(r.Timestamp), text(r.Key), text(r.Value))
		return err
	}
}

// text is bytes for people: as they are where they print on one line, else quoted.
func text(b []byte) string {
	if b == nil {
		return "null"
	}
	if !utf8.Valid(b) {
		return strconv.QuoteToASCII(string(b))
	}
	for _, r := range string(b) {
		if r < ' ' || r == 0x7f {
			return strconv.Quote(string(b))
		}
	}
	return string(b)
}
