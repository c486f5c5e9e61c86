package jobs_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

func TestEveryTickWarmsAndEveryTenthSecondJudges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		reaper, _ := newReaper(t, store, cannedProber(berth.ProbeAlive))
		ticks(t, reaper, 25*time.Second)
		if store.warmed != 25 {
			t.Errorf("warmed at %d of 25 ticks", store.warmed)
		}
		if got := strings.Join(store.judged, ", "); got != "10m0s 5, 10m0s 5, 10m0s 5" {
			t.Errorf("judged %s", got)
		}
	})
}

func TestSuspectsAreLoggedWhenTheyComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.suspicions = []berth.Suspicion{{WorkerID: "bad", Suspect: true, Faults: 9}, {WorkerID: "better", Faults: 1}}
		var lines strings.Builder
		logger := slog.New(slog.NewTextHandler(&lines, nil))
		reaper, _ := newReaperOf(t, detection, store, cannedProber(berth.ProbeAlive), nil, logger)
		tick(t, reaper)
		for _, want := range []string{
			`level=WARN msg="worker suspect" worker_id=bad faults=9`, `level=INFO msg="worker cleared" worker_id=better faults=1`,
		} {
			if !strings.Contains(lines.String(), want) {
				t.Errorf("no line %s in\n%s", want, &lines)
			}
		}
	})
}
