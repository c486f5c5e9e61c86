package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/api"
	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/config"
	"github.com/berthdev/berth/internal/devpg"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/telemetry"
	"github.com/berthdev/berth/migrations"
)

const (
	devTenant   = "dev"
	devRegion   = "local"
	devDatabase = "berth"

	// devReady is how long the workers may take to register.
	devReady = 20 * time.Second
	// devStop bounds an orderly stop.
	devStop = 15 * time.Second
)

type devFlags struct {
	workers int
	listen  string
	data    string
	json    bool
}

func devCommand() *cobra.Command {
	var flags devFlags
	command := &cobra.Command{
		Use:   "dev",
		Short: "Run everything on this machine: Postgres, API, workers, dashboard, demo. Not for production",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if flags.data == "" && cmd.Flags().Changed("data") {
				return usageError{errors.New("--data is empty: name a directory, or leave it out for a temporary one")}
			}
			if err := flags.validate(); err != nil {
				return err
			}
			return runDev(cmd.Context(), flags, cmd.OutOrStdout())
		},
	}
	command.Flags().IntVar(&flags.workers, "workers", 3, "worker processes, 1 to 32")
	command.Flags().StringVar(&flags.listen, "listen", "127.0.0.1:8080", "address of API and dashboard; port 0 picks a free one")
	command.Flags().StringVar(&flags.data, "data", "", "directory that keeps the database; keys are new at each start; default: temporary")
	command.Flags().BoolVar(&flags.json, "json", false, "print one line of JSON when ready, and nothing else")
	return command
}

func (f devFlags) validate() error {
	if f.workers < 1 || f.workers > 32 {
		return usageError{errors.New("--workers must be 1 to 32")}
	}
	host, port, err := net.SplitHostPort(f.listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return usageError{errors.New("--listen must be a loopback address with a port, as in 127.0.0.1:8080: keys and kill button of `berth dev` are not for a network")}
	}
	return nil
}

// devReport is the line that --json prints.
type devReport struct {
	APIURL       string      `json:"api_url"`
	DashboardURL string      `json:"dashboard_url"`
	APIKey       string      `json:"api_key"`
	OperatorKey  string      `json:"operator_key"`
	DatabaseURL  string      `json:"database_url"`
	Workers      []devWorker `json:"workers"`
}

type devWorker struct {
	ID           string `json:"id"`
	PID          int    `json:"pid"`
	SignalingURL string `json:"signaling_url"`
}

// devProcess is everything that `berth dev` runs, in the order in which it starts and the reverse of which it stops.
type devProcess struct {
	postgres *devpg.Server
	fleet    *fleet
	api      *apiProcess
	report   devReport
}

func runDev(ctx context.Context, flags devFlags, out io.Writer) error {
	settings, err := load[config.Local]()
	if err != nil {
		return err
	}
	logger := telemetry.NewLogger(os.Stderr, "text", settings.Log.Level)
	p := &devProcess{}
	err = p.start(ctx, flags, settings, logger)
	if err == nil {
		err = p.print(out, flags.json)
	}
	if err == nil {
		select {
		case <-ctx.Done():
		case <-p.api.server.Done():
			err = p.api.server.Err()
		case <-p.postgres.Done():
			err = p.postgres.Err()
		}
	}
	if ctx.Err() != nil {
		err = nil // it was asked to stop, ready or not
	}
	return errors.Join(err, p.stop(ctx))
}

func (p *devProcess) start(ctx context.Context, flags devFlags, settings config.Local, logger *slog.Logger) error {
	reserved, err := reserve(ctx, flags.listen)
	if err != nil {
		return err
	}
	defer closeQuietly(reserved)
	address := reserved.Addr().String()
	p.postgres, err = devpg.Start(ctx, devpg.Config{
		Dir: flags.data, Durable: flags.data != "", BinDir: settings.Postgres.BinDir, Logger: logger,
	})
	if err != nil {
		return err
	}
	if err := p.postgres.CreateDatabase(ctx, devDatabase); err != nil {
		return err
	}
	p.report.DatabaseURL = p.postgres.URL(devDatabase)
	if err := migrations.Up(ctx, p.report.DatabaseURL, logger); err != nil {
		return err
	}
	store, err := postgres.Open(ctx, postgres.Config{URL: p.report.DatabaseURL, Name: "berth dev", PoolSize: 2})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := p.seed(ctx, store); err != nil {
		return err
	}
	p.fleet, err = startFleet(ctx, flags.workers, p.report.DatabaseURL, "http://"+address, settings.Log.Level, logger)
	if err != nil {
		return err
	}
	demo := &api.Demo{TenantID: devTenant, Killer: p.fleet}
	apiSettings, err := devAPISettings(p.report.DatabaseURL, address, settings.Reaper.Detector)
	if err != nil {
		return err
	}
	closeQuietly(reserved)
	if p.api, err = startAPI(ctx, apiSettings, demo, logger); err != nil {
		return err
	}
	p.report.APIURL = p.api.server.PublicURL()
	p.report.DashboardURL = p.report.APIURL + "/#key=" + p.report.OperatorKey
	return p.workersReady(ctx, store)
}

