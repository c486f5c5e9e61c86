package openfile_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/openfile"
)

func TestRaiseReachesTheHardLimit(t *testing.T) {
	t.Parallel()
	limit, err := openfile.Raise()
	if err != nil || limit.Soft != limit.Hard || limit.Soft < 3 {
		t.Fatalf("%+v, %v", limit, err)
	}
}

func TestNeedHasRoom(t *testing.T) {
	t.Parallel()
	for _, connections := range []int{100, 1_000, 1_921, 10_000, 1_000_000} {
		need := openfile.Need(connections)
		if room := (openfile.Limit{Soft: need}).Room(); room < connections {
			t.Errorf("a limit of %d has room for %d, want %d", need, room, connections)
		}
		if room := (openfile.Limit{Soft: need - 2}).Room(); room >= connections {
			t.Errorf("a limit of %d has room for %d already", need-2, room)
		}
	}
	if room := (openfile.Limit{}).Room(); room != 0 {
		t.Errorf("an unknown limit has room for %d", room)
	}
}

func TestMetricShowsUseAndLimits(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	if err := openfile.Register(reg, openfile.Limit{Soft: 1000, Hard: 2000}, 3000); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, metric := range families[0].GetMetric() {
		got[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
	}
	if got["soft"] != 1000 || got["hard"] != 2000 || got["target"] != 3000 || got["open"] < 3 {
		t.Errorf("%v", got)
	}
}
