package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/bench/failover"
	"github.com/berthdev/berth/internal/config"
	"github.com/berthdev/berth/internal/telemetry"
)

// benchFailoverFlags are those of `berth bench failover`.
type benchFailoverFlags struct {
	failover.Config

	article bool
	json    bool
	out     string
	plots   string
}

func benchFailoverCommand() *cobra.Command {
	var flags benchFailoverFlags
	command := &cobra.Command{
		Use:   "failover",
		Short: "Kill and stop workers and API processes, and measure who notices when",
		Long: "Start a private Postgres and fleets of API and worker processes with live calls on it, and measure for each\n" +
			"detector how long it takes until survivors of a killed worker know, what pauses cost, and what a tick costs.\n" +
			"Needs PostgreSQL's server binaries; nothing else should run on the machine meanwhile. All of it takes about " +
			fmt.Sprintf("%.0f minutes.", failover.Lasting.Minutes()),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBenchFailover(cmd, flags) },
	}
	f := command.Flags()
	f.StringSliceVar(&flags.Parts, "only", nil, "parts to measure: "+strings.Join(failover.Parts(), ", ")+" (default all but the last)")
	f.StringSliceVar(&flags.Detectors, "detector", nil, "detectors to measure (default all; presence alone for leaders and many)")
	f.BoolVar(&flags.article, "article", false, "also measure with the article's numbers: ticks of 5 s, a lease of 6 s, walks over every session")
	f.IntVar(&flags.Kills, "kills", 0, "kills for each detector (default 20)")
	f.IntVar(&flags.LeaderKills, "leader-kills", 0, "repetitions of each case of leaders (default 3)")
	f.IntVar(&flags.LengthKills, "length-kills", 0, "kills at each length of the lease (default 5)")
	f.IntVar(&flags.Calls, "calls", 0, "live calls during faults (default 20)")
	f.IntVar(&flags.Crowd, "crowd", 0, "calls of the worker that has many (default 5000)")
	f.IntVar(&flags.Workers, "workers", 0, "worker processes (default 3)")
	f.IntVar(&flags.APIs, "apis", 0, "API processes (default 2)")
	f.IntVar(&flags.Ticks, "ticks", 0, "ticks measured at each number of sessions (default 20)")
	f.IntSliceVar(&flags.Levels, "levels", nil, "numbers of live calls at which ticks are measured (default 50,100,200,500,1000)")
	f.IntSliceVar(&flags.Rows, "rows", nil, "numbers of sessions that are rows only (default 1000,10000,100000)")
	f.DurationSliceVar(&flags.Pauses, "pauses", nil, "lengths of pauses (default 5s,8s,10s,12s,30s)")
	f.DurationSliceVar(&flags.Leases, "leases", nil, "lengths of the lease (default 1s,2s,4s,6s,10s)")
	f.BoolVar(&flags.json, "json", false, "print the numbers as JSON")
	f.StringVar(&flags.out, "out", "", "write everything, each sample and the machine too, to this file")
	f.StringVar(&flags.plots, "plots", "", "draw SVG plots into this directory")
	return command
}

// runBenchFailover keeps what was measured before an error, too.
func runBenchFailover(cmd *cobra.Command, flags benchFailoverFlags) error {
	cfg, err := flags.complete()
	if err != nil {
		return err
	}
	report, err := failover.Run(cmd.Context(), cfg)
	if report == nil {
		return err
	}
	return errors.Join(err, flags.keep(report), flags.show(cmd.OutOrStdout(), report))
}

// complete adds what flags do not say.
func (f benchFailoverFlags) complete() (failover.Config, error) {
	cfg := f.Config
	settings, err := load[config.Local]()
	if err != nil {
		return cfg, err
	}
	if f.article {
		if len(cfg.Parts) == 0 {
			cfg.Parts = failover.Parts()
		} else {
			cfg.Parts = append(cfg.Parts, failover.PartArticle)
		}
	}
	cfg.Version = version
	cfg.Logger = telemetry.NewLogger(os.Stderr, "text", settings.Log.Level)
	if isTerminal(os.Stderr) {
		cfg.Progress = progressBar(os.Stderr)
	}
	if cfg.Binary, err = os.Executable(); err != nil {
		return cfg, fmt.Errorf("find own binary: %w", err)
	}
	if err := cfg.Validate(); err != nil {
		return cfg, usageError{err}
	}
	return cfg, nil
}

func (f benchFailoverFlags) keep(report *failover.Report) error {
	if err := writeResult(f.out, report); err != nil {
		return err
	}
	if f.plots == "" {
		return nil
	}
	_, err := report.WritePlots(f.plots)
	return err
}

func (f benchFailoverFlags) show(w io.Writer, report *failover.Report) error {
	if f.json {
		return json.NewEncoder(w).Encode(report.Short())
	}
	return report.WriteTable(w)
}

// isTerminal reports whether somebody watches the file.
func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// progressBar draws over its own line.
func progressBar(w io.Writer) func(done, total int, what string) {
	const width = 30
	return func(done, total int, what string) {
		full := width * min(done, total) / max(total, 1)
		fmt.Fprintf(w, "\r\033[K[%s%s] %d/%d %s", strings.Repeat("=", full), strings.Repeat(" ", width-full), done, total, what)
		if done >= total {
			fmt.Fprintln(w)
		}
	}
}
