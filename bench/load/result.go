package load

import (
	"math"
	"slices"
	"time"
)

// Result is what a run measured.
type Result struct {
	// Calls is how many calls were made and answered within the window.
	Calls int
	// Total counts the answered calls outside the window too, so that it can be compared with what a store holds.
	Total int
	// Rate is calls per second of the window.
	Rate float64
	// P50 and P99 are percentiles of the time from request to answer.
	P50, P99 time.Duration
}

// newResult takes ownership of took.
func newResult(took []time.Duration, total int, window time.Duration) Result {
	slices.Sort(took)
	return Result{
		Calls: len(took),
		Total: total,
		Rate:  float64(len(took)) / window.Seconds(),
		P50:   Percentile(took, 50),
		P99:   Percentile(took, 99),
	}
}

// Percentile is the smallest of sorted values that at least percent of them do not exceed (nearest rank). Zero if
// there are none.
func Percentile[T any](sorted []T, percent float64) T {
	if len(sorted) == 0 {
		var zero T
		return zero
	}
	rank := int(math.Ceil(percent / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median is the middle of values, or the mean of the two in the middle. Zero if there are none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
