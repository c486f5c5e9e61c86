package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/berth"
)

const (
	// postLimit ends a call on the sentinel's connection that is not answered: by then the server has ended it as well.
	postLimit = time.Second
	// A sentinel whose connection failed waits from firstRest up to mostRest before it opens another.
	firstRest = 50 * time.Millisecond
	mostRest  = time.Second
)

// SentinelStore is the database as a sentinel needs it.
type SentinelStore interface {
	Post(ctx context.Context, detection berth.Detection) (berth.Post, error)
	Distrust(ctx context.Context) error
}

// Sentinel watches workers between ticks, and wakes its reaper. Each API process has one; one of them at a time has the
// post and looks, the others wait for it.
type Sentinel struct {
	store     SentinelStore
	reaper    *Reaper
	detection berth.Detection
	logger    *slog.Logger
	metrics   *sentinelMetrics

	clock berth.Reading // of its own goroutine
	alarm berth.Alarm   // the last that was said, also of its own goroutine

	mu     sync.Mutex // guards cancel
	cancel context.CancelFunc
	loop   sync.WaitGroup
}

// NewSentinel makes a sentinel and registers its metrics. With detection.Watch zero it does nothing.
func NewSentinel(
	store SentinelStore, reaper *Reaper, detection berth.Detection, logger *slog.Logger, registry prometheus.Registerer,
) (*Sentinel, error) {
	metrics, err := newSentinelMetrics(registry)
	if err != nil {
		return nil, err
	}
	return &Sentinel{store: store, reaper: reaper, detection: detection, logger: logger, metrics: metrics}, nil
}

// Start watches until Stop, or until ctx ends.
func (s *Sentinel) Start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil || s.detection.Watch == 0 {
		return
	}
	ctx, s.cancel = context.WithCancel(ctx)
	s.loop.Go(func() { s.run(ctx) })
}

// Stop gives the post up. It is idempotent and safe before Start.
func (s *Sentinel) Stop() {
	s.mu.Lock()
	cancel := s.cancel
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	s.loop.Wait()
}

// run stands by, or watches, on one connection after the other.
func (s *Sentinel) run(ctx context.Context) {
	for rest := firstRest; ctx.Err() == nil; rest = min(2*rest, mostRest) {
		began := time.Now()
		err := s.stand(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > mostRest {
			rest = firstRest
			s.logger.WarnContext(ctx, "sentinel lost its connection", "err", err)
		} else {
			s.logger.DebugContext(ctx, "sentinel has no connection", "err", err)
		}
		if pause(ctx, rest/2+rand.N(rest)) != nil {
			return
		}
	}
}

// stand waits for the post and then looks, until the connection fails.
func (s *Sentinel) stand(ctx context.Context) error {
	post, err := limited(ctx, func(ctx context.Context) (berth.Post, error) { return s.store.Post(ctx, s.detection) })
	if err != nil {
		return fmt.Errorf("open post: %w", err)
	}
	defer func() { _ = post.Close(context.WithoutCancel(ctx)) }() // the server ends what this does not
	defer s.metrics.holding.Set(0)
	ticker := time.NewTicker(s.detection.Watch)
	defer ticker.Stop()
	for taken := false; ; {
		if !taken {
			if taken, err = limited(ctx, post.Take); err != nil {
				return fmt.Errorf("ask for the post: %w", err)
			}
			if taken {
				s.metrics.holding.Set(1)
				s.logger.InfoContext(ctx, "sentinel_took_post")
			}
		}
		if taken {
			if err := s.watch(ctx, post); err != nil {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watch looks once, and wakes the reaper if that is called for. It does so at every look until the cause is gone: the
// reaper may be at work elsewhere, or about to be cut off.
func (s *Sentinel) watch(ctx context.Context, post berth.Post) error {
	before := time.Now()
	outlook, err := limited(ctx, post.Watch)
	after := time.Now()
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	s.metrics.looks.Observe(after.Sub(before).Seconds())
	reading := berth.Reading{At: outlook.At, Before: before, After: after}
	if berth.Stepped(s.clock, reading, s.detection.ClockStep) {
		s.logger.WarnContext(ctx, "clock_stepped", "err", errClockStep)
		if _, err := limited(ctx, func(ctx context.Context) (bool, error) { return true, s.store.Distrust(ctx) }); err != nil {
			return fmt.Errorf("distrust: %w", err) // the reading before stays, so that the step is seen again
		}
	}
	s.clock = reading
	if s.detection.Detector != berth.DetectSweep {
		s.reaper.memory.watched(outlook.Missing, before)
	}
	alarm := s.detection.Alarm(outlook)
	if alarm != berth.AlarmNone {
		s.reaper.Wake()
	}
	if alarm != s.alarm && alarm != berth.AlarmNone {
		s.metrics.alarms.WithLabelValues(string(alarm)).Inc()
		s.logger.DebugContext(ctx, "sentinel wakes the reaper", "alarm", string(alarm), "missing", len(outlook.Missing))
	}
	s.alarm = alarm
	return nil
}

// limited runs one call on the sentinel's connection.
func limited[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, postLimit)
	defer cancel()
	return call(ctx)
}
