package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/internal/config"
	"github.com/berthdev/berth/internal/postgres"
)

// withStore runs a tool that talks to the database.
func withStore(cmd *cobra.Command, use func(context.Context, *postgres.Store) error) error {
	settings, err := load[config.Tool]()
	if err != nil {
		return err
	}
	if !settings.Database.URL.IsSet() {
		return usageError{errors.New("BERTH_DATABASE_URL is not set; this command talks to the database")}
	}
	store, err := postgres.Open(cmd.Context(), postgres.Config{
		URL:       settings.Database.URL.Reveal(),
		DirectURL: settings.Database.DirectURL.Reveal(),
		Name:      "berth " + cmd.Name(),
		PoolSize:  1,
	})
	if err != nil {
		return err
	}
	defer store.Close()
	return use(cmd.Context(), store)
}