// reserve takes the address of the API until it listens there itself: workers are told before, and it is better to know
// that it is taken before a database and workers were started in vain.
func reserve(ctx context.Context, address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	if number, err := strconv.ParseUint(port, 10, 16); err == nil && number == 0 {
		// One that the system lends to no connection in the moment between this listener and the next.
		free, err := freePort(ctx, map[int]bool{})
		if err != nil {
			return nil, err
		}
		port = strconv.Itoa(free)
	}
	reserved, err := listen(ctx, "--listen", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("%w; name another address, or let port 0 pick one", err)
	}
	return reserved, nil
}

// closeQuietly closes what nobody was served by, maybe again: its error would change nothing.
func closeQuietly(l net.Listener) { _ = l.Close() }

// devAPISettings are the API's, in the form its environment would have.
func devAPISettings(databaseURL, listen, detector string) (config.API, error) {
	return config.Load[config.API]([]string{
		"BERTH_DATABASE_URL=" + databaseURL,
		"BERTH_LISTEN=" + listen,
		"BERTH_DETECTOR=" + detector,
		"BERTH_DEV=true",
		"BERTH_LOG_FORMAT=text",
	})
}

// seed makes the dev tenant, without quotas, and fresh keys: those of an earlier run are gone with its terminal.
func (p *devProcess) seed(ctx context.Context, store *postgres.Store) error {
	if err := store.RotateKeys(ctx); err != nil { // before workers ask for them
		return err
	}
	if err := store.SetRegion(ctx, berth.Region{ID: devRegion}); err != nil {
		return err
	}
	if err := store.SetTenant(ctx, berth.Tenant{ID: devTenant}); err != nil {
		return err
	}
	keys, err := store.Keys(ctx, "")
	if err != nil {
		return err
	}
	for _, key := range keys {
		if key.RevokedAt.IsZero() && (key.TenantID == devTenant || key.Role == auth.RoleOperator) {
			if err := store.RevokeKey(ctx, key.ID); err != nil {
				return err
			}
		}
	}
	if p.report.APIKey, err = createKey(ctx, store, auth.RoleTenant, devTenant); err != nil {
		return err
	}
	p.report.OperatorKey, err = createKey(ctx, store, auth.RoleOperator, "")
	return err
}

// workersReady waits until every worker takes sessions, and fills in the report.
func (p *devProcess) workersReady(ctx context.Context, store *postgres.Store) error {
	ctx, cancel := context.WithTimeout(ctx, devReady)
	defer cancel()
	for {
		workers, err := store.Workers(ctx)
		if err != nil {
			return err
		}
		if p.serving(workers) {
			for _, m := range p.fleet.members {
				p.report.Workers = append(p.report.Workers, devWorker{m.id, m.pid(), m.signalingURL()})
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("workers are not ready after %s; their log lines above say why: %w", devReady, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// serving reports whether each member is ready at its URL. With --data, rows of an earlier run are there too.
func (p *devProcess) serving(workers []berth.Worker) bool {
	ready := map[string]bool{}
	for _, w := range workers {
		ready[w.SignalingURL] = w.State == berth.WorkerReady
	}
	for _, m := range p.fleet.members {
		if !ready[m.signalingURL()] {
			return false
		}
	}
	return true
}

func (p *devProcess) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(p.report)
	}
	_, err := fmt.Fprintf(out, `
Berth is ready (for local work: keys and data are not protected like in production)

  demo        %[1]s/demo
  dashboard   %[2]s
  API key     %[3]s
  operator    %[5]s
  database    psql '%[4]s'

Start a session:

  curl -s -X POST %[1]s/v1/sessions -H 'Authorization: Bearer %[3]s' -H 'Content-Type: application/json' -d '{}'

Ctrl-C stops everything.
`, p.report.APIURL, p.report.DashboardURL, p.report.APIKey, p.report.DatabaseURL, p.report.OperatorKey)
	return err
}

// stop ends what was started, in reverse. Workers leave while the database is there to hear it.
func (p *devProcess) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), devStop)
	defer cancel()
	var errs []error
	if p.fleet != nil {
		p.fleet.stop()
	}
	if p.api != nil {
		errs = append(errs, p.api.stop(ctx))
	}
	if p.postgres != nil {
		errs = append(errs, p.postgres.Stop(ctx))
	}
	return errors.Join(errs...)
}
