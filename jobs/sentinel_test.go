package jobs_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/testkit"
	"github.com/berthdev/berth/jobs"
)

// fakePost is a sentinel's connection to a fakeStore.
type fakePost struct {
	store  *fakeStore
	number int
}

// Post opens one.
func (f *fakeStore) Post(context.Context, berth.Detection) (berth.Post, error) {
	leave, err := f.enter("Post")
	defer leave()
	f.posts++
	return &fakePost{store: f, number: f.posts}, err
}

func (p *fakePost) Take(context.Context) (bool, error) {
	leave, err := p.store.enter("Take")
	defer leave()
	if p.store.holder == 0 {
		p.store.holder = p.number
	}
	return p.store.holder == p.number, err
}

func (p *fakePost) Watch(ctx context.Context) (berth.Outlook, error) {
	p.store.mu.Lock()
	frozen := p.store.frozen == p.number
	p.store.mu.Unlock()
	if frozen {
		<-ctx.Done()
		return berth.Outlook{}, ctx.Err()
	}
	leave, err := p.store.enter("Watch")
	defer leave()
	p.store.watched++
	o := berth.Outlook{At: p.store.now(), Blind: p.store.lastLook.IsZero() || time.Since(p.store.lastLook) > detection.BlindAfter}
	if !p.store.ticked.IsZero() {
		o.SinceTick = time.Since(p.store.ticked)
	}
	for _, w := range p.store.workers {
		if w.lost == "" && !w.present {
			o.Missing = append(o.Missing, w.instance)
			o.NewGap = o.NewGap || w.gap.IsZero()
		}
		ripe := w.gap.Add(detection.ConfirmDelay)
		o.Ripe = o.Ripe || w.lost == "" && !w.gap.IsZero() && !time.Now().Before(ripe) && p.store.ticked.Before(ripe)
	}
	if !o.Blind {
		p.store.lastLook = time.Now()
	}
	return o, err
}

func (p *fakePost) Close(context.Context) error {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	if p.store.holder == p.number {
		p.store.holder = 0
	}
	return nil
}

// guard is an API process as far as detection goes.
type guard struct {
	reaper   *jobs.Reaper
	sentinel *jobs.Sentinel
	registry *prometheus.Registry
}

func newGuard(t *testing.T, store *fakeStore, logger *slog.Logger) guard {
	t.Helper()
	reaper, registry := newReaperOf(t, detection, store, store, store, logger)
	sentinel, err := jobs.NewSentinel(store, reaper, detection, logger, registry)
	if err != nil {
		t.Fatal(err)
	}
	return guard{reaper: reaper, sentinel: sentinel, registry: registry}
}

func (g guard) start(ctx context.Context) { g.reaper.Start(ctx); g.sentinel.Start(ctx) }
func (g guard) stop()                     { g.sentinel.Stop(); g.reaper.Stop() }

func (f *fakeStore) lost(id string) (time.Time, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.workers[id].lostAt, f.workers[id].lost != ""
}

// change changes a worker while reapers run.
func (f *fakeStore) change(id string, change func(w *fakeWorker)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f.workers[id])
}

func TestSentinelFindsADeadWorkerWithoutAnyPeriodicTick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.add("w1", 5)
		store.add("w2", 5)
		var lines lockedLog
		g := newGuard(t, store, slog.New(slog.NewJSONHandler(&lines, nil)))
		g.start(t.Context())
		defer g.stop()
		<-time.After(2*time.Second + 30*time.Millisecond)
		store.renew()
		store.change("w2", func(w *fakeWorker) { w.die(); store.peers = map[string]int{"w2": 2} })
		died := time.Now()
		<-time.After(2 * time.Second)
		at, lost := store.lost("w2")
		if took := at.Sub(died); !lost || took > detection.Watch+detection.ConfirmDelay {
			t.Errorf("lost %v after %v", lost, took)
		}
		for _, want := range []string{
			`"msg":"gap_opened","worker_id":"w2","instance":2,"evidence":"presence_gone"`, `"gap_ms":100,"confirm_ms":400`,
			`"msg":"loss_confirmed","worker_id":"w2","instance":2,"evidence":"probe_refused"`,
			`"msg":"session_lost","worker_id":"w2","instance":2,"session_id":"w2-4","session_key":0,"generation":0,"since_gap_ms":400`,
			`"msg":"peer_notified","session_key":2,"peer_id":"p","cause":"worker_lost","publish_ms":0,"since_gap_ms":400`,
			`"msg":"sessions_displaced","worker_id":"w2","instance":2,"sessions":5`,
		} {
			if !strings.Contains(lines.String(), want) {
				t.Errorf("no %s in\n%s", want, lines.String())
			}
		}
		if _, lost := store.lost("w1"); lost {
			t.Error("w1 was lost")
		}
	})
}

// lockedLog is a log that several goroutines write.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestSentinelKeepsTicksComingWhenNobodyElseDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		g := newGuard(t, store, testkit.Logger(t))
		g.start(t.Context())
		defer g.stop()
		<-time.After(20 * time.Second)
		synctest.Wait()
		store.mu.Lock()
		defer store.mu.Unlock()
		if store.number < 12 || store.number > 20 {
			t.Errorf("%d ticks in 20 s", store.number)
		}
	})
}

