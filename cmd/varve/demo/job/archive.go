package job

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/varvehq/varve/tiering/archive"
)

// Tier says where a partition's records are.
type Tier struct {
	Partition  int32 `json:"partition"`
	Start      int64 `json:"start"`
	TieredEnd  int64 `json:"tiered_end"`
	LocalStart int64 `json:"local_start"`
}

// WaitTiered waits until what is sealed is in the bucket and its local copy is gone, in every partition.
func (j *Job) WaitTiered(ctx context.Context) (tiers []Tier, err error) {
	adm, err := j.Admin()
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	err = Until(ctx, "sealed segments to leave the local disk", func() (bool, error) {
		local, err := adm.ListLocalLogStartOffsets(ctx, Topic)
		if err != nil {
			return false, err
		}
		remote, err := adm.ListLatestRemoteOffsets(ctx, Topic)
		if err != nil {
			return false, err
		}
		start, err := adm.ListStartOffsets(ctx, Topic)
		if err != nil {
			return false, err
		}
		tiers = tiers[:0]
		done := true
		local.Each(func(o kadm.ListedOffset) {
			r, _ := remote.Lookup(o.Topic, o.Partition)
			s, _ := start.Lookup(o.Topic, o.Partition)
			tiers = append(tiers, Tier{o.Partition, s.Offset, r.Offset + 1, o.Offset})
			done = done && s.Offset == 0 && r.Offset >= 0 && o.Offset == r.Offset+1
		})
		return done && len(tiers) == int(j.Partitions), nil
	})
	slices.SortFunc(tiers, func(a, b Tier) int { return int(a.Partition - b.Partition) })
	return tiers, err
}

// VerifyArchive lets the archive command read every byte in the bucket; a fault is an error.
func (j *Job) VerifyArchive(ctx context.Context) (*archive.Report, error) {
	args := []string{"archive", "verify", "-o", "json", "--bucket", j.Bucket}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, j.Binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("varve %s: %w\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	var a archive.Report
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		return nil, err
	}
	if len(a.Faults) > 0 {
		return nil, fmt.Errorf("the bucket has faults: %s", out.String())
	}
	return &a, nil
}
