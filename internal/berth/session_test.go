package berth_test

import (
	"testing"

	"github.com/berthdev/berth/internal/berth"
)

func TestStatesThatHoldSlotsAreLive(t *testing.T) {
	t.Parallel()
	for _, state := range []berth.SessionState{
		berth.SessionAssigned, berth.SessionActive, berth.SessionAwaitingRejoin, berth.SessionEnded,
	} {
		holds := state == berth.SessionAssigned || state == berth.SessionActive
		live := state != berth.SessionEnded
		if state.HoldsSlot() != holds || state.Live() != live {
			t.Errorf("%s: holds a slot %v, live %v", state, state.HoldsSlot(), state.Live())
		}
	}
}

func TestSpilledMeansOutsideTheRegionAskedFor(t *testing.T) {
	t.Parallel()
	for s, spilled := range map[[2]string]bool{
		{"eu", "us"}: true, {"eu", "eu"}: false, {"", "us"}: false, {"eu", ""}: false, {"", ""}: false,
	} {
		if got := (berth.Session{RequestedRegion: s[0], Region: s[1]}).Spilled(); got != spilled {
			t.Errorf("asked for %q, placed in %q: %v", s[0], s[1], got)
		}
	}
}

func TestFreeSlotsOfAWorker(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		worker berth.Worker
		free   int
	}{
		"ready":              {berth.Worker{State: berth.WorkerReady, Capacity: 4, Used: 1}, 3},
		"overfull":           {berth.Worker{State: berth.WorkerReady, Capacity: 2, Used: 3}, 0},
		"cordoned":           {berth.Worker{State: berth.WorkerReady, Capacity: 4, CordonedReason: berth.CordonLeaseLate}, 0},
		"draining":           {berth.Worker{State: berth.WorkerDraining, Capacity: 4}, 0},
		"starting":           {berth.Worker{State: berth.WorkerStarting, Capacity: 4}, 0},
		"lost":               {berth.Worker{State: berth.WorkerLost, Capacity: 4}, 0},
		"gone, nothing used": {berth.Worker{State: berth.WorkerGone, Capacity: 4}, 0},
	} {
		if got := test.worker.Free(); got != test.free {
			t.Errorf("%s: got %d", name, got)
		}
	}
}

func TestServingStates(t *testing.T) {
	t.Parallel()
	for state, serving := range map[berth.WorkerState]bool{
		berth.WorkerStarting: true, berth.WorkerReady: true, berth.WorkerDraining: true,
		berth.WorkerGone: false, berth.WorkerLost: false, "": false,
	} {
		if state.Serving() != serving {
			t.Errorf("%q: got %v", state, !serving)
		}
	}
}
