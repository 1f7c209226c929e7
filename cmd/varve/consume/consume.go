// Package consume is `varve consume`: records of topics become lines.
package consume

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvehq/varve/cmd/varve/internal/cli"
)

type command struct {
	client    cli.Client
	out       string
	group     string
	from      string
	count     int
	exit      bool
	partition int32
	committed bool
	wait      time.Duration
}

// Command returns `varve consume`.
func Command() *cobra.Command {
	c := &command{}
	cmd := &cobra.Command{
		Use: "consume TOPIC…", Short: "Print records of topics", Args: cobra.MinimumNArgs(1),
		Example: "  varve consume orders                    # from the first record on, for ever\n" +
			"  varve consume orders -e -o json         # all there is now, one JSON object a line\n" +
			"  varve consume orders -g billing         # as a member of a group, committing\n" +
			"  varve consume orders --from 2026-01-31T12:00:00Z -n 10",
		RunE: c.run,
	}
	c.client.Bind(cmd)
	f := cmd.Flags()
	f.StringVarP(&c.out, "output", "o", "value", "what a record prints: value, key-value, or json")
	f.StringVarP(&c.group, "group", "g", "", "consume as a member of this group and commit")
	f.StringVar(&c.from, "from", "start", "start, end, an offset, or an RFC 3339 time")
	f.IntVarP(&c.count, "count", "n", 0, "stop after this many records; 0 never")
	f.BoolVarP(&c.exit, "exit", "e", false, "stop at the end of what is there now")
	f.Int32VarP(&c.partition, "partition", "p", -1, "only this partition")
	f.BoolVar(&c.committed, "read-committed", false, "leave out records of open and aborted transactions")
	f.DurationVar(&c.wait, "wait", 10*time.Second, "without -e: how long to wait for a topic that is not there yet")
	return cmd
}

func (c *command) start() (kgo.Offset, error) {
	switch c.from {
	case "start", "beginning", "earliest":
		return kgo.NewOffset().AtStart(), nil
	case "end", "latest":
		return kgo.NewOffset().AtEnd(), nil
	}
	if n, err := strconv.ParseInt(c.from, 10, 64); err == nil {
		return kgo.NewOffset().At(n), nil
	}
	if t, err := time.Parse(time.RFC3339, c.from); err == nil {
		return kgo.NewOffset().AfterMilli(t.UnixMilli()), nil
	}
	return kgo.Offset{}, fmt.Errorf("--from %s: want start, end, an offset, or a time such as 2026-01-31T12:00:00Z", c.from)
}

func (c *command) run(cmd *cobra.Command, topics []string) error {
	if c.out != "value" && c.out != "key-value" && c.out != "json" {
		return fmt.Errorf("-o %s: want value, key-value or json", c.out)
	}
	start, err := c.start()
	if err != nil {
		return err
	}
	ends, opts, err := c.plan(cmd, topics, start)
	if err != nil {
		return err
	}
	cl, err := c.client.Open(append(opts, cli.TellConnections(cmd.ErrOrStderr()))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	w := bufio.NewWriterSize(os.Stdout, 64<<10)
	if out := cmd.OutOrStdout(); out != os.Stdout {
		w = bufio.NewWriter(out)
	}
	err = c.poll(cmd.Context(), cl, w, ends)
	if ferr := w.Flush(); err == nil {
		err = ferr
	}
	if c.group != "" && err == nil {
		err = cl.CommitUncommittedOffsets(context.WithoutCancel(cmd.Context()))
	}
	return err
}

// pollInterval is how often a wait asks again.
const pollInterval = 200 * time.Millisecond

// topics looks the topics up. One that is missing may be about to come, from a connector that has just been created: so
// without -e there is a wait, that says so and ends.
func (c *command) topics(cmd *cobra.Command, adm *kadm.Client, topics []string) (kadm.TopicDetails, error) {
	deadline, told := time.Now().Add(c.wait), false
	for {
		details, err := adm.ListTopicsWithInternal(cmd.Context(), topics...)
		if err != nil {
			return nil, cli.KafkaError(err)
		}
		missing, failed := "", error(nil)
		for _, t := range topics {
			if err := details[t].Err; err != nil {
				missing, failed = t, err
				break
			}
		}
		switch {
		case failed == nil:
			return details, nil
		case c.exit || !errors.Is(failed, kerr.UnknownTopicOrPartition) || !time.Now().Before(deadline):
			return nil, fmt.Errorf("topic %s: %w\n`varve topic list` shows the topics there are", missing, cli.KafkaError(failed))
		}
		if !told {
			told = true
			if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "topic %s is not there yet, waiting %v for it\n", missing, c.wait); err != nil {
				return nil, err
			}
		}
		select {
		case <-time.After(pollInterval):
		case <-cmd.Context().Done():
			return nil, cmd.Context().Err()
		}
	}
}

