package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/config"
	"github.com/berthdev/berth/internal/postgres"
)

// startBus makes the backplane of a process: over the databases that are named for it, or else over that of its store. It
// waits for those that are away. The caller closes it before the store.
func startBus(
	ctx context.Context, store *postgres.Store, database config.Database, several config.Backplane,
	logger *slog.Logger, registry prometheus.Registerer,
) (*backplane.Cluster, error) {
	configs := []backplane.Config{{Pool: store.Pool(), DirectURL: database.DirectURL.Reveal()}}
	if len(several.URLs) > 0 {
		configs = nil
	}
	for i, url := range several.URLs.Reveal() {
		if err := awaitSchema(ctx, url, logger.With("backplane_database", i)); err != nil {
			return nil, fmt.Errorf("BERTH_BACKPLANE_URLS, database %d: %w", i, err)
		}
		configs = append(configs, backplane.Config{DirectURL: url, Database: i})
	}
	var buses []*backplane.Bus
	for _, c := range configs {
		c.Logger, c.Registerer, c.Sender = logger.With("backplane_database", c.Database), registry, berth.TopicSender
		bus, err := backplane.New(c)
		if err != nil {
			return nil, err
		}
		buses = append(buses, bus)
	}
	cluster, err := backplane.NewCluster(buses...)
	if err != nil {
		return nil, err
	}
	if err := proveBus(ctx, cluster, logger); err != nil {
		cluster.Close()
		return nil, err
	}
	return cluster, cluster.Start(ctx)
}

// proveBus refuses a pooler, through which nothing would ever be heard. A database that fails just now is no reason: the
// first subscription tries again.
func proveBus(ctx context.Context, cluster *backplane.Cluster, logger *slog.Logger) error {
	err := cluster.Check(ctx)
	if errors.Is(err, backplane.ErrPooled) {
		return err
	}
	if err != nil {
		logger.WarnContext(ctx, "backplane not proven to work", "err", err)
	}
	return ctx.Err()
}
