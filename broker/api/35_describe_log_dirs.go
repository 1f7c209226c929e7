package api

import (
	"context"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeLogDirs, v1–v5 (KIP-113, KIP-827).
//
// The one data folder with the partitions of this broker: all of them, or those that are named and exist. A partition that
// never had a record has no folder yet and is told with size 0. The lag is that of the log's end behind the high watermark,
// never negative. From v4 on the file system's total and usable bytes. The folder is never cordoned (v5, KIP-1066).

func (h *Handlers) describeLogDirs(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DescribeLogDirsRequest)
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	resp.Version = req.Version
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir = h.LogDir.Path
	free, total, err := h.LogDir.Free()
	if err != nil {
		h.Log.Warn("data folder not described", "dir", h.LogDir.Path, "err", err)
		dir.ErrorCode = kerr.KafkaStorageError.Code
		resp.Dirs = append(resp.Dirs, dir)
		return resp, nil
	}
	dir.TotalBytes, dir.UsableBytes = clampBytes(total), clampBytes(free)
	im := h.Controller.Image()
	if req.Topics == nil {
		for _, name := range im.TopicNames() {
			h.describeLogs(&dir, name, partitionIndexes(im.Topic(name)))
		}
	}
	for i := range req.Topics {
		h.describeLogs(&dir, req.Topics[i].Topic, req.Topics[i].Partitions)
	}
	resp.Dirs = append(resp.Dirs, dir)
	return resp, nil
}

// describeLogs adds the partitions of a topic that exist here.
func (h *Handlers) describeLogs(dir *kmsg.DescribeLogDirsResponseDir, name string, partitions []int32) {
	t := kmsg.NewDescribeLogDirsResponseDirTopic()
	t.Topic = name
	for _, n := range partitions {
		p, err := h.Data.Partition(name, n)
		if err != nil {
			continue
		}
		dp := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		dp.Partition, dp.Size = n, p.Size()
		dp.OffsetLag = max(p.HighWatermark()-p.EndOffset(), 0)
		t.Partitions = append(t.Partitions, dp)
	}
	if len(t.Partitions) > 0 {
		dir.Topics = append(dir.Topics, t)
	}
}

func clampBytes(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
