package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/testkit"
)

// waited is what became of a start that waited.
type waited struct {
	id    string
	err   error
	after time.Duration
}

// line lets starts wait in the order in which they are given, and says when each got its answer.
type line struct {
	*rig

	answers chan waited
}

func newLine(t *testing.T) *line {
	t.Helper()
	l := &line{rig: newRig(t), answers: make(chan waited, 100)}
	l.attend(l.store)
	return l
}

// join queues a start, and returns once it waits.
func (l *line) join(s berth.Start, wait time.Duration) {
	l.Helper()
	s.Wait = wait
	began := time.Now()
	go func() {
		_, err := l.store.Place(l.Context(), s)
		l.answers <- waited{s.ID, err, time.Since(began)}
	}()
	testkit.EventuallyTrue(l.T, 10*time.Second, s.ID+" does not wait", func() bool {
		return read[bool](l.rig, "select exists (select from berth.waiters where outcome is null and tenant_id = $1 and session_id = $2)",
			s.TenantID, s.ID)
	})
}

func (l *line) waiting() int {
	return read[int](l.rig, "select count(*)::int from berth.waiters where outcome is null")
}

// next is the next answer.
func (l *line) next() waited {
	l.Helper()
	select {
	case w := <-l.answers:
		return w
	case <-time.After(20 * time.Second):
		l.Fatal("nobody in the line got an answer")
		return waited{}
	}
}

// expectNext says who is to be placed next.
func (l *line) expectNext(ids ...string) {
	l.Helper()
	for _, id := range ids {
		if w := l.next(); w.id != id || w.err != nil {
			l.Errorf("%s was next with %v, want %s", w.id, w.err, id)
		}
	}
}

func (l *line) end(tenant string, ids ...string) {
	l.Helper()
	for _, id := range ids {
		_, err := l.store.EndSession(l.Context(), tenant, id)
		l.ok(err)
	}
}

func TestSlotsGoRoundOverTenantsAndFirstComeFirstServedInside(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.tenant("t2")
	l.worker("w1", 1)
	l.place(start("full"))
	for _, s := range []berth.Start{start("a1"), start("a2"), start("a3"), startOf("t2", "b1"), startOf("t2", "b2")} {
		l.join(s, 20*time.Second)
	}
	holder := berth.Session{TenantID: "t1", ID: "full"}
	for _, want := range []string{"a1", "b1", "a2", "b2", "a3"} {
		l.end(holder.TenantID, holder.ID)
		l.expectNext(want)
		holder = berth.Session{TenantID: map[byte]string{'a': "t1", 'b': "t2"}[want[0]], ID: want}
	}
	l.end("t1", "a3")
}

func TestNewcomerNeverOvertakesTheLine(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.tenant("t2")
	for _, id := range ids("w", 2) {
		l.worker(id, 2)
	}
	for _, id := range ids("full", 4) {
		l.place(start(id))
	}
	for _, id := range ids("first", 3) {
		l.join(start(id), 20*time.Second)
	}
	// No worker serves the line itself here: slots open by hand, as if the release had not seen the waiters.
	release := l.hold("select from berth.waiters for update")
	l.end("t1", ids("full", 3)...)
	for n, s := range []berth.Start{start("late"), startOf("t2", "late"), {}} {
		if n == 2 {
			s = start("heavy")
			s.Slots = 2
		}
		l.placeRefused(berth.CodeAtCapacity, s)
	}
	release()
	got := map[string]bool{}
	for range 3 {
		w := l.next()
		got[w.id] = w.err == nil
	}
	for _, id := range ids("first", 3) {
		if !got[id] {
			t.Errorf("%s got nothing: %v", id, got)
		}
	}
}

