package berth

import "time"

// Tenant is an isolation and quota boundary.
type Tenant struct {
	ID                    string
	DefaultRegion         string   // empty: none
	MaxConcurrentSessions *int     // nil: no quota
	LiveSessions          int      // sessions that count against the quota now
	StartRate             float64  // sessions started per second; zero: no limit
	StartBurst            int      // starts at once after a pause, 1 or more; zero without a StartRate
	Strategy              Strategy // of starts that name none; empty: StrategySpread
	CreatedAt             time.Time
}

// Region is a placement locality.
type Region struct {
	ID        string
	Spill     []string // where starts go when it is full, in this order
	CreatedAt time.Time
}

// RegionUse is what needs a region, ten of each kind at most.
type RegionUse struct {
	Workers []string // that are in it and are not over, or still own sessions
	Tenants []string // whose default it is
	Regions []string // that spill to it
}

// None says that nothing needs the region.
func (u RegionUse) None() bool { return len(u.Workers)+len(u.Tenants)+len(u.Regions) == 0 }

// RefusalCount counts the starts of one tenant that were refused for one reason.
type RefusalCount struct {
	TenantID string
	Region   string // asked for; empty: any
	Code     Code
	Refusals int64
}
