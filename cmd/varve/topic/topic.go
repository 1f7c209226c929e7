// Package topic holds the commands on topics: create, list, describe, alter, delete. They speak the Kafka protocol to any
// cluster.
package topic

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/api"
	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/cmd/varve/internal/cli"
	"github.com/varvehq/varve/internal/kafka"
)

type command struct {
	client cli.Client
	out    cli.Output
}

// Command returns `varve topic`.
func Command() *cobra.Command {
	c := &command{}
	cmd := &cobra.Command{Use: "topic", Short: "Create, list, describe, alter and delete topics"}
	c.client.Bind(cmd)
	c.out.Bind(cmd)
	cmd.AddCommand(c.create(), c.list(), c.describe(), c.alter(), c.remove())
	return cmd
}

func (c *command) create() *cobra.Command {
	var partitions int32
	var replicas int16
	var configs []string
	cmd := &cobra.Command{
		Use: "create NAME…", Short: "Create topics", Args: cobra.MinimumNArgs(1),
		Example: "  varve topic create orders -p 3 -c retention.ms=86400000 -c remote.storage.enable=true",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := cli.ParseConfigs(configs)
			if err != nil {
				return err
			}
			adm, done, err := c.client.Admin(cmd)
			if err != nil {
				return err
			}
			defer done()
			res, err := adm.CreateTopics(cmd.Context(), partitions, replicas, cfg, args...)
			if err != nil {
				return cli.KafkaError(err)
			}
			var rows [][]string
			var errs []error
			for _, r := range res.Sorted() {
				if r.Err != nil {
					text := r.ErrMessage
					if text == "" {
						text = cli.KafkaError(r.Err).Error()
					}
					errs = append(errs, fmt.Errorf("topic %s: %s", r.Topic, text))
					continue
				}
				rows = append(rows, []string{r.Topic, fmt.Sprint(r.NumPartitions), uuid(r.ID)})
			}
			if len(rows) > 0 {
				if err := c.out.Print(cmd.OutOrStdout(), res.Sorted(), []string{"TOPIC", "PARTITIONS", "ID"}, rows); err != nil {
					return err
				}
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().Int32VarP(&partitions, "partitions", "p", -1, "partitions; -1 is the broker's default")
	cmd.Flags().Int16VarP(&replicas, "replicas", "r", -1, "replicas of each partition; -1 is the broker's default")
	cmd.Flags().StringArrayVarP(&configs, "config", "c", nil, "topic config, KEY=VALUE; may be repeated")
	return cmd
}

func uuid(id kadm.TopicID) string { return kafka.UUID(id).String() }

func (c *command) list() *cobra.Command {
	var internal bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List topics", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			adm, done, err := c.client.Admin(cmd)
			if err != nil {
				return err
			}
			defer done()
			topics, err := adm.ListTopicsWithInternal(cmd.Context())
			if err != nil {
				return cli.KafkaError(err)
			}
			type entry struct {
				Topic      string `json:"topic"`
				Partitions int    `json:"partitions"`
				Replicas   int    `json:"replicas"`
				ID         string `json:"id"`
				Internal   bool   `json:"internal"`
			}
			entries := []entry{}
			var rows [][]string
			for _, t := range topics.Sorted() {
				if t.IsInternal && !internal {
					continue
				}
				e := entry{t.Topic, len(t.Partitions), t.Partitions.NumReplicas(), uuid(t.ID), t.IsInternal}
				entries = append(entries, e)
				rows = append(rows, []string{e.Topic, strconv.Itoa(e.Partitions), strconv.Itoa(e.Replicas), e.ID})
			}
			return c.out.Print(cmd.OutOrStdout(), entries, []string{"TOPIC", "PARTITIONS", "REPLICAS", "ID"}, rows)
		},
	}
	cmd.Flags().BoolVarP(&internal, "internal", "i", false, "internal topics too")
	return cmd
}

