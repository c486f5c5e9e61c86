package worker

import (
	"context"
	"math"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/signaling"
)

const (
	// moveWindow is the time before a drain's deadline over which sessions are moved, when they are few.
	moveWindow = 30 * time.Second
	// moveRate is the most connections that are moved per second while there is time: the others get a rejoin and a
	// handshake for each at once.
	moveRate = 200
	// shiftedDeadline is how far a deadline may move between two renewals without being another one.
	shiftedDeadline = time.Second
)

// drain is the plan of a draining worker, by its own clock.
type drain struct {
	deadline time.Time
	half     time.Duration // of the time that there was: no move is earlier than this before the deadline
	window   time.Duration // moves happen in the last window before the deadline
	total    int           // sessions when moves began, from when on the window stands; zero before
	movedAt  time.Time     // when sessions were moved last
	emptied  bool          // at the deadline, the database took back all that was placed here
}

// planDrain spreads the moves over the last thirty seconds, over more time for many connections, and never over more than
// the last half of what there is.
func planDrain(now, deadline time.Time) *drain {
	return &drain{deadline: deadline, half: max(0, deadline.Sub(now)/2)}
}

// postpone follows a new deadline. One that is the same but for the time that renewals take changes no plan.
func (d *drain) postpone(now, deadline time.Time) {
	if deadline.Sub(d.deadline).Abs() <= shiftedDeadline {
		d.deadline = deadline
		return
	}
	emptied := d.emptied && !now.Before(deadline) // an override may give more time
	*d = *planDrain(now, deadline)
	d.emptied = emptied
}

// due is how many of the sessions left, with so many connections together, should move now: the rest shrinks evenly to
// nothing at the deadline.
func (d *drain) due(now time.Time, left, connections int) int {
	ahead := d.deadline.Sub(now)
	if d.total == 0 {
		needed := time.Duration(connections) * time.Second / moveRate
		d.window = min(d.half, max(moveWindow, needed))
	}
	if ahead > d.window || left == 0 {
		return 0
	}
	if d.total == 0 {
		d.total = left
	}
	if ahead <= 0 {
		return left
	}
	keep := int(math.Ceil(float64(d.total) * float64(ahead) / float64(d.window)))
	return max(0, left-keep)
}

// learnDrain follows what the database says about draining. Once stopping, the worker drains whatever it says, and
// the earlier deadline stands.
func (t *tenure) learnDrain(r renewal) {
	if r.answer.State != berth.WorkerDraining || r.answer.DrainDeadline.IsZero() {
		if !t.stopping {
			t.drain = nil
		}
		return
	}
	deadline := r.from.Add(r.answer.DrainDeadline.Sub(r.answer.At))
	switch {
	case t.drain == nil:
		t.drain = planDrain(t.config.Now(), deadline)
	case !t.stopping || deadline.Before(t.drain.deadline):
		t.drain.postpone(t.config.Now(), deadline)
	}
}

// stop drains the worker on its own account.
func (t *tenure) stop(ctx context.Context) {
	t.stopping = true
	now := t.config.Now()
	if deadline := now.Add(t.config.DrainDeadline); t.drain == nil || deadline.Before(t.drain.deadline) {
		t.drain = planDrain(now, deadline)
	}
	t.log.InfoContext(ctx, "worker stopping: draining", "deadline", t.drain.deadline.Sub(now))
}

// tellDrain has the database stop claims on a worker that stops. It is repeated until it is answered.
func (t *tenure) tellDrain(ctx context.Context) {
	if !t.stopping || t.told || t.telling || t.config.Now().Before(t.tellAfter) {
		return
	}
	t.telling = true
	ahead := max(t.drain.deadline.Sub(t.config.Now()), berth.MinDrainDeadline)
	t.beside(func() func() {
		_, err := call(ctx, t.config.CallTimeout, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, t.registry.Drain(ctx, t.config.WorkerID, t.instance, ahead)
		})
		return func() {
			t.telling, t.told = false, err == nil
			if err != nil {
				t.tellAfter = t.config.Now().Add(t.config.RegisterRetry)
				t.log.WarnContext(ctx, "drain not written", "err", err)
			}
		}
	})
}

// checkStop ends a stopping worker that serves nobody any more. A session that nobody is connected to does not keep
// it: whoever comes back finds it by rejoining. Within its deadline it stays for those who were told to come back here in their
// turn, to tell them that they have another place.
func (t *tenure) checkStop() {
	if !t.stopping || t.end != nil {
		return
	}
	for _, s := range t.hub.Serving() {
		if s.Peers > 0 {
			return
		}
	}
	over := !t.config.Now().Before(t.drain.deadline)
	if over || t.told && t.config.Now().Sub(t.drain.movedAt) >= berth.ShedWindow {
		t.end = errFinished
	}
}

// moveDue moves the sessions whose turn it is, and at the deadline everything that is placed here: only the database
// knows of sessions that nobody connected to.
func (t *tenure) moveDue(ctx context.Context) {
	if t.drain == nil || t.moving || t.end != nil || t.config.Now().Before(t.moveAfter) {
		return
	}
	now, serving := t.config.Now(), t.hub.Serving() // in no order
	n := t.drain.due(now, len(serving), connectionsOf(serving))
	switch over := !now.Before(t.drain.deadline); {
	case over && (n > 0 || !t.drain.emptied):
		t.move(ctx, serving, nil)
	case n > 0:
		t.move(ctx, serving[:n], keysOf(serving[:n]))
	}
}

func connectionsOf(some []signaling.Served) (n int) {
	for _, s := range some {
		n += s.Peers
	}
	return n
}

func keysOf(some []signaling.Served) []berth.SessionKey {
	keys := make([]berth.SessionKey, len(some))
	for i, s := range some {
		keys[i] = s.Key
	}
	return keys
}

// move gives sessions up in the database, then closes them here. If the database does not take it, it is tried
// again; well past the deadline they are closed regardless, since the reaper gives them up too.
func (t *tenure) move(ctx context.Context, some []signaling.Served, keys []berth.SessionKey) {
	t.moving = true
	t.beside(func() func() {
		_, err := call(ctx, t.config.CallTimeout, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, t.registry.Displace(ctx, t.config.WorkerID, t.instance, keys)
		})
		return func() {
			t.moving = false
			if err != nil {
				t.moveAfter = t.config.Now().Add(t.config.RegisterRetry)
				t.log.WarnContext(ctx, "sessions not displaced", "count", len(some), "err", err)
				if t.drain == nil || t.config.Now().Before(t.drain.deadline.Add(t.config.CallTimeout)) {
					return // if it was taken after all, the next renewal says so
				}
			}
			if t.drain != nil && keys == nil {
				t.drain.emptied = true
			}
			if t.drain != nil && len(some) > 0 {
				t.drain.movedAt = t.config.Now()
			}
			t.metrics.dropped.WithLabelValues("drain").Add(float64(len(some)))
			for _, s := range some {
				t.hub.Drop(s.Held, drainFate(s.OnWorkerLoss))
			}
		}
	})
}

// drainFate: the database ends a session that asked not to be moved, and moves the others.
func drainFate(policy berth.OnWorkerLoss) signaling.Fate {
	if policy == berth.LossEnd {
		return signaling.Fate{Ended: true, Reason: berth.EndedDrained}
	}
	return signaling.Fate{Planned: true}
}
