// Package group holds the commands on consumer groups: list, describe, seek, delete.
package group

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/varvehq/varve/cmd/varve/internal/cli"
)

type command struct {
	client cli.Client
	out    cli.Output
}

// Command returns `varve group`.
func Command() *cobra.Command {
	c := &command{}
	cmd := &cobra.Command{Use: "group", Short: "List, describe, move and delete consumer groups"}
	c.client.Bind(cmd)
	c.out.Bind(cmd)
	cmd.AddCommand(c.list(), c.describe(), c.seek(), c.remove())
	return cmd
}

func (c *command) list() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List groups", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			adm, done, err := c.client.Admin(cmd)
			if err != nil {
				return err
			}
			defer done()
			groups, err := adm.ListGroups(cmd.Context())
			if err != nil {
				return cli.KafkaError(err)
			}
			entries := groups.Sorted()
			var rows [][]string
			for _, g := range entries {
				rows = append(rows, []string{g.Group, g.State, g.ProtocolType})
			}
			return c.out.Print(cmd.OutOrStdout(), entries, []string{"GROUP", "STATE", "TYPE"}, rows)
		},
	}
}

type lagView struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed"`
	End       int64  `json:"end"`
	Lag       int64  `json:"lag"`
	Member    string `json:"member,omitempty"`
	Host      string `json:"host,omitempty"`
}

func (c *command) describe() *cobra.Command {
	return &cobra.Command{
		Use: "describe GROUP", Short: "Show members, committed offsets and lag of a group", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			adm, done, err := c.client.Admin(cmd)
			if err != nil {
				return err
			}
			defer done()
			lags, err := adm.Lag(cmd.Context(), args[0])
			if err != nil {
				return cli.KafkaError(err)
			}
			l := lags[args[0]]
			if err := l.Error(); err != nil {
				return fmt.Errorf("group %s: %w", args[0], cli.KafkaError(err))
			}
			if l.State == "Dead" {
				return fmt.Errorf("group %s does not exist; `varve group list` shows the groups there are", args[0])
			}
			var views []lagView
			var rows [][]string
			for _, m := range l.Lag.Sorted() {
				v := lagView{Topic: m.Topic, Partition: m.Partition, Committed: m.Commit.At, End: m.End.Offset, Lag: m.Lag}
				if m.Member != nil {
					v.Member, v.Host = m.Member.ClientID, m.Member.ClientHost
				}
				views = append(views, v)
				rows = append(rows, []string{v.Topic, fmt.Sprint(v.Partition), dash(v.Committed), fmt.Sprint(v.End), dash(v.Lag), v.Member, v.Host})
			}
			if c.out.JSON() {
				return c.out.Print(cmd.OutOrStdout(), map[string]any{"group": l.Group, "state": l.State, "protocol": l.Protocol,
					"members": len(l.Members), "partitions": views}, nil, nil)
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "group %s  state %s  members %d  protocol %s\n", l.Group, l.State, len(l.Members), l.Protocol); err != nil {
				return err
			}
			return c.out.Print(cmd.OutOrStdout(), nil, []string{"TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "CLIENT", "HOST"}, rows)
		},
	}
}

func dash(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func (c *command) seek() *cobra.Command {
	var to string
	var topics []string
	cmd := &cobra.Command{
		Use: "seek GROUP", Short: "Move the committed offsets of an empty group", Args: cobra.ExactArgs(1),
		Example: "  varve group seek billing --to start --topic orders",
		RunE: func(cmd *cobra.Command, args []string) error {
			adm, done, err := c.client.Admin(cmd)
			if err != nil {
				return err
			}
			defer done()
			if len(topics) == 0 {
				committed, err := adm.FetchOffsets(cmd.Context(), args[0])
				if err != nil {
					return cli.KafkaError(err)
				}
				for t := range committed {
					topics = append(topics, t)
				}
				if len(topics) == 0 {
					return fmt.Errorf("group %s has committed nothing; say which topics with --topic", args[0])
				}
			}
			target, err := resolve(cmd, adm, to, topics)
			if err != nil {
				return err
			}
			res, err := adm.CommitOffsets(cmd.Context(), args[0], target)
			if err == nil {
				err = res.Error()
			}
			if err != nil {
				return fmt.Errorf("group %s: %w\nonly a group without members can be moved: stop its consumers first", args[0], cli.KafkaError(err))
			}
			var rows [][]string
			for _, o := range target.Sorted() {
				rows = append(rows, []string{o.Topic, fmt.Sprint(o.Partition), fmt.Sprint(o.At)})
			}
			return c.out.Print(cmd.OutOrStdout(), target.Sorted(), []string{"TOPIC", "PARTITION", "OFFSET"}, rows)
		},
	}
	cmd.Flags().StringVar(&to, "to", "start", "start, end, an offset, or an RFC 3339 time")
	cmd.Flags().StringArrayVar(&topics, "topic", nil, "topic to move; may be repeated; default all that the group has committed")
	return cmd
}

func resolve(cmd *cobra.Command, adm *kadm.Client, to string, topics []string) (kadm.Offsets, error) {
	var listed kadm.ListedOffsets
	var err error
	fixed := int64(-1)
	switch to {
	case "start":
		listed, err = adm.ListStartOffsets(cmd.Context(), topics...)
	case "end":
		listed, err = adm.ListEndOffsets(cmd.Context(), topics...)
	default:
		if n, perr := strconv.ParseInt(to, 10, 64); perr == nil && n >= 0 {
			fixed = n
			listed, err = adm.ListStartOffsets(cmd.Context(), topics...)
		} else if t, terr := time.Parse(time.RFC3339, to); terr == nil {
			listed, err = adm.ListOffsetsAfterMilli(cmd.Context(), t.UnixMilli(), topics...)
		} else {
			return nil, fmt.Errorf("--to %s: want start, end, an offset, or a time such as 2026-01-31T12:00:00Z", to)
		}
	}
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, cli.KafkaError(err)
	}
	out := listed.Offsets()
	if fixed >= 0 {
		for _, ps := range out {
			for p, o := range ps {
				o.At, o.LeaderEpoch = fixed, -1
				ps[p] = o
			}
		}
	}
	return out, nil
}

func (c *command) remove() *cobra.Command {
	return &cobra.Command{
		Use: "delete GROUP…", Short: "Delete empty groups with their offsets", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			adm, done, err := c.client.Admin(cmd)
			if err != nil {
				return err
			}
			defer done()
			res, err := adm.DeleteGroups(cmd.Context(), args...)
			if err != nil {
				return cli.KafkaError(err)
			}
			var errs []error
			for _, r := range res.Sorted() {
				if r.Err != nil {
					errs = append(errs, fmt.Errorf("group %s: %w", r.Group, cli.KafkaError(r.Err)))
				}
			}
			return errors.Join(errs...)
		},
	}
}