func TestWaitersAreServedByWhateverOpensASlot(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	w := l.worker("w1", 2)
	full := l.place(start("full1")).Session
	l.place(start("full2"))

	l.join(start("by-the-reaper"), 20*time.Second)
	l.overdue(full.Key, "connect_by")
	_, err := l.store.EndOverdue(t.Context(), 10)
	l.ok(err)
	l.expectNext("by-the-reaper")

	l.join(start("by-a-new-worker"), 20*time.Second)
	l.worker("w2", 1)
	l.expectNext("by-a-new-worker")

	_, err = l.store.DrainWorker(t.Context(), "w1", time.Hour, false)
	l.ok(err)
	l.end("t1", "full2")
	l.join(start("by-an-undrain"), 20*time.Second)
	_, err = l.store.UndrainWorker(t.Context(), "w1")
	l.ok(err)
	l.expectNext("by-an-undrain")

	l.join(start("by-a-larger-capacity"), 20*time.Second)
	_, err = l.register(w, "eu", 3)
	l.ok(err)
	l.ok(l.store.Open(t.Context(), "w1", w.number))
	l.expectNext("by-a-larger-capacity")
}

func TestWaitEndsWithARefusalAndLeavesNothing(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.worker("w1", 1)
	l.place(start("full"))
	s := start("a")
	s.Wait = 300 * time.Millisecond
	began := time.Now()
	refusal := l.placeRefused(berth.CodeAtCapacity, s)
	if took := time.Since(began); took < s.Wait || took > 5*time.Second || refusal.RetryAfter < time.Second {
		t.Errorf("refused after %v with %+v", took, refusal)
	}
	if n := read[int](l.rig, "select count(*)::int from berth.waiters"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

func TestWaiterWhoseCallerLeftGivesUpItsTurn(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.worker("w1", 1)
	l.place(start("full"))
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		s := start("impatient")
		s.Wait = 20 * time.Second
		_, err := l.store.Place(ctx, s)
		gone <- err
	}()
	testkit.EventuallyTrue(t, 10*time.Second, "it does not wait", func() bool { return l.waiting() == 1 })
	l.join(start("patient"), 20*time.Second)
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	l.end("t1", "full")
	l.expectNext("patient")
}

// A caller that leaves at the moment at which it is served must not keep the slot.
func TestSlotHandedToACallerThatLeftIsFreeAtOnce(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.worker("w1", 1)
	for n := range 15 {
		l.place(start("full"))
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			s := start(fmt.Sprintf("w%d", n))
			s.Wait = 20 * time.Second
			_, err := l.store.Place(ctx, s)
			gone <- err
		}()
		testkit.EventuallyTrue(t, 10*time.Second, "it does not wait", func() bool { return l.waiting() == 1 })
		go leave()
		l.end("t1", "full")
		if err := <-gone; err == nil {
			l.end("t1", fmt.Sprintf("w%d", n))
		}
		testkit.EventuallyTrue(t, 2*time.Second, "the slot stays taken", func() bool { return l.free() == 1 })
	}
}

func TestRateLimitedWaiterHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.ok(l.store.SetTenant(t.Context(), berth.Tenant{ID: "slow", StartRate: 0.02, StartBurst: 1}))
	l.worker("w1", 4)
	for _, id := range ids("full", 4) {
		l.place(start(id))
	}
	l.join(startOf("slow", "s1"), 20*time.Second) // it pays when it joins
	second := startOf("slow", "s2")
	second.Wait = 20 * time.Second
	l.placeRefused(berth.CodeStartRateLimited, second)
	l.join(start("c1"), 20*time.Second)
	l.join(start("c2"), 20*time.Second)
	l.end("t1", ids("full", 4)...)
	served := map[string]time.Duration{}
	for range 3 {
		w := l.next()
		if w.err == nil {
			served[w.id] = w.after
		}
	}
	for _, id := range []string{"s1", "c1", "c2"} {
		if after, ok := served[id]; !ok || after > 8*time.Second {
			t.Errorf("%s was not served at once: %v", id, served)
		}
	}
	if _, err := l.store.Place(t.Context(), start("newcomer")); err != nil {
		t.Errorf("a slot is free, and who waits may not start: %v", err)
	}
}

