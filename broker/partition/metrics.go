package partition

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	partitions    prometheus.GaugeFunc
	offline       prometheus.Gauge
	uploads       prometheus.Counter
	uploadBytes   prometheus.Counter
	uploadErrors  prometheus.Counter
	uploadSeconds prometheus.Histogram
	remoteReads   prometheus.Counter
	remoteBusy    prometheus.Counter
	workErrors    prometheus.Counter
	scrubErrors   prometheus.Counter
	scrubBytes    prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, partitions func() float64) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "varve_partition_" + name, Help: help})
	}
	m := &metrics{
		partitions: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "varve_partition_partitions",
			Help: "Partitions on this broker."}, partitions),
		offline: prometheus.NewGauge(prometheus.GaugeOpts{Name: "varve_partition_offline",
			Help: "Partitions that serve nothing since their storage failed."}),
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
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.partitions, m.offline, m.uploads, m.uploadBytes, m.uploadErrors, m.uploadSeconds,
		m.remoteReads, m.remoteBusy, m.workErrors, m.scrubErrors, m.scrubBytes} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("partition: register metrics: %w", err)
		}
	}
	return m, nil
}
