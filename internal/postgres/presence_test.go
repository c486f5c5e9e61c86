package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/testkit"
)

func (r *rig) present(w instance) bool {
	r.Helper()
	return read[bool](r, "select berth.presence_held($1)", int32(w.number))
}

func TestPresenceIsFreedBeforeCloseReturns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for range 20 {
		w := r.newInstance("w1")
		if !r.present(w) {
			t.Fatal("not present")
		}
		select {
		case <-w.presence.Done():
			t.Fatal("done while it lives")
		default:
		}
		r.ok(w.presence.Close(t.Context()))
		if r.present(w) {
			t.Fatal("still present after Close")
		}
		<-w.presence.Done()
		r.ok(w.presence.Close(t.Context()))
	}
}

func TestPresenceOfOneInstanceIsHeldOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.newInstance("w1")
	if _, err := r.store.Presence(t.Context(), w.number); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	r.vanish(w)
	again, err := r.store.Presence(t.Context(), w.number)
	r.ok(err)
	r.ok(again.Close(t.Context()))
}

func TestPresenceEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.newInstance("w1")
	r.terminate(w)
	<-w.presence.Done()
	if r.present(w) {
		t.Error("still present")
	}
	r.ok(w.presence.Close(t.Context())) // nothing is left to free
}

func TestPresenceOutlivesTheContextThatOpenedIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	number, err := r.store.NextInstance(t.Context())
	r.ok(err)
	ctx, cancel := context.WithCancel(t.Context())
	presence, err := r.store.Presence(ctx, number)
	r.ok(err)
	cancel()
	w := instance{id: "w1", number: number, presence: presence}
	defer r.vanish(w)
	if !r.present(w) {
		t.Error("gone with the context of the call")
	}
}

func TestPresenceIsOfOneDatabase(t *testing.T) {
	t.Parallel()
	r, other := newRig(t), newRig(t)
	w := r.newInstance("w1")
	if other.present(w) {
		t.Error("an instance of the same number is present in another database")
	}
}

func TestPresenceConnectionTellsWhoItIsAndIsWatchedByTheServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	store := openStore(t, r.db, postgres.Config{URL: r.db.URL, Keepalive: postgres.Keepalive{
		Idle: 7 * time.Second, Interval: 2 * time.Second, Count: 4, UserTimeout: 9 * time.Second,
	}})
	presence, err := store.Presence(t.Context(), 77)
	r.ok(err)
	if n := read[int](r, "select count(*)::int from pg_stat_activity where application_name = 'berth presence 77' and state = 'idle'"); n != 1 {
		t.Errorf("%d connections of that name", n)
	}
	r.ok(presence.Close(t.Context()))
	testkit.EventuallyTrue(t, 10*time.Second, "the connection ends", func() bool {
		return read[int](r, "select count(*)::int from pg_stat_activity where application_name = 'berth presence 77'") == 0
	})
}
