package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvehq/varve/cmd/varve/demo/job"
)

func (d *demo) loadTable(ctx context.Context) error {
	s, err := job.OpenSource(ctx, d.Postgres, d.seed)
	if err != nil {
		return err
	}
	d.Source = s
	if err := s.Load(ctx, d.rows); err != nil {
		return err
	}
	d.say("table %s has %d rows", job.TableName, d.rows)
	return nil
}

// stream starts the connector and changes the table while the snapshot runs.
func (d *demo) stream(ctx context.Context) error {
	adm, err := d.Admin()
	if err != nil {
		return err
	}
	defer adm.Close()
	if err := d.CreateTopic(ctx, adm); err != nil {
		return err
	}
	began := time.Now()
	if err := d.StartSource(ctx); err != nil {
		return err
	}
	if err := d.WaitRecords(ctx, adm, 1); err != nil {
		return err
	}
	d.say("the snapshot has begun; now %d changes while it runs", d.changes)
	if err := d.Source.Change(ctx, d.changes); err != nil {
		return err
	}
	d.say("table changed: %s", d.Source.Counts)
	d.report.Events = d.Source.Counts.Sum()
	err = d.WaitRecords(ctx, adm, d.report.Events)
	d.report.StreamSeconds = time.Since(began).Seconds()
	return err
}

func (d *demo) proveTopic(ctx context.Context) error {
	table, err := d.Source.Table(ctx)
	if err != nil {
		return err
	}
	f := job.NewFold(d.Source, false)
	digest, err := d.Read(ctx, "", f)
	if err != nil {
		return err
	}
	if err := f.Check(d.Source, table); err != nil {
		return err
	}
	d.report.Counts, d.report.Table, d.report.Topic = f.Counts, table, f.Content()
	d.report.Records, d.report.Digest = digest.Records, digest.Sum()
	d.say("the topic has each event once, in order per key: %s", f.Counts)
	return nil
}

func (d *demo) proveTiering(ctx context.Context) (err error) {
	d.report.Tiers, err = d.WaitTiered(ctx)
	return err
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
	d.topic = job.NewFold(d.Source, false)
	digest, err := d.Read(ctx, "demo-replay", d.topic)
	if err != nil {
		return err
	}
	d.report.ReplaySeconds = time.Since(began).Seconds()
	if digest.Records != d.report.Records || digest.Sum() != d.report.Digest {
		return fmt.Errorf("the replay has %d records, digest %.16s; the first read had %d, %.16s", digest.Records, digest.Sum(), d.report.Records, d.report.Digest)
	}
	if err := d.topic.Check(d.Source, d.report.Table); err != nil {
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
	d.say("a new group read %d records from offset 0; %d bytes came from the bucket", digest.Records, d.report.RemoteBytes)
	return nil
}

func (d *demo) remoteBytes(ctx context.Context) (float64, error) {
	return d.server.metric(ctx, "varve_tiering_read_bytes_total", "")
}

func (d *demo) proveParquet(ctx context.Context) error {
	began := time.Now()
	if err := d.StartSink(ctx, 20_000); err != nil {
		return err
	}
	if err := d.WaitSink(ctx); err != nil {
		return err
	}
	d.report.ParquetSeconds = time.Since(began).Seconds()
	files, err := d.Download(ctx)
	if err != nil {
		return err
	}
	d.report.ParquetFiles = len(files)
	if d.Prover == "" {
		d.say("%d Parquet files; give --duckproof (make demo builds it) to fold them with DuckDB", len(files))
		return nil
	}
	p, err := d.FoldParquet(ctx, d.topic, d.report.Table)
	if err != nil {
		return err
	}
	d.report.Parquet, d.report.ParquetRows = p.Content, p.Rows
	d.say("DuckDB folds %d rows in %d files to the table's content: %s", p.Rows, len(files), p.Content)
	return nil
}

// proveArchive lets the archive command read every byte in the bucket.
func (d *demo) proveArchive(ctx context.Context) error {
	found, err := d.VerifyArchive(ctx)
	if err != nil {
		return err
	}
	d.report.Archive = fmt.Sprintf("%d partitions, %d manifests, %d segments, %d records, %d bytes read: %d faults, %d orphans",
		found.Partitions, found.Manifests, found.Segments, found.Records, found.Bytes, len(found.Faults), len(found.Orphans))
	d.say("archive verify: %s", d.report.Archive)
	return nil
}