type partitionView struct {
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader"`
	LeaderEpoch int32   `json:"leader_epoch"`
	Replicas    []int32 `json:"replicas"`
	ISR         []int32 `json:"isr"`
	Start       int64   `json:"start_offset"`
	LocalStart  int64   `json:"local_start_offset"`
	TieredEnd   int64   `json:"tiered_end_offset"`
	End         int64   `json:"end_offset"`
	// Problem is what keeps a Varve broker from serving or tiering the partition.
	Problem string `json:"problem,omitempty"`
}

func (c *command) describe() *cobra.Command {
	return &cobra.Command{
		Use: "describe NAME…", Short: "Show partitions, offsets in both tiers and configs of topics", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			if err := c.client.Reach(cmd, cl); err != nil {
				return err
			}
			adm := kadm.NewClient(cl)
			topics, err := adm.ListTopicsWithInternal(cmd.Context(), args...)
			if err != nil {
				return cli.KafkaError(err)
			}
			for _, name := range args {
				t := topics[name]
				if t.Err != nil {
					return fmt.Errorf("topic %s: %w\n`varve topic list` shows the topics there are", name, cli.KafkaError(t.Err))
				}
				if err := c.describeOne(cmd, cl, adm, t); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (c *command) describeOne(cmd *cobra.Command, cl *kgo.Client, adm *kadm.Client, t kadm.TopicDetail) error {
	ctx := cmd.Context()
	start, err := adm.ListStartOffsets(ctx, t.Topic)
	if err != nil {
		return cli.KafkaError(err)
	}
	end, err := adm.ListEndOffsets(ctx, t.Topic)
	if err != nil {
		return cli.KafkaError(err)
	}
	local, lerr := adm.ListLocalLogStartOffsets(ctx, t.Topic)
	tiered := tiers(ctx, cl, t)
	var parts []partitionView
	for _, p := range t.Partitions.Sorted() {
		v := partitionView{Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas, ISR: p.ISR,
			Start: -1, LocalStart: -1, TieredEnd: -1, End: -1}
		if o, ok := start.Lookup(t.Topic, p.Partition); ok && o.Err == nil {
			v.Start = o.Offset
		}
		if o, ok := end.Lookup(t.Topic, p.Partition); ok && o.Err == nil {
			v.End = o.Offset
		}
		if o, ok := local.Lookup(t.Topic, p.Partition); lerr == nil && ok && o.Err == nil {
			v.LocalStart = o.Offset
		}
		if o, ok := tiered[p.Partition]; ok {
			v.TieredEnd, v.Problem = o.end, o.problem
		}
		parts = append(parts, v)
	}
	configs, err := adm.DescribeTopicConfigs(ctx, t.Topic)
	if err != nil {
		return cli.KafkaError(err)
	}
	return c.printTopic(cmd, t, parts, configs)
}

// tier is what the leader says of a partition's remote tier.
type tier struct {
	end     int64 // -1 for nothing, or unknown
	problem string
}

// tiers asks where the bucket ends; a cluster that does not understand the question answers nothing.
func tiers(ctx context.Context, cl *kgo.Client, t kadm.TopicDetail) map[int32]tier {
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = t.Topic
	for _, p := range t.Partitions.Sorted() {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = p.Partition, partition.LatestTiered
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	out := map[int32]tier{}
	for _, shard := range cl.RequestSharded(ctx, req) {
		resp, ok := shard.Resp.(*kmsg.ListOffsetsResponse)
		if !ok || shard.Err != nil {
			continue
		}
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				p := &resp.Topics[i].Partitions[j]
				o := tier{end: -1}
				if p.ErrorCode == 0 && p.Offset >= 0 {
					o.end = p.Offset + 1
				}
				p.UnknownTags.Each(func(tag uint32, v []byte) {
					if tag == api.ProblemTag {
						o.problem = string(v)
					}
				})
				out[p.Partition] = o
			}
		}
	}
	return out
}

func (c *command) printTopic(cmd *cobra.Command, t kadm.TopicDetail, parts []partitionView, configs kadm.ResourceConfigs) error {
	own := map[string]string{}
	all := map[string]string{}
	for _, rc := range configs {
		for _, k := range rc.Configs {
			all[k.Key] = k.MaybeValue()
			if k.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
				own[k.Key] = k.MaybeValue()
			}
		}
	}
	if c.out.JSON() {
		return c.out.Print(cmd.OutOrStdout(), map[string]any{
			"topic": t.Topic, "id": uuid(t.ID), "internal": t.IsInternal, "partitions": parts, "configs": all}, nil, nil)
	}
	w := cmd.OutOrStdout()
	tier := "local only"
	if all["remote.storage.enable"] == "true" {
		tier = "tiered"
	}
	if _, err := fmt.Fprintf(w, "topic %s  id %s  partitions %d  %s\n", t.Topic, uuid(t.ID), len(parts), tier); err != nil {
		return err
	}
	var rows [][]string
	for _, p := range parts {
		rows = append(rows, []string{fmt.Sprint(p.Partition), fmt.Sprint(p.Leader), fmt.Sprint(p.LeaderEpoch), ints(p.Replicas), ints(p.ISR),
			dash(p.Start), dash(p.TieredEnd), dash(p.LocalStart), dash(p.End)})
	}
	if err := c.out.Print(w, nil, []string{"PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "TIERED-END", "LOCAL-START", "END"}, rows); err != nil {
		return err
	}
	for _, p := range parts {
		if p.Problem != "" {
			if _, err := fmt.Fprintf(w, "partition %d: %s\n", p.Partition, p.Problem); err != nil {
				return err
			}
		}
	}
	if len(own) == 0 {
		return nil
	}
	names := make([]string, 0, len(own))
	for k := range own {
		names = append(names, k)
	}
	sort.Strings(names)
	rows = rows[:0]
	for _, k := range names {
		rows = append(rows, []string{k, own[k]})
	}
	return c.out.Print(w, nil, []string{"CONFIG", "VALUE"}, rows)
}

func ints(v []int32) string {
	s := make([]string, len(v))
	for i, n := range v {
		s[i] = fmt.Sprint(n)
	}
	return strings.Join(s, ",")
}

func dash(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func (c *command) alter() *cobra.Command {
	var set, unset []string
	cmd := &cobra.Command{
		Use: "alter NAME", Short: "Change configs of a topic", Args: cobra.ExactArgs(1),
		Example: "  varve topic alter orders -c retention.ms=3600000 --delete segment.bytes",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := cli.ParseConfigs(set)
			if err != nil {
				return err
			}
			var changes []kadm.AlterConfig
			for k, v := range cfg {
				changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: v})
			}
			for _, k := range unset {
				changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: k})
			}
			if len(changes) == 0 {
				return errors.New("nothing to change: give -c KEY=VALUE or --delete KEY")
			}
			adm, done, err := c.client.Admin(cmd)
			if err != nil {
				return err
			}
			defer done()
			res, err := adm.AlterTopicConfigs(cmd.Context(), changes, args[0])
			if err != nil {
				return cli.KafkaError(err)
			}
			for _, r := range res {
				if r.Err != nil {
					return fmt.Errorf("topic %s: %s", r.Name, r.ErrMessage)
				}
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "topic %s is altered\n", args[0])
			return err
		},
	}
	cmd.Flags().StringArrayVarP(&set, "config", "c", nil, "set KEY=VALUE; may be repeated")
	cmd.Flags().StringArrayVar(&unset, "delete", nil, "go back to the default of KEY; may be repeated")
	return cmd
}

func (c *command) remove() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME…", Short: "Delete topics with all their data, in the bucket too", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			adm, done, err := c.client.Admin(cmd)
			if err != nil {
				return err
			}
			defer done()
			res, err := adm.DeleteTopics(cmd.Context(), args...)
			if err != nil {
				return cli.KafkaError(err)
			}
			var errs []error
			for _, r := range res.Sorted() {
				if r.Err != nil {
					errs = append(errs, fmt.Errorf("topic %s: %w", r.Topic, cli.KafkaError(r.Err)))
					continue
				}
				if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "topic %s is deleted\n", r.Topic); err != nil {
					return err
				}
			}
			return errors.Join(errs...)
		},
	}
}
