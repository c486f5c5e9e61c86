package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/bench/storm"
	"github.com/berthdev/berth/internal/config"
	"github.com/berthdev/berth/internal/telemetry"
)

// benchStormFlags are those of `berth bench storm`.
type benchStormFlags struct {
	storm.Config

	against string
	json    bool
	out     string
	plot    string
}

func benchStormCommand() *cobra.Command {
	var flags benchStormFlags
	command := &cobra.Command{
		Use:   "storm",
		Short: "Take a worker from thousands of clients, and measure how they come back",
		Long: "Start a private Postgres and fleets of API and worker processes with the Go SDK's clients on them; kill a worker,\n" +
			"with fresh and with expired tokens and without jitter, drain one, and have them shed to one that is added.\n" +
			"Needs PostgreSQL's server binaries; nothing else should run on the machine meanwhile. All of it takes about " +
			fmt.Sprintf("%.0f minutes.\n", storm.Lasting.Minutes()) +
			"With --against it is a game day: one kill at a running `berth dev`, told in words. Exit code 1: it was not good.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBenchStorm(cmd, flags) },
	}
	f := command.Flags()
	f.StringSliceVar(&flags.Cases, "only", nil, "cases to run: "+strings.Join(storm.Cases(), ", ")+" (default all)")
	f.IntVar(&flags.N, "n", 0, fmt.Sprintf("clients over all workers (default 5000; at berth dev %d)", storm.GameDayClients))
	f.IntVar(&flags.Drained, "drained", 0, "clients of the worker that is drained (default 2000)")
	f.IntVar(&flags.Workers, "workers", 0, "worker processes (default 3)")
	f.IntVar(&flags.APIs, "apis", 0, "API processes (default 2)")
	f.IntVar(&flags.Topics, "topics", 0, "topics that clients listen to, each to one (default 40)")
	f.DurationVar(&flags.Every, "every", 0, "between two messages of a topic (default 2s)")
	f.DurationVar(&flags.Before, "before", 0, "how long round trips are measured before anything happens (default 10s)")
	f.DurationVar(&flags.Deadline, "deadline", 0, "of the drain (default 1m0s)")
	f.DurationVar(&flags.Spread, "spread", 0, "over how long workers shed (default 30s)")
	f.DurationVar(&flags.Patience, "patience", 0, "how long clients may take to be back (default 2m0s)")
	f.IntVar(&flags.UpgradeRate, "upgrade-rate", 0, "handshakes per second that one worker takes (default 2000)")
	f.IntVar(&flags.RejoinRate, "rejoin-rate", 0, "rejoins per second that one API process works on (default 500)")
	f.StringVar(&flags.against, "against", "", "URL of a running berth dev, for a game day")
	f.BoolVar(&flags.json, "json", false, "print the numbers as JSON")
	f.StringVar(&flags.out, "out", "", "write everything, curves and the machine too, to this file")
	f.StringVar(&flags.plot, "plot", "", "draw the storms into this SVG file")
	return command
}

func runBenchStorm(cmd *cobra.Command, flags benchStormFlags) error {
	cfg, err := flags.complete()
	if err != nil {
		return err
	}
	if flags.against != "" {
		return runGameDay(cmd, flags, cfg)
	}
	report, err := storm.Run(cmd.Context(), cfg)
	if report == nil {
		return err
	}
	// What was measured before an error is kept, too.
	return errors.Join(err, flags.keep(report), flags.show(cmd.OutOrStdout(), report), unlessGood(report.Cases))
}

func runGameDay(cmd *cobra.Command, flags benchStormFlags, cfg storm.Config) error {
	c, err := storm.GameDay(cmd.Context(), flags.against, cfg)
	if err != nil {
		return err
	}
	report := &storm.Report{Cases: []storm.Case{c}}
	show := c.WriteWords
	if flags.json {
		show = func(w io.Writer) error { return flags.show(w, report) }
	}
	return errors.Join(flags.keep(report), show(cmd.OutOrStdout()), unlessGood(report.Cases))
}

// unlessGood is an error that names the cases that have faults, which their report lists.
func unlessGood(cases []storm.Case) error {
	var bad []string
	for _, c := range cases {
		if len(c.Faults()) > 0 {
			bad = append(bad, c.Name)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("not good: %s", strings.Join(bad, ", "))
}

// complete adds what flags do not say.
func (f benchStormFlags) complete() (storm.Config, error) {
	cfg := f.Config
	settings, err := load[config.Local]()
	if err != nil {
		return cfg, err
	}
	cfg.Version = version
	cfg.Logger = telemetry.NewLogger(os.Stderr, "text", settings.Log.Level)
	if isTerminal(os.Stderr) {
		cfg.Progress = seldom(100*time.Millisecond, progressBar(os.Stderr))
	}
	if cfg.Binary, err = os.Executable(); err != nil {
		return cfg, fmt.Errorf("find own binary: %w", err)
	}
	if err := cfg.Validate(); err != nil {
		return cfg, usageError{err}
	}
	return cfg, nil
}

// seldom leaves out what follows the last within a period, but never an end.
func seldom(period time.Duration, tell func(done, total int, what string)) func(done, total int, what string) {
	var last time.Time
	var ended string
	return func(done, total int, what string) {
		over := done >= total
		if over && what == ended || !over && time.Since(last) < period {
			return
		}
		last, ended = time.Now(), ""
		if over {
			ended = what
		}
		tell(done, total, what)
	}
}

func (f benchStormFlags) keep(report *storm.Report) error {
	if err := writeResult(f.out, report); err != nil {
		return err
	}
	if f.plot == "" {
		return nil
	}
	_, err := report.WritePlot(f.plot)
	return err
}

func (f benchStormFlags) show(w io.Writer, report *storm.Report) error {
	if f.json {
		return json.NewEncoder(w).Encode(report.Short())
	}
	return report.WriteTable(w)
}
