package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/config"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/telemetry"
	"github.com/berthdev/berth/media"
	berthsdk "github.com/berthdev/berth/sdk/go"
	"github.com/berthdev/berth/signaling"
	"github.com/berthdev/berth/worker"
)

const (
	// defaultRegion is where a worker stands whose host says nothing of regions.
	defaultRegion = "default"
	// workerStopSlack is what an orderly stop takes beside the drain: the goodbye, close frames, two HTTP servers.
	workerStopSlack = 20 * time.Second
	// releaseTimeout bounds the end of media.
	releaseTimeout = 10 * time.Second
)

func workerCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "worker",
		Short: "Run a worker: signaling and media. One per host or per GPU. SIGTERM drains it",
		Long:  "Run a worker. The subcommands operate on workers through the API, with an operator key.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := load[config.Worker]()
			if err != nil {
				return err
			}
			process, err := startWorker(cmd.Context(), settings, newLogger(settings.Log))
			if err != nil {
				return err
			}
			return process.wait(cmd.Context())
		},
	}
	command.AddCommand(workerListCommand(), workerDrainCommand(), workerUndrainCommand(), workerShedCommand())
	return command
}

// workerProcess is a running worker with what it stands on.
type workerProcess struct {
	worker *worker.Worker
	engine *media.Engine
	bus    *backplane.Cluster
	store  *postgres.Store

	background sync.WaitGroup
	cancel     context.CancelFunc
	timeout    time.Duration
}

// startWorker returns while the worker registers: that may take until an older instance of its id is gone.
func startWorker(ctx context.Context, settings config.Worker, logger *slog.Logger) (*workerProcess, error) {
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &workerProcess{cancel: cancel, timeout: settings.Identity.DrainDeadline + workerStopSlack}
	if err := p.start(ctx, background, settings, logger); err != nil {
		p.release(ctx)
		return nil, err
	}
	return p, nil
}

func (p *workerProcess) start(ctx, background context.Context, settings config.Worker, logger *slog.Logger) error {
	var err error
	if p.store, err = postgres.Open(ctx, workerStoreConfig(settings)); err != nil {
		return err
	}
	if err := awaitSchema(ctx, settings.Database.URL.Reveal(), logger); err != nil {
		return err
	}
	registry, err := telemetry.NewRegistry(version)
	if err != nil {
		return err
	}
	most, err := openFiles(ctx, settings.Limits.MaxConnections, logger, registry)
	if err != nil {
		return err
	}
	p.engine, err = media.New(media.Config{
		Listen: settings.Media.Listen, Announce: settings.Media.Announce.String(),
	}, logger.With("worker_id", settings.Identity.WorkerID), registry)
	if err != nil {
		return err
	}
	p.bus, err = startBus(ctx, p.store, settings.Database, settings.Backplane, logger, registry)
	if err != nil {
		return err
	}
	keys := auth.NewKeys(p.store, logger, auth.KeysConfig{})
	p.background.Go(func() { keys.Run(background) })
	deps := worker.Deps{
		Registry: p.store, Verifier: auth.NewVerifier(keys, settings.Identity.WorkerID), Media: worker.NewMedia(p.engine),
		Topics: p.bus, Logger: logger, Metrics: registry,
	}
	if deps.SignalingListener, err = listen(ctx, "BERTH_SIGNALING_LISTEN", settings.Signaling.Listen); err != nil {
		return err
	}
	if deps.ControlListener, err = listen(ctx, "BERTH_CONTROL_LISTEN", settings.Control.Listen); err != nil {
		return errors.Join(err, deps.SignalingListener.Close())
	}
	p.worker, err = worker.New(workerConfig(settings, deps, most), deps)
	if err != nil {
		return errors.Join(err, deps.SignalingListener.Close(), deps.ControlListener.Close())
	}
	return p.worker.Start(ctx)
}

func listen(ctx context.Context, variable, address string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	return listener, nil
}

