package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/signaling"
)

// bench is a keeper in fake time with working fakes around it.
type bench struct {
	t        *testing.T
	registry *fakeRegistry
	replicas []*fakeReplica
	hub      *fakeHub
	keeper   *keeper
	paused   atomic.Int64 // how far the clock jumped while the process was stopped
	cancel   context.CancelFunc
	done     chan struct{}
	last     *tenure
	err      error
}

// inFakeTime runs f with a keeper that registered.
func inFakeTime(t *testing.T, f func(b *bench)) {
	t.Helper()
	inFakeTimeAfter(t, func(*bench) {}, f)
}

// inFakeTimeAfter is inFakeTime with a keeper that is prepared before it registers.
func inFakeTimeAfter(t *testing.T, prepare, f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		prepare(b)
		b.start()
		defer func() {
			b.cancel()
			<-b.done
		}()
		f(b)
	})
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, registry: newFakeRegistry(), hub: newFakeHub(), done: make(chan struct{})}
	config := Config{
		WorkerID: "w-1", Capacity: 8, SignalingURL: "ws://x/rtc", ControlURL: "http://x",
		Now: func() time.Time { return time.Now().Add(time.Duration(b.paused.Load())) },
	}.withDefaults()
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	b.keeper = newKeeper(config, b.registry, slog.New(slog.DiscardHandler), m, NewAwake(config.Now))
	b.keeper.hub = b.hub
	return b
}

func (b *bench) start() {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	first, err := b.keeper.register(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	go func() {
		defer close(b.done)
		b.last, b.err = b.keeper.run(ctx, first)
		if b.last != nil {
			b.keeper.leavePresence(ctx, b.last.presence)
		}
	}()
	synctest.Wait()
}

// place has a session served, here and by the database.
func (b *bench) place(key berth.SessionKey, policy berth.OnWorkerLoss, peers int) berth.Held {
	held := berth.Held{Key: key, Generation: berth.Generation(key) + 100}
	b.hub.mu.Lock()
	b.hub.sessions[key] = signaling.Served{Held: held, OnWorkerLoss: policy, Peers: peers}
	b.hub.mu.Unlock()
	b.registry.set(func() { b.registry.sessions[key] = held })
	return held
}

// sleep lets fake time pass and waits until everything has come to rest.
func (b *bench) sleep(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (b *bench) wantAdmission(want signaling.Admission) {
	b.t.Helper()
	if got := b.hub.admits(); got != want {
		b.t.Fatalf("admission %d, want %d", got, want)
	}
}

func (b *bench) wantServed(key berth.SessionKey) {
	b.t.Helper()
	if fate, dropped := b.hub.fate(key); dropped {
		b.t.Fatalf("session %d was dropped: %+v", key, fate)
	}
}

func (b *bench) wantFate(key berth.SessionKey, want signaling.Fate) {
	b.t.Helper()
	got, dropped := b.hub.fate(key)
	got.Retry = 0
	if !dropped || got != want {
		b.t.Fatalf("session %d: dropped %v, fate %+v, want %+v", key, dropped, got, want)
	}
}

func TestLeaseIsRenewedWellBeforeItsEnd(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(b *bench) {
		b.place(1, berth.LossReplace, 1)
		b.sleep(10 * time.Minute)
		b.wantServed(1)
		b.wantAdmission(signaling.AdmitAll)
		if n := b.registry.counts().renewals; n < 270 || n > 340 {
			t.Fatalf("%d renewals in 600 s, want about one per 2 s", n)
		}
	})
}

func TestInDoubtAdmitsNobodyNewAndKeepsWhatRuns(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"away", "hang"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, func(b *bench) {
				b.place(1, berth.LossRejoin, 1)
				b.place(2, berth.LossReplace, 1)
				b.sleep(3 * time.Second)
				b.registry.set(func() { b.registry.away, b.registry.hang = how == "away", how == "hang" })
				b.sleep(3500 * time.Millisecond)
				b.wantAdmission(signaling.AdmitAll) // the lease cannot be over yet
				b.sleep(3 * time.Second)
				b.wantAdmission(signaling.AdmitHeld)
				b.wantServed(1)
				b.wantFate(2, signaling.Fate{Return: true}) // two owners must not both act
				b.sleep(100 * time.Second)
				b.wantServed(1)
				b.registry.set(func() { b.registry.away, b.registry.hang = false, false })
				b.sleep(5 * time.Second)
				b.wantAdmission(signaling.AdmitAll)
				b.wantServed(1)
			})
		})
	}
}

