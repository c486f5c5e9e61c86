package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
)

// ended ends the sessions as if it had been a while ago.
func (r *rig) ended(age time.Duration, sessions ...string) {
	r.Helper()
	for _, id := range sessions {
		_, err := r.store.EndSession(r.Context(), "t1", id)
		r.ok(err)
		r.exec("update berth.sessions set ended_at = clock_timestamp() - $2::interval where id = $1 and state = 'ended'", id, age)
	}
}

// retryAfter is what a process that was just started suggests to a start in the region, and to the next.
func (r *rig) retryAfter(region string) [2]time.Duration {
	r.Helper()
	store, hints := openStore(r.T, r.db, postgres.Config{}), [2]time.Duration{}
	for i := range hints {
		s := start(fmt.Sprint("refused", i))
		s.Region, s.Spill = region, region == ""
		_, err := store.Place(r.Context(), s)
		hints[i] = r.refused(berth.CodeAtCapacity, err).RetryAfter
	}
	return hints
}

// suggests expects waits for the first and the second who are refused, give or take the time that the test takes.
func (r *rig) suggests(region string, first, second time.Duration) {
	r.Helper()
	hints := r.retryAfter(region)
	for i, want := range []time.Duration{first, second} {
		if got := hints[i]; got < want || got > want+want/2 {
			r.Errorf("region %q, refusal %d: wait %v, want %v", region, i+1, got, want)
		}
	}
}

func TestRetryAfterFollowsTheSlotsThatCameFree(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.region("us")
	l.worker("w-eu", 12)
	l.workerIn("us", "w-us", 1)
	in := func(region, id string, slots int) berth.Start {
		s := start(id)
		s.Region, s.Spill, s.Slots = region, false, slots
		return s
	}
	l.place(in("us", "stays", 1))
	l.place(in("eu", "heavy", 4))
	for _, id := range ids("s", 8) {
		l.place(in("eu", id, 1))
	}
	for _, region := range []string{"eu", "us", ""} {
		l.suggests(region, 5*time.Second, 5*time.Second) // nothing came free yet
	}
	l.ended(2*time.Minute, "s000") // too long ago
	l.ended(20*time.Second, "s001", "heavy")
	for _, id := range ids("more", 6) {
		l.place(in("eu", id, 1))
	}
	// Five slots in the last twenty seconds.
	l.suggests("eu", 4*time.Second, 8*time.Second)
	l.suggests("", 4*time.Second, 8*time.Second)
	l.suggests("us", 5*time.Second, 5*time.Second)

	l.join(in("eu", "waits", 1), 30*time.Second)
	l.join(in("eu", "waits too", 1), 30*time.Second)
	l.suggests("eu", 12*time.Second, 16*time.Second)
	l.ended(0, "s002")
	l.expectNext("waits")
	l.ended(0, "s003")
	l.expectNext("waits too")
}
