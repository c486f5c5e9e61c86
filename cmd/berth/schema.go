package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/berthdev/berth/migrations"
)

// startRetry is how long a process waits for a database that is away when it starts.
const startRetry = time.Second

// awaitSchema returns once the database has the schema of this program. It waits for a database that is away, and fails
// with one clear line when the schema is older or newer: neither would end by waiting, and working on would be
// silent damage.
func awaitSchema(ctx context.Context, url string, logger *slog.Logger) error {
	for {
		err := migrations.Check(ctx, url)
		if err == nil || errors.Is(err, migrations.ErrOlderSchema) || errors.Is(err, migrations.ErrNewerSchema) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		logger.WarnContext(ctx, "waiting for the database", "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(startRetry):
		}
	}
}
