package main

import (
	"context"
	"fmt"
	"io"
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

// migrate brings the database where it is to be, and then those of the backplane that are others.
func migrate(ctx context.Context, run func(context.Context, string, *slog.Logger) error) error {
	settings, err := load[config.Migrate]()
	if err != nil {
		return err
	}
	logger := newLogger(settings.Log)
	if err := run(ctx, settings.Database.DirectURL.Reveal(), logger); err != nil {
		return err
	}
	for _, other := range others(settings) {
		if err := run(ctx, other.url, logger.With("backplane_database", other.number)); err != nil {
			return other.fault(err)
		}
	}
	return nil
}

// other is a database of the backplane that is not the database itself.
type other struct {
	number int
	url    string
}

func (o other) fault(err error) error {
	return fmt.Errorf("BERTH_BACKPLANE_URLS, database %d: %w", o.number, err)
}

func others(settings config.Migrate) (found []other) {
	for i, url := range settings.Backplane.URLs.Reveal() {
		if url != settings.Database.DirectURL.Reveal() && url != settings.Database.URL.Reveal() {
			found = append(found, other{i, url})
		}
	}
	return found
}

func migrationStatus(cmd *cobra.Command, _ []string) error {
	settings, err := load[config.Migrate]()
	if err != nil {
		return err
	}
	logger := newLogger(settings.Log)
	steps, err := migrations.Status(cmd.Context(), settings.Database.DirectURL.Reveal(), logger)
	if err != nil {
		return err
	}
	names, all := []string{"main"}, [][]migrations.Step{steps}
	for _, other := range others(settings) {
		if steps, err = migrations.Status(cmd.Context(), other.url, logger); err != nil {
			return other.fault(err)
		}
		names, all = append(names, fmt.Sprintf("backplane %d", other.number)), append(all, steps)
	}
	return printSteps(cmd.OutOrStdout(), names, all)
}

// printSteps lists the migrations of databases, with their names if there are several.
func printSteps(out io.Writer, names []string, all [][]migrations.Step) error {
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	head, column := "VERSION\tNAME\tAPPLIED", func(string) string { return "" }
	if len(names) > 1 {
		head, column = head+"\tDATABASE", func(name string) string { return "\t" + name }
	}
	fmt.Fprintln(table, head)
	for i, steps := range all {
		for _, step := range steps {
			fmt.Fprintf(table, "%d\t%s\t%t%s\n", step.Version, step.Name, step.Applied, column(names[i]))
		}
	}
	return table.Flush()
}
