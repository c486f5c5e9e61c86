package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// neighbours claims bad and two more starts of the same id in one batch. The others must not share its refusal.
func (r *rig) neighbours(bad berth.Start) error {
	r.Helper()
	results, err := r.store.ClaimSessions(r.Context(), []berth.Start{bad, start(bad.ID), start(bad.ID)})
	r.ok(err)
	for _, result := range results[1:] {
		if result.Err != nil || result.Placement.Session.ID != bad.ID && !result.Contended {
			r.Errorf("a neighbour of %v got %+v", results[0].Err, result)
		}
	}
	return results[0].Err
}

func TestRefusalIsForTheRequestThatEarnedIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 8)
	keyed := start("first")
	keyed.IdempotencyKey = "K"
	r.place(keyed)

	other := start("x")
	other.IdempotencyKey, other.BodyHash = "K", [32]byte{1}
	r.refused(berth.CodeIdempotency, r.neighbours(other))

	lost := start("y")
	lost.Region = "nowhere"
	r.refused(berth.CodeInvalidArgument, r.neighbours(lost))

	_, err := r.store.EndSession(t.Context(), "t1", "first")
	r.ok(err)
	replay := keyed
	r.refused(berth.CodeSessionEnded, r.neighbours(replay))
}

func TestKeyIsAnsweredWithItsSession(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 8)
	s := start("a")
	s.IDChosen, s.IdempotencyKey = false, "K"
	first := r.place(s)
	s.ID = "drawn-anew"
	again := r.place(s)
	if !first.Created || again.Session.Key != first.Session.Key || again.Session.Generation != first.Session.Generation {
		t.Errorf("got %+v, then %+v", first, again)
	}
	if r.tenant("t2"); r.place(func() berth.Start { s := s; s.TenantID = "t2"; return s }()).Session.Key == first.Session.Key {
		t.Error("two tenants share a key")
	}
	s.BodyHash[0] = 1
	r.placeRefused(berth.CodeIdempotency, s)
	s.BodyHash[0] = 0
	r.connect(first.Session, "c")
	_, err := r.store.EndSession(t.Context(), "t1", "a")
	r.ok(err)
	r.placeRefused(berth.CodeSessionEnded, s)
}

func TestRefusalIsNotKeptForItsKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := start("a")
	s.IdempotencyKey = "K"
	r.placeRefused(berth.CodeAtCapacity, s)
	r.worker("w1", 1)
	if placed := r.place(s); !placed.Created {
		t.Errorf("got %+v", placed)
	}
}

func TestParallelStartsWithOneKeyAreOneSession(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 40)
	stores := r.stores(3)
	var created atomic.Int32
	errs := parallel(30, func(i int) error {
		s := start(fmt.Sprintf("s%d", i))
		s.IDChosen, s.IdempotencyKey = false, "K"
		for {
			placed, err := stores[i%3].Place(t.Context(), s)
			if berth.RefusalCode(err) == berth.CodeConflict {
				continue // in flight: the answer comes
			}
			if placed.Created {
				created.Add(1)
			}
			return err
		}
	})
	r.ok(errors.Join(errs...))
	if live := r.live("t1"); created.Load() != 1 || live != 1 {
		t.Errorf("%d created, %d live", created.Load(), live)
	}
}

func TestRetryOfAStartWhoseCallerLeftIsPlaced(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 8)
	for i := range 60 {
		s := start(fmt.Sprintf("x%d", i))
		s.IDChosen, s.IdempotencyKey = false, fmt.Sprintf("K%d", i)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%20)*400*time.Microsecond)
		_, err := r.store.Place(ctx, s)
		cancel()
		for err != nil {
			s.ID += "again"
			_, err = r.store.Place(t.Context(), s)
			if err != nil && berth.RefusalCode(err) != berth.CodeConflict {
				t.Fatalf("%d: retry: %v", i, err)
			}
		}
		for _, session := range r.all("t1") {
			_, err = r.store.EndSession(t.Context(), "t1", session.ID)
			r.ok(err)
		}
	}
}

// all are a tenant's live sessions.
func (r *rig) all(tenant string) (live []berth.Session) {
	r.Helper()
	sessions, err := r.store.ListSessions(r.Context(), berth.SessionFilter{TenantID: tenant, Limit: 1000})
	r.ok(err)
	for _, s := range sessions {
		if s.State != berth.SessionEnded {
			live = append(live, s)
		}
	}
	return live
}
