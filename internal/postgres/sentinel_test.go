package postgres_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/testkit"
)

// post is a sentinel's connection that ends with the test.
func (r *rig) post(store *postgres.Store, detection berth.Detection) berth.Post {
	r.Helper()
	post, err := store.Post(r.Context(), detection)
	r.ok(err)
	r.Cleanup(func() { _ = post.Close(context.WithoutCancel(r.Context())) })
	return post
}

func (r *rig) takes(post berth.Post) bool {
	r.Helper()
	taken, err := post.Take(r.Context())
	r.ok(err)
	return taken
}

func (r *rig) watch(post berth.Post) berth.Outlook {
	r.Helper()
	outlook, err := post.Watch(r.Context())
	r.ok(err)
	return outlook
}

func TestSentinelSeesWhoIsMissingByTheDetectorsEvidence(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	gone, late := r.worker("gone", 1), r.worker("late", 1)
	r.worker("well", 1)
	r.vanish(gone)
	r.late("late")
	tick := r.tick() // it is blind and gives leases a full term
	r.late("late")
	for detector, want := range map[berth.Detector][]berth.Instance{
		berth.DetectPresence: {gone.number, late.number}, berth.DetectLease: {late.number}, berth.DetectSweep: nil,
	} {
		numbers := berth.DefaultDetection()
		numbers.Detector = detector
		got := r.watch(r.post(r.store, numbers))
		slices.Sort(got.Missing)
		if !slices.Equal(got.Missing, want) || got.NewGap != (len(want) > 0) || got.Ripe || got.Blind || got.SinceTick <= 0 {
			t.Errorf("%s: got %+v, want %v missing", detector, got, want)
		}
	}
	post := r.post(r.store, berth.DefaultDetection())
	r.openGap(tick, gone, "test")
	r.openGap(tick, late, "test")
	if got := r.watch(post); got.NewGap || got.Ripe {
		t.Errorf("with gaps: %+v", got)
	}
	r.exec("update berth.gaps set opened_at = opened_at - interval '400 ms'")
	r.exec("update berth.reaper_state set ticked_at = ticked_at - interval '10 s'")
	if got := r.watch(post); got.NewGap || !got.Ripe {
		t.Errorf("with gaps that a tick left behind: %+v", got)
	}
	r.tick()
	if got := r.watch(post); got.Ripe {
		t.Errorf("a tick began since: %+v", got)
	}
	for _, w := range []instance{gone, late} {
		r.ok(r.store.ClearGap(t.Context(), tick.Number+1, w.id, w.number))
	}
	if got := r.watch(post); got.NewGap || len(got.Missing) != 2 {
		t.Errorf("with gaps that were cleared just now: %+v", got)
	}
	r.exec("update berth.gaps set cleared_at = cleared_at - interval '3 s'")
	if got := r.watch(post); !got.NewGap {
		t.Errorf("with gaps that were cleared a while ago: %+v", got)
	}
}

func TestSentinelKeepsTheReaperFromBeingBlindButHidesNothingFromIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	post := r.post(r.store, berth.DefaultDetection())
	if got := r.watch(post); !got.Blind {
		t.Errorf("nobody has looked yet: %+v", got)
	}
	if tick := r.tick(); !tick.Blind {
		t.Error("the look of a blind sentinel counted")
	}
	r.exec("update berth.reaper_state set last_look_at = clock_timestamp() - interval '1900 ms'")
	if got := r.watch(post); got.Blind {
		t.Errorf("got %+v", got)
	}
	if age := read[float64](r, "select extract(epoch from clock_timestamp() - last_look_at)::float8 from berth.reaper_state"); age > 1 {
		t.Errorf("the look was not recorded: %v s", age)
	}
	before := read[time.Time](r, "select last_look_at from berth.reaper_state")
	if r.watch(post); !read[time.Time](r, "select last_look_at from berth.reaper_state").Equal(before) {
		t.Error("a look was recorded at once after another")
	}
	for name, change := range map[string]string{
		"the clock went back":     "update berth.reaper_state set last_look_at = clock_timestamp() + interval '1 hour'",
		"the clock went forward":  "update berth.reaper_state set last_look_at = clock_timestamp() - interval '1 hour'",
		"the server is another":   "update berth.reaper_state set server_start = server_start - interval '1 day'",
		"somebody distrusted all": "select berth.distrust()",
	} {
		r.exec(change)
		if got := r.watch(post); !got.Blind {
			t.Errorf("%s: %+v", name, got)
		}
		if tick := r.tick(); !tick.Blind {
			t.Errorf("%s: the sentinel hid it from the reaper", name)
		}
	}
}