func TestWeightedWaitersKeepSlotsForFiveSecondsInAll(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.worker("w1", 4)
	for _, id := range ids("full", 3) {
		l.place(start(id))
	}
	for _, id := range []string{"heavy1", "heavy2"} {
		s := start(id)
		s.Slots = 3
		l.join(s, 9*time.Second)
	}
	l.join(start("light"), 20*time.Second)
	switch w := l.next(); {
	case w.id != "light" || w.err != nil:
		t.Errorf("got %+v", w)
	case w.after > 8*time.Second:
		t.Errorf("a slot was kept for %v, and nobody got it", w.after)
	}
}

func TestWeightedHeadGetsWhatOpensMeanwhile(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.worker("w1", 3)
	for _, id := range ids("full", 3) {
		l.place(start(id))
	}
	heavy := start("heavy")
	heavy.Slots = 3
	l.join(heavy, 20*time.Second)
	for _, id := range ids("light", 3) {
		l.join(start(id), 20*time.Second)
	}
	for _, id := range ids("full", 3) {
		l.end("t1", id)
		l.placeRefused(berth.CodeAtCapacity, start("newcomer"))
	}
	l.expectNext("heavy")
	l.end("t1", "heavy")
	for range 3 {
		if w := l.next(); w.err != nil {
			t.Errorf("got %+v", w)
		}
	}
}

func TestWaitersOfTheDeadDoNotMoveTheRound(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.tenant("t2")
	l.worker("w1", 1)
	l.place(start("full"))
	l.join(start("a1"), time.Minute)
	l.exec(`insert into berth.waiters overriding user value
		select (jsonb_populate_record(w, '{"process": 99999, "tenant_id": "dead", "session_id": "dead"}')).* from berth.waiters w`)
	l.join(start("a2"), time.Minute)
	l.join(start("a3"), time.Minute)
	l.end("t1", "full")
	l.expectNext("a1")
	l.end("t1", "a1")
	l.expectNext("a2")
	l.join(startOf("t2", "b1"), time.Minute)
	l.join(startOf("t2", "b2"), time.Minute)
	l.end("t1", "a2")
	first := l.next()
	second := map[string]string{"a3": "b1", "b1": "a3"}[first.id]
	if second == "" {
		t.Fatalf("%s came before a3, which waits longer, at its tenant's turn", first.id)
	}
	l.end(map[string]string{"a3": "t1", "b1": "t2"}[first.id], first.id)
	l.expectNext(second)
}

func TestWaiterQueuedUnderAPastPresenceIsServed(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.worker("w1", 1)
	l.place(start("full"))
	l.join(start("a"), 20*time.Second)
	l.exec("update berth.waiters set process = 99999")
	l.end("t1", "full")
	if w := l.next(); w.err != nil || w.after > 5*time.Second {
		t.Errorf("got %+v", w)
	}
}

func TestSessionServedToAWaiterAndDeletedIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.worker("w1", 1)
	l.place(start("full"))
	l.join(start("a"), 20*time.Second)
	// In one transaction, so that the caller cannot have been told yet.
	tx, err := l.db.Pool.Begin(t.Context())
	l.ok(err)
	release := func(id string) {
		_, err := tx.Exec(t.Context(), `select berth.release_sessions(array[key], array[null::bigint], array['deleted'], array[false])
			from berth.sessions where id = $1 and state <> 'ended'`, id)
		l.ok(err)
	}
	release("full")
	testkit.Eventually(t, 10*time.Second, func() error { // whoever looks at the line keeps others from it for a moment
		_, serveErr := tx.Exec(t.Context(), "select berth.serve_waiters(1)")
		return errors.Join(serveErr, tx.QueryRow(t.Context(), "select key from berth.sessions where id = 'a'").Scan(new(int64)))
	})
	release("a")
	l.ok(tx.Commit(t.Context()))
	w := l.next()
	l.refused(berth.CodeSessionEnded, w.err)
	if n := read[int](l.rig, "select count(*)::int from berth.sessions where id = 'a'"); n != 1 {
		t.Errorf("%d sessions of one start", n)
	}
}
