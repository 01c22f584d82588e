package telemetry

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics is a registry of this process's metrics. The zero value is not usable; see NewMetrics.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.HistogramVec
}

// NewMetrics makes a registry with the process's own metrics (Go runtime, memory, descriptors) and
// the build version.
func NewMetrics(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "heddle_api_request_seconds",
			Help:    "Time to answer an API request, by API, method and status code.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"api", "method", "code"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "heddle_build_info", Help: "1, labelled with the version.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	m.registry.MustRegister(m.requests, build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Request counts one API request.
func (m *Metrics) Request(api, method, code string, took time.Duration) {
	m.requests.WithLabelValues(api, method, code).Observe(took.Seconds())
}

// Kind is the behaviour of a value over time.
type Kind int

const (
	Counter Kind = iota // only grows
	Gauge               // goes up and down
)

// Of returns a value of the kind, without labels.
func (k Kind) Of(name, help string, value int) Value {
	return Value{Name: name, Help: help, Kind: k, Value: float64(value)}
}

// Flag returns a gauge that is 1 while on, else 0.
func Flag(name, help string, on bool) Value {
	v := Gauge.Of(name, help, 0)
	if on {
		v.Value = 1
	}
	return v
}

// With returns the value with one label.
func (v Value) With(label, text string) Value {
	v.Labels = map[string]string{label: text}
	return v
}

// Value is one figure at one moment.
type Value struct {
	Name   string // as exported, such as heddle_flows
	Help   string
	Kind   Kind
	Labels map[string]string
	Value  float64
}

// Register adds a source that is called at every scrape. It must return quickly and give each name
// the same help, kind and label names every time.
func (m *Metrics) Register(source func() []Value) {
	m.registry.MustRegister(sourceCollector(source))
}

// sourceCollector adapts a source of values to Prometheus. It describes nothing in advance
// ("unchecked"), so that a source may have labels that come and go.
type sourceCollector func() []Value

func (sourceCollector) Describe(chan<- *prometheus.Desc) {}

func (s sourceCollector) Collect(out chan<- prometheus.Metric) {
	for _, v := range s() {
		kind := prometheus.GaugeValue
		if v.Kind == Counter {
			kind = prometheus.CounterValue
		}
		desc := prometheus.NewDesc(v.Name, v.Help, nil, v.Labels)
		m, err := prometheus.NewConstMetric(desc, kind, v.Value)
		if err != nil {
			m = prometheus.NewInvalidMetric(desc, err)
		}
		out <- m
	}
}

// Handler serves the registry in the Prometheus text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}
