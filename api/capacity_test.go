package api

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/berth"
)

func TestCapacityIsByRegionAndTogether(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *Config, s *store) {
		s.regions = []berth.RegionCapacity{
			{Region: "us-east", WorkersReady: 2, Slots: 16, Used: 16, Waiting: 4, Spill: []string{"eu-west", "eu-north"}},
			{Region: "eu-west", WorkersReady: 1, WorkersDraining: 1, Slots: 16, Used: 3, Free: 5},
			{Waiting: 2},
		}
	})
	a := r.call("GET", "/v1/capacity", r.operator, "")
	want := wire.Capacity{
		Data: []wire.RegionCapacity{
			{Waiting: 2, Spill: []string{}},
			{Region: new("eu-west"), WorkersReady: 1, WorkersDraining: 1, Slots: 16, Used: 3, Free: 5, Spill: []string{}},
			{Region: new("us-east"), WorkersReady: 2, Slots: 16, Used: 16, Waiting: 4, Spill: []string{"eu-west", "eu-north"}},
		},
		Total: wire.CapacityTotal{WorkersReady: 3, WorkersDraining: 1, Slots: 32, Used: 19, Free: 5, Waiting: 6},
	}
	if diff := cmp.Diff(want, parse[wire.Capacity](t, a)); a.status != 200 || diff != "" {
		t.Errorf("%d (-want +got):\n%s", a.status, diff)
	}
	if a := r.call("GET", "/v1/capacity", r.tenant, ""); a.status != 403 {
		t.Errorf("a tenant: %d", a.status)
	}
	r.store.mu.Lock()
	r.store.regions = nil
	r.store.mu.Unlock()
	if a := r.call("GET", "/v1/capacity", r.operator, ""); !strings.Contains(string(a.body), `"data":[]`) {
		t.Errorf("of nothing: %s", a.body)
	}
}

func TestWorkersShowTheirLabelsAndWhyTheyAreSuspect(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *Config, s *store) {
		s.workers[0].Labels, s.workers[0].SuspectReason = map[string]string{"gpu": "a100"}, "early_ends"
	})
	list := parse[wire.WorkerList](t, r.call("GET", "/v1/workers", r.operator, ""))
	first, second := list.Data[0], list.Data[1]
	if first.Labels["gpu"] != "a100" || first.SuspectReason == nil || *first.SuspectReason != "early_ends" {
		t.Errorf("the first: %+v", first)
	}
	if second.Labels == nil || len(second.Labels) != 0 || second.SuspectReason != nil {
		t.Errorf("the second: %+v", second)
	}
}
