package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// Asking replicas is the second path: a worker that is cut off from the database alone keeps its lease by it, and one
// that nobody answers on either path knows that it is alone.

// patience is how long the database may take before replicas are asked: less while there is reason to doubt it, and
// hardly any if the lease would be over by then.
func (t *tenure) patience() time.Duration {
	switch {
	case len(t.replicas) == 0:
		return t.config.CallTimeout
	case !t.config.Now().Add(t.config.CallTimeout).Before(t.lease.end()):
		return t.config.CallTimeout / 8
	case !t.cutSince.IsZero():
		return t.config.CallTimeout / 2
	default:
		return t.config.CallTimeout
	}
}

// askReplicas asks in random order, the next one when one failed or is slow, until one answers for the database. All
// have had half the time of a call at least when it ends.
func (t *tenure) askReplicas(ctx context.Context) renewal {
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithTimeout(ctx, t.config.CallTimeout)
	defer cancel()
	order := rand.Perm(len(t.replicas))
	slow := time.NewTicker(t.config.CallTimeout / time.Duration(2*len(order)))
	defer slow.Stop()
	answers, waiting := make(chan renewal, len(order)), 0
	next := func() {
		if len(order) > 0 {
			replica := t.replicas[order[0]]
			order, waiting = order[1:], waiting+1
			asking.Go(func() { answers <- t.askReplica(ctx, replica) })
		}
	}
	var last renewal
	for next(); waiting > 0; {
		select {
		case <-slow.C:
			next()
		case r := <-answers:
			waiting--
			if r.err == nil {
				return r
			}
			if last.heard.IsZero() {
				last = r // who answered says more than who did not
			}
			next()
		}
	}
	return last
}

// askReplica has one replica renew, and compare lists when counts or digests differ.
func (t *tenure) askReplica(ctx context.Context, to replica) renewal {
	held := t.hub.Held()
	r := renewal{from: t.config.Now(), relayed: true}
	r.answer, _, r.err = to.renew(ctx, t.secret, t.renewal(held), nil)
	if r.err == nil || errors.Is(r.err, errNoVerdict) {
		r.heard = t.config.Now()
		t.learnTime(r)
	}
	if r.err != nil || r.answer.Verdict != berth.RenewalYours || r.answer.Matched {
		return r
	}
	held = t.hub.Held()
	_, dropped, err := to.renew(ctx, t.secret, t.renewal(held), append([]berth.Held{}, held...))
	if err != nil {
		t.log.WarnContext(ctx, "reconciliation through an api replica failed", "err", err)
	}
	r.dropped = dropped
	return r
}

// hear remembers whether anybody answered. A round that began before the process was paused says nothing of silence.
func (t *tenure) hear(r renewal) {
	switch {
	case !r.heard.IsZero():
		t.quietSince = time.Time{}
	case t.quietSince.IsZero() && !r.begun.Before(t.woke):
		t.quietSince = r.begun
	}
	if !r.relayed {
		return
	}
	result := "silent"
	switch {
	case r.err == nil:
		result = string(r.answer.Verdict)
	case !r.heard.IsZero():
		result = "away"
	}
	t.metrics.relays.WithLabelValues(result).Inc()
}

// alone: since the lease is over and everybody was asked, nobody has answered for the silence limit. Somebody else may
// have these sessions, and there is nobody to say that this is not so.
func (t *tenure) alone() bool {
	if len(t.replicas) == 0 || t.quietSince.IsZero() {
		return false
	}
	since := t.lease.end()
	if t.quietSince.After(since) {
		since = t.quietSince
	}
	return t.config.Now().Sub(since) >= t.config.SilenceLimit
}

// followLink notices when the database is out of reach and when it is back. By then the server may have given the
// presence connection up without our noticing: packets that vanish end a connection on the side that sends.
func (t *tenure) followLink(ctx context.Context, r renewal) {
	relayed := r.relayed && r.err == nil
	if relayed && !t.relayed {
		t.log.WarnContext(ctx, "lease renewed through an api replica", "verdict", string(r.answer.Verdict), "err", r.database)
	}
	t.relayed = relayed
	switch {
	case r.database != nil && t.cutSince.IsZero():
		t.cutSince = r.begun
	case r.database == nil && !t.cutSince.IsZero():
		cut := t.config.Now().Sub(t.cutSince)
		t.cutSince = time.Time{}
		t.log.InfoContext(ctx, "database reached again", "cut", cut)
		if cut >= t.config.Lease && r.answer.Verdict == berth.RenewalYours && t.presence != nil {
			t.reopen(ctx)
		}
	}
}
