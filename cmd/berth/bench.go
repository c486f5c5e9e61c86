package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime/pprof"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/bench/claim"
	"github.com/berthdev/berth/bench/failover"
	"github.com/berthdev/berth/bench/front"
	"github.com/berthdev/berth/bench/storm"
	"github.com/berthdev/berth/internal/config"
	"github.com/berthdev/berth/internal/telemetry"
)

func benchCommand() *cobra.Command {
	command := &cobra.Command{Use: "bench", Short: "Measure this machine, on private servers"}
	command.AddCommand(benchClaimsCommand(), benchFailoverCommand(), benchConnectionsCommand(), benchFanoutCommand(), benchFrontCommand(), benchProfiledCommand(), benchAsideCommand())
	command.AddCommand(benchStormCommand())
	return command
}

// benchClaimsFlags are those of `berth bench claims`.
type benchClaimsFlags struct {
	claim.Config

	lone  bool
	live  int
	lanes bool
	json  bool
	out   string
}

func benchClaimsCommand() *cobra.Command {
	var flags benchClaimsFlags
	command := &cobra.Command{
		Use:   "claims",
		Short: "Measure placement next to Redis and plain Postgres",
		Long: "Start private servers, and measure what it costs to place a session: by Berth, and by other ways.\n" +
			"Needs PostgreSQL's and Redis' server binaries; nothing else should run on the machine meanwhile.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBenchClaims(cmd, flags) },
	}
	f := command.Flags()
	f.StringSliceVar(&flags.Subjects, "only", nil, "measure these, by name")
	f.IntVar(&flags.Connections, "connections", 0, "requests in flight, each on its own connection (default 64)")
	f.IntVar(&flags.Workers, "workers", 0, "workers to choose from (default 1000)")
	f.IntVar(&flags.Slots, "slots", 0, "slots of a worker; all sessions of a measurement must fit (default 200, more on many cores)")
	f.IntVar(&flags.Rounds, "rounds", 0, "rounds; medians are reported (default 3)")
	f.DurationVar(&flags.Warmup, "warmup", 0, "time before each measurement (default 2s)")
	f.DurationVar(&flags.Window, "window", 0, "time of each measurement (default 5s)")
	f.StringVar(&flags.ProfileDir, "profile", "", "directory for a CPU profile of each server process")
	f.BoolVar(&flags.lone, "lone", false, "instead: one request at a time, in turn with a bare insert and commit")
	f.IntVar(&flags.live, "live", 0, "instead: a database with this many live sessions next to an empty one")
	f.BoolVar(&flags.lanes, "tenant-lanes", false, "instead: three API processes with slow commits, one tenant next to three")
	f.BoolVar(&flags.json, "json", false, "print the medians as JSON")
	f.StringVar(&flags.out, "out", "", "write everything, rounds and machine too, to this file")
	return command
}

func runBenchClaims(cmd *cobra.Command, flags benchClaimsFlags) error {
	if err := flags.check(); err != nil {
		return err
	}
	cfg, err := benchConfig(flags.Config)
	if err != nil {
		return err
	}
	report, err := flags.measure(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	if err := writeResult(flags.out, report); err != nil {
		return err
	}
	if flags.json {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(report.Short())
	}
	return report.WriteTable(cmd.OutOrStdout())
}

// check refuses to measure two things at once.
func (f benchClaimsFlags) check() error {
	asked := 0
	for _, mode := range []bool{f.lone, f.live != 0, f.lanes, len(f.Subjects) > 0} {
		if mode {
			asked++
		}
	}
	if asked > 1 {
		return usageError{errors.New("--lone, --live, --tenant-lanes and --only exclude each other")}
	}
	return nil
}

// benchReport is a result that can be shown; as it is, it is what is kept.
type benchReport interface {
	Short() any
	WriteTable(w io.Writer) error
}

// measure does what the flags ask for.
func (f benchClaimsFlags) measure(ctx context.Context, cfg claim.Config) (benchReport, error) {
	switch {
	case f.lone:
		return claim.MeasureLone(ctx, cfg)
	case f.live != 0:
		return claim.Live(ctx, cfg, f.live)
	case f.lanes:
		return claim.Lanes(ctx, cfg)
	default:
		return claim.Compare(ctx, cfg)
	}
}

// benchConfig adds what flags do not say.
func benchConfig(cfg claim.Config) (claim.Config, error) {
	settings, err := load[config.Local]()
	if err != nil {
		return cfg, err
	}
	cfg.Version = version
	cfg.Logger = telemetry.NewLogger(os.Stderr, "text", settings.Log.Level)
	if cfg.Binary, err = os.Executable(); err != nil {
		return cfg, fmt.Errorf("find own binary: %w", err)
	}
	if err := cfg.Validate(); err != nil {
		return cfg, usageError{err}
	}
	if cfg.ProfileDir != "" {
		return cfg, os.MkdirAll(cfg.ProfileDir, 0o755)
	}
	return cfg, nil
}

// writeResult keeps a result in a file; no name, no file.
func writeResult(name string, result any) error {
	if name == "" {
		return nil
	}
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o600)
}

// benchFrontCommand is the server process of subjects that are not Berth.
func benchFrontCommand() *cobra.Command {
	var listenOn string
	var cfg front.Config
	command := &cobra.Command{
		Use: "front KIND", Short: "Serve another way to place", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg.Kind, cfg.StoreURL = args[0], os.Getenv(claim.StoreURLVariable)
			var config net.ListenConfig
			listener, err := config.Listen(cmd.Context(), "tcp", listenOn)
			if err != nil {
				return err
			}
			return front.Serve(cmd.Context(), listener, cfg)
		},
	}
	command.Flags().StringVar(&listenOn, "listen", "127.0.0.1:0", "address")
	command.Flags().IntVar(&cfg.Slots, "slots", 8, "sessions that a server may hold")
	return command
}

// benchAsideCommand is a part of a benchmark that has a process of its own, see lab.Aside.
func benchAsideCommand() *cobra.Command {
	parts := map[string]func(context.Context, io.Reader, io.Writer) error{
		failover.ClaimsAside: failover.ServeClaims,
		storm.WitnessAside:   storm.ServeWitness,
	}
	return &cobra.Command{
		Use: "aside PART", Short: "Do a part of a measurement", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			serve := parts[args[0]]
			if serve == nil {
				return usageError{fmt.Errorf("%q is no part that has a process of its own", args[0])}
			}
			return serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

// benchProfiledCommand runs another command in this process, from whose end there is a CPU profile.
func benchProfiledCommand() *cobra.Command {
	return &cobra.Command{
		Use: "profiled FILE COMMAND...", Short: "Run a command with a CPU profile", Hidden: true,
		DisableFlagParsing: true, Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return runProfiled(cmd.Context(), args[0], args[1:]) },
	}
}

func runProfiled(ctx context.Context, name string, args []string) (err error) {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	root := rootCommand()
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}
