package failover

import (
	"slices"

	"github.com/berthdev/berth/bench/load"
)

// Distribution describes durations in milliseconds by nearest rank.
type Distribution struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func newDistribution(values []float64) Distribution {
	sorted := slices.Sorted(slices.Values(values))
	return Distribution{
		N: len(sorted), P50: load.Percentile(sorted, 50), P99: load.Percentile(sorted, 99), Max: load.Percentile(sorted, 100),
	}
}
