package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/internal/config"
)

// describers load and describe the settings of each kind of process.
func describers() map[string]func() ([]config.Setting, error) {
	return map[string]func() ([]config.Setting, error){
		"api":     describe[config.API],
		"worker":  describe[config.Worker],
		"migrate": describe[config.Migrate],
		"tool":    describe[config.Tool],
		"dev":     describe[config.Local],
	}
}

func describe[P config.Process]() ([]config.Setting, error) {
	settings, err := config.Load[P](os.Environ())
	if err != nil {
		return nil, usageError{err}
	}
	return config.Describe(settings), nil
}

func configCommand() *cobra.Command {
	var process, output string
	command := &cobra.Command{Use: "config", Short: "Check or show the settings in the environment"}
	command.PersistentFlags().StringVar(&process, "process", "api", "whose settings: api, worker, migrate, tool or dev")
	printer := &cobra.Command{
		Use: "print", Short: "Show effective settings, secrets hidden", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := settingsOf(process)
			if err != nil {
				return err
			}
			return printSettings(cmd.OutOrStdout(), settings, output)
		},
	}
	outputFlag(printer, &output)
	command.AddCommand(printer, &cobra.Command{
		Use: "check", Short: "Exit 0 when the settings are valid", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := settingsOf(process); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "ok")
			return err
		},
	})
	return command
}

func settingsOf(process string) ([]config.Setting, error) {
	read, known := describers()[process]
	if !known {
		return nil, usageError{errors.New("--process must be api, worker, migrate, tool or dev")}
	}
	return read()
}

func printSettings(w io.Writer, settings []config.Setting, output string) error {
	if output == "json" {
		return json.NewEncoder(w).Encode(settings)
	}
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "VARIABLE\tVALUE\tDEFAULT")
	for _, s := range settings {
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Variable, s.Value, s.Default)
	}
	return table.Flush()
}
