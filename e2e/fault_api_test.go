package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/testkit"
)

// TestPausedAPIHoldsNobodyUpAndPlacesNothingTwice pauses API processes in turn at random moments of many starts. The
// clients ask elsewhere after a second; what the paused process had begun happens when it wakes, or never.
func TestPausedAPIHoldsNobodyUpAndPlacesNothingTwice(t *testing.T) {
	t.Parallel()
	pauseAPIs(t, 8)
}

// pauseAPIs makes so many pauses, one after another.
func pauseAPIs(t *testing.T, pauses int) {
	t.Helper()
	const shortest, longest = 100 * time.Millisecond, 1500 * time.Millisecond
	c := newCity(t, cityPlan{apis: 3, workers: 2, slots: 2000, api: []string{"BERTH_CONNECT_WINDOW=10m"}})
	l := c.begin(t, loadPlan{clients: 8, timeout: time.Second, keep: 5})
	l.warm(t)
	random := testkit.Rand(t)
	var slowest time.Duration
	for i := range pauses {
		after(time.Duration(random.Int64N(int64(200 * time.Millisecond)))) // any point of a claim
		victim := c.apis[i%len(c.apis)]
		victim.signal(syscall.SIGSTOP)
		paused := time.Now()
		eventually(t, func() error { return l.startedSince(paused.Add(10 * time.Millisecond)) }) // not one that was on its way
		slowest = max(slowest, time.Since(paused))
		after(shortest + time.Duration(random.Int64N(int64(longest-shortest))))
		victim.signal(syscall.SIGCONT)
	}
	l.end(t)
	t.Logf("%d pauses; the slowest first start by another API process after one took %.2f s", pauses, slowest.Seconds())
	if slowest > 2*time.Second {
		t.Errorf("nobody claimed for %v", slowest)
	}
	c.ticked(t, settled)
	c.checkKept(t, l)
	if lost := c.losses(t); len(lost) > 0 {
		t.Errorf("declared lost: %s", strings.Join(lost, "; "))
	}
	c.nobodyEnded(t)
}

// checkKept compares what clients were told with the table. A start whose client had given up on it may have come after
// the end of its session: it is a session that nobody comes to, which its connect window ends.
func (c *city) checkKept(t testing.TB, l *load) {
	t.Helper()
	live, err := c.texts(t.Context(), `select format('%s %s %s', id, worker_id, generation) from berth.sessions where state = 'assigned'`)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, row := range live {
		id, owner, _ := strings.Cut(row, " ")
		if other, twice := rows[id]; twice {
			t.Errorf("session %s is at %s and at %s", id, other, owner)
		}
		rows[id] = owner
	}
	for id, told := range l.kept {
		if want := fmt.Sprint(told.Owner.WorkerID, " ", told.Generation); rows[id] != want {
			t.Errorf("session %s: the client was told %q, the table says %q", id, want, rows[id])
		}
		delete(rows, id)
	}
	t.Logf("%d sessions are where their clients were told; %d were started by calls that their clients had given up", len(l.kept), len(rows))
	if used := c.used(t); used != len(live) {
		t.Errorf("%d slots are taken for %d sessions", used, len(live))
	}
}
