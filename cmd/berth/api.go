package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/berthdev/berth/api"
	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/config"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/telemetry"
	"github.com/berthdev/berth/jobs"
	"github.com/berthdev/berth/web"
)

const (
	// gcPercent lets the heap, a few MB of requests in flight, grow further between collections than Go would by itself:
	// they were 6 % of the CPU of a start. The variable GOGC overrides it.
	gcPercent = 400
	// jobsPool is the connections that background jobs have to themselves, so that neither they nor requests can
	// starve the other.
	jobsPool = 8
	// rehearseAfter lets a process start, and its database with it, before connections rehearse.
	rehearseAfter = 3 * time.Second
	// stopSlack is what an orderly stop takes beside BERTH_SHUTDOWN_TIMEOUT: api.Config.ShutdownDelay before it, and
	// jobs that end after it.
	stopSlack = 10 * time.Second
)

func apiCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "api",
		Short: "Run the HTTP API, with the reaper and other background jobs. Any number of replicas",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := load[config.API]()
			if err != nil {
				return err
			}
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(gcPercent)
			}
			process, err := startAPI(cmd.Context(), settings, nil, newLogger(settings.Log))
			if err != nil {
				return err
			}
			return process.wait(cmd.Context())
		},
	}
}

// apiProcess is a running API with its background jobs.
type apiProcess struct {
	server *api.Server
	runner *jobs.Runner
	store  *postgres.Store
	jobs   *postgres.Store
	bus    *backplane.Cluster

	background sync.WaitGroup
	cancel     context.CancelFunc
	timeout    time.Duration
}

// startAPI returns once the API accepts requests. demo is for `berth dev` only.
func startAPI(ctx context.Context, settings config.API, demo *api.Demo, logger *slog.Logger) (*apiProcess, error) {
	p := &apiProcess{timeout: settings.HTTP.ShutdownTimeout + stopSlack}
	var err error
	config := storeConfig(settings, "berth api", settings.Pool.Size)
	config.RehearseAfter = rehearseAfter
	if p.store, err = postgres.Open(ctx, config); err != nil {
		return nil, err
	}
	if p.jobs, err = postgres.Open(ctx, storeConfig(settings, "berth jobs", jobsPool)); err != nil {
		p.store.Close()
		return nil, err
	}
	if err := p.start(ctx, settings, demo, logger); err != nil {
		return nil, errors.Join(err, p.stop(ctx))
	}
	logger.InfoContext(ctx, "api ready", "url", p.server.PublicURL(), "version", version)
	return p, nil
}

func storeConfig(settings config.API, name string, pool int) postgres.Config {
	return postgres.Config{
		URL:           settings.Database.URL.Reveal(),
		DirectURL:     settings.Database.DirectURL.Reveal(),
		Name:          name,
		PoolSize:      pool,
		DefaultRegion: settings.Region.Name,
		ConnectWindow: settings.Placement.ConnectWindow,
		RejoinWindow:  settings.Detection.RejoinWindow,
	}
}

func (p *apiProcess) start(ctx context.Context, settings config.API, demo *api.Demo, logger *slog.Logger) error {
	if err := awaitSchema(ctx, settings.Database.URL.Reveal(), logger); err != nil {
		return err
	}
	secrets, err := rejoinSecrets(ctx, p.store)
	if err != nil {
		return err
	}
	rejoins, err := auth.NewRejoinSigner(secrets)
	if err != nil {
		return err
	}
	registry, err := telemetry.NewRegistry(version)
	if err != nil {
		return err
	}
	if _, err := openFiles(ctx, 0, logger, registry); err != nil {
		return err
	}
	httpMetrics, err := telemetry.NewHTTPMetrics(registry)
	if err != nil {
		return err
	}
	keys := auth.NewKeys(p.store, logger, auth.KeysConfig{})
	signer := auth.NewSigner(keys)
	if p.bus, err = startBus(ctx, p.jobs, settings.Database, settings.Backplane, logger, registry); err != nil {
		return err
	}
	reaper, err := p.makeJobs(settings, signer, logger, registry)
	if err != nil {
		return err
	}
	refusals := postgres.NewRefusalCounter(p.store, logger)
	p.server, err = api.New(api.Dependencies{
		Placer: p.store, Sessions: p.store, Workers: p.store, Renewals: p.store, Database: p.store,
		Events: p.store, Capacity: p.store, Users: p.store, Backplane: p.bus, Waker: reaper, Refusals: refusals,
		Keys:          auth.NewAuthenticator(p.store, auth.AuthenticatorConfig{}),
		Signer:        signer,
		RejoinTokens:  rejoins,
		SessionTokens: auth.NewSessionTokens(keys),
		SigningKeys:   keys,
		Log:           logger,
	}, apiConfig(settings, demo, registry, httpMetrics))
	if err != nil {
		return err
	}
	// Background work outlives the signal: it ends in stop, after the last request.
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.cancel = cancel
	p.background.Go(func() { keys.Run(background) })
	p.background.Go(func() { refusals.Run(background) })
	p.background.Go(func() { p.store.Attend(background, logger) })
	if err := p.runner.Start(background); err != nil {
		return err
	}
	return p.server.Start(background)
}

