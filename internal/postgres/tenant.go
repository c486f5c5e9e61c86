package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

type tenantRow struct {
	ID                    string
	DefaultRegion         string
	MaxConcurrentSessions *int
	LiveSessions          int
	StartRate             *float64
	StartBurst            *int
	Strategy              string
	CreatedAt             time.Time
}

func (r tenantRow) tenant() berth.Tenant {
	return berth.Tenant{
		ID:                    r.ID,
		DefaultRegion:         r.DefaultRegion,
		MaxConcurrentSessions: r.MaxConcurrentSessions,
		LiveSessions:          r.LiveSessions,
		StartRate:             deref(r.StartRate),
		StartBurst:            deref(r.StartBurst),
		Strategy:              berth.Strategy(r.Strategy),
		CreatedAt:             r.CreatedAt,
	}
}

// Tenants reads every tenant, by id.
func (s *Store) Tenants(ctx context.Context) ([]berth.Tenant, error) {
	rows, err := collect[tenantRow](ctx, s, "tenant_list", nil)
	tenants := make([]berth.Tenant, 0, len(rows))
	for _, row := range rows {
		tenants = append(tenants, row.tenant())
	}
	return tenants, err
}

// Tenant reads one tenant.
func (s *Store) Tenant(ctx context.Context, id string) (berth.Tenant, error) {
	rows, err := collect[tenantRow](ctx, s, "tenant_list", &id)
	if err != nil {
		return berth.Tenant{}, err
	}
	if len(rows) == 0 {
		return berth.Tenant{}, berth.Refuse(berth.CodeNotFound, "There is no tenant with this id.")
	}
	return rows[0].tenant(), nil
}

// SetTenant makes or changes a tenant. Its quotas hold from its return on; sessions above them stay.
func (s *Store) SetTenant(ctx context.Context, tenant berth.Tenant) error {
	if tenant.DefaultRegion != "" {
		if err := s.knownRegions(ctx, "default_region", []string{tenant.DefaultRegion}); err != nil {
			return err
		}
	}
	var rate *float64
	var burst *int
	if tenant.StartRate != 0 {
		rate, burst = &tenant.StartRate, new(max(1, tenant.StartBurst))
	}
	return s.exec(ctx, "tenant_set", tenant.ID, tenant.DefaultRegion, tenant.MaxConcurrentSessions, rate, burst,
		string(cmp.Or(tenant.Strategy, berth.StrategySpread)))
}

type regionRow struct {
	ID        string
	Spill     []string
	CreatedAt time.Time
}

// Regions reads every region, by id.
func (s *Store) Regions(ctx context.Context) ([]berth.Region, error) {
	rows, err := collect[regionRow](ctx, s, "region_list")
	regions := make([]berth.Region, 0, len(rows))
	for _, row := range rows {
		regions = append(regions, berth.Region{ID: row.ID, Spill: row.Spill, CreatedAt: row.CreatedAt})
	}
	return regions, err
}

// SetRegion makes a region or changes its spill order, whose regions must exist.
func (s *Store) SetRegion(ctx context.Context, region berth.Region) error {
	if slices.Contains(region.Spill, region.ID) {
		return berth.Invalid("spill", "names the region itself; leave it out")
	}
	for i, id := range region.Spill {
		if slices.Contains(region.Spill[:i], id) {
			return berth.Invalid("spill", "names a region twice; name each once")
		}
	}
	if err := s.knownRegions(ctx, "spill", region.Spill); err != nil {
		return err
	}
	spill := region.Spill
	if spill == nil {
		spill = []string{}
	}
	return s.exec(ctx, "region_set", region.ID, spill)
}

// RemoveRegion removes a region that nothing needs, with the workers that are over and were in it last. Otherwise it
// changes nothing and returns what does.
func (s *Store) RemoveRegion(ctx context.Context, id string) (berth.RegionUse, error) {
	type useRow struct {
		Known                      bool
		Workers, Tenants, Spilling []string
	}
	rows, err := collect[useRow](ctx, s, "region_remove", id)
	if err != nil {
		return berth.RegionUse{}, err
	}
	if !rows[0].Known {
		return berth.RegionUse{}, berth.Refuse(berth.CodeNotFound, "There is no region with this id.")
	}
	return berth.RegionUse{Workers: rows[0].Workers, Tenants: rows[0].Tenants, Regions: rows[0].Spilling}, nil
}

func (s *Store) knownRegions(ctx context.Context, field string, ids []string) error {
	missing, err := value[[]string](ctx, s, "region_missing", ids)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return berth.Invalid(field, "names a region that does not exist; make it first with `berth region set`")
	}
	return nil
}

// AddRefusals adds to the counts of this minute.
func (s *Store) AddRefusals(ctx context.Context, counts []berth.RefusalCount) error {
	n := len(counts)
	tenants, regions, codes, refusals := make([]string, n), make([]string, n), make([]string, n), make([]int64, n)
	for i, count := range counts {
		tenants[i], regions[i], codes[i], refusals[i] = count.TenantID, count.Region, string(count.Code), count.Refusals
	}
	return s.exec(ctx, "refusal_add", tenants, regions, codes, refusals)
}
