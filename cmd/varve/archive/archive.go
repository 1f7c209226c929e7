// Package archive holds the commands on a bucket that need no broker: ls, verify, cat. They only read.
package archive

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varvehq/varve/cmd/varve/internal/cli"
	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/open"
	"github.com/varvehq/varve/tiering"
	"github.com/varvehq/varve/tiering/archive"
)

type command struct {
	bucket string
	out    cli.Output
}

// Command returns `varve archive`.
func Command() *cobra.Command {
	c := &command{}
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Look into a bucket without a broker: list, verify, print records",
		Example: "  varve archive ls --bucket file:///srv/varve-data/bucket\n" +
			"  export VARVE_BUCKET='s3://logs/prod?endpoint=http://127.0.0.1:9000&path_style=true'\n" +
			"  varve archive verify\n" +
			"  varve archive cat orders/0 --from 1000 -n 10",
	}
	cmd.PersistentFlags().StringVar(&c.bucket, "bucket", os.Getenv("VARVE_BUCKET"),
		"the bucket: file:///path or s3://name/prefix?endpoint=…&region=…&path_style=true (VARVE_BUCKET)")
	c.out.Bind(cmd)
	cmd.AddCommand(c.ls(), c.verify(), c.cat())
	return cmd
}

// open opens the bucket; the caller closes it by the returned function.
func (c *command) open(ctx context.Context) (*archive.Archive, func(), error) {
	if err := c.out.Check(); err != nil {
		return nil, nil, err
	}
	if c.bucket == "" {
		return nil, nil, errors.New("no bucket is named: give --bucket URL or set VARVE_BUCKET, for example --bucket file:///srv/varve-data/bucket")
	}
	if err := checkFolder(c.bucket); err != nil {
		return nil, nil, err
	}
	b, err := open.Default(ctx, c.bucket)
	if err != nil {
		return nil, nil, err
	}
	a, err := archive.Open(ctx, b)
	if err != nil {
		return nil, nil, explain(errors.Join(err, b.Close()), c.bucket)
	}
	return a, func() {
		a.Close()
		_ = b.Close() // nothing was written
	}, nil
}

// checkFolder keeps a mistyped folder from being made: opening a folder as a bucket makes it.
func checkFolder(url string) error {
	path, ok := strings.CutPrefix(url, "file://")
	if !ok && strings.Contains(url, ":") {
		return nil
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("the folder of the bucket %s: %w", url, err)
	}
	return nil
}

// explain says what to do about the errors a new user meets.
func explain(err error, url string) error {
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		return fmt.Errorf("%s is no Varve bucket: it has no varve.json (is the prefix right, has a server with this bucket run yet?): %w", url, err)
	case errors.Is(err, objstore.ErrNoBucket):
		return fmt.Errorf("the bucket of %s does not exist: make it with the store's own tools, or mend the name: %w", url, err)
	case errors.Is(err, objstore.ErrForbidden):
		return fmt.Errorf("the store refuses the credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile: %w", err)
	case strings.Contains(err.Error(), "get credentials"): // the SDK has no sentinel for it
		return fmt.Errorf("no credentials for the store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile: %w", err)
	case isDial(err):
		return fmt.Errorf("the store does not answer: is it up, and are endpoint and region in the URL right (%s)? %w", url, err)
	}
	return err
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// selectPartitions reads arguments of the form TOPIC or TOPIC/PARTITION; none means all topics.
func selectPartitions(ctx context.Context, a *archive.Archive, args []string) ([]archive.Partition, error) {
	var out []archive.Partition
	if len(args) == 0 {
		topics, err := a.Topics(ctx)
		for _, t := range topics {
			out = append(out, t.Partitions...)
		}
		return out, err
	}
	for _, arg := range args {
		ps, err := selectOne(ctx, a, arg)
		if err != nil {
			return nil, err
		}
		out = append(out, ps...)
	}
	return out, nil
}

func selectOne(ctx context.Context, a *archive.Archive, arg string) ([]archive.Partition, error) {
	name, number, hasNumber := strings.Cut(arg, "/")
	t, err := a.Find(ctx, name)
	if errors.Is(err, archive.ErrNoTopic) {
		return nil, fmt.Errorf("no topic %s in the bucket; `varve archive ls` shows what is there. A topic reaches the bucket with its first sealed segment", name)
	}
	if err != nil {
		return nil, err
	}
	if !hasNumber {
		return t.Partitions, nil
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("%s: write TOPIC or TOPIC/PARTITION", arg)
	}
	for _, p := range t.Partitions {
		if p.Partition == int32(n) {
			return []archive.Partition{p}, nil
		}
	}
	return nil, fmt.Errorf("topic %s has no partition %d in the bucket", t.Name, n)
}

// size gives bytes for people.
func size(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, u := float64(n)/1024, 0
	for ; f >= 1024 && u < len(units)-1; u++ {
		f /= 1024
	}
	return fmt.Sprintf("%.1f %ciB", f, units[u])
}

func when(ms int64) string {
	if ms < 0 {
		return "-"
	}
	return archive.Time(ms).Format("2006-01-02 15:04:05")
}

// segmentRow is a segment as ls prints it.
type segmentRow struct {
	Partition string `json:"partition"`
	Key       string `json:"key"`
	tiering.SegmentInfo
}