func TestEachLeaseEndFencesAnew(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(b *bench) {
		for key := berth.SessionKey(1); key <= 3; key++ {
			b.place(key, berth.LossReplace, 1)
			b.sleep(3 * time.Second)
			b.wantServed(key)
			b.registry.set(func() { b.registry.hang = true })
			b.sleep(7 * time.Second)
			b.wantFate(key, signaling.Fate{Return: true})
			b.registry.set(func() { b.registry.hang = false })
			b.sleep(5 * time.Second)
		}
	})
}

func TestLeaseCountsFromBeforeTheRequest(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(b *bench) {
		b.registry.set(func() { b.registry.lag = 1900 * time.Millisecond })
		b.sleep(20 * time.Second)
		b.registry.set(func() { b.registry.hang = true })
		for now := time.Now(); now.Before(b.registry.leaseEnd().Add(2 * awakeTick)); now = time.Now() {
			b.sleep(awakeTick)
		}
		b.wantAdmission(signaling.AdmitHeld)
	})
}

func TestSilenceForTheHoldLimitStopsEverything(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(b *bench) {
		b.place(1, berth.LossRejoin, 1)
		b.registry.set(func() { b.registry.hang = true })
		b.sleep(117 * time.Second)
		b.wantServed(1)
		b.sleep(4 * time.Second)
		b.wantFate(1, signaling.Fate{Restart: true, Return: true})
		b.wantAdmission(signaling.AdmitNone)
		b.registry.set(func() { b.registry.hang = false })
		b.sleep(5 * time.Second)
		b.wantAdmission(signaling.AdmitAll)
	})
}

// F08, C13: whoever was paused for long asks before it gives anything up, but fences at once what is placed elsewhere
// without asking.
func TestPauseRestartsTheDeadlines(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(b *bench) {
		b.place(1, berth.LossRejoin, 1)
		b.place(2, berth.LossReplace, 1)
		b.registry.set(func() { b.registry.hang = true })
		b.paused.Add(int64(10 * time.Minute))
		b.sleep(time.Second)
		b.wantServed(1)
		b.wantFate(2, signaling.Fate{Return: true})
		b.wantAdmission(signaling.AdmitAll) // the database still refuses what is stale
		b.sleep(6 * time.Second)
		b.wantAdmission(signaling.AdmitHeld)
		b.sleep(110 * time.Second)
		b.wantServed(1)
		b.sleep(5 * time.Second)
		b.wantFate(1, signaling.Fate{Restart: true, Return: true})
	})
}

func TestPauseRenewsAtOnce(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(b *bench) {
		b.sleep(100 * time.Millisecond)
		before := b.registry.counts().renewals
		b.paused.Add(int64(3 * time.Second))
		b.sleep(300 * time.Millisecond)
		if got := b.registry.counts().renewals - before; got != 1 {
			t.Fatalf("%d renewals right after a pause, want 1", got)
		}
	})
}

func TestScenario_C13_ReplacedWorkerDropsEverythingAndStops(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(b *bench) {
		b.place(1, berth.LossRejoin, 1)
		b.registry.set(func() { b.registry.instance += 10 })
		b.sleep(3 * time.Second)
		<-b.done
		if !errors.Is(b.err, ErrReplaced) {
			t.Fatalf("stopped with %v", b.err)
		}
		b.wantFate(1, signaling.Fate{})
		if b.registry.counts().present != 0 {
			t.Fatal("presence is still held")
		}
	})
}

func TestScenario_F08_WorkerThatWasDeclaredLostComesBackAsANewInstance(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(b *bench) {
		b.place(1, berth.LossRejoin, 1)
		old := b.keeper.status.load().instance
		b.registry.set(func() { b.registry.state = berth.WorkerLost })
		b.sleep(3 * time.Second)
		b.wantFate(1, signaling.Fate{})
		b.wantAdmission(signaling.AdmitAll)
		if now := b.keeper.status.load().instance; now <= old {
			t.Fatalf("instance %d after %d", now, old)
		}
		if b.registry.counts().present != 1 {
			t.Fatalf("%d presences", b.registry.counts().present)
		}
	})
}

func TestReconciliationDropsWhatTheDatabaseSays(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(b *bench) {
		for key := berth.SessionKey(1); key <= 3; key++ {
			b.place(key, berth.LossRejoin, 1)
		}
		b.registry.set(func() {
			delete(b.registry.sessions, 1)
			delete(b.registry.sessions, 2)
			b.registry.ended[2] = berth.EndedDeleted
		})
		b.sleep(2500 * time.Millisecond)
		b.wantFate(1, signaling.Fate{})
		b.wantFate(2, signaling.Fate{Ended: true, Reason: berth.EndedDeleted})
		b.wantServed(3)
	})
}

