package main

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/config"
	"github.com/berthdev/berth/internal/postgres"
)

// startBus makes the backplane of a process on the pool of its store. The caller closes it before the store.
func startBus(
	ctx context.Context, store *postgres.Store, settings config.Database, logger *slog.Logger, registry prometheus.Registerer,
) (*backplane.Bus, error) {
	direct := settings.DirectURL.Reveal()
	if direct == "" {
		direct = settings.URL.Reveal()
	}
	bus, err := backplane.New(backplane.Config{
		Pool: store.Pool(), DirectURL: direct, Logger: logger, Registerer: registry,
	})
	if err != nil {
		return nil, err
	}
	return bus, bus.Start(ctx)
}
