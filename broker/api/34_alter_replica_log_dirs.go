package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterReplicaLogDirs, v1–v2 (KIP-113).
//
// There is one data folder: a partition that is to move there is there already. Any other folder is LOG_DIR_NOT_FOUND.

func (h *Handlers) alterReplicaLogDirs(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.AlterReplicaLogDirsRequest)
	resp := kmsg.NewPtrAlterReplicaLogDirsResponse()
	resp.Version = req.Version
	at := map[string]int{}
	for i := range req.Dirs {
		d := &req.Dirs[i]
		for j := range d.Topics {
			name := d.Topics[j].Topic
			if _, ok := at[name]; !ok {
				at[name] = len(resp.Topics)
				t := kmsg.NewAlterReplicaLogDirsResponseTopic()
				t.Topic = name
				resp.Topics = append(resp.Topics, t)
			}
			t := &resp.Topics[at[name]]
			for _, n := range d.Topics[j].Partitions {
				p := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
				p.Partition = n
				if d.Dir != h.LogDir.Path {
					p.ErrorCode = kerr.LogDirNotFound.Code
				} else if _, err := h.Data.Partition(name, n); err != nil {
					p.ErrorCode = codeOf(err)
				}
				t.Partitions = append(t.Partitions, p)
			}
		}
	}
	return resp, nil
}