func TestOneSentinelWatchesAndAnotherTakesOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.add("w1", 5)
		first, second := newGuard(t, store, testkit.Logger(t)), newGuard(t, store, testkit.Logger(t))
		first.start(t.Context())
		synctest.Wait()
		second.start(t.Context())
		defer second.stop()
		<-time.After(3 * time.Second)
		holding := func(g guard) float64 { return gauge(t, g.registry, "berth_sentinel_holding", nil) }
		if holding(first) != 1 || holding(second) != 0 {
			t.Errorf("held by %v and %v", holding(first), holding(second))
		}
		store.renew()
		store.change("w1", func(w *fakeWorker) { w.die() })
		first.stop() // both at once
		died := time.Now()
		<-time.After(2 * time.Second)
		at, lost := store.lost("w1")
		if took := at.Sub(died); !lost || took > time.Second || holding(first) != 0 || holding(second) != 1 {
			t.Errorf("lost %v after %v; held by %v and %v", lost, took, holding(first), holding(second))
		}
	})
}

// A reaper that dies between a gap and its confirmation leaves it to the next one, who is woken as soon as it can be had.
func TestGapThatWasLeftBehindIsConfirmedInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.add("w1", 5)
		g := newGuard(t, store, testkit.Logger(t))
		g.start(t.Context())
		defer g.stop()
		<-time.After(2*time.Second + 50*time.Millisecond)
		store.change("w1", func(w *fakeWorker) {
			w.die()
			w.gap = time.Now()
		})
		died := time.Now()
		<-time.After(2 * time.Second)
		at, lost := store.lost("w1")
		if took := at.Sub(died); !lost || took > detection.ConfirmDelay+detection.Watch {
			t.Errorf("lost %v after %v", lost, took)
		}
	})
}

// A sentinel whose connection is frozen gives it up, since the server does so as well, and comes back by another.
func TestSentinelGivesUpAFrozenConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		g := newGuard(t, store, testkit.Logger(t))
		g.start(t.Context())
		defer g.stop()
		<-time.After(3 * time.Second)
		store.mu.Lock()
		store.frozen = 1
		store.mu.Unlock()
		<-time.After(3 * time.Second)
		store.mu.Lock()
		defer store.mu.Unlock()
		if store.holder != 2 {
			t.Errorf("held by %d", store.holder)
		}
	})
}

func TestSentinelBearsADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"Post", "Take", "Watch"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newFakeStore()
				store.add("w1", 5)
				store.fails = method
				g := newGuard(t, store, testkit.Logger(t))
				g.start(t.Context())
				defer g.stop()
				<-time.After(time.Minute)
				store.mu.Lock()
				if store.posts < 20 || store.posts > 130 {
					t.Errorf("%d connections in a minute", store.posts)
				}
				store.fails = ""
				before := store.watched
				store.mu.Unlock()
				<-time.After(3 * time.Second)
				store.mu.Lock()
				defer store.mu.Unlock()
				if store.watched-before < 10 {
					t.Errorf("%d looks since it is back", store.watched-before)
				}
			})
		})
	}
}

func TestSentinelDistrustsAClockThatMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.add("w1", 5)
		g := newGuard(t, store, testkit.Logger(t))
		g.start(t.Context())
		defer g.stop()
		<-time.After(3*time.Second + 50*time.Millisecond)
		store.mu.Lock()
		store.shift = 2 * time.Minute
		store.mu.Unlock()
		<-time.After(300 * time.Millisecond)
		store.mu.Lock()
		defer store.mu.Unlock()
		distrusts := 0
		for _, call := range store.calls {
			if call == "distrust" {
				distrusts++
			}
		}
		if distrusts == 0 {
			t.Errorf("got %q", store.calls)
		}
	})
}

func TestSentinelIsIdempotentSafeBeforeStartAndMayBeOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		g := newGuard(t, store, testkit.Logger(t))
		g.sentinel.Stop()
		g.sentinel.Start(t.Context())
		g.sentinel.Start(t.Context())
		synctest.Wait()
		g.stop()
		g.stop()
		if store.posts != 1 || store.holder != 0 {
			t.Errorf("%d posts, held by %d", store.posts, store.holder)
		}
		numbers := detection
		numbers.Watch = 0
		off, err := jobs.NewSentinel(store, g.reaper, numbers, testkit.Logger(t), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		off.Start(t.Context())
		off.Stop()
		if store.posts != 1 {
			t.Error("one that is off opened a post")
		}
	})
}

func TestSecondSentinelOfARegistryIsAnError(t *testing.T) {
	t.Parallel()
	g := newGuard(t, newFakeStore(), testkit.Logger(t))
	var taken prometheus.AlreadyRegisteredError
	if _, err := jobs.NewSentinel(newFakeStore(), g.reaper, detection, testkit.Logger(t), g.registry); !errors.As(err, &taken) {
		t.Errorf("got %v", err)
	}
}