func workerStoreConfig(settings config.Worker) postgres.Config {
	return postgres.Config{
		URL:          settings.Database.URL.Reveal(),
		DirectURL:    settings.Database.DirectURL.Reveal(),
		Name:         "berth worker " + settings.Identity.WorkerID,
		PoolSize:     settings.Pool.Size,
		RejoinWindow: settings.Detection.RejoinWindow,
		SlowStart:    settings.Identity.SlowStart,
		Keepalive: postgres.Keepalive{
			Idle:        settings.Presence.KeepaliveIdle,
			Interval:    settings.Presence.KeepaliveInterval,
			Count:       settings.Presence.KeepaliveCount,
			UserTimeout: settings.Presence.UserTimeout,
		},
	}
}

// workerConfig: most is how many connections the worker may have.
func workerConfig(settings config.Worker, deps worker.Deps, most int) worker.Config {
	return worker.Config{
		WorkerID:      settings.Identity.WorkerID,
		Region:        cmp.Or(settings.Region.Name, defaultRegion),
		Capacity:      settings.Identity.Slots,
		Version:       version,
		Labels:        config.LabelMap(settings.Identity.Labels),
		SignalingURL:  cmp.Or(settings.Signaling.URL, "ws://"+deps.SignalingListener.Addr().String()+"/rtc"),
		ControlURL:    cmp.Or(settings.Control.URL, "http://"+deps.ControlListener.Addr().String()),
		RenewInterval: settings.Renewal.Interval,
		Lease:         settings.Detection.Lease,
		HoldLimit:     settings.Renewal.HoldLimit,
		APIURLs:       settings.Renewal.APIURLs,
		DrainDeadline: settings.Identity.DrainDeadline,
		TURN:          turn(settings.TURN),
		Signaling: signaling.Config{
			AllowedOrigins: settings.Edge.AllowedOrigins,
			AllowLoopback:  settings.Dev.Enabled,
			UpgradeRate:    float64(settings.Signaling.UpgradeRate),
			PingInterval:   settings.Signaling.PingInterval,
			Compression:    settings.Signaling.Compression == "on",

			UpgradeRatePerAddress: float64(settings.Limits.UpgradeRatePerAddress),
			TrustedProxies:        config.Prefixes(settings.Proxies.Trusted),
			MaxConnections:        most,
			FrameRate:             float64(settings.Limits.FrameRate),
			FrameBurst:            settings.Limits.FrameBurst,
		},
	}
}

// wait returns after the drain that ctx asked for, or when the worker gave up.
func (p *workerProcess) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-p.worker.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.timeout)
	defer cancel()
	err := errors.Join(p.worker.Stop(stopping), p.worker.Err())
	p.release(ctx)
	return err
}

// release closes what the worker stood on.
func (p *workerProcess) release(ctx context.Context) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if p.engine != nil {
		_ = p.engine.Close(closing) // the process ends; peers that did not close in time end with it
	}
	p.cancel()
	p.background.Wait()
	if p.bus != nil {
		p.bus.Close()
	}
	if p.store != nil {
		p.store.Close()
	}
}

func workerListCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use: "list", Short: "List workers", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := client("")
			if err != nil {
				return err
			}
			var workers []*berthsdk.Worker
			for w, err := range api.Workers(cmd.Context()) {
				if err != nil {
					return err
				}
				workers = append(workers, w)
			}
			return workerListing(workers).print(cmd.OutOrStdout(), output)
		},
	}
	outputFlag(command, &output)
	return command
}

// joinLabels writes labels as BERTH_WORKER_LABELS takes them.
func joinLabels(labels map[string]string) string {
	words := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, name+"="+labels[name])
	}
	return strings.Join(words, ",")
}

// cordon says why a worker gets no sessions, or only when nothing else is free.
func cordon(w *berthsdk.Worker) string {
	if w.CordonedReason == "" && w.SuspectReason != "" {
		return "last choice: " + w.SuspectReason
	}
	return cmp.Or(w.CordonedReason, "-")
}

func workerListing(workers []*berthsdk.Worker) listing {
	list := listing{header: []string{"ID", "INSTANCE", "REGION", "STATE", "USED", "SLOTS", "LABELS", "CORDONED"}, values: append([]*berthsdk.Worker{}, workers...)}
	for _, w := range workers {
		list.rows = append(list.rows, []string{
			w.ID, strconv.FormatInt(w.Instance, 10), w.Region, w.State,
			strconv.Itoa(w.Used), strconv.Itoa(w.Capacity), cmp.Or(joinLabels(w.Labels), "-"),
			cordon(w),
		})
	}
	return list
}
