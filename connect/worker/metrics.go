package worker

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvehq/varve/connect/topics"
	"github.com/varvehq/varve/sdk"
)

// metrics are the worker's. Task series are labelled by connector and task and end with their connector.
type metrics struct {
	records  *prometheus.CounterVec // direction: polled, written (source); read, put (sink)
	bytes    *prometheus.CounterVec
	errors   *prometheus.CounterVec
	skipped  *prometheus.CounterVec
	inFlight *prometheus.GaugeVec
	commits  *prometheus.CounterVec
	custom   *customMetrics
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	labels := []string{"connector", "task"}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "varve", Subsystem: "connect", Name: name, Help: help}, append(labels, more...))
	}
	m := &metrics{
		records:  counter("records_total", "Records by stage: polled and written by sources, read and put by sinks.", "stage"),
		bytes:    counter("bytes_total", "Bytes of keys and values by stage: written by sources, read by sinks.", "stage"),
		errors:   counter("record_errors_total", "Records that could not be handled."),
		skipped:  counter("records_skipped_total", "Records passed over as errors.tolerance allows."),
		commits:  counter("offset_commits_total", "Offset commits by result.", "result"),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "varve", Subsystem: "connect", Name: "source_batches_in_flight", Help: "Batches read from a source whose records are not all acknowledged."}, labels),
		custom:   &customMetrics{},
	}
	m.custom.mu.values = map[customKey]float64{}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.records, m.bytes, m.errors, m.skipped, m.commits, m.inFlight, m.custom} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// forget ends a connector's series.
func (m *metrics) forget(connector string) {
	l := prometheus.Labels{"connector": connector}
	for _, v := range []*prometheus.CounterVec{m.records, m.bytes, m.errors, m.skipped, m.commits} {
		v.DeletePartialMatch(l)
	}
	m.inFlight.DeletePartialMatch(l)
	m.custom.forget(connector)
}

// taskMetrics are the series of one task.
type taskMetrics struct {
	in, out, bytes, errors, skipped prometheus.Counter
	committed, commitFailed         prometheus.Counter
	inFlight                        prometheus.Gauge
	sdk                             sdk.Metrics
}

func (m *metrics) task(id topics.TaskID, in, out, bytes string) *taskMetrics {
	c, t := id.Connector, strconv.Itoa(id.Task)
	return &taskMetrics{
		in: m.records.WithLabelValues(c, t, in), out: m.records.WithLabelValues(c, t, out), bytes: m.bytes.WithLabelValues(c, t, bytes),
		errors: m.errors.WithLabelValues(c, t), skipped: m.skipped.WithLabelValues(c, t),
		committed: m.commits.WithLabelValues(c, t, "ok"), commitFailed: m.commits.WithLabelValues(c, t, "failed"),
		inFlight: m.inFlight.WithLabelValues(c, t),
		sdk:      customTask{m.custom, c, t},
	}
}

// customMetrics publishes what connectors set themselves, as varve_connector_<name>.
type customMetrics struct {
	mu struct {
		sync.Mutex
		values map[customKey]float64
	}
}

type customKey struct{ name, connector, task string }

func (c *customMetrics) Describe(chan<- *prometheus.Desc) {} // unchecked: names are the connectors'

func (c *customMetrics) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, v := range c.mu.values {
		desc := prometheus.NewDesc("varve_connector_"+k.name, "Set by the connector.", []string{"connector", "task"}, nil)
		m, err := prometheus.NewConstMetric(desc, prometheus.UntypedValue, v, k.connector, k.task)
		if err == nil { // a name that is no metric name is the connector's mistake, and is left out
			ch <- m
		}
	}
}

func (c *customMetrics) forget(connector string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.mu.values {
		if k.connector == connector {
			delete(c.mu.values, k)
		}
	}
}

type customTask struct {
	c               *customMetrics
	connector, task string
}

func (t customTask) Set(name string, v float64) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	t.c.mu.values[customKey{name, t.connector, t.task}] = v
}

func (t customTask) Add(name string, v float64) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	t.c.mu.values[customKey{name, t.connector, t.task}] += v
}