func TestNudgeRenewsAtOnce(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(b *bench) {
		b.place(1, berth.LossRejoin, 1)
		b.sleep(9 * time.Second) // between two renewals
		b.registry.set(func() {
			delete(b.registry.sessions, 1)
			b.registry.ended[1] = berth.EndedDeleted
			b.registry.lag = time.Millisecond // so that the burst falls into the first of its renewals
		})
		before := b.registry.counts().renewals
		for range 100 {
			b.keeper.nudge()
		}
		b.sleep(3 * time.Millisecond)
		b.wantFate(1, signaling.Fate{Ended: true, Reason: berth.EndedDeleted})
		if got := b.registry.counts().renewals - before; got > 2 {
			t.Fatalf("%d renewals for a burst of nudges", got)
		}
	})
}

// What a renewal costs the database grows with the worker's sessions, and whoever ends many nudges for each.
func TestManyNudgesTakeASmallPartOfTheDatabase(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(b *bench) {
		b.place(1, berth.LossRejoin, 1)
		b.sleep(9 * time.Second)
		b.registry.set(func() { b.registry.lag = 20 * time.Millisecond })
		before := b.registry.counts().renewals
		for range 1000 {
			b.keeper.nudge()
			b.sleep(time.Millisecond)
		}
		if got := b.registry.counts().renewals - before; got < 8 || got > 12 {
			t.Fatalf("%d renewals of 20 ms for a second of nudges: a fifth of it is ten", got)
		}
	})
}

func TestLostPresenceIsRenewedAtOnceAndReopened(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(b *bench) {
		b.place(1, berth.LossRejoin, 1)
		b.sleep(100 * time.Millisecond)
		before := b.registry.counts().renewals
		b.registry.set(func() {
			for _, p := range b.registry.present {
				p.drop()
			}
		})
		b.sleep(time.Millisecond)
		if b.registry.counts().renewals != before+1 || b.registry.counts().present != 1 {
			t.Fatalf("%d renewals, %d presences", b.registry.counts().renewals-before, b.registry.counts().present)
		}
		b.registry.set(func() {
			b.registry.away = true
			for _, p := range b.registry.present {
				p.drop()
			}
		})
		b.sleep(20 * time.Second)
		b.registry.set(func() { b.registry.away = false })
		b.sleep(10 * time.Second)
		if b.registry.counts().present != 1 {
			t.Fatal("presence was not reopened")
		}
		b.wantServed(1)
	})
}

func TestRegistrationWaitsForTheOldInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		old, err := b.registry.Presence(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		b.registry.serial, b.registry.instance, b.registry.state = 1, 1, berth.WorkerReady
		b.registry.lease = time.Now().Add(time.Hour)
		begin := time.Now()
		go func() {
			<-time.After(30 * time.Second)
			_ = old.Close(context.Background())
		}()
		b.start()
		if took := time.Since(begin); took < 30*time.Second || took > 32*time.Second {
			t.Fatalf("registered after %v, want as soon as the old instance is gone", took)
		}
		if n := b.registry.counts().serial; n != 2 {
			t.Fatalf("drew %d instances while it waited", n-1)
		}
		b.cancel()
		<-b.done
	})
}

func TestRegistrationOutlastsADatabaseThatIsAwayAndEndsAtStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.registry.away = true
		go func() {
			<-time.After(time.Minute)
			b.registry.set(func() { b.registry.away = false })
		}()
		b.start()
		b.cancel()
		<-b.done

		b = newBench(t)
		b.registry.hang = true
		go func() {
			<-time.After(time.Minute)
			close(b.keeper.stops)
		}()
		begin := time.Now()
		if _, err := b.keeper.register(context.Background()); !errors.Is(err, context.Canceled) {
			t.Fatalf("register: %v", err)
		}
		if took := time.Since(begin); took > 61*time.Second {
			t.Fatalf("ended %v after it began", took)
		}
	})
}

func TestOrderToShedIsPassedOnOnce(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"and heard": false, "and its answers are lost at first": true} {
		inFakeTime(t, func(b *bench) {
			b.registry.set(func() {
				b.registry.shed = berth.ShedOrder{Number: 3, Count: 7, Spread: time.Second}
				if lost {
					b.registry.lag = time.Minute
				}
			})
			b.sleep(4 * time.Second)
			b.registry.set(func() { b.registry.lag = 0 })
			b.sleep(10 * time.Second)
			b.hub.mu.Lock()
			defer b.hub.mu.Unlock()
			if b.hub.shed != 7 || b.registry.shed.Count != 0 {
				t.Fatalf("%s: %d connections were to be shed, and %d are still", name, b.hub.shed, b.registry.shed.Count)
			}
		})
	}
}
