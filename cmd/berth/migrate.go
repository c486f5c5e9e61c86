package main

import (
	"context"
	"fmt"
	"log/slog"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/internal/config"
	"github.com/berthdev/berth/migrations"
)

func migrateCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database to this version's schema, or take steps back",
	}
	command.AddCommand(
		&cobra.Command{
			Use: "up", Short: "Apply every migration that is missing", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return migrate(cmd.Context(), migrations.Up) },
		},
		&cobra.Command{
			Use: "down", Short: "Take back the newest migration, with the data it held", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return migrate(cmd.Context(), migrations.Down) },
		},
		&cobra.Command{
			Use: "status", Short: "List migrations", Args: cobra.NoArgs,
			RunE: migrationStatus,
		},
	)
	return command
}

func migrate(ctx context.Context, run func(context.Context, string, *slog.Logger) error) error {
	settings, err := load[config.Migrate]()
	if err != nil {
		return err
	}
	return run(ctx, settings.Database.DirectURL.Reveal(), newLogger(settings.Log))
}

func migrationStatus(cmd *cobra.Command, _ []string) error {
	settings, err := load[config.Migrate]()
	if err != nil {
		return err
	}
	steps, err := migrations.Status(cmd.Context(), settings.Database.DirectURL.Reveal(), newLogger(settings.Log))
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "VERSION\tNAME\tAPPLIED")
	for _, step := range steps {
		fmt.Fprintf(table, "%d\t%s\t%t\n", step.Version, step.Name, step.Applied)
	}
	return table.Flush()
}
