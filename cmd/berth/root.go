package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/internal/config"
	"github.com/berthdev/berth/internal/telemetry"
)

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "berth",
		Short:         "Placement for stateful real-time sessions",
		Long:          "Berth places stateful real-time sessions on workers and keeps them there.\nIts settings are environment variables: see docs/configuration.md, or `berth config print`.",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(devCommand(), apiCommand(), workerCommand(), migrateCommand(), tenantCommand(), keyCommand(),
		regionCommand(), sessionCommand(), configCommand(), healthcheckCommand())
	return root
}

// load reads the configuration of one kind of process.
func load[P config.Process]() (P, error) {
	settings, err := config.Load[P](os.Environ())
	if err != nil {
		return settings, usageError{err}
	}
	return settings, nil
}

func newLogger(settings config.Log) *slog.Logger {
	return telemetry.NewLogger(os.Stderr, settings.Format, settings.Level)
}
