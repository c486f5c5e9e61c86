package telemetry

import (
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewRegistry returns a registry with the metrics that every process has: the Go runtime, the process,
// and berth_build_info, which is 1 and says in its labels what runs.
func NewRegistry(version string) (*prometheus.Registry, error) {
	reg := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "berth_build_info",
		Help:        "What runs: always 1, the labels say it.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision(), "goversion": runtime.Version()},
	})
	info.Set(1)
	for _, collector := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info,
	} {
		if err := reg.Register(collector); err != nil {
			return nil, fmt.Errorf("register a process metric: %w", err)
		}
	}
	return reg, nil
}

// revision is the commit that the binary was built from, or "unknown".
func revision() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, setting := range build.Settings {
		if setting.Key == "vcs.revision" {
			return setting.Value
		}
	}
	return "unknown"
}

// Handler serves the registry at /metrics. It serves what it can gather if one metric fails, and counts
// that in promhttp_metric_handler_errors_total.
func Handler(reg *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg, ErrorHandling: promhttp.ContinueOnError})
}

// HTTPMetrics counts and times HTTP requests by route pattern.
type HTTPMetrics struct {
	duration *prometheus.HistogramVec
}

// NewHTTPMetrics registers berth_http_request_duration_seconds.
func NewHTTPMetrics(reg prometheus.Registerer) (*HTTPMetrics, error) {
	m := &HTTPMetrics{duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "berth_http_request_duration_seconds",
		Help:    "Time from the first byte of a request to the end of its answer, by route pattern, method and status code.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"route", "method", "code"})}
	if err := reg.Register(m.duration); err != nil {
		return nil, fmt.Errorf("register HTTP metrics: %w", err)
	}
	return m, nil
}

// Observe records one finished request. The route is the pattern that matched, such as
// /v1/sessions/{id}; pass "" if none did. Never pass the path itself, which callers choose.
func (m *HTTPMetrics) Observe(route, method string, status int, elapsed time.Duration) {
	if route == "" {
		route = "unmatched"
	}
	m.duration.WithLabelValues(route, knownMethod(method), knownCode(status)).Observe(elapsed.Seconds())
}

// knownMethod maps methods that nobody serves to one label.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	default:
		return "other"
	}
}

// knownCode is the status as a label; a handler that wrote none answered 200.
func knownCode(status int) string {
	switch {
	case status == 0:
		return "200"
	case status < 100 || status > 599:
		return "other"
	default:
		return strconv.Itoa(status)
	}
}
