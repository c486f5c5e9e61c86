package jobs

import (
	"context"
	"errors"
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
	// confirmDelays is for how many of them a tick looks again for gaps that opened after it began. Then it goes on to
	// what else is due, and the next tick looks.
	confirmDelays = 3
)

// ReaperStore is the database as the reaper needs it; internal/postgres documents the methods.
type ReaperStore interface {
	WithReaperLock(ctx context.Context, act func(context.Context) error) (bool, error)
	BeginTick(ctx context.Context, blindAfter, lease time.Duration) (berth.Tick, error)
	Distrust(ctx context.Context) error
	Verdicts
	Overdue
	CallStore
	Pacing
}

// Verdicts are the reaper's writes about workers.
type Verdicts interface {
	OpenGap(
		ctx context.Context, tick int64, workerID string, instance berth.Instance, evidence string, unseen time.Duration,
	) error
	ClearGap(ctx context.Context, tick int64, workerID string, instance berth.Instance) error
	CordonLate(ctx context.Context, tick int64, workerID string, instance berth.Instance) (bool, error)
	MarkLost(ctx context.Context, tick int64, workerID string, instance berth.Instance, evidence string) (bool, error)
}

// Overdue is what the reaper finds by index and brings to its end.
type Overdue interface {
	Unfinished(ctx context.Context) ([]berth.Sighting, error)
	OverdueDrains(ctx context.Context, grace time.Duration) ([]berth.Sighting, error)
	OwnedBy(ctx context.Context, workerID string, instance berth.Instance, limit int) ([]berth.Owned, error)
	DisplaceLost(ctx context.Context, workerID string, instance berth.Instance, limit int) (int, error)
	DisplaceDrained(ctx context.Context, workerID string, instance berth.Instance, limit int) (int, error)
	ReplaceLost(ctx context.Context, limit int) (int, error)
	EndOverdue(ctx context.Context, limit int) (int, error)
}

// Reaper acts on missing workers and overdue deadlines. It is safe for concurrent use.
type Reaper struct {
	store     ReaperStore
	detector  Detector
	detection berth.Detection
	logger    *slog.Logger
	metrics   *reaperMetrics
	memory    *memory
	herald    *herald
	burials   func(func(context.Context) error) // runs what a loss leaves to do beside the looks of this tick; the tick's own

	wake     chan struct{}
	mu       sync.Mutex // guards cancel and judgedAt
	cancel   context.CancelFunc
	judgedAt time.Time
	loop     sync.WaitGroup
}

