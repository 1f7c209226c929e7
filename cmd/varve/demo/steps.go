package demo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// patience bounds every wait of the demo.
const patience = 3 * time.Minute

// until repeats f until it reports true.
func until(ctx context.Context, what string, f func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := f()
		if err != nil || done {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited %s for %s: %w", patience, what, ctx.Err())
		}
	}
}

func (d *demo) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(d.server.kafka), kgo.FetchMaxBytes(16 << 20)}, opts...)...)
}

func (d *demo) admin() (*kadm.Client, error) {
	cl, err := d.client()
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(cl), nil
}

func (d *demo) loadTable(ctx context.Context) error {
	s, err := openSource(ctx, d.postgres, d.seed)
	if err != nil {
		return err
	}
	d.source = s
	if err := s.load(ctx, d.rows); err != nil {
		return err
	}
	d.say("table %s has %d rows", tableName, d.rows)
	return nil
}

// stream starts the connector and changes the table while the snapshot runs.
func (d *demo) stream(ctx context.Context) error {
	adm, err := d.admin()
	if err != nil {
		return err
	}
	defer adm.Close()
	topicConfig := map[string]string{"remote.storage.enable": "true", "segment.bytes": "1048576", "local.retention.ms": "1000"}
	ptrs := make(map[string]*string)
	for k, v := range topicConfig {
		ptrs[k] = &v
	}
	if _, err := adm.CreateTopic(ctx, d.parts, 1, ptrs, topicName); err != nil {
		return err
	}
	cfg, err := d.connectorConfig()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := d.createConnector(ctx, "orders-cdc", cfg); err != nil {
		return err
	}
	if err := d.waitFirstRecord(ctx, adm); err != nil {
		return err
	}
	d.say("the snapshot has begun; now %d changes while it runs", d.changes)
	if err := d.source.change(ctx, d.changes); err != nil {
		return err
	}
	d.say("table changed: %s", d.source.counts)
	c := d.source.counts
	want := int64(c.Snapshot + c.Inserts + c.Updates + c.Deletes + c.Tombstones)
	err = until(ctx, "all events in the topic", func() (bool, error) {
		end, err := adm.ListEndOffsets(ctx, topicName)
		if err != nil {
			return false, err
		}
		var n int64
		end.Each(func(o kadm.ListedOffset) { n += o.Offset })
		if n < want {
			return false, d.connectorFailed(ctx, "orders-cdc")
		}
		return true, nil
	})
	d.report.Events = want
	d.report.StreamSeconds = time.Since(began).Seconds()
	return err
}

func (d *demo) waitFirstRecord(ctx context.Context, adm *kadm.Client) error {
	return until(ctx, "the first event", func() (bool, error) {
		end, err := adm.ListEndOffsets(ctx, topicName)
		if err != nil {
			return false, err
		}
		seen := false
		end.Each(func(o kadm.ListedOffset) { seen = seen || o.Offset > 0 })
		if !seen {
			return false, d.connectorFailed(ctx, "orders-cdc")
		}
		return true, nil
	})
}

// topicDigest is every record of the topic, as it is.
type topicDigest struct {
	records int64
	parts   []hash.Hash
}

func (t *topicDigest) sum() string {
	all := sha256.New()
	for _, h := range t.parts {
		_, _ = all.Write(h.Sum(nil))
	}
	return hex.EncodeToString(all.Sum(nil))
}

// read reads the topic from offset 0 to its end, folds it and makes the digest. With a group it does so as a new member.
func (d *demo) read(ctx context.Context, group string) (*fold, *topicDigest, error) {
	adm, err := d.admin()
	if err != nil {
		return nil, nil, err
	}
	defer adm.Close()
	end, err := adm.ListEndOffsets(ctx, topicName)
	if err != nil {
		return nil, nil, err
	}
	left := make(map[int32]int64)
	end.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	opts := []kgo.Opt{kgo.ConsumeTopics(topicName), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	if group != "" {
		opts = append(opts, kgo.ConsumerGroup(group), kgo.DisableAutoCommit())
	}
	cl, err := d.client(opts...)
	if err != nil {
		return nil, nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	f, digest := newFold(), &topicDigest{parts: make([]hash.Hash, d.parts)}
	for i := range digest.parts {
		digest.parts[i] = sha256.New()
	}
	next := make(map[int32]int64)
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, nil, err
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			if r.Offset != next[r.Partition] {
				return nil, nil, fmt.Errorf("partition %d: offset %d after %d", r.Partition, r.Offset, next[r.Partition]-1)
			}
			next[r.Partition]++
			if err := f.add(r); err != nil {
				return nil, nil, fmt.Errorf("partition %d offset %d: %w", r.Partition, r.Offset, err)
			}
			digest.records++
			_, _ = fmt.Fprintf(digest.parts[r.Partition], "%d %d %d ", r.Offset, len(r.Key), len(r.Value))
			_, _ = digest.parts[r.Partition].Write(r.Key)
			_, _ = digest.parts[r.Partition].Write(r.Value)
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		}
	}
	if group != "" {
		if err := cl.CommitUncommittedOffsets(ctx); err != nil {
			return nil, nil, err
		}
	}
	return f, digest, nil
}

