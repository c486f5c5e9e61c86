package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/berthdev/berth/internal/berth"
)

const (
	// chunk is how many sessions one statement moves or ends.
	chunk = 200
	// probes is how many workers one tick asks at a time.
	probes = 32
	// tickLimit ends a tick that hangs, so that its lock comes free.
	tickLimit = 30 * time.Second
)

// Evidence of a loss, as the gap and the metrics name it.
const (
	evidencePresence = "presence_gone"
	evidenceLate     = "lease_late"
	evidenceRefused  = "probe_refused"
	evidenceSilent   = "lease_over_and_silent"
	evidencePaused   = "pause_limit"
)

// ReaperStore is the database as the reaper needs it; internal/postgres documents the methods.
type ReaperStore interface {
	WithReaperLock(ctx context.Context, act func(context.Context) error) (bool, error)
	BeginTick(ctx context.Context, blindAfter, lease time.Duration) (berth.Tick, error)
	Look(ctx context.Context, tick int64) ([]berth.Sighting, error)
	Verdicts
	Overdue
	Pacing
}

// Verdicts are the reaper's writes about workers.
type Verdicts interface {
	OpenGap(ctx context.Context, tick int64, workerID string, instance berth.Instance, evidence string) error
	ClearGap(ctx context.Context, workerID string, instance berth.Instance) error
	CordonLate(ctx context.Context, tick int64, workerID string, instance berth.Instance) (bool, error)
	MarkLost(ctx context.Context, tick int64, workerID string, instance berth.Instance, evidence string) (bool, error)
}

// Overdue is what the reaper finds by index and brings to its end.
type Overdue interface {
	Unfinished(ctx context.Context) ([]berth.Sighting, error)
	OverdueDrains(ctx context.Context, grace time.Duration) ([]berth.Sighting, error)
	DisplaceLost(ctx context.Context, workerID string, instance berth.Instance, limit int) (int, error)
	DisplaceDrained(ctx context.Context, workerID string, instance berth.Instance, limit int) (int, error)
	ReplaceLost(ctx context.Context, limit int) (int, error)
	EndOverdue(ctx context.Context, limit int) (int, error)
}

// Prober asks a worker who it is.
type Prober interface {
	Probe(ctx context.Context, sighting berth.Sighting) berth.ProbeResult
}

// Reaper acts on missing workers and overdue deadlines. It is safe for concurrent use.
type Reaper struct {
	store     ReaperStore
	prober    Prober
	detection berth.Detection
	logger    *slog.Logger
	metrics   *reaperMetrics

	wake     chan struct{}
	mu       sync.Mutex // guards cancel and judgedAt
	cancel   context.CancelFunc
	judgedAt time.Time
	loop     sync.WaitGroup
}

// NewReaper makes a reaper and registers its metrics. Zero numbers of detection are not defaulted: start from
// berth.DefaultDetection.
func NewReaper(
	store ReaperStore, prober Prober, detection berth.Detection, logger *slog.Logger, registry prometheus.Registerer,
) (*Reaper, error) {
	metrics, err := newReaperMetrics(registry)
	if err != nil {
		return nil, err
	}
	return &Reaper{
		store:     store,
		prober:    prober,
		detection: detection,
		logger:    logger,
		metrics:   metrics,
		wake:      make(chan struct{}, 1),
	}, nil
}

// Start lets Wake cause ticks, until Stop. Ticks end early when ctx does.
func (r *Reaper) Start(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel != nil {
		return
	}
	ctx, r.cancel = context.WithCancel(ctx)
	r.loop.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-r.wake:
				if err := r.Tick(ctx); err != nil && ctx.Err() == nil {
					r.logger.WarnContext(ctx, "woken tick failed", "err", err)
				}
			}
		}
	})
}

// Stop ends the wait for Wake and the tick it caused. It is idempotent and safe before Start.
func (r *Reaper) Stop() {
	r.mu.Lock()
	cancel := r.cancel
	r.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	r.loop.Wait()
}

// Wake asks for a tick now. It does not wait, and several calls may be one tick.
func (r *Reaper) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // one is asked for already
	}
}

// Tick is one run. It does nothing while another process has the lock.
func (r *Reaper) Tick(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tickLimit)
	defer cancel()
	started := time.Now()
	ran, err := r.store.WithReaperLock(ctx, r.tick)
	r.metrics.observe(ran, err, time.Since(started))
	return err
}

func (r *Reaper) tick(ctx context.Context) error {
	tick, err := r.store.BeginTick(ctx, r.detection.BlindAfter, r.detection.Lease)
	if err != nil {
		return fmt.Errorf("begin tick: %w", err)
	}
	if tick.Blind {
		r.logger.InfoContext(ctx, "reaper starts blind", "tick", tick.Number)
	}
	opened, err := r.look(ctx, tick.Number)
	if err != nil {
		return err
	}
	if opened > 0 {
		if err := pause(ctx, r.detection.ConfirmDelay); err != nil {
			return err
		}
		if _, err := r.look(ctx, tick.Number); err != nil {
			return err
		}
	}
	return r.finish(ctx)
}

