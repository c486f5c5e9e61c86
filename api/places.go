package api

import "sync"

// tenantShare is the part of all streams that one tenant may have open.
const tenantShare = 4

// places bound how many streams are open at once.
type places struct {
	most int

	mu       sync.Mutex // guards the rest
	open     int
	byTenant map[string]int // "" are operators
}

func newPlaces(most int) *places { return &places{most: most, byTenant: make(map[string]int)} }

// enter takes a place for a stream of a tenant, or refuses it. Leave gives it back.
func (p *places) enter(tenantID string) (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open >= p.most {
		return nil, unavailable("As many streams are open here as may be; ask again.")
	}
	if p.byTenant[tenantID] >= max(1, p.most/tenantShare) {
		return nil, unavailable("The tenant has as many streams open here as it may; close one, or ask again.")
	}
	p.open++
	p.byTenant[tenantID]++
	return func() { p.leave(tenantID) }, nil
}

func (p *places) leave(tenantID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	if p.byTenant[tenantID]--; p.byTenant[tenantID] == 0 {
		delete(p.byTenant, tenantID)
	}
}

// taken is how many streams are open.
func (p *places) taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}