func (d *demo) proveTopic(ctx context.Context) error {
	table, err := d.source.table(ctx)
	if err != nil {
		return err
	}
	f, digest, err := d.read(ctx, "")
	if err != nil {
		return err
	}
	if err := f.check(d.source.counts, table); err != nil {
		return err
	}
	d.report.Counts, d.report.Table, d.report.Topic = f.counts, table, f.content()
	d.report.Records, d.report.Digest = digest.records, digest.sum()
	d.say("the topic has each event once, in order per key: %s", f.counts)
	return nil
}

// proveTiering waits until what is sealed is in the bucket and its local copy is gone.
func (d *demo) proveTiering(ctx context.Context) error {
	adm, err := d.admin()
	if err != nil {
		return err
	}
	defer adm.Close()
	return until(ctx, "sealed segments to leave the local disk", func() (bool, error) {
		local, err := adm.ListLocalLogStartOffsets(ctx, topicName)
		if err != nil {
			return false, err
		}
		remote, err := adm.ListLatestRemoteOffsets(ctx, topicName)
		if err != nil {
			return false, err
		}
		start, err := adm.ListStartOffsets(ctx, topicName)
		if err != nil {
			return false, err
		}
		d.report.Tiers = d.report.Tiers[:0]
		done := true
		local.Each(func(o kadm.ListedOffset) {
			r, _ := remote.Lookup(o.Topic, o.Partition)
			s, _ := start.Lookup(o.Topic, o.Partition)
			d.report.Tiers = append(d.report.Tiers, tier{o.Partition, s.Offset, r.Offset + 1, o.Offset})
			done = done && s.Offset == 0 && r.Offset >= 0 && o.Offset == r.Offset+1
		})
		return done && len(d.report.Tiers) == int(d.parts), nil
	})
}

// proveReplay restarts the server, so that no cache is warm, and reads everything as a new group.
func (d *demo) proveReplay(ctx context.Context) error {
	if err := d.server.stop(); err != nil {
		return err
	}
	if err := d.server.start(ctx); err != nil {
		return err
	}
	before, err := d.remoteBytes(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	f, digest, err := d.read(ctx, "demo-replay")
	if err != nil {
		return err
	}
	d.report.ReplaySeconds = time.Since(began).Seconds()
	if digest.records != d.report.Records || digest.sum() != d.report.Digest {
		return fmt.Errorf("the replay has %d records, digest %.16s; the first read had %d, %.16s", digest.records, digest.sum(), d.report.Records, d.report.Digest)
	}
	if err := f.check(d.source.counts, d.report.Table); err != nil {
		return err
	}
	after, err := d.remoteBytes(ctx)
	if err != nil {
		return err
	}
	d.report.RemoteBytes = int64(after - before)
	if d.report.RemoteBytes <= 0 {
		return errors.New("the replay read nothing from the bucket")
	}
	d.say("a new group read %d records from offset 0; %d bytes came from the bucket", digest.records, d.report.RemoteBytes)
	return nil
}

func (d *demo) remoteBytes(ctx context.Context) (float64, error) {
	return d.server.metric(ctx, "varve_tiering_read_bytes_total", "")
}

// proveArchive lets the archive command read every byte in the bucket.
func (d *demo) proveArchive(ctx context.Context) error {
	out, err := d.varve(ctx, "archive", "verify", "--bucket", d.bucket)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	d.report.Archive = strings.TrimSpace(lines[len(lines)-1])
	d.say("archive verify: %s", d.report.Archive)
	return nil
}