func TestSentinelOfASweepRecordsNoLooks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tick()
	r.exec("update berth.reaper_state set last_look_at = clock_timestamp() - interval '1900 ms'")
	numbers := berth.DefaultDetection()
	numbers.Detector = berth.DetectSweep
	r.watch(r.post(r.store, numbers))
	if age := read[float64](r, "select extract(epoch from clock_timestamp() - last_look_at)::float8 from berth.reaper_state"); age < 1.9 {
		t.Errorf("recorded: %v s", age)
	}
}

// A sentinel waits for nobody: not even for who has the row locked in which it records.
func TestSentinelWaitsForNoLock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tick()
	post := r.post(r.store, berth.DefaultDetection())
	r.exec("update berth.reaper_state set last_look_at = clock_timestamp() - interval '1900 ms'")
	release := r.hold("select * from berth.reaper_state for update")
	defer release()
	r.watch(post)
}

func TestOneSentinelHasThePostAndTheNextTakesItOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	numbers := berth.DefaultDetection()
	numbers.Watch = time.Minute // nobody is in a hurry
	first, second := r.post(r.store, numbers), r.post(r.store, numbers)
	if !r.takes(first) || r.takes(second) || r.takes(second) {
		t.Error("the first did not get it, or the second did")
	}
	r.exec(`select pg_terminate_backend(pid, 5000) from pg_locks join pg_database d on d.oid = database
		where locktype = 'advisory' and classid::bigint = 1650815602 and objid = 2 and granted and datname = current_database()`)
	if !r.takes(second) {
		t.Error("the second did not get it")
	}
	if _, err := first.Take(t.Context()); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("the first goes on: %v", err)
	}
	if err := second.Close(t.Context()); err != nil {
		t.Error(err)
	}
	third := r.post(r.store, numbers)
	testkit.EventuallyTrue(t, 5*time.Second, "the third did not get it", func() bool { return r.takes(third) })
}

// A sentinel that is paused, or cut off, has its connection ended by Postgres.
func TestSentinelThatDoesNotLookLosesThePost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	way := testkit.NewNetwork(t, r.db)
	paused := r.post(openStore(t, r.db, postgres.Config{URL: way.URL}), berth.DefaultDetection())
	if !r.takes(paused) {
		t.Fatal("not taken")
	}
	way.Freeze()
	next, began := r.post(r.store, berth.DefaultDetection()), time.Now()
	testkit.EventuallyTrue(t, 20*time.Second, "the post did not come free", func() bool { return r.takes(next) })
	t.Logf("taken over after %v", time.Since(began))
}

// A reaper that is paused inside its tick, or cut off, holds nobody up, and ends its tick when it notices.
func TestReaperThatIsPausedLosesItsLock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	way := testkit.NewNetwork(t, r.db)
	store := openStore(t, r.db, postgres.Config{URL: way.URL})
	_, err := store.WithReaperLock(t.Context(), func(ctx context.Context) error {
		way.Freeze()
		began := time.Now()
		testkit.EventuallyTrue(t, 20*time.Second, "the lock did not come free", func() bool {
			ran, err := r.store.WithReaperLock(t.Context(), func(context.Context) error { return nil })
			return err == nil && ran
		})
		t.Logf("taken over after %v", time.Since(began))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Second):
			return errors.New("the paused one was not told")
		}
	})
	if !errors.Is(err, berth.ErrStale) {
		t.Errorf("got %v", err)
	}
}

func TestReaperThatWorksForLongKeepsItsLock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := openStore(t, r.db, postgres.Config{})
	ran, err := r.store.WithReaperLock(t.Context(), func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(3 * time.Second):
		}
		ran, err := other.WithReaperLock(ctx, func(context.Context) error { return nil })
		if ran {
			t.Error("another has it too")
		}
		return err
	})
	if err != nil || !ran {
		t.Errorf("ran %v, %v", ran, err)
	}
}
