package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/signaling"
)

// renewal is what came of one round of asking.
type renewal struct {
	begun    time.Time // of the round
	from     time.Time // just before what was answered was sent
	answer   berth.RenewalAnswer
	dropped  []berth.Dropped
	err      error     // nobody answered for the database
	database error     // the database itself did not
	relayed  bool      // it was left to the replicas
	heard    time.Time // when somebody answered, even if without a verdict; zero: nobody did
}

// replicaErr is why no replica answered for the database; nil also if none was asked.
func (r renewal) replicaErr() error {
	if !r.relayed {
		return nil
	}
	return r.err
}

// renew begins a round of asking, or has one begun after the one that is under way.
func (t *tenure) renew(ctx context.Context) {
	if t.renewing {
		t.again = true
		return
	}
	t.renewing = true
	patience := t.patience()
	round, abandon := context.WithCancel(ctx)
	t.abandon = abandon
	t.beside(func() func() {
		r := t.ask(round, patience)
		abandoned := round.Err() != nil
		abandon()
		return func() {
			t.renewing = false
			t.rest(r.begun)
			if ctx.Err() != nil {
				return // the tenure has ended
			}
			if r.err == nil || !abandoned {
				t.apply(ctx, r)
			}
			if t.again && t.end == nil {
				t.again = false
				t.renew(ctx)
			}
		}
	})
}

// nudgeRest is how many times as long as a renewal took nudges wait after it. What a renewal costs the database grows with
// the sessions of the worker, and whoever ends sessions makes as many nudges: these renewals take a fifth of the time at most,
// or come as often as those that nobody asked for.
const nudgeRest = 4

// rest has nudges wait after a round that began at a time, but not for longer than they would wait for the next one anyway.
func (t *tenure) rest(begun time.Time) {
	now := t.config.Now()
	t.deafUntil = now.Add(min(nudgeRest*max(0, now.Sub(begun)), t.config.RenewInterval))
}

// heed is the channel of nudges, or nil while they wait, which listening ends. One of them waits at most: it stands for all.
func (t *tenure) heed(listening *time.Timer) <-chan struct{} {
	if t.renewing {
		return nil // its end is an event
	}
	if wait := t.deafUntil.Sub(t.config.Now()); wait > 0 {
		listening.Reset(wait)
		return nil
	}
	return t.nudges
}

// ask asks the database and, if it does not answer within patience, the replicas.
func (t *tenure) ask(ctx context.Context, patience time.Duration) renewal {
	begun := t.config.Now()
	r := t.askDatabase(ctx, patience)
	r.begun, r.database = begun, r.err
	if r.err == nil || len(t.replicas) == 0 || ctx.Err() != nil {
		return r
	}
	relayed := t.askReplicas(ctx)
	relayed.begun, relayed.database = begun, r.err
	return relayed
}

// askDatabase renews, and compares lists when counts or digests differ. A comparison that fails is repeated by the next
// renewal and takes nothing from the lease.
func (t *tenure) askDatabase(ctx context.Context, patience time.Duration) renewal {
	held := t.hub.Held()
	r := renewal{from: t.config.Now()}
	r.answer, r.err = call(ctx, patience, func(ctx context.Context) (berth.RenewalAnswer, error) {
		return t.registry.Renew(ctx, t.renewal(held))
	})
	if r.err != nil {
		return r
	}
	r.heard = t.config.Now()
	t.learnTime(r)
	if r.answer.Verdict != berth.RenewalYours || r.answer.Matched {
		return r
	}
	dropped, err := call(ctx, t.config.CallTimeout, func(ctx context.Context) ([]berth.Dropped, error) {
		return t.registry.Reconcile(ctx, t.config.WorkerID, t.instance, t.hub.Held())
	})
	if err != nil {
		t.log.WarnContext(ctx, "reconciliation failed", "err", err)
	}
	r.dropped = dropped
	return r
}

// learnTime sets the database's clock by an answer that just came.
func (t *tenure) learnTime(r renewal) {
	if !r.answer.At.IsZero() {
		t.clock.learn(r.answer.At, r.from, r.heard)
	}
}

// renewal is what is asked for while held is served.
func (t *tenure) renewal(held []berth.Held) berth.Renewal {
	return berth.Renewal{
		WorkerID: t.config.WorkerID, Instance: t.instance, Count: len(held), Digest: berth.Digest(held), Lease: t.config.Lease,
		ShedSeen: t.shedSeen, // no answer is dealt with while a round is under way
	}
}

// apply does what the database answered, whichever way the answer came.
func (t *tenure) apply(ctx context.Context, r renewal) {
	t.hear(r)
	t.followLink(ctx, r)
	if r.err != nil {
		t.metrics.renewals.WithLabelValues("error").Inc()
		if !t.failed {
			t.log.WarnContext(ctx, "renewal failed", "err", r.database, "replica_err", r.replicaErr())
		}
		t.failed = true
		return
	}
	switch r.answer.Verdict {
	case berth.RenewalYours:
		t.metrics.renewals.WithLabelValues("yours").Inc()
		t.confirmed(ctx, r)
	case berth.RenewalReplaced:
		t.metrics.renewals.WithLabelValues("replaced").Inc()
		t.end = ErrReplaced
	case berth.RenewalOver:
		t.metrics.renewals.WithLabelValues("over").Inc()
		t.end = errOver
	default:
		t.end = fmt.Errorf("renewal answered with the unknown verdict %q", r.answer.Verdict)
	}
}

// confirmed goes on: the lease runs from before the request, and the doubt is over if it reaches beyond now.
func (t *tenure) confirmed(ctx context.Context, r renewal) {
	t.lease.renewed(r.from)
	if t.failed || t.doubt {
		t.log.InfoContext(ctx, "lease renewed again")
	}
	t.failed = false
	if !t.lease.over() {
		t.doubt, t.silent = false, false
		t.metrics.doubt.Set(0)
	}
	for _, d := range r.dropped {
		t.metrics.dropped.WithLabelValues("reconciled").Inc()
		t.hub.Drop(d.Held, signaling.Fate{Ended: d.Ended, Reason: d.Reason, AsOf: r.from})
	}
	t.learnDrain(r)
	if order := r.answer.Shed; order.Count > 0 && order.Number != t.shedSeen { // or it was repeated
		t.shedSeen = order.Number
		t.log.InfoContext(ctx, "shedding connections", "asked", order.Count, "shed", t.hub.Shed(order), "spread", order.Spread)
	}
}

func (t *tenure) presenceLost() <-chan struct{} {
	if t.presence == nil {
		return nil
	}
	return t.presence.Done()
}

// reopen renews at once, so that the database sees that only the connection died, and opens another.
func (t *tenure) reopen(ctx context.Context) {
	t.metrics.presence.Inc()
	t.log.WarnContext(ctx, "presence connection lost")
	lost := t.presence
	t.presence = nil
	t.renew(ctx)
	t.beside(func() func() {
		t.leavePresence(ctx, lost)
		for wait := t.config.RegisterRetry; ; wait = min(2*wait, maxRegisterBackoff) {
			p, err := t.openPresence(ctx, t.instance)
			if err == nil {
				return func() { t.presence = p }
			}
			t.log.DebugContext(ctx, "presence not reopened", "err", err)
			if !sleep(ctx, wait/2+rand.N(wait)) {
				return func() {}
			}
		}
	})
}