// NewReaper makes a reaper and registers its metrics. Zero numbers of detection are not defaulted: start from
// berth.DefaultDetection, and make the detector from the same. topics are those on which the peers of calls hear of losses.
func NewReaper(
	store ReaperStore, detector Detector, topics Publisher, detection berth.Detection, logger *slog.Logger, registry prometheus.Registerer,
) (*Reaper, error) {
	metrics, err := newReaperMetrics(registry)
	if err != nil {
		return nil, err
	}
	return &Reaper{
		store:     store,
		detector:  detector,
		detection: detection,
		logger:    logger,
		metrics:   metrics,
		memory:    newMemory(),
		herald:    &herald{store: store, topics: topics, logger: logger},
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
	before := time.Now()
	tick, err := r.store.BeginTick(ctx, r.detection.BlindAfter, r.detection.Lease)
	if err != nil {
		return fmt.Errorf("begin tick: %w", err)
	}
	if tick.Blind {
		r.logger.InfoContext(ctx, "reaper starts blind", "tick", tick.Number)
		r.memory.forget()
	}
	reading := berth.Reading{At: tick.At, Before: before, After: time.Now()}
	if r.memory.stepped(reading, r.detection.ClockStep) && !tick.Blind {
		return r.distrust(ctx)
	}
	// A worker with many sessions must not hold up the word about another.
	var burying errgroup.Group
	r.burials = func(bury func(context.Context) error) { burying.Go(func() error { return bury(ctx) }) }
	err = r.detect(ctx, tick.Number)
	if err := errors.Join(err, burying.Wait()); err != nil {
		return err
	}
	return r.finish(ctx)
}

// errClockStep says that the database's clock, or ours, was moved.
var errClockStep = errors.New("the database's clock and this process's have moved against each other")

// distrust ends a tick whose measures of time mean nothing, and makes the next one start blind.
func (r *Reaper) distrust(ctx context.Context) error {
	r.metrics.distrusts.Inc()
	return errors.Join(errClockStep, r.store.Distrust(ctx))
}

// detect looks until no gap waits for its confirmation: at once, when the first one is old enough, and in between as
// often as the sentinel, who cannot start another tick meanwhile.
func (r *Reaper) detect(ctx context.Context, tick int64) error {
	for began := time.Now(); ; {
		wait, err := r.look(ctx, tick)
		if err != nil {
			return err
		}
		if wait == 0 || time.Since(began) > confirmDelays*r.detection.ConfirmDelay {
			return nil
		}
		if r.detection.Watch > 0 && r.detection.Detector != berth.DetectSweep {
			wait = min(wait, r.detection.Watch)
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// look judges every worker once, and says how long to wait for the next look; zero: for nothing.
func (r *Reaper) look(ctx context.Context, tick int64) (wait time.Duration, err error) {
	sight, err := r.see(ctx, berth.Look{Tick: tick})
	if err != nil {
		return 0, err
	}
	doubtful, missing := &suspects{}, 0
	group, acting := errgroup.WithContext(ctx)
	group.SetLimit(probes)
	for _, s := range sight.Workers {
		if w := r.detection.Ripens(s); w > 0 && (wait == 0 || w < wait) {
			wait = w
		}
		if s.Missing && s.GapOpen {
			missing++
		}
		r.noteRenewal(ctx, s)
		if step := r.detection.Judge(s); step != berth.StepNone {
			group.Go(func() error { return r.act(acting, tick, s, step, doubtful) })
		}
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	unproven := max(len(doubtful.list), missing-doubtful.settled)
	return wait, r.loseSuspects(ctx, tick, doubtful.list, unproven, len(sight.Workers))
}

// see has the detector look, measures that, and remembers what was seen.
func (r *Reaper) see(ctx context.Context, look berth.Look) (Sight, error) {
	before := time.Now()
	sight, err := r.detector.Look(ctx, look)
	after := time.Now()
	if err != nil {
		return sight, fmt.Errorf("look: %w", err)
	}
	r.metrics.looked(string(r.detection.Detector), sight, after.Sub(before))
	if r.memory.stepped(berth.Reading{At: sight.At, Before: before, After: after}, r.detection.ClockStep) {
		return sight, r.distrust(ctx)
	}
	r.memory.looked(sight.Workers, before)
	return sight, nil
}

// act takes one step about one worker. Losses that are not proven are left to be counted.
func (r *Reaper) act(ctx context.Context, tick int64, s berth.Sighting, step berth.Step, doubtful *suspects) error {
	switch step {
	case berth.StepOpenGap:
		return r.openGap(ctx, tick, s)
	case berth.StepClearGap:
		return r.clearGap(ctx, tick, s, "seen again")
	case berth.StepCordon:
		_, err := r.store.CordonLate(ctx, tick, s.WorkerID, s.Instance)
		return err
	case berth.StepConfirm:
		return r.confirm(ctx, tick, s, doubtful)
	case berth.StepLose:
		doubtful.add(suspect{Sighting: s, step: step, evidence: evidencePaused})
		return nil
	default:
		return nil
	}
}

// confirm looks for other evidence about a worker that is missing, and acts on it.
func (r *Reaper) confirm(ctx context.Context, tick int64, s berth.Sighting, doubtful *suspects) error {
	verdict, evidence := r.detector.Confirm(ctx, s)
	switch verdict {
	case berth.VerdictAlive:
		doubtful.settle()
		return r.clearGap(ctx, tick, s, "answered")
	case berth.VerdictDead:
		doubtful.settle()
		return r.lose(ctx, tick, s, evidence)
	case berth.VerdictSilent:
		doubtful.add(suspect{Sighting: s, step: berth.StepConfirm, evidence: evidence})
		return nil
	default:
		return nil
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
