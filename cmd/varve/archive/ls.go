package archive

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/varvehq/varve/tiering"
	"github.com/varvehq/varve/tiering/archive"
)

func (c *command) ls() *cobra.Command {
	var segments bool
	cmd := &cobra.Command{
		Use:   "ls [TOPIC[/PARTITION]…]",
		Short: "List what is in the bucket",
		Long: "List the topics in the bucket by partition: the offsets it holds, segments, records, bytes and the span of record\n" +
			"timestamps. With --segments, list the segment objects.",
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
			if segments {
				return c.listSegments(cmd, a, partitions)
			}
			return c.listPartitions(cmd, partitions)
		},
	}
	cmd.Flags().BoolVarP(&segments, "segments", "s", false, "list segment objects")
	return cmd
}

func (c *command) listPartitions(cmd *cobra.Command, partitions []archive.Partition) error {
	if partitions == nil {
		partitions = []archive.Partition{}
	}
	var rows [][]string
	for _, p := range partitions {
		rows = append(rows, []string{
			p.Topic, strconv.Itoa(int(p.Partition)), fmt.Sprint(p.LogStart), fmt.Sprint(p.End), strconv.Itoa(p.Segments),
			fmt.Sprint(p.Records), size(p.Bytes), when(p.MinTimestamp), when(p.MaxTimestamp),
		})
	}
	if len(rows) == 0 && !c.out.JSON() {
		_, err := fmt.Fprintln(cmd.ErrOrStderr(), "The bucket holds no segments yet: a topic with remote.storage.enable=true reaches it when its first segment is sealed.")
		return err
	}
	return c.out.Print(cmd.OutOrStdout(), partitions,
		[]string{"TOPIC", "PARTITION", "START", "END", "SEGMENTS", "RECORDS", "SIZE", "OLDEST", "NEWEST"}, rows)
}

func (c *command) listSegments(cmd *cobra.Command, a *archive.Archive, partitions []archive.Partition) error {
	list := []segmentRow{}
	var rows [][]string
	for _, p := range partitions {
		err := a.Segments(cmd.Context(), p, func(s tiering.SegmentInfo) error {
			key := p.Dir() + s.Key()
			list = append(list, segmentRow{p.String(), key, s})
			rows = append(rows, []string{
				p.String(), fmt.Sprint(s.BaseOffset), fmt.Sprint(s.LastOffset), fmt.Sprint(s.LeaderEpoch), fmt.Sprint(s.Records),
				size(int64(s.Bytes)), when(s.FirstTimestamp), when(s.MaxTimestamp), key,
			})
			return nil
		})
		if err != nil {
			return err
		}
	}
	return c.out.Print(cmd.OutOrStdout(), list,
		[]string{"PARTITION", "FIRST", "LAST", "EPOCH", "RECORDS", "SIZE", "OLDEST", "NEWEST", "KEY"}, rows)
}

// MarshalJSON puts the partition and the full key in front of the manifest's own fields.
func (r segmentRow) MarshalJSON() ([]byte, error) {
	fields := map[string]any{}
	b, err := json.Marshal(r.SegmentInfo)
	if err == nil {
		err = json.Unmarshal(b, &fields)
	}
	if err != nil {
		return nil, err
	}
	fields["partition"], fields["key"] = r.Partition, r.Key
	return json.Marshal(fields)
}
