package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/bench/fanout"
	"github.com/berthdev/berth/internal/config"
	"github.com/berthdev/berth/internal/telemetry"
)

// benchFanoutFlags are those of `berth bench fanout`.
type benchFanoutFlags struct {
	fanout.Config

	json bool
	out  string
}

func benchFanoutCommand() *cobra.Command {
	var flags benchFanoutFlags
	command := &cobra.Command{
		Use:   "fanout",
		Short: "Measure what it costs to bring messages to many clients, next to the centrifuge library with Redis",
		Long: "Publish to one topic with many members and to many with two, on several worker processes and on as many servers on the\n" +
			"centrifuge library, and report writes, what the backplane brought to whom, latency and CPU. Needs PostgreSQL's and\n" +
			"Redis' server binaries; nothing else should run on the machine meanwhile. All of it takes about 8 minutes.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBenchFanout(cmd, flags) },
	}
	f := command.Flags()
	f.StringVar(&flags.Centrifuge, "centrifuge", "", "path of the server built from bench/centrifuge; without it the library is left out")
	f.StringSliceVar(&flags.Loads, "only", nil, "loads to measure: "+strings.Join(fanout.Loads(), ", ")+" (default both)")
	f.IntVar(&flags.Processes, "processes", 0, "processes that hold connections (default 10)")
	f.IntVar(&flags.Members, "members", 0, "members of the large topic (default 1000)")
	f.Float64Var(&flags.Rate, "rate", 0, "messages a second to the large topic (default 20)")
	f.IntVar(&flags.Pairs, "pairs", 0, "topics with two members (default 1000)")
	f.Float64Var(&flags.PairRate, "pair-rate", 0, "messages a second to each of these (default 1)")
	f.IntVar(&flags.Size, "size", 0, "bytes of a message (default 128)")
	f.IntVar(&flags.Rounds, "rounds", 0, "rounds; medians are reported (default 3)")
	f.DurationVar(&flags.Warmup, "warmup", 0, "time before each measurement (default 3s)")
	f.DurationVar(&flags.Window, "window", 0, "time of each measurement (default 20s)")
	f.IntVar(&flags.History, "centrifuge-history", 0, "messages that centrifuge keeps of each channel (default none); Berth always keeps 256")
	f.BoolVar(&flags.json, "json", false, "print the medians as JSON")
	f.StringVar(&flags.out, "out", "", "write everything, rounds and machine too, to this file")
	return command
}

// runBenchFanout keeps what was measured before an error, too.
func runBenchFanout(cmd *cobra.Command, flags benchFanoutFlags) error {
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
	report, err := fanout.Run(cmd.Context(), cfg)
	if report == nil {
		return err
	}
	err = errors.Join(err, writeResult(flags.out, report))
	if flags.json {
		return errors.Join(err, json.NewEncoder(cmd.OutOrStdout()).Encode(report.Short()))
	}
	return errors.Join(err, report.WriteTable(cmd.OutOrStdout()))
}
