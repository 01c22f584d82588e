package telemetry

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics is a registry of this process's metrics. The zero value is not usable; see NewMetrics.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.HistogramVec
	hung     prometheus.Gauge
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
		hung: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "heddle_hung_parts", Help: "Parts of this process that have been at one piece of work for longer than its watchdog allows.",
		}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "heddle_build_info", Help: "1, labelled with the version.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	m.registry.MustRegister(m.requests, m.hung, build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.Register(clock)
	return m
}

// clock returns the time of this machine. Prometheus compares it with its own.
func clock() []Value {
	v := Gauge.Of("heddle_time_seconds", "Time of this machine's clock, in seconds since 1970.", 0)
	v.Value = float64(time.Now().UnixNano()) / 1e9
	return []Value{v}
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

// With returns the value with one more label.
func (v Value) With(label, text string) Value {
	labels := make(map[string]string, len(v.labels)+1)
	maps.Copy(labels, v.labels)
	labels[label] = text
	v.labels = labels
	return v
}

// Label returns the text of a label, or "".
func (v Value) Label(name string) string { return v.labels[name] }

// Value is one figure at one moment.
type Value struct {
	Name   string // as exported, such as heddle_flows
	Help   string
	Kind   Kind
	Value  float64
	labels map[string]string // given by With
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
	for _, v := range bounded(s()) {
		kind := prometheus.GaugeValue
		if v.Kind == Counter {
			kind = prometheus.CounterValue
		}
		desc := prometheus.NewDesc(v.Name, v.Help, nil, v.labels)
		m, err := prometheus.NewConstMetric(desc, kind, v.Value)
		if err != nil {
			m = prometheus.NewInvalidMetric(desc, err)
		}
		out <- m
	}
}

// MaxSeries bounds the series of one metric: tenants decide how many some have.
const MaxSeries = 100

// bounded returns the values without those of a metric beyond MaxSeries, and how many were left
// out. Those of the first labels in order stay, so that they are the same at every scrape.
func bounded(values []Value) []Value {
	counts := map[string]int{}
	for _, v := range values {
		counts[v.Name]++
	}
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n <= MaxSeries })
	if len(counts) == 0 {
		return values
	}
	slices.SortStableFunc(values, func(a, b Value) int {
		return cmp.Compare(fmt.Sprint(a.labels), fmt.Sprint(b.labels)) // maps print in the order of their keys
	})
	kept := map[string]int{}
	values = slices.DeleteFunc(values, func(v Value) bool {
		kept[v.Name]++
		return kept[v.Name] > MaxSeries
	})
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		values = append(values, Gauge.Of("heddle_series_left_out", "Series of a metric that are not exported, since it has too many.", counts[name]-MaxSeries).With("metric", name))
	}
	return values
}

// Handler serves the registry in the Prometheus text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}
