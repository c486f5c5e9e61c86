package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/config"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/migrations"
)

// backplanePatience bounds the look at a database of the backplane when a process starts.
const backplanePatience = 5 * time.Second

// startBus makes the backplane of a process: over the databases that are named for it, or else over that of its store. It
// does not wait for those that are away: their topics are until they come, and no others. The caller closes it before the store.
func startBus(
	ctx context.Context, store *postgres.Store, database config.Database, several config.Backplane,
	logger *slog.Logger, registry prometheus.Registerer,
) (*backplane.Cluster, error) {
	configs := []backplane.Config{{Pool: store.Pool(), DirectURL: database.DirectURL.Reveal()}}
	if len(several.URLs) > 0 {
		configs = nil
	}
	if err := checkBackplane(ctx, several.URLs.Reveal(), logger); err != nil {
		return nil, err
	}
	for i, url := range several.URLs.Reveal() {
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
	cluster, err := backplane.NewCluster(backplane.ClusterConfig{Meeting: store.Pool(), Logger: logger, Registerer: registry}, buses...)
	if err != nil {
		return nil, err
	}
	if err := proveBus(ctx, cluster, logger); err != nil {
		cluster.Close()
		return nil, err
	}
	return cluster, cluster.Start(ctx)
}

// checkBackplane looks at the schema of all databases at once, and refuses one that is there and has another.
func checkBackplane(ctx context.Context, urls []string, logger *slog.Logger) error {
	bounded, cancel := context.WithTimeout(ctx, backplanePatience)
	defer cancel()
	errs := make([]error, len(urls))
	var looking sync.WaitGroup
	for i, url := range urls {
		looking.Go(func() {
			err := migrations.Check(bounded, url)
			switch {
			case errors.Is(err, migrations.ErrOlderSchema), errors.Is(err, migrations.ErrNewerSchema):
				errs[i] = fmt.Errorf("BERTH_BACKPLANE_URLS, database %d: %w", i, err)
			case err != nil && ctx.Err() == nil:
				logger.WarnContext(ctx, "backplane database is away: its topics are unavailable until it comes", "backplane_database", i, "err", err)
			}
		})
	}
	looking.Wait()
	return errors.Join(errors.Join(errs...), ctx.Err())
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
