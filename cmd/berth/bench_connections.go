package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/bench/connections"
	"github.com/berthdev/berth/internal/config"
	"github.com/berthdev/berth/internal/telemetry"
)

// benchConnectionsFlags are those of `berth bench connections`.
type benchConnectionsFlags struct {
	connections.Config

	json bool
	out  string
}

func benchConnectionsCommand() *cobra.Command {
	var flags benchConnectionsFlags
	command := &cobra.Command{
		Use:   "connections",
		Short: "Measure the memory of an idle connection, next to the centrifuge library",
		Long: "Open many connections to one worker process, and to a server on the centrifuge library, and report what each costs\n" +
			"in memory. Needs PostgreSQL's server binaries, and as many open files as connections, for this process and for the\n" +
			"server; nothing else should run on the machine meanwhile. All of it takes about 12 minutes.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBenchConnections(cmd, flags) },
	}
	f := command.Flags()
	f.IntVar(&flags.N, "n", 0, "connections (default 10000)")
	f.StringVar(&flags.Centrifuge, "centrifuge", "", "path of the server built from bench/centrifuge; without it the library is left out")
	f.StringSliceVar(&flags.Subjects, "only", nil, "subjects to measure: "+strings.Join(connections.Subjects(), ", ")+" (default all)")
	f.IntVar(&flags.Topics, "topics", 0, "subscriptions of each connection of berth_many (default 20)")
	f.IntVar(&flags.Rounds, "rounds", 0, "rounds; medians are reported (default 3)")
	f.DurationVar(&flags.Ping, "ping", 0, "time between two pings of a connection (default 10s)")
	f.BoolVar(&flags.json, "json", false, "print the medians as JSON")
	f.StringVar(&flags.out, "out", "", "write everything, rounds and machine too, to this file")
	return command
}

// runBenchConnections keeps what was measured before an error, too.
func runBenchConnections(cmd *cobra.Command, flags benchConnectionsFlags) error {
	cfg := flags.Config
	settings, err := load[config.Local]()
	if err != nil {
		return err
	}
	cfg.Version = version
	cfg.Logger = telemetry.NewLogger(os.Stderr, "text", settings.Log.Level)
	if isTerminal(os.Stderr) {
		cfg.Progress = progressBar(os.Stderr)
	}
	if cfg.Binary, err = os.Executable(); err != nil {
		return fmt.Errorf("find own binary: %w", err)
	}
	if err := cfg.Validate(); err != nil {
		return usageError{err}
	}
	report, err := connections.Run(cmd.Context(), cfg)
	if report == nil {
		return err
	}
	err = errors.Join(err, writeResult(flags.out, report))
	if flags.json {
		return errors.Join(err, json.NewEncoder(cmd.OutOrStdout()).Encode(report.Short()))
	}
	return errors.Join(err, report.WriteTable(cmd.OutOrStdout()))
}
