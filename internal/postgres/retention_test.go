package postgres_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/testkit"
)

// today is the part of the ring that is written now.
func (h history) today() int {
	h.Helper()
	return read[int](h.rig, "select ((extract(epoch from clock_timestamp())::bigint / 86400) % 8)::int")
}

// fill writes a line of history on each day of the ring.
func (h history) fill() {
	h.Helper()
	h.exec(`insert into berth.session_events (day, session, tenant_id, session_id, type)
		select day, 1, 't1', 's1', 'created' from generate_series(0, 7) day`)
}

// days are those that have lines.
func (h history) days() []int {
	h.Helper()
	return read[[]int](h.rig, "select array_agg(distinct day::int order by day::int) from berth.session_events")
}

// forget forgets, and expects that the day after tomorrow alone is empty. It may become tomorrow meanwhile.
func (h history) forget() {
	h.Helper()
	before := h.today()
	kept, err := h.store.ForgetEvents(h.Context())
	h.ok(err)
	if kept != 6 {
		h.Errorf("%d days are kept, want 6", kept)
	}
	days := h.days()
	if !slices.Equal(days, without(before+2)) && !slices.Equal(days, without(h.today()+2)) {
		h.Errorf("today is %d, and %v have lines", before, days)
	}
}

// without are all days but one.
func without(day int) []int {
	return slices.DeleteFunc([]int{0, 1, 2, 3, 4, 5, 6, 7}, func(d int) bool { return d == day%8 })
}

func TestForgettingEmptiesTheDayAfterTomorrowOnly(t *testing.T) {
	t.Parallel()
	h := history{newRig(t)}
	h.fill()
	h.forget()
	h.forget() // there is nothing left to forget
}

func TestForgettingGivesUpOnALockAndHindersNoStart(t *testing.T) {
	t.Parallel()
	h := history{newRig(t)}
	h.worker("w1", 100)
	h.fill()
	reader := h.begin()
	_, err := reader.Exec(t.Context(), "lock table berth.session_events in access share mode")
	h.ok(err)

	began, forgotten := time.Now(), make(chan error, 1)
	go func() {
		_, err := h.store.ForgetEvents(t.Context())
		forgotten <- err
	}()
	placed := 0
	for ; len(forgotten) == 0; placed++ {
		if time.Since(began) > 10*time.Second {
			t.Fatal("it waits for the lock")
		}
		s := start(fmt.Sprint("s", placed%50))
		began := time.Now()
		h.place(s)
		if took := time.Since(began); took > 400*time.Millisecond && len(forgotten) == 0 {
			t.Errorf("a start took %v while the history was to be forgotten", took)
		}
	}
	if err := <-forgotten; !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("got %v, want that it could not have the lock", err)
	}
	if took := time.Since(began); took < 400*time.Millisecond || placed == 0 {
		t.Errorf("it gave up after %v, and %d starts", took, placed)
	}
	equal(h.rig, h.days(), without(-1))
	h.ok(reader.Rollback(t.Context()))
	h.forget()
}

func TestIdempotencyKeysArePurgedByAgeAndInChunks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 100)
	keyed := func(key, body string) berth.Start {
		s := start(berth.NewID("s"))
		s.IDChosen, s.IdempotencyKey, s.BodyHash = false, key, sha256.Sum256([]byte(body))
		return s
	}
	first := map[string]berth.SessionKey{}
	for i, key := range ids("k", 10) {
		first[key] = r.place(keyed(key, "body")).Session.Key
		if i < 7 {
			r.exec("update berth.idempotency_keys set created_at = clock_timestamp() - interval '25 h' where key = $1", key)
		}
	}
	for _, want := range []int{5, 2, 0} {
		if n, err := r.store.PurgeIdempotency(t.Context(), berth.IdempotencyWindow, 5); err != nil || n != want {
			t.Errorf("purged %d, %v, want %d", n, err, want)
		}
	}
	for i, key := range ids("k", 10) {
		body := "body"
		if i < 7 {
			body = "another" // the key is as good as new
		}
		again := r.place(keyed(key, body))
		if purged := i < 7; again.Replayed == purged || (again.Session.Key == first[key]) == purged {
			t.Errorf("%s: got %+v after session %d", key, again, first[key])
		}
	}
}

func TestIdempotencyPurgePassesOverLockedKeys(t *testing.T) {
	t.Parallel()
	h := history{newRig(t)}
	h.worker("w1", 10)
	for _, key := range ids("k", 3) {
		s := start(key)
		s.IdempotencyKey = key
		h.place(s)
	}
	h.exec("update berth.idempotency_keys set created_at = clock_timestamp() - interval '25 h'")
	locked := h.begin()
	_, err := locked.Exec(t.Context(), "select from berth.idempotency_keys where key = 'k001' for update")
	h.ok(err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if n, err := h.store.PurgeIdempotency(ctx, berth.IdempotencyWindow, 10); err != nil || n != 2 {
		t.Errorf("purged %d, %v, want the two that are free", n, err)
	}
	h.ok(locked.Rollback(t.Context()))
	if n, err := h.store.PurgeIdempotency(t.Context(), berth.IdempotencyWindow, 10); err != nil || n != 1 {
		t.Errorf("purged %d, %v, want the last one", n, err)
	}
}

func TestSlotsAreVacuumedOnceEnoughAreDead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	vacuums := func() int {
		return read[int](r, "select vacuum_count from pg_stat_user_tables where relid = 'berth.slots'::regclass")
	}
	r.worker("w1", 100)
	r.exec(`update berth.slots set part = part`)
	testkit.Eventually(t, 10*time.Second, func() error { // statistics come late
		if dead := read[int](r, "select n_dead_tup from pg_stat_user_tables where relid = 'berth.slots'::regclass"); dead < 100 {
			return fmt.Errorf("%d are dead", dead)
		}
		return nil
	})
	r.ok(r.store.VacuumSlots(t.Context(), 100_000))
	if n := vacuums(); n != 0 {
		t.Fatalf("vacuumed %d times, want none yet", n)
	}
	r.ok(r.store.VacuumSlots(t.Context(), 50))
	testkit.Eventually(t, 10*time.Second, func() error {
		if n := vacuums(); n != 1 {
			return fmt.Errorf("vacuumed %d times, want once", n)
		}
		return nil
	})
}
