package berth

import "time"

// Tenant is an isolation and quota boundary.
type Tenant struct {
	ID                    string
	DefaultRegion         string // empty: none
	MaxConcurrentSessions *int   // nil: no quota
	LiveSessions          int    // sessions that count against the quota now
	CreatedAt             time.Time
}

// Region is a placement locality.
type Region struct {
	ID        string
	Spill     []string // where starts go when it is full, in this order
	CreatedAt time.Time
}

// RefusalCount counts the starts of one tenant that were refused for one reason.
type RefusalCount struct {
	TenantID string
	Region   string // asked for; empty: any
	Code     Code
	Refusals int64
}
