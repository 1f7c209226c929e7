package job

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// CreateTopic makes the topic, tiered, with small segments that leave the local disk at once.
func (j *Job) CreateTopic(ctx context.Context, adm *kadm.Client) error {
	cfg := map[string]string{"remote.storage.enable": "true", "segment.bytes": "1048576", "local.retention.ms": "1000"}
	maps.Copy(cfg, j.TopicConfig)
	configs := make(map[string]*string)
	for k, v := range cfg {
		configs[k] = &v
	}
	_, err := adm.CreateTopic(ctx, j.Partitions, 1, configs, Topic)
	return err
}

// Records counts the topic's records.
func Records(ctx context.Context, adm *kadm.Client) (int64, error) {
	end, err := adm.ListEndOffsets(ctx, Topic)
	if err != nil {
		return 0, err
	}
	var n int64
	end.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n, nil
}

// WaitRecords waits until the topic has n records, or its connector has failed.
func (j *Job) WaitRecords(ctx context.Context, adm *kadm.Client, n int64) error {
	return Until(ctx, fmt.Sprintf("%d events in the topic", n), func() (bool, error) {
		have, err := Records(ctx, adm)
		if err != nil || have >= n {
			return err == nil, err
		}
		return false, j.Failed(ctx, SourceJob)
	})
}

// Digest is every record of a topic, as it is.
type Digest struct {
	Records int64
	parts   []hash.Hash
}

// Sum is the digest as text.
func (t *Digest) Sum() string {
	all := sha256.New()
	for _, h := range t.parts {
		_, _ = all.Write(h.Sum(nil))
	}
	return hex.EncodeToString(all.Sum(nil))
}

func (t *Digest) add(r *kgo.Record) {
	t.Records++
	h := t.parts[r.Partition]
	_, _ = fmt.Fprintf(h, "%d %d %d ", r.Offset, len(r.Key), len(r.Value))
	_, _ = h.Write(r.Key)
	_, _ = h.Write(r.Value)
}

// Read reads the topic from offset 0 to its end into a fold and makes the digest; each is called with every record as well.
// With a group it does so as a new member.
func (j *Job) Read(ctx context.Context, group string, f *Fold, each ...func(*kgo.Record)) (*Digest, error) {
	adm, err := j.Admin()
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	end, err := adm.ListEndOffsets(ctx, Topic)
	if err != nil {
		return nil, err
	}
	opts := []kgo.Opt{kgo.ConsumeTopics(Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	if group != "" {
		opts = append(opts, kgo.ConsumerGroup(group), kgo.DisableAutoCommit())
	}
	cl, err := j.Client(opts...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	digest := &Digest{parts: make([]hash.Hash, j.Partitions)}
	for i := range digest.parts {
		digest.parts[i] = sha256.New()
	}
	err = scan(ctx, cl, end, func(r *kgo.Record) error {
		digest.add(r)
		for _, do := range each {
			do(r)
		}
		return f.Add(r)
	})
	if err == nil && group != "" {
		err = cl.CommitUncommittedOffsets(ctx)
	}
	return digest, err
}

// scan gives every record from offset 0 to the ends to do, and refuses a gap.
func scan(ctx context.Context, cl *kgo.Client, ends kadm.ListedOffsets, do func(*kgo.Record) error) error {
	left := make(map[int32]int64)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	next := make(map[int32]int64)
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			if r.Offset != next[r.Partition] {
				return fmt.Errorf("partition %d: offset %d after %d", r.Partition, r.Offset, next[r.Partition]-1)
			}
			next[r.Partition]++
			if err := do(r); err != nil {
				return fmt.Errorf("partition %d offset %d: %w", r.Partition, r.Offset, err)
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		}
	}
	return nil
}
