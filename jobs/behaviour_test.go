package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/testkit"
	"github.com/berthdev/berth/jobs"
)

// The behaviour that every detector owes the reaper, by the clock of a bubble. What a cell does with real processes of its
// own is in cell_detector_test.go.

var detectors = []berth.Detector{berth.DetectPresence, berth.DetectLease, berth.DetectSweep}

// scene is a fleet with one reaper.
type scene struct {
	*testing.T

	kind     berth.Detector
	numbers  berth.Detection
	store    *fakeStore
	reaper   *jobs.Reaper
	registry *prometheus.Registry
	began    time.Time
}

// onEach runs a test on each detector, with three workers that the reaper has seen.
func onEach(t *testing.T, test func(s *scene)) {
	t.Helper()
	for _, kind := range detectors {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, kind, detection)
				test(s)
			})
		})
	}
}

func newScene(t *testing.T, kind berth.Detector, numbers berth.Detection) *scene {
	t.Helper()
	numbers.Detector = kind
	s := &scene{T: t, kind: kind, numbers: numbers, store: newFakeStore()}
	for i := range 3 {
		s.store.add(fmt.Sprintf("w%d", i+1), 10*(i+1))
	}
	s.reaper, s.registry = newReaperOf(t, numbers, s.store, s.store, s.store, testkit.Logger(t))
	s.run(2 * time.Second)
	s.began = time.Now()
	return s
}

// run ticks once a second, and lets workers renew that are well.
func (s *scene) run(d time.Duration) {
	s.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		began := time.Now()
		s.store.renew()
		tick(s.T, s.reaper)
		<-time.After(s.numbers.Tick - time.Since(began)%s.numbers.Tick)
	}
}

// spared fails if one of these was lost or has lost sessions.
func (s *scene) spared(ids ...string) {
	s.Helper()
	for _, id := range ids {
		w := s.store.workers[id]
		if w.lost != "" || w.sessions == 0 {
			s.Errorf("%s was lost by %q, and has %d sessions", id, w.lost, w.sessions)
		}
	}
}

// renew is what workers that are well do.
func (f *fakeStore) renew() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.workers {
		if w.present && (w.cut || w.reply == jobs.ReplyGiven) {
			w.expires, w.gap, w.cordoned = time.Now().Add(detection.Lease), time.Time{}, false
		}
	}
}

// Probe answers as the fake worker does.
func (f *fakeStore) Probe(_ context.Context, s berth.Sighting) berth.ProbeResult {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.workers[s.WorkerID].reply {
	case jobs.ReplyGiven:
		return berth.ProbeAlive
	case jobs.ReplyRefused:
		return berth.ProbeDead
	default:
		return berth.ProbeUnknown
	}
}

func (w *fakeWorker) die()   { w.present, w.reply = false, jobs.ReplyRefused }
func (w *fakeWorker) pause() { w.reply = jobs.ReplyLate }
func (w *fakeWorker) wake()  { w.present, w.reply = true, jobs.ReplyGiven }

func TestDeadWorkerIsLostOnceAndNobodyElse(t *testing.T) {
	t.Parallel()
	most := map[berth.Detector]time.Duration{
		berth.DetectPresence: 1500 * time.Millisecond, berth.DetectLease: 7500 * time.Millisecond, berth.DetectSweep: 1500 * time.Millisecond,
	}
	onEach(t, func(s *scene) {
		dead := s.store.workers["w2"]
		dead.die()
		s.run(12 * time.Second)
		if took := dead.lostAt.Sub(s.began); dead.lost == "" || dead.sessions != 0 || took > most[s.kind] {
			s.Errorf("lost by %q after %v, with %d sessions left", dead.lost, took, dead.sessions)
		}
		if n := counter(s.T, s.registry, "berth_workers_lost_total", ""); n != 1 {
			s.Errorf("%v losses", n)
		}
		s.spared("w1", "w3")
	})
}

// Never act on the first sign: whoever is back before it is confirmed has lost nothing.
func TestFirstSignCostsNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *scene) {
		s.store.change("w2", func(w *fakeWorker) { w.die() })
		over, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				_ = s.reaper.Tick(s.Context())
				select {
				case <-over:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		}()
		opened := false
		for range 200 {
			s.store.renew()
			if s.store.change("w2", func(w *fakeWorker) { opened = !w.gap.IsZero() }); opened {
				break
			}
			<-time.After(50 * time.Millisecond)
		}
		s.store.change("w2", func(w *fakeWorker) { w.wake() })
		s.store.renew()
		close(over)
		<-done
		if !opened {
			s.Error("no gap was opened")
		}
		s.run(10 * time.Second)
		s.spared("w1", "w2", "w3")
		if !s.store.workers["w2"].gap.IsZero() {
			s.Error("the gap is still open")
		}
	})
}

// The article's finding, and the reason for presence: a pause beyond the lease costs the lease design its sessions.
func TestPausedWorkerLosesItsSessionsByLeaseOnly(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{5 * time.Second, 8 * time.Second, 10 * time.Second, 12 * time.Second, 30 * time.Second} {
		t.Run(pause.String(), func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *scene) {
				w := s.store.workers["w2"]
				w.pause()
				s.run(pause)
				w.wake()
				s.run(5 * time.Second)
				if lost := w.lost != ""; lost != (s.kind == berth.DetectLease && pause > s.numbers.Lease+time.Second) {
					s.Errorf("lost by %q", w.lost)
				}
				if s.kind != berth.DetectLease && w.cordoned {
					s.Error("still cordoned")
				}
				s.spared("w1", "w3")
			})
		})
	}
}