// makeJobs makes the reaper, the sentinel and the runner of jobs, which starts both.
func (p *apiProcess) makeJobs(
	settings config.API, signer *auth.Signer, logger *slog.Logger, registry prometheus.Registerer,
) (*jobs.Reaper, error) {
	numbers := detection(settings)
	detector, err := jobs.NewDetector(numbers, p.jobs, jobs.NewHTTPProber(0), jobs.NewHTTPAsker(0, signer.SignNudge))
	if err != nil {
		return nil, err
	}
	reaper, err := jobs.NewReaper(p.jobs, detector, p.bus, numbers, logger, registry)
	if err != nil {
		return nil, err
	}
	sentinel, err := jobs.NewSentinel(p.jobs, reaper, numbers, logger, registry)
	if err != nil {
		return nil, err
	}
	p.runner, err = jobs.NewRunner(p.jobs.Pool(), reaper, p.jobs, logger, registry,
		jobs.Config{
			TickInterval: settings.Reaper.Tick, Sentinel: sentinel, Topics: p.bus, KeepConnections: !settings.Placement.Rebalance,
		})
	return reaper, err
}

// rejoinSecrets reads the secrets of rejoin tokens, and makes the keys of a database that has none yet.
func rejoinSecrets(ctx context.Context, store *postgres.Store) ([][]byte, error) {
	if err := store.RotateKeys(ctx); err != nil {
		return nil, fmt.Errorf("make keys: %w", err)
	}
	return store.RejoinSecrets(ctx)
}

func detection(settings config.API) berth.Detection {
	numbers := berth.DefaultDetection()
	numbers.Detector = berth.Detector(settings.Reaper.Detector)
	numbers.Tick = settings.Reaper.Tick
	numbers.Watch = settings.Reaper.Sentinel
	numbers.WalkSessions = settings.Reaper.WalkSessions
	numbers.ConfirmDelay = settings.Reaper.ConfirmDelay
	numbers.PauseLimit = settings.Reaper.PauseLimit
	numbers.Lease = settings.Detection.Lease
	// One tick may be missed before the reaper trusts nothing that it remembered.
	numbers.BlindAfter = max(numbers.BlindAfter, 2*settings.Reaper.Tick)
	return numbers
}

func apiConfig(
	settings config.API, demo *api.Demo, registry *prometheus.Registry, httpMetrics *telemetry.HTTPMetrics,
) api.Config {
	return api.Config{
		Listen:          settings.HTTP.Listen,
		PublicURL:       settings.HTTP.PublicURL,
		AllowedOrigins:  settings.Edge.AllowedOrigins,
		TrustedProxies:  config.Prefixes(settings.Proxies.Trusted),
		Dev:             settings.Dev.Enabled,
		Demo:            demo,
		TURN:            turn(settings.TURN),
		RejoinHold:      settings.Placement.HoldRejoin,
		RejoinRate:      float64(settings.Placement.RejoinRate),
		Streams:         settings.Streams.Most,
		TopicStreams:    settings.Streams.Topics,
		StreamKeepAlive: settings.Streams.KeepAlive,
		ShutdownDelay:   shutdownDelay(settings),
		ShutdownTimeout: settings.HTTP.ShutdownTimeout,
		Registerer:      registry,
		Metrics:         telemetry.Handler(registry),
		HTTPMetrics:     httpMetrics,
		Web:             web.Handler(web.Config{Dev: demo != nil}),
	}
}

func turn(settings config.TURN) auth.TURN {
	return auth.TURN{URLs: settings.URLs, Secrets: settings.Secrets.Reveal(), TTL: settings.TTL}
}

// shutdownDelay is api's own, so that balancers notice; on a developer's machine there are none.
func shutdownDelay(settings config.API) time.Duration {
	if settings.Dev.Enabled {
		return -1
	}
	return 0
}

// wait returns after an orderly stop that ctx asked for, or when the server failed.
func (p *apiProcess) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-p.server.Done():
	}
	return errors.Join(p.server.Err(), p.stop(ctx))
}

// stop ends requests, then jobs, then the connections they used.
func (p *apiProcess) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.timeout)
	defer cancel()
	var errs []error
	if p.server != nil {
		errs = append(errs, p.server.Stop(ctx))
	}
	if p.runner != nil {
		errs = append(errs, p.runner.Stop(ctx))
	}
	if p.cancel != nil {
		p.cancel()
	}
	p.background.Wait()
	if p.bus != nil {
		p.bus.Close()
	}
	p.jobs.Close()
	p.store.Close()
	return errors.Join(errs...)
}
