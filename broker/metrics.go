package broker

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvehq/varve/broker/api"
)

// serverMetrics counts what goes over the connections. What is touched per request is looked up once, at the start.
type serverMetrics struct {
	connections   prometheus.Gauge
	connErrors    *prometheus.CounterVec
	fetchSendfile prometheus.Counter
	fetchBuffered prometheus.Counter
	coldReads     prometheus.Counter
	byKey         []keyMetrics // by API key
}

type keyMetrics struct {
	bytes, responseBytes prometheus.Counter
	latency              prometheus.Observer
}

// newServerMetrics registers the metrics of the keys in t with reg, which may be nil.
func newServerMetrics(reg prometheus.Registerer, t *api.Table) (*serverMetrics, error) {
	m := &serverMetrics{
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "varve_broker_connections", Help: "Open client connections."}),
		connErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "varve_broker_connection_errors_total", Help: "Connections that did not end by the peer's close, by reason."},
			[]string{"reason"}),
		coldReads: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_broker_fetch_cold_reads_total", Help: "File parts of fetches that were not in memory."}),
	}
	fetch := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "varve_broker_fetch_bytes_total", Help: "Record bytes sent to fetches, by the way they took."}, []string{"path"})
	in := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "varve_broker_request_bytes_total", Help: "Bytes of requests, by API key."}, []string{"api"})
	out := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "varve_broker_response_bytes_total", Help: "Bytes of responses, by API key."}, []string{"api"})
	lat := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "varve_broker_request_seconds", Help: "From the request read to the response written, by API key.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 12)}, []string{"api"})
	m.fetchSendfile, m.fetchBuffered = fetch.WithLabelValues("sendfile"), fetch.WithLabelValues("buffered")
	for _, e := range t.Entries() {
		for int(e.Key) >= len(m.byKey) {
			m.byKey = append(m.byKey, keyMetrics{})
		}
		m.byKey[e.Key] = keyMetrics{bytes: in.WithLabelValues(e.Name), responseBytes: out.WithLabelValues(e.Name),
			latency: lat.WithLabelValues(e.Name)}
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.connections, m.connErrors, m.coldReads, fetch, in, out, lat} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("broker: register metrics: %w", err)
		}
	}
	return m, nil
}

// request returns the metrics of a key in the table.
func (m *serverMetrics) request(key int16) *keyMetrics { return &m.byKey[key] }
