package openfile

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// collector shows limits and use as berth_open_files.
type collector struct {
	limit  Limit
	target int
	desc   *prometheus.Desc
}

// Register adds berth_open_files to a registry. Its label what is "open" (now), "soft" and "hard" (the limits), "target"
// (the limit that the process was meant to have).
func Register(reg prometheus.Registerer, limit Limit, target int) error {
	c := &collector{limit: limit, target: target, desc: prometheus.NewDesc(
		"berth_open_files", "Files and sockets: open now, the limits, and the limit that the process was meant to have.", []string{"what"}, nil,
	)}
	if err := reg.Register(c); err != nil {
		return fmt.Errorf("register the metric of open files: %w", err)
	}
	return nil
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	show := func(what string, n int) {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), what)
	}
	show("soft", c.limit.Soft)
	show("hard", c.limit.Hard)
	show("target", c.target)
	if n, known := used(); known {
		show("open", n)
	}
}
