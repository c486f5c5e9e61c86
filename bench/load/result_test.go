package load_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthdev/berth/bench/load"
)

func TestPercentileIsTheSmallestThatCoversEnough(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sorted := rapid.SliceOfN(rapid.IntRange(0, 50), 1, 200).Draw(t, "values")
		slices.Sort(sorted)
		percent := rapid.Float64Range(0, 100).Draw(t, "percent")
		got := load.Percentile(sorted, percent)
		covered := func(value int) float64 {
			n := 0
			for _, v := range sorted {
				if v <= value {
					n++
				}
			}
			return 100 * float64(n) / float64(len(sorted))
		}
		const rounding = 1e-9
		if covered(got) < percent-rounding {
			t.Fatalf("%v covers %v percent, want %v", got, covered(got), percent)
		}
		if at := slices.Index(sorted, got); at > 0 && covered(sorted[at-1]) >= percent+rounding {
			t.Fatalf("%v would do, got %v", sorted[at-1], got)
		}
	})
}

func TestMedianHasAsManyBelowAsAbove(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 20).Draw(t, "values")
		before := slices.Clone(values)
		median := load.Median(values)
		below, above := 0, 0
		for _, v := range values {
			if v < median {
				below++
			}
			if v > median {
				above++
			}
		}
		if 2*below > len(values) || 2*above > len(values) {
			t.Fatalf("median %v: %d below and %d above of %d", median, below, above, len(values))
		}
		if !slices.Equal(values, before) {
			t.Fatal("the caller's values were reordered")
		}
	})
}

func TestNothingHasZeroForItsMiddle(t *testing.T) {
	t.Parallel()
	if load.Median(nil) != 0 || load.Percentile([]int(nil), 50) != 0 {
		t.Error("want zeros")
	}
}
