package worker

import (
	"context"
	"sync"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/signaling"
)

// tenure is one registration: everything that is true for one instance. Only the goroutine of serve touches it;
// calls to the registry run beside it and come back as functions in results.
type tenure struct {
	*keeper
	instance berth.Instance
	secret   string         // what replicas know the instance by
	presence berth.Presence // nil while it is lost
	lease    lease
	woke     time.Time // last waking that was dealt with

	doubt  bool // past the lease, unanswered
	silent bool // the hold limit passed: nothing runs
	failed bool // the last renewal was not answered

	shedSeen int64 // number of the order to shed that came last, which the next renewal acknowledges

	cutSince   time.Time // the database has not answered since; zero: it did the last time
	relayed    bool      // the last renewal came through a replica
	quietSince time.Time // since waking, everybody has been asked since then and nobody answered; zero: somebody did

	renewing  bool
	abandon   context.CancelFunc // ends the round that is under way
	again     bool               // renew once more when that returns
	deafUntil time.Time          // to nudges; see heed
	moving    bool
	moveAfter time.Time // not before: the database did not take the last move
	telling   bool      // the call that drains us is under way
	told      bool      // and was answered
	tellAfter time.Time // not before: it failed
	stopping  bool
	drain     *drain
	admission signaling.Admission
	end       error

	results chan func()
	calls   sync.WaitGroup
}

// maxCalls is how many kinds of calls there are: a renewal, a move, a drain, a presence. Each is under way once at
// most, so results never blocks.
const maxCalls = 4

func newTenure(
	k *keeper, instance berth.Instance, secret string, presence berth.Presence, from time.Time,
) *tenure {
	return &tenure{
		keeper: k, instance: instance, secret: secret, presence: presence, woke: k.awake.Since(),
		lease: lease{
			from: from, term: k.config.Lease, hold: k.config.HoldLimit, awake: k.awake.Since, now: k.config.Now,
		},
		results: make(chan func(), maxCalls),
	}
}

// serve keeps the tenure until it ends or ctx is done, and says why.
func (t *tenure) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer t.settle()
	defer cancel()
	tick := time.NewTicker(awakeTick)
	defer tick.Stop()
	renew := time.NewTimer(t.pace())
	defer renew.Stop()
	listening := time.NewTimer(0)
	defer listening.Stop()
	stops := t.stops
	t.renew(ctx) // soon, to learn the database's time and orders that waited
	for {
		t.look(ctx)
		if t.end != nil {
			return t.end
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-renew.C:
			t.renew(ctx)
			renew.Reset(t.pace())
		case <-t.heed(listening):
			t.renew(ctx)
		case <-listening.C: // to nudges again
		case <-t.presenceLost():
			t.reopen(ctx)
		case <-stops:
			stops = nil
			t.stop(ctx)
		case result := <-t.results:
			result()
		}
	}
}

// settle waits for the calls that are under way. A presence that was opened meanwhile is kept for whoever ends the
// tenure; other results come too late.
func (t *tenure) settle() {
	t.calls.Wait()
	for {
		select {
		case result := <-t.results:
			result()
		default:
			return
		}
	}
}

// beside runs f next to the tenure's goroutine and then the function it returns on that goroutine.
func (t *tenure) beside(f func() (result func())) {
	t.calls.Go(func() { t.results <- f() })
}

// look compares what is true with what was done about it. It runs after every event and every tick.
func (t *tenure) look(ctx context.Context) {
	if woke := t.awake.Since(); woke.After(t.woke) {
		t.woke, t.quietSince = woke, time.Time{}
		t.metrics.pauses.Inc()
		t.log.WarnContext(ctx, "process was paused", "instance", int(t.instance))
		if t.renewing {
			t.abandon() // its deadlines are overdue, and what it asked before the pause says nothing of now
		}
		t.renew(ctx)
	}
	t.judgeLease(ctx)
	t.tellDrain(ctx)
	t.moveDue(ctx)
	t.checkStop()
	t.publish()
}

// judgeLease applies the rules for a lease that nobody renewed.
func (t *tenure) judgeLease(ctx context.Context) {
	if t.lease.over() {
		t.fence(ctx) // each time: a join that the database took before may end only now
	}
	if doubt := t.lease.doubtful(); doubt && !t.doubt {
		t.doubt = true
		t.metrics.doubt.Set(1)
		t.log.WarnContext(ctx, "in doubt: the lease is over and the database has not answered")
	}
	if alone := t.alone(); (alone || t.lease.silent()) && !t.silent {
		t.silent = true
		t.log.ErrorContext(ctx, "silence: stopping all sessions", "replicas_silent", alone)
		t.metrics.dropped.WithLabelValues("silence").Add(float64(len(t.hub.Serving())))
		t.hub.DropAll(signaling.Fate{Restart: true, Retry: t.config.RestartSpread, Return: true})
	}
}

// fence drops the sessions that the database places elsewhere without asking: their next owner may act already. Those
// that it has not placed elsewhere come back.
func (t *tenure) fence(ctx context.Context) {
	for _, s := range t.hub.Serving() {
		if s.OnWorkerLoss == berth.LossReplace {
			t.log.WarnContext(ctx, "session fenced", "session_key", int64(s.Key), "generation", int64(s.Generation))
			t.metrics.dropped.WithLabelValues("fence").Inc()
			t.hub.Drop(s.Held, signaling.Fate{Return: true})
		}
	}
}

// publish tells the hub whom to admit, and everybody else where the worker stands.
func (t *tenure) publish() {
	admission, where := signaling.AdmitAll, phaseServing
	switch {
	case t.end != nil:
		admission, where = signaling.AdmitNone, phaseRegistering
	case t.silent:
		admission, where = signaling.AdmitNone, phaseSilent
	case t.doubt:
		admission, where = signaling.AdmitHeld, phaseDoubt
	case t.drain != nil:
		admission, where = signaling.AdmitOwned, phaseDraining
	}
	if admission != t.admission {
		t.admission = admission
		t.hub.Admit(admission)
	}
	if now := (report{phase: where, instance: t.instance}); t.status.load() != now {
		t.status.store(now)
	}
}