// plan looks at the topics first: a missing one is an error, not an endless wait, and -e needs to know where the end is.
func (c *command) plan(cmd *cobra.Command, topics []string, start kgo.Offset) (map[string]map[int32]int64, []kgo.Opt, error) {
	adm, done, err := c.client.Admin(cmd)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	details, err := c.topics(cmd, adm, topics)
	if err != nil {
		return nil, nil, err
	}
	opts := []kgo.Opt{kgo.ConsumeResetOffset(start), kgo.FetchMaxWait(500 * time.Millisecond)}
	if c.committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	switch {
	case c.group != "":
		opts = append(opts, kgo.ConsumerGroup(c.group), kgo.ConsumeTopics(topics...), kgo.DisableAutoCommit())
	case c.partition >= 0:
		m := map[string]map[int32]kgo.Offset{}
		for _, t := range topics {
			if _, ok := details[t].Partitions[c.partition]; !ok {
				return nil, nil, fmt.Errorf("topic %s has no partition %d", t, c.partition)
			}
			m[t] = map[int32]kgo.Offset{c.partition: start}
		}
		opts = append(opts, kgo.ConsumePartitions(m))
	default:
		opts = append(opts, kgo.ConsumeTopics(topics...))
	}
	var ends map[string]map[int32]int64
	if c.exit {
		ends, err = c.remaining(cmd.Context(), adm, topics, start)
	}
	return ends, opts, err
}

// remaining tells the end offset of each partition that has records to read.
func (c *command) remaining(ctx context.Context, adm *kadm.Client, topics []string, start kgo.Offset) (map[string]map[int32]int64, error) {
	end, err := adm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, cli.KafkaError(err)
	}
	first, err := adm.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, cli.KafkaError(err)
	}
	var committed kadm.OffsetResponses
	if c.group != "" {
		if committed, err = adm.FetchOffsets(ctx, c.group); err != nil {
			return nil, cli.KafkaError(err)
		}
	}
	at := start.EpochOffset().Offset
	out := map[string]map[int32]int64{}
	end.Each(func(o kadm.ListedOffset) {
		from := at
		if f, ok := first.Lookup(o.Topic, o.Partition); ok && from < f.Offset {
			from = f.Offset
		}
		if g, ok := committed.Lookup(o.Topic, o.Partition); ok && g.At >= 0 {
			from = g.At
		}
		if c.partition >= 0 && o.Partition != c.partition || from >= o.Offset || c.from == "end" || c.from == "latest" {
			return
		}
		if out[o.Topic] == nil {
			out[o.Topic] = map[int32]int64{}
		}
		out[o.Topic][o.Partition] = o.Offset
	})
	return out, nil
}

func (c *command) poll(ctx context.Context, cl *kgo.Client, w *bufio.Writer, ends map[string]map[int32]int64) error {
	left := 0
	for _, ps := range ends {
		left += len(ps)
	}
	if c.exit && left == 0 {
		return nil
	}
	for n := 0; ; {
		fetches := cl.PollFetches(ctx)
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil
		}
		for _, e := range fetches.Errors() {
			return fmt.Errorf("%s partition %d: %w", e.Topic, e.Partition, cli.KafkaError(e.Err))
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			if end, ok := ends[r.Topic][r.Partition]; c.exit && (!ok || r.Offset >= end) {
				continue
			}
			if err := c.print(w, r); err != nil {
				return err
			}
			if n++; c.count > 0 && n >= c.count {
				return nil
			}
			if end, ok := ends[r.Topic][r.Partition]; ok && r.Offset >= end-1 {
				delete(ends[r.Topic], r.Partition)
				if left--; left == 0 {
					return nil
				}
			}
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
}

func (c *command) print(w *bufio.Writer, r *kgo.Record) error {
	var err error
	switch c.out {
	case "json":
		j := cli.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			j.Headers = append(j.Headers, cli.Header{Key: h.Key, Value: h.Value})
		}
		err = cli.RecordEncoder(w)(&j)
	case "key-value":
		_, err = fmt.Fprintf(w, "%s\t%s\n", r.Key, r.Value)
	default:
		_, err = fmt.Fprintf(w, "%s\n", r.Value)
	}
	return err
}