// look judges every worker once and returns how many gaps it opened on presence.
func (r *Reaper) look(ctx context.Context, tick int64) (opened int, err error) {
	sightings, err := r.store.Look(ctx, tick)
	if err != nil {
		return 0, fmt.Errorf("look: %w", err)
	}
	r.metrics.workers.Set(float64(len(sightings)))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(probes)
	for _, sighting := range sightings {
		step := r.detection.Judge(sighting)
		if step == berth.StepOpenGap && !sighting.Present {
			opened++
		}
		if step != berth.StepNone {
			group.Go(func() error { return r.act(ctx, tick, sighting, step) })
		}
	}
	return opened, group.Wait()
}

// act takes one step about one worker.
func (r *Reaper) act(ctx context.Context, tick int64, s berth.Sighting, step berth.Step) error {
	switch step {
	case berth.StepOpenGap:
		evidence := evidencePresence
		if s.Present {
			evidence = evidenceLate
		}
		r.logger.InfoContext(ctx, "gap opened", "worker_id", s.WorkerID, "instance", s.Instance, "evidence", evidence)
		return r.store.OpenGap(ctx, tick, s.WorkerID, s.Instance, evidence)
	case berth.StepClearGap:
		return r.clear(ctx, s)
	case berth.StepCordon:
		_, err := r.store.CordonLate(ctx, tick, s.WorkerID, s.Instance)
		return err
	case berth.StepProbe:
		return r.probe(ctx, tick, s)
	case berth.StepLose:
		return r.lose(ctx, tick, s, evidencePaused)
	default:
		return nil
	}
}

// probe asks a worker whose presence is gone, and acts on the answer.
func (r *Reaper) probe(ctx context.Context, tick int64, s berth.Sighting) error {
	result := r.prober.Probe(ctx, s)
	switch {
	case result == berth.ProbeAlive:
		return r.clear(ctx, s)
	case !r.detection.Lost(s, result):
		return nil
	case result == berth.ProbeDead:
		return r.lose(ctx, tick, s, evidenceRefused)
	default:
		return r.lose(ctx, tick, s, evidenceSilent)
	}
}

// clear ends the gap of a worker that is back.
func (r *Reaper) clear(ctx context.Context, s berth.Sighting) error {
	r.logger.InfoContext(ctx, "gap cleared", "worker_id", s.WorkerID, "instance", s.Instance, "age", s.GapAge)
	return r.store.ClearGap(ctx, s.WorkerID, s.Instance)
}

// lose declares an instance dead and takes its sessions off it.
func (r *Reaper) lose(ctx context.Context, tick int64, s berth.Sighting, evidence string) error {
	lost, err := r.store.MarkLost(ctx, tick, s.WorkerID, s.Instance, evidence)
	if err != nil || !lost {
		return err
	}
	r.metrics.lost.WithLabelValues(evidence).Inc()
	r.logger.WarnContext(ctx, "loss confirmed", "worker_id", s.WorkerID, "instance", s.Instance,
		"evidence", evidence, "gap_age", s.GapAge)
	return r.displace(ctx, s, r.store.DisplaceLost)
}

type displacer func(ctx context.Context, workerID string, instance berth.Instance, limit int) (int, error)

// displace moves an instance's sessions chunk by chunk. Rows that somebody works on are left for the next tick.
func (r *Reaper) displace(ctx context.Context, s berth.Sighting, move displacer) error {
	for {
		moved, err := move(ctx, s.WorkerID, s.Instance, chunk)
		if err != nil {
			return fmt.Errorf("displace sessions of %s: %w", s.WorkerID, err)
		}
		if moved == 0 {
			return nil
		}
		r.metrics.displaced.Add(float64(moved))
		r.logger.InfoContext(ctx, "sessions displaced", "worker_id", s.WorkerID, "instance", s.Instance, "sessions", moved)
	}
}

// finish does what does not wait for a verdict: what an earlier tick left, drains past their deadline, sessions that
// want another worker at once, overdue deadlines, and how much load workers are given.
func (r *Reaper) finish(ctx context.Context) error {
	unfinished, err := r.store.Unfinished(ctx)
	if err != nil {
		return fmt.Errorf("find unfinished losses: %w", err)
	}
	for _, s := range unfinished {
		if err := r.displace(ctx, s, r.store.DisplaceLost); err != nil {
			return err
		}
	}
	drains, err := r.store.OverdueDrains(ctx, r.detection.DrainGrace)
	if err != nil {
		return fmt.Errorf("find overdue drains: %w", err)
	}
	for _, s := range drains {
		if err := r.displace(ctx, s, r.store.DisplaceDrained); err != nil {
			return err
		}
	}
	if _, err := r.store.ReplaceLost(ctx, chunk); err != nil {
		return fmt.Errorf("replace lost sessions: %w", err)
	}
	if err := r.endOverdue(ctx); err != nil {
		return err
	}
	return r.pace(ctx)
}

func (r *Reaper) endOverdue(ctx context.Context) error {
	for {
		ended, err := r.store.EndOverdue(ctx, chunk)
		if err != nil {
			return fmt.Errorf("end overdue sessions: %w", err)
		}
		r.metrics.overdue.Add(float64(ended))
		if ended < chunk {
			return nil
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
