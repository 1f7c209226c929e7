package partition

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvehq/varve/broker/commitlog"
)

type metrics struct {
	partitions    prometheus.GaugeFunc
	syncs         prometheus.CounterFunc
	offline       prometheus.Gauge
	stray         prometheus.Gauge
	tierFailing   prometheus.Gauge
	uploads       prometheus.Counter
	uploadBytes   prometheus.Counter
	uploadErrors  prometheus.Counter
	uploadSeconds prometheus.Histogram
	remoteReads   prometheus.Counter
	remoteBusy    prometheus.Counter
	workErrors    prometheus.Counter
	scrubErrors   prometheus.Counter
	scrubBytes    prometheus.Counter

	compactRuns, compactErrors, compactRead, compactWritten, compactDropped prometheus.Counter
	compactMaxDirty, compactUncleanable                                     prometheus.Gauge
	compactSeconds                                                          prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, partitions func() float64, syncs func() commitlog.SyncStats) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "varve_partition_" + name, Help: help})
	}
	m := &metrics{
		partitions: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "varve_partition_partitions",
			Help: "Partitions on this broker."}, partitions),
		syncs: prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "varve_partition_syncs_total",
			Help: "Sync calls of the group commit: of single files and folders, and of the file system."}, func() float64 {
			s := syncs()
			return float64(s.Files + s.Whole)
		}),
		offline: prometheus.NewGauge(prometheus.GaugeOpts{Name: "varve_partition_offline",
			Help: "Partitions that serve nothing since their storage failed."}),
		stray: prometheus.NewGauge(prometheus.GaugeOpts{Name: "varve_partition_stray",
			Help: "Folders of unknown topics that were set aside, here now or earlier."}),
		tierFailing: prometheus.NewGauge(prometheus.GaugeOpts{Name: "varve_partition_tier_failing",
			Help: "Partitions whose last work on the bucket failed; it is tried again."}),
		uploads:      counter("uploads_total", "Segments copied to the bucket."),
		uploadBytes:  counter("upload_bytes_total", "Log bytes of segments copied to the bucket."),
		uploadErrors: counter("upload_errors_total", "Copies that failed; each is tried again."),
		uploadSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "varve_partition_upload_seconds",
			Help: "Time to copy a segment.", Buckets: prometheus.ExponentialBuckets(0.01, 3, 10)}),
		remoteReads: counter("remote_reads_total", "Reads of the remote tier."),
		remoteBusy:  counter("remote_reads_refused_total", "Reads of the remote tier put off, since too many were pending."),
		workErrors:  counter("work_errors_total", "Background work (sealing, retention, upload, deletion) that failed."),
		scrubErrors: counter("scrub_errors_total", "Damaged segments that the scrub found."),
		scrubBytes:  counter("scrub_bytes_total", "Local bytes that the scrub has read."),

		compactRuns:    counter("compactions_total", "Compactions of a log."),
		compactErrors:  counter("compaction_errors_total", "Compactions that failed; each is tried again."),
		compactRead:    counter("compaction_read_bytes_total", "Bytes of logs that compaction has rewritten."),
		compactWritten: counter("compaction_written_bytes_total", "Bytes that compaction has left of them."),
		compactDropped: counter("compaction_dropped_records_total", "Records that compaction has removed."),
		compactMaxDirty: prometheus.NewGauge(prometheus.GaugeOpts{Name: "varve_partition_compaction_max_dirty_percent",
			Help: "The largest share of bytes not yet compacted of any compacted log, when last looked at."}),
		compactUncleanable: prometheus.NewGauge(prometheus.GaugeOpts{Name: "varve_partition_compaction_uncleanable",
			Help: "Partitions whose last compaction failed."}),
		compactSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "varve_partition_compaction_seconds",
			Help: "Time to compact a log.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 10)}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.partitions, m.syncs, m.offline, m.stray, m.tierFailing, m.uploads, m.uploadBytes, m.uploadErrors, m.uploadSeconds,
		m.remoteReads, m.remoteBusy, m.workErrors, m.scrubErrors, m.scrubBytes,
		m.compactRuns, m.compactErrors, m.compactRead, m.compactWritten, m.compactDropped, m.compactMaxDirty, m.compactUncleanable,
		m.compactSeconds} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("partition: register metrics: %w", err)
		}
	}
	return m, nil
}
