package tiering

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvehq/varve/tiering/cache"
	"github.com/varvehq/varve/tiering/manifest"
)

type storeMetrics struct {
	segments, bytes, copyErrors, races, readBytes, deleted prometheus.Counter
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "varve", Subsystem: "tiering", Name: name, Help: help})
}

func newStoreMetrics(reg prometheus.Registerer, s *Store) (*storeMetrics, error) {
	m := &storeMetrics{
		segments:   counter("copied_segments_total", "Segments copied to the bucket and committed."),
		bytes:      counter("copied_bytes_total", "Bytes of segment objects copied and committed."),
		copyErrors: counter("copy_errors_total", "Copies of a segment that failed."),
		races:      counter("manifest_races_total", "Manifest numbers that another writer, or an earlier attempt, had."),
		readBytes:  counter("read_bytes_total", "Bytes of batches read from the bucket or the cache for consumers."),
		deleted:    counter("deleted_objects_total", "Segment and page objects deleted after their grace."),
	}
	if reg == nil {
		return m, nil
	}
	collectors := []prometheus.Collector{m.segments, m.bytes, m.copyErrors, m.races, m.readBytes, m.deleted}
	for _, c := range []struct {
		name, help string
		get        func(cache.Stats) int64
	}{
		{"cache_hits_total", "Parts of segments found in memory.", func(s cache.Stats) int64 { return s.Hits }},
		{"cache_misses_total", "Parts of segments that a reader had to wait for.", func(s cache.Stats) int64 { return s.Misses }},
		{"cache_prefetched_total", "Parts of segments downloaded before they were asked for.", func(s cache.Stats) int64 { return s.Prefetched }},
	} {
		collectors = append(collectors, prometheus.NewCounterFunc(
			prometheus.CounterOpts{Namespace: "varve", Subsystem: "tiering", Name: c.name, Help: c.help},
			func() float64 { return float64(c.get(s.blocks.Stats())) }))
	}
	collectors = append(collectors, prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Namespace: "varve", Subsystem: "tiering", Name: "cache_bytes", Help: "Bytes held in the cache."},
		func() float64 { return float64(s.blocks.Stats().Bytes) }))
	var errs []error
	for _, c := range collectors {
		errs = append(errs, reg.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("tiering: metrics: %w", err)
	}
	return m, nil
}

func (m *storeMetrics) copied(s manifest.Segment) {
	m.segments.Inc()
	m.bytes.Add(float64(s.Bytes))
}
