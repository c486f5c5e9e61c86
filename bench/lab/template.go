package lab

import (
	"context"
	"log/slog"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/migrations"
)

// setupPool is how many connections prepare a template.
const setupPool = 4

// Plan is what a template of Berth's database holds.
type Plan struct {
	Region  string
	Tenants []string // without quotas
	// Fill adds what else there is to be; nil: nothing.
	Fill func(ctx context.Context, store *postgres.Store) error
}

// Prepare makes a template, and returns the API key of each tenant.
func (s *Server) Prepare(ctx context.Context, name string, plan Plan) (keys map[string]string, err error) {
	if err := s.CreateDatabase(ctx, name); err != nil {
		return nil, err
	}
	url := s.URL(name)
	if err := migrations.Up(ctx, url, slog.New(slog.DiscardHandler)); err != nil {
		return nil, err
	}
	store, err := postgres.Open(ctx, postgres.Config{URL: url, Name: "berth bench", PoolSize: setupPool})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	if err := store.RotateKeys(ctx); err != nil {
		return nil, err
	}
	if err := store.SetRegion(ctx, berth.Region{ID: plan.Region}); err != nil {
		return nil, err
	}
	keys = make(map[string]string, len(plan.Tenants))
	for _, id := range plan.Tenants {
		if keys[id], err = addTenant(ctx, store, id); err != nil {
			return nil, err
		}
	}
	if plan.Fill == nil {
		return keys, nil
	}
	return keys, plan.Fill(ctx, store)
}

func addTenant(ctx context.Context, store *postgres.Store, id string) (key string, err error) {
	if err := store.SetTenant(ctx, berth.Tenant{ID: id}); err != nil {
		return "", err
	}
	key, record, err := auth.GenerateKey(auth.RoleTenant)
	if err != nil {
		return "", err
	}
	record.TenantID = id
	return key, store.CreateKey(ctx, record)
}
