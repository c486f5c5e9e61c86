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
		regionCommand(), sessionCommand(), whyCommand(), viewerCommand(), benchCommand(), configCommand(), healthcheckCommand())
	strict(root)
	return root
}

// strict makes wrong arguments of a command and of those below it usage errors. By itself cobra shows help and succeeds
// when a command that only groups others is followed by a word that names none of them.
func strict(command *cobra.Command) {
	check := command.Args
	if !command.Runnable() {
		command.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	if check == nil {
		check = cobra.NoArgs
	}
	command.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
	for _, below := range command.Commands() {
		strict(below)
	}
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
