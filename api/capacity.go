package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/berth"
)

// GetCapacity serves GET /v1/capacity.
func (s *service) GetCapacity(w http.ResponseWriter, r *http.Request) {
	capacity, err := s.capacity(r.Context())
	s.answer(w, r, http.StatusOK, capacity, err)
}

func (s *service) capacity(ctx context.Context) (wire.Capacity, error) {
	regions, err := s.deps.Capacity.Capacity(ctx)
	if err != nil {
		return wire.Capacity{}, err
	}
	slices.SortFunc(regions, func(a, b berth.RegionCapacity) int { return cmp.Compare(a.Region, b.Region) })
	answer := wire.Capacity{Data: make([]wire.RegionCapacity, len(regions))}
	for i, r := range regions {
		answer.Data[i] = wire.RegionCapacity{
			Region: optional(r.Region), WorkersReady: r.WorkersReady, WorkersDraining: r.WorkersDraining, Slots: r.Slots, Used: r.Used,
			Free: r.Free, Waiting: r.Waiting, Spill: append([]wire.Region{}, r.Spill...),
		}
		total := &answer.Total
		total.WorkersReady += r.WorkersReady
		total.WorkersDraining += r.WorkersDraining
		total.Slots += r.Slots
		total.Used += r.Used
		total.Free += r.Free
		total.Waiting += r.Waiting
	}
	return answer, nil
}