// The way from the API to all workers is cut, and nothing else: they renew, so they live.
func TestNetworkThatIsCutCostsNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *scene) {
		for _, w := range s.store.workers {
			w.reply, w.cut = jobs.ReplyAbsent, true
		}
		s.run(time.Minute)
		s.spared("w1", "w2", "w3")
	})
}

func TestHostThatVanishesIsLostWhenItsLeaseIsLongOver(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *scene) {
		w := s.store.workers["w2"]
		w.present, w.reply = false, jobs.ReplyAbsent
		s.run(s.numbers.Lease + s.numbers.UnprovenWait + 2*time.Second)
		if w.lost == "" {
			s.Error("not lost")
		}
		s.spared("w1", "w3")
	})
}

func TestPauseHasALimit(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *scene) {
		s.store.workers["w2"].pause()
		s.run(s.numbers.Lease + s.numbers.PauseLimit + 5*time.Second)
		if s.store.workers["w2"].lost == "" {
			s.Error("not lost")
		}
		s.spared("w1", "w3")
	})
}

// F03, F05: whoever comes back to leases that are all over has not looked, and knows nothing.
func TestReaperThatDidNotLookDistrustsItself(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *scene) {
		<-time.After(20 * time.Second) // no API, or no database
		tick(s.T, s.reaper)
		tick(s.T, s.reaper)
		s.run(5 * time.Second)
		s.spared("w1", "w2", "w3")
	})
}

// A database clock that is moved says nothing about workers: after it, nothing counts that was remembered.
func TestMovedClockCostsNothing(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{-2 * time.Minute, -4 * time.Second, 4 * time.Second, time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *scene) {
				s.store.workers["w3"].pause()
				s.run(3 * time.Second)
				s.store.shift += step
				if err := s.reaper.Tick(s.Context()); err == nil {
					s.Error("the step was not noticed")
				}
				s.store.workers["w3"].wake()
				s.run(5 * time.Second)
				s.spared("w1", "w2", "w3")
				if n := counter(s.T, s.registry, "berth_reaper_distrusts_total", ""); n != 1 {
					s.Errorf("%v distrusts", n)
				}
			})
		})
	}
}

// gone makes every worker one that nobody has proof about.
func (s *scene) gone() {
	for _, w := range s.store.workers {
		w.pause() // so that no probe and no sweep proves anything
		w.expires = time.Now().Add(-s.numbers.PauseLimit - time.Second)
	}
}

func TestMassLossNeedsAFreshLook(t *testing.T) {
	t.Parallel()
	for _, agrees := range []bool{true, false} {
		t.Run(fmt.Sprint("agrees ", agrees), func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *scene) {
				s.store.onFresh = func() {
					if !agrees {
						for _, w := range s.store.workers {
							w.wake()
							w.expires = time.Now().Add(s.numbers.Lease)
						}
					}
				}
				s.gone()
				s.run(3 * time.Second)
				if s.store.fresh == 0 {
					s.Error("nobody looked again")
				}
				for id, w := range s.store.workers {
					if (w.lost != "") != agrees {
						s.Errorf("%s lost by %q", id, w.lost)
					}
				}
			})
		})
	}
}

// Two of three are no mass, and what is proven is none either.
func TestProvenAndFewLossesNeedNoFreshLook(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *scene) {
		s.store.workers["w1"].die()
		s.store.workers["w2"].die()
		if s.kind == berth.DetectPresence {
			s.store.workers["w3"].die()
		}
		s.run(10 * time.Second)
		if s.store.fresh > 0 {
			s.Errorf("%d fresh looks", s.store.fresh)
		}
		for _, id := range []string{"w1", "w2"} {
			if s.store.workers[id].lost == "" {
				s.Errorf("%s was not lost", id)
			}
		}
	})
}

func TestOvertakenTickLosesNobody(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *scene) {
		w := s.store.workers["w2"]
		w.die()
		w.expires = time.Now().Add(-time.Second)
		failed := make(chan error)
		go func() { failed <- s.reaper.Tick(s.Context()) }()
		<-time.After(s.numbers.ConfirmDelay / 2) // its gap is open, and not confirmed
		s.store.mu.Lock()
		s.store.number++
		s.store.mu.Unlock()
		if err := <-failed; !errors.Is(err, berth.ErrStale) || w.gap.IsZero() {
			s.Errorf("got %v", err)
		}
		s.spared("w1", "w2", "w3")
	})
}

func TestLooksAreMeasuredByDetector(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *scene) {
		numbers := s.numbers
		numbers.WalkSessions = true
		reaper, registry := newReaperOf(s.T, numbers, s.store, s.store, s.store, testkit.Logger(s.T))
		s.store.workers["w1"].die()
		s.store.workers["w1"].expires = time.Time{}
		tick(s.T, reaper)
		want := map[string]float64{"workers": 3, "sockets": 0, "sessions": 60, "orphans": 10}
		if s.kind == berth.DetectSweep {
			want["sockets"] = 50
		}
		for what, n := range want {
			if got := gauge(s.T, registry, "berth_detector_looked_at", map[string]string{"detector": string(s.kind), "what": what}); got != n {
				s.Errorf("%v %s, want %v", got, what, n)
			}
		}
	})
}

func TestDetectorIsOneOfThree(t *testing.T) {
	t.Parallel()
	numbers := detection
	numbers.Detector = "guess"
	if _, err := jobs.NewDetector(numbers, newFakeStore(), nil, nil); err == nil {
		t.Error("made")
	}
}
